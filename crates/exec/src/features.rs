//! What a sub-plan does with a slice, in the terms that costs are kept in.

use std::collections::BTreeMap;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::{Expr, LogicalPlan};
use pithead_functions::{call_ns, physical_call_ns};
use pithead_policy::Features;

use crate::level::{Filtered, Waiting};
use crate::pruning::Conjunct;
use crate::table::TablePart;

/// Comparisons that a search in text counts for.
const TEXT_SEARCH: f64 = 12.0;
/// Bytes of a text or another value of no fixed width, where nothing else is known.
const TEXT_BYTES: f64 = 24.0;
/// Groups of an aggregate of which nothing is known.
const GROUPS: f64 = 1000.0;

/// Of one slice, on average over those that wait. `expected`: rows and bytes of the whole answer; `calls`: what users' functions take for
/// a row, as the host says.
pub(crate) fn features(
    plan: &LogicalPlan,
    part: &TablePart,
    filtered: &Filtered,
    waiting: &Waiting,
    (expected, calls): (Option<(f64, f64)>, &BTreeMap<String, f64>),
) -> Result<Features> {
    let slices = f64::from(waiting.slices.max(1));
    let rows = waiting.rows as f64 / slices;
    let pass: f64 = filtered.conditions.iter().map(|condition| part.facts.selectivity(condition)).product();
    let read: Vec<usize> = filtered.columns(&part.schema);
    let mut found = Features {
        rows,
        stored_bytes: waiting.bytes as f64 / slices,
        hint_bytes: waiting.bytes as f64 / slices * share_of(&part.schema, &read),
        decoded_bytes: rows * read.iter().map(|column| width(part.schema.field(*column).data_type())).sum::<f64>(),
        predicates: filtered.conditions.iter().map(|condition| weight(&condition.expr.to_string())).sum(),
        pass,
        out_bytes_per_row: row_bytes(&filtered.schema),
        scan_calls_ns: calls_of(&filtered.conditions, part, calls),
        ..Features::default()
    };
    plan.apply_with_subqueries(|node| {
        if !matches!(node, LogicalPlan::TableScan(_)) {
            found.rest_calls_ns += node.expressions().iter().map(|expr| call_ns(expr, calls)).sum::<f64>();
        }
        match node {
            LogicalPlan::Aggregate(aggregate) => {
                found.functions += aggregate.aggr_expr.len() as f64;
                let groups = expected.map_or(GROUPS, |(rows, _)| rows).max(1.0);
                found.groups = if aggregate.group_expr.is_empty() { found.groups } else { groups };
            }
            LogicalPlan::Distinct(_) => found.groups = expected.map_or(GROUPS, |(rows, _)| rows).max(1.0),
            LogicalPlan::Join(_) => found.joins += 1.0,
            LogicalPlan::Sort(sort) => found.top_k |= sort.fetch.is_some(),
            LogicalPlan::Filter(filter) => found.predicates += filter.predicate.column_refs().len() as f64,
            LogicalPlan::Projection(projection) => {
                found.expressions += projection.expr.iter().filter(|expr| !is_column(expr)).count() as f64;
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let (answer_rows, answer_bytes) =
        expected.unwrap_or((rows * pass * slices, rows * pass * slices * found.out_bytes_per_row));
    (found.result_rows, found.result_bytes) = (answer_rows / slices, answer_bytes / slices);
    Ok(found)
}

/// What users' functions take for a row, where a condition is asked only of rows that those before it let through.
fn calls_of(conditions: &[Conjunct], part: &TablePart, calls: &BTreeMap<String, f64>) -> f64 {
    let (mut share, mut ns) = (1.0, 0.0);
    for condition in conditions {
        ns += share * physical_call_ns(&condition.expr, calls);
        share *= part.facts.selectivity(condition);
    }
    ns
}

/// The share of a slice's bytes that these of its columns have, by their widths alone. Which pages may match is not known yet.
fn share_of(schema: &Schema, columns: &[usize]) -> f64 {
    let bytes: f64 = columns.iter().map(|column| width(schema.field(*column).data_type())).sum();
    (bytes / row_bytes(schema).max(1.0)).min(1.0)
}

/// Bytes of a row as Arrow, about.
fn row_bytes(schema: &Schema) -> f64 {
    schema.fields().iter().map(|field| width(field.data_type())).sum()
}

fn width(data_type: &DataType) -> f64 {
    data_type.primitive_width().map_or(TEXT_BYTES, |bytes| bytes as f64)
}

fn weight(condition: &str) -> f64 {
    if condition.contains("LIKE") || condition.contains('~') { TEXT_SEARCH } else { 1.0 }
}

fn is_column(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) => true,
        Expr::Alias(alias) => is_column(&alias.expr),
        _ => false,
    }
}
