//! A plan's meaning as text, to tell whether two plans are the same.
//!
//! Columns are written as what they are computed from, so that aliases, qualifiers, names and projections do not count;
//! the conditions of a filter or join are a set. Literals, casts and the columns of scans carry their types.

use std::collections::BTreeSet;
use std::fmt::Write;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, JoinType, NullEquality, Result, not_impl_err};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Aggregate, Between, BinaryExpr, Distinct, Expr, Join, Like, LogicalPlan, Operator, SortExpr};

use crate::literal::text;

/// The text of a plan. Plans with equal texts give equal bags of rows.
pub(crate) fn canonical(plan: &LogicalPlan) -> Result<String> {
    let mut scans = 0;
    let relation = relation(plan, &mut scans)?;
    let types: Vec<String> = plan.schema().fields().iter().map(|field| field.data_type().to_string()).collect();
    Ok(format!("{} => {} : {}", relation.text(), relation.columns.join(", "), types.join(", ")))
}

/// A relation: what its rows are, the conditions on them, and what its columns are computed from.
struct Relation {
    rows: String,
    conditions: BTreeSet<String>,
    columns: Vec<String>,
}

impl Relation {
    fn text(&self) -> String {
        if self.conditions.is_empty() {
            return self.rows.clone();
        }
        let conditions: Vec<&str> = self.conditions.iter().map(String::as_str).collect();
        format!("filter({}; {})", self.rows, conditions.join(" & "))
    }

    /// A new relation over this one, with columns of its own.
    fn derived(rows: String, columns: Vec<String>) -> Relation {
        Relation { rows, conditions: BTreeSet::new(), columns }
    }
}

fn relation(plan: &LogicalPlan, scans: &mut usize) -> Result<Relation> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            *scans += 1;
            let number = *scans;
            let column = |(i, name): (usize, &str)| format!("{number}.{name}:{}", scan.projected_schema.field(i).data_type());
            let names = scan.projected_schema.fields().iter().map(|field| field.name().as_str());
            let columns = names.enumerate().map(column).collect();
            let source = DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?;
            let all: Vec<String> =
                source.fields().iter().map(|field| format!("{number}.{}:{}", field.name(), field.data_type())).collect();
            let conditions = conditions(scan.filters.iter(), &source, &all)?;
            let rows = format!(
                "scan({number}: {}{})",
                scan.table_name,
                scan.fetch.map(|n| format!(", fetch {n}")).unwrap_or_default()
            );
            Ok(Relation { rows, conditions, columns })
        }
        LogicalPlan::SubqueryAlias(alias) => relation(&alias.input, scans),
        LogicalPlan::Projection(projection) => {
            let input = relation(&projection.input, scans)?;
            let columns = exprs(&projection.expr, projection.input.schema(), &input.columns)?;
            Ok(Relation { columns, ..input })
        }
        LogicalPlan::Filter(filter) => {
            let mut input = relation(&filter.input, scans)?;
            let more = conditions(split_conjunction(&filter.predicate), filter.input.schema(), &input.columns)?;
            input.conditions.extend(more);
            Ok(input)
        }
        LogicalPlan::Aggregate(aggregate) => aggregate_relation(aggregate, scans),
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let input = relation(input, scans)?;
            let rows = format!("aggregate({}; {}; )", input.text(), input.columns.join(", "));
            Ok(Relation::derived(rows, input.columns))
        }
        LogicalPlan::Join(join) => join_relation(join, scans),
        LogicalPlan::Sort(sort) => {
            let input = relation(&sort.input, scans)?;
            let keys = sort_keys(&sort.expr, sort.input.schema(), &input.columns)?;
            let sorted = format!("sort({}; {keys})", input.text());
            let rows = sort.fetch.map_or_else(|| sorted.clone(), |n| format!("limit({sorted}; 0, Int64({n}))"));
            Ok(Relation::derived(rows, input.columns))
        }
        LogicalPlan::Limit(limit) => {
            let input = relation(&limit.input, scans)?;
            let part = |expr: &Option<Box<Expr>>| expr.as_ref().map_or_else(|| "0".to_owned(), |expr| expr.to_string());
            let skip = part(&limit.skip).replace("Int64(0)", "0");
            Ok(Relation::derived(format!("limit({}; {skip}, {})", input.text(), part(&limit.fetch)), input.columns))
        }
        other => not_impl_err!("{} does not travel", other.display()),
    }
}

fn aggregate_relation(aggregate: &Aggregate, scans: &mut usize) -> Result<Relation> {
    let input = relation(&aggregate.input, scans)?;
    let groups = exprs(&aggregate.group_expr, aggregate.input.schema(), &input.columns)?;
    let measures = exprs(&aggregate.aggr_expr, aggregate.input.schema(), &input.columns)?;
    let rows = format!("aggregate({}; {}; {})", input.text(), groups.join(", "), measures.join(", "));
    let columns = groups.into_iter().chain(measures).collect();
    Ok(Relation::derived(rows, columns))
}

