//! Operators as text, for people. A constant may have a megabyte, and DataFusion writes all of it wherever it writes an
//! expression.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::logical_expr::{Expr, LogicalPlan, lit};
use pithead_model::RESERVED;
use xxhash_rust::xxh3::xxh3_128;

/// The most bytes of a literal that is written in full.
const WHOLE: usize = 128;

/// An operator's text, without what is below it. It shows a long literal as its type, length and hash, so that
/// different literals look different.
pub fn shown(plan: &LogicalPlan) -> String {
    let text = |plan: &LogicalPlan| without_own_names(&plan.display().to_string());
    if !has_long(plan) {
        return text(plan);
    }
    let short = plan.clone().map_expressions(spelt_out);
    short.map_or_else(|_| text(plan), |short| text(&short.data))
}

/// A merge of the drives' parts as one operator, and what it reads: the aggregate over parts and the projection that finishes it
/// bear names that the planner made up. None: the plan is no merge.
pub fn shown_merge(plan: &LogicalPlan) -> Option<(String, &LogicalPlan)> {
    let LogicalPlan::Projection(finish) = plan else { return None };
    let LogicalPlan::Aggregate(merge) = finish.input.as_ref() else { return None };
    let is_own = |name: &str| name.starts_with(RESERVED);
    let grouped = merge.group_expr.iter().all(|expr| matches!(expr, Expr::Column(column) if is_own(&column.name)));
    // Parts of groups that were made before a join are merged by other groups.
    let grouped = grouped || !merge.aggr_expr.is_empty();
    let merged = merge.aggr_expr.iter().all(|expr| matches!(expr, Expr::Alias(alias) if is_own(&alias.name)));
    let names: Vec<String> = finish.schema.columns().iter().map(Column::flat_name).collect();
    if !(grouped && merged) || names.len() < merge.group_expr.len() {
        return None;
    }
    let (groups, aggregates) = names.split_at(merge.group_expr.len());
    let text = format!("Merge: groupBy=[[{}]], aggr=[[{}]]", groups.join(", "), aggregates.join(", "));
    Some((text.replace(RESERVED, ""), merge.input.as_ref()))
}

/// The text without `AS` and a name that the planner made up; elsewhere such a name loses what tells it from others.
fn without_own_names(text: &str) -> String {
    let alias = format!(" AS {RESERVED}");
    let mut parts = text.split(alias.as_str());
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        shown.push_str(part.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_'));
    }
    shown.replace(RESERVED, "")
}

fn has_long(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let looked = plan.apply_expressions(|expr| {
        expr.apply(|expr| {
            found |= matches!(expr, Expr::Literal(value, _) if named(value).is_some());
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    });
    found && looked.is_ok()
}

fn spelt_out(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| {
        Ok(match &expr {
            Expr::Literal(value, _) => match named(value) {
                Some(name) => Transformed::yes(lit(name)),
                None => Transformed::no(expr),
            },
            _ => Transformed::no(expr),
        })
    })
}

/// The text for a long literal.
fn named(value: &ScalarValue) -> Option<String> {
    let bytes = match value {
        ScalarValue::Binary(Some(bytes)) | ScalarValue::LargeBinary(Some(bytes)) | ScalarValue::BinaryView(Some(bytes)) => {
            bytes
        }
        ScalarValue::Utf8(Some(text)) | ScalarValue::LargeUtf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => {
            text.as_bytes()
        }
        _ => return None,
    };
    let is_long = bytes.len() > WHOLE;
    is_long.then(|| format!("{} of {} bytes, {:032x}", value.data_type(), bytes.len(), xxh3_128(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::logical_expr::{LogicalPlanBuilder, col};

    #[test]
    fn operators_are_shown_alike_with_short_literals_and_briefly_with_long_ones() {
        let values = LogicalPlanBuilder::values(vec![vec![lit("a")]]).unwrap();
        let plan = |text: &str| values.clone().filter(col("column1").eq(lit(text))).unwrap().build().unwrap();
        assert_eq!(shown(&plan("x")), plan("x").display().to_string());
        let long = shown(&plan(&"x".repeat(1_000)));
        assert!(long.starts_with("Filter: column1 = Utf8(\"Utf8 of 1000 bytes, "), "{long}");
    }
}