fn join_relation(join: &Join, scans: &mut usize) -> Result<Relation> {
    let left = relation(&join.left, scans)?;
    let right = relation(&join.right, scans)?;
    let columns: Vec<String> = left.columns.iter().chain(&right.columns).cloned().collect();
    let schema = join.left.schema().join(join.right.schema())?;
    let equal = match join.null_equality {
        NullEquality::NullEqualsNothing => Operator::Eq,
        NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
    };
    let mut on = BTreeSet::new();
    for (left_key, right_key) in &join.on {
        on.insert(condition(
            &Expr::BinaryExpr(BinaryExpr::new(Box::new(left_key.clone()), equal, Box::new(right_key.clone()))),
            &schema,
            &columns,
        )?);
    }
    if let Some(filter) = &join.filter {
        on.extend(conditions(split_conjunction(filter), &schema, &columns)?);
    }
    let conditions: Vec<&str> = on.iter().map(String::as_str).collect();
    let aware = if join.null_aware { ", null-aware" } else { "" };
    let rows = format!("join({:?}{aware}; {}; {}; {})", join.join_type, left.text(), right.text(), conditions.join(" & "));
    let columns = match join.join_type {
        JoinType::LeftSemi | JoinType::LeftAnti => left.columns,
        JoinType::RightSemi | JoinType::RightAnti => right.columns,
        JoinType::LeftMark => with_mark(left.columns),
        JoinType::RightMark => with_mark(right.columns),
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => columns,
    };
    Ok(Relation::derived(rows, columns))
}

fn with_mark(mut columns: Vec<String>) -> Vec<String> {
    columns.push("mark".to_owned());
    columns
}

fn sort_keys(keys: &[SortExpr], schema: &DFSchema, columns: &[String]) -> Result<String> {
    let mut text = String::new();
    for key in keys {
        let order = if key.asc { "asc" } else { "desc" };
        let nulls = if key.nulls_first { "nulls first" } else { "nulls last" };
        let _ = write!(text, "{} {order} {nulls}, ", expression(&key.expr, schema, columns)?);
    }
    Ok(text)
}

fn conditions<'a>(
    parts: impl IntoIterator<Item = &'a Expr>,
    schema: &DFSchema,
    columns: &[String],
) -> Result<BTreeSet<String>> {
    let mut set = BTreeSet::new();
    for part in parts {
        for part in split_conjunction(part) {
            match part.clone().unalias() {
                Expr::Between(between) if !between.negated => {
                    let (low, high) = bounds(between);
                    set.insert(condition(&low, schema, columns)?);
                    set.insert(condition(&high, schema, columns)?);
                }
                part => {
                    set.insert(condition(&part, schema, columns)?);
                }
            }
        }
    }
    Ok(set)
}

fn bounds(between: Between) -> (Expr, Expr) {
    let low = Expr::BinaryExpr(BinaryExpr::new(between.expr.clone(), Operator::GtEq, between.low));
    (low, Expr::BinaryExpr(BinaryExpr::new(between.expr, Operator::LtEq, between.high)))
}

/// A condition; the sides of an equality in the order of their texts.
fn condition(expr: &Expr, schema: &DFSchema, columns: &[String]) -> Result<String> {
    if let Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Eq | Operator::IsNotDistinctFrom), right }) = expr {
        let mut sides = [expression(left, schema, columns)?, expression(right, schema, columns)?];
        sides.sort();
        return Ok(format!("{} {op} {}", sides[0], sides[1]));
    }
    expression(expr, schema, columns)
}

fn exprs(list: &[Expr], schema: &DFSchema, columns: &[String]) -> Result<Vec<String>> {
    list.iter().map(|expr| expression(expr, schema, columns)).collect()
}

/// An expression with its columns written as what they are computed from.
fn expression(expr: &Expr, schema: &DFSchema, columns: &[String]) -> Result<String> {
    let rewritten = expr.clone().transform_up(|expr| {
        Ok(match expr {
            Expr::Column(column) => {
                let index = schema.index_of_column(&column)?;
                let text = columns.get(index).cloned().unwrap_or_default();
                Transformed::yes(Expr::Column(Column::new_unqualified(text)))
            }
            Expr::Alias(alias) => Transformed::yes(*alias.expr),
            Expr::Between(between) if !between.negated => {
                let (low, high) = bounds(between);
                Transformed::yes(low.and(high))
            }
            Expr::Not(inner) => match *inner {
                Expr::Like(like) => Transformed::yes(Expr::Like(Like { negated: !like.negated, ..like })),
                Expr::InList(mut list) => {
                    list.negated = !list.negated;
                    Transformed::yes(Expr::InList(list))
                }
                Expr::IsNull(inner) => Transformed::yes(Expr::IsNotNull(inner)),
                inner => Transformed::no(Expr::Not(Box::new(inner))),
            },
            other => Transformed::no(other),
        })
    })?;
    Ok(text(rewritten.data))
}
