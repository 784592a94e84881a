//! Values that a statement's conditions hang on, found by queries that run first: the keys of a MERGE's source, what subqueries of a
//! DELETE or an UPDATE give. Beside these, conditions are about a row's own columns alone, and drives can say of each of their rows
//! whether it goes.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result as DataFusionResult, ScalarValue};
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::logical_expr::expr::{Exists, InList, InSubquery};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    BinaryExpr, Distinct, Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, binary_expr, lit,
    when,
};
use futures::TryStreamExt;
use pithead_functions::fault_from_datafusion;
use pithead_model::{Blame, Fault, FaultKind, RESERVED};
use pithead_plan::columns_around;

use super::merging::Merge;
use super::{KEYS_FIRST, Writer, only};

/// Keys of a statement at most. Where there are more, all rows of the table are written anew.
const KEYS_MAX: usize = 65_536;
/// How rows that are too many to be kept are had again and again.
const ROWS_FIRST: &str = "write them into a table first: CREATE TABLE … AS SELECT …, and name that table in their place";
/// The aggregates that give what is first or last of their rows, or all of them in their order.
const IN_ORDER: [&str; 5] = ["array_agg", "first_value", "last_value", "nth_value", "string_agg"];

impl Writer<'_> {
    /// A condition that holds for each row of the table that rows of the source are about, and maybe for others; none where keys do not
    /// tell, or where there are too many.
    pub(super) async fn about(&self, merge: &Merge) -> Result<Option<Expr>, Fault> {
        let Some(keys) = merge.keys() else { return Ok(None) };
        let mut about: Option<Expr> = None;
        for (column, of_source) in keys {
            let Ok(to) = column.get_type(merge.target().schema()) else { return Ok(None) };
            let Some(found) = self.values(merge.source().clone(), of_source, &to).await? else { return Ok(None) };
            let is_key = InList { expr: Box::new(column), list: found.fitting.into_iter().map(lit).collect(), negated: false };
            let is_key = if is_key.list.is_empty() { lit(false) } else { Expr::InList(is_key) };
            about = Some(match about {
                Some(about) => binary_expr(about, Operator::And, is_key),
                None => is_key,
            });
        }
        Ok(about)
    }

    /// Which rows a predicate asks for. What its subqueries give stands in their place, unless one hangs on the row, or gives too much.
    pub(super) async fn wanted(&self, predicate: Expr, schema: &DFSchema) -> Result<Wanted, Fault> {
        let alone = has_subquery(&predicate);
        let known = if alone { self.resolved(&predicate, schema).await? } else { None };
        Ok(Wanted { predicate: known.unwrap_or(predicate), alone })
    }

    /// What is wanted, for the same rows each time that it is asked. The parts of its subqueries that might give other rows
    /// are read here, once; an error where one of them hangs on the row.
    pub(super) async fn chosen_once(&self, scan: &LogicalPlan, wanted: Wanted) -> Result<Wanted, Fault> {
        let asked = only(scan.clone(), &wanted)?;
        let mut read: Vec<(LogicalPlan, LogicalPlan)> = Vec::new();
        for part in unsettled_parts(&asked).map_err(fault_from_datafusion)? {
            let rows = self.read_once(&part, read.len()).await?;
            read.push((part, rows));
        }
        let put = asked.transform_down_with_subqueries(|node| {
            let rows = read.iter().find(|(part, _)| *part == node).map(|(_, rows)| rows.clone());
            Ok(rows.map_or_else(|| Transformed::no(node), |rows| Transformed::new(rows, true, TreeNodeRecursion::Jump)))
        });
        let LogicalPlan::Filter(Filter { predicate, .. }) = put.data().map_err(fault_from_datafusion)? else {
            return Err(Fault::bug("the rows that a statement is about are not filtered"));
        };
        let wanted = Wanted { predicate, ..wanted };
        wanted.check_settled()?;
        Ok(wanted)
    }

    /// A plan that gives the same rows each time: those of one that might give others are read here, once.
    pub(super) async fn settled(&self, plan: &LogicalPlan) -> Result<LogicalPlan, Fault> {
        match is_settled(plan).map_err(fault_from_datafusion)? {
            true => Ok(plan.clone()),
            false => self.read_once(plan, 0).await,
        }
    }

    /// The rows of a plan as a table, which has a number of its own within the statement. They count as memory of the host's statements
    /// until this one ends.
    async fn read_once(&self, plan: &LogicalPlan, number: usize) -> Result<LogicalPlan, Fault> {
        let schema = Arc::clone(plan.schema().inner());
        let mut rows = self.rows(plan.clone(), &schema).await?;
        let mut batches = Vec::new();
        while let Some(batch) = rows.try_next().await? {
            if !self.query.kept.add(&batch) {
                let message =
                    "the rows that a statement reads once, and chooses from, take more memory than the host's statements have";
                return Err(Fault::new(Blame::Limit, message).of_kind(FaultKind::Memory).hint(ROWS_FIRST));
            }
            batches.push(batch);
        }
        table_of(plan, batches, number).map_err(fault_from_datafusion)
    }

    /// A predicate with what its subqueries give in their place; none where one hangs on the row, or gives too much.
    async fn resolved(&self, predicate: &Expr, schema: &DFSchema) -> Result<Option<Expr>, Fault> {
        let mut subqueries = Vec::new();
        let _ = predicate.apply(|part| {
            if is_subquery(part) {
                subqueries.push(part.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        });
        let mut known: Vec<(Expr, Expr)> = Vec::with_capacity(subqueries.len());
        for subquery in subqueries {
            let Some(value) = self.given(&subquery, schema).await? else { return Ok(None) };
            known.push((subquery, value));
        }
        let put = predicate.clone().transform_down(|part| {
            let value = known.iter().find(|(subquery, _)| *subquery == part).map(|(_, value)| value.clone());
            Ok(value.map_or_else(|| Transformed::no(part), Transformed::yes))
        });
        put.data().map(Some).map_err(fault_from_datafusion)
    }

    /// What stands for a subquery once it has run.
    async fn given(&self, subquery: &Expr, schema: &DFSchema) -> Result<Option<Expr>, Fault> {
        match subquery {
            Expr::InSubquery(InSubquery { expr, subquery, negated }) if is_alone(subquery)? && !has_subquery(expr) => {
                let plan = LogicalPlan::clone(&subquery.subquery);
                let columns = plan.schema().columns();
                let (Ok(to), [column]) = (expr.get_type(schema), columns.as_slice()) else { return Ok(None) };
                let Some(found) = self.values(plan, Expr::Column(column.clone()), &to).await? else { return Ok(None) };
                let list: Vec<Expr> = found.fitting.into_iter().map(lit).collect();
                Ok(Some(match (list.is_empty(), found.is_empty) {
                    (true, true) => lit(*negated),
                    // Whether NULL is among values, whichever they are, is not known.
                    (true, false) => when(expr.as_ref().clone().is_null(), lit(ScalarValue::Boolean(None)))
                        .otherwise(lit(*negated))
                        .map_err(fault_from_datafusion)?,
                    (false, _) => Expr::InList(InList { expr: expr.clone(), list, negated: *negated }),
                }))
            }
            Expr::ScalarSubquery(inner) | Expr::Exists(Exists { subquery: inner, .. }) if is_alone(inner)? => {
                let plan = LogicalPlanBuilder::empty(true).project([subquery.clone().alias("given")]);
                let plan = plan.and_then(LogicalPlanBuilder::build).map_err(fault_from_datafusion)?;
                let values = self.first_column(plan).await?;
                Ok(<[ScalarValue; 1]>::try_from(values).ok().map(|[value]| lit(value)))
            }
            _ => Ok(None),
        }
    }

    /// The distinct values of an expression over the rows of a plan, as a column of type `to` has them; none where their equality is
    /// not that of the column's, or where there are too many.
    async fn values(&self, plan: LogicalPlan, of: Expr, to: &DataType) -> Result<Option<Values>, Fault> {
        let Ok(from) = of.get_type(plan.schema()) else { return Ok(None) };
        if !is_comparable(&from, to) {
            return Ok(None);
        }
        let distinct = LogicalPlanBuilder::from(plan)
            .project([of.alias("key")])
            .and_then(LogicalPlanBuilder::distinct)
            .and_then(|plan| plan.limit(0, Some(KEYS_MAX + 1)))
            .and_then(LogicalPlanBuilder::build);
        let found = self.first_column(distinct.map_err(fault_from_datafusion)?).await?;
        if found.len() > KEYS_MAX {
            return Ok(None);
        }
        // What the column cannot hold is equal to none of its values.
        let held = found.iter().filter_map(|value| value.cast_to(to).ok().filter(|held| held.is_null() == value.is_null()));
        let fitting = held.collect::<HashSet<_>>().into_iter().collect();
        Ok(Some(Values { fitting, is_empty: found.is_empty() }))
    }

    async fn first_column(&self, plan: LogicalPlan) -> Result<Vec<ScalarValue>, Fault> {
        let fields = plan.schema().fields().iter().map(|field| Arc::new(Field::clone(field).with_nullable(true)));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let mut rows = self.rows(plan, &schema).await?;
        let mut values = Vec::new();
        while let Some(batch) = rows.try_next().await? {
            for row in 0..batch.num_rows() {
                values.push(ScalarValue::try_from_array(batch.column(0), row).map_err(fault_from_datafusion)?);
            }
        }
        Ok(values)
    }
}

/// What a subquery gives, beside a column.
struct Values {
    /// Those that the column can hold, with NULL where it is among them.
    fitting: Vec<ScalarValue>,
    /// Whether there is none at all, not even one that the column cannot hold.
    is_empty: bool,
}

/// Rows that a statement is about.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) predicate: Expr,
    /// Whether it came from other rows, those of the table among them: rows that come meanwhile might be wanted, too.
    pub(super) alone: bool,
}

impl Wanted {
    /// An error where the predicate may hold for other rows each time that it is asked.
    fn check_settled(&self) -> Result<(), Fault> {
        let settled = |expr: &Expr| match expr {
            Expr::ScalarSubquery(subquery) => is_settled(&subquery.subquery),
            Expr::InSubquery(InSubquery { subquery, .. }) | Expr::Exists(Exists { subquery, .. }) => {
                is_settled(&subquery.subquery)
            }
            Expr::SetComparison(comparison) => is_settled(&comparison.subquery.subquery),
            expr => Ok(!expr.is_volatile_node()),
        };
        if !self.predicate.exists(|part| Ok(!settled(part)?)).map_err(fault_from_datafusion)? {
            return Ok(());
        }
        let fault = Fault::new(
            Blame::Unsupported,
            "an UPDATE, or a DELETE with RETURNING, whose condition has random values, or a LIMIT, a window or a \
             DISTINCT ON in a subquery that hangs on the row",
        );
        Err(fault.hint(KEYS_FIRST))
    }
}

/// Whether a plan gives the same rows each time. Which of equal rows a LIMIT takes, which of them a window counts first and
/// which one stands for others hangs on the order in which they come.
fn is_settled(plan: &LogicalPlan) -> DataFusionResult<bool> {
    let mut settled = true;
    plan.apply_with_subqueries(|node| {
        settled &= !matches!(node, LogicalPlan::Limit(_) | LogicalPlan::Window(_) | LogicalPlan::Distinct(Distinct::On(_)));
        node.apply_expressions(|expr| {
            settled &= !expr.exists(|part| Ok(part.is_volatile_node() || takes_in_order(part)))?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(settled)
}

fn takes_in_order(expr: &Expr) -> bool {
    matches!(expr, Expr::AggregateFunction(call) if IN_ORDER.contains(&call.func.name()))
}

/// The parts of a plan's subqueries that might give other rows each time, and hang on no row outside of them. None is within
/// another.
fn unsettled_parts(plan: &LogicalPlan) -> DataFusionResult<Vec<LogicalPlan>> {
    let mut parts: Vec<LogicalPlan> = Vec::new();
    for subquery in subqueries(plan)? {
        subquery.apply_with_subqueries(|node| {
            if is_settled(node)? {
                return Ok(TreeNodeRecursion::Jump);
            }
            if matches!(node, LogicalPlan::Subquery(_)) || !stands_alone(node)? {
                return Ok(TreeNodeRecursion::Continue);
            }
            if !parts.contains(node) {
                parts.push(node.clone());
            }
            Ok(TreeNodeRecursion::Jump)
        })?;
    }
    Ok(parts)
}

/// The subqueries of a plan's own expressions.
fn subqueries(plan: &LogicalPlan) -> DataFusionResult<Vec<LogicalPlan>> {
    let mut found = Vec::new();
    plan.apply_subqueries(|subquery| {
        found.push(subquery.clone());
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Whether a subquery gives the same for each row of the query around it.
fn is_alone(subquery: &Subquery) -> Result<bool, Fault> {
    let around = columns_around(&subquery.subquery).map_err(fault_from_datafusion)?;
    Ok(subquery.outer_ref_columns.is_empty() && around.is_empty())
}

/// Whether a plan reads no column of a query around it.
fn stands_alone(plan: &LogicalPlan) -> DataFusionResult<bool> {
    let mut alone = true;
    plan.apply_with_subqueries(|node| {
        alone &= !node.contains_outer_reference();
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(alone)
}

/// The rows of a plan as a table, under the names that they have in it. Plans over two tables of one name would be taken for
/// the same.
fn table_of(plan: &LogicalPlan, batches: Vec<RecordBatch>, number: usize) -> DataFusionResult<LogicalPlan> {
    let table = MemTable::try_new(Arc::clone(plan.schema().inner()), vec![batches])?;
    let rows = LogicalPlanBuilder::scan(format!("{RESERVED}taken{number}"), provider_as_source(Arc::new(table)), None)?;
    let columns = rows.schema().columns();
    let named = columns
        .into_iter()
        .zip(plan.schema().iter())
        .map(|(column, (qualifier, field))| Expr::Column(column).alias_qualified(qualifier.cloned(), field.name()));
    rows.project(named.collect::<Vec<_>>())?.build()
}

impl Merge {
    /// Columns of the table, each with what it is equal to in each row of the source that is about a row; none where it is about others,
    /// too, or where no key tells.
    fn keys(&self) -> Option<Vec<(Expr, Expr)>> {
        if self.is_about_unmatched() {
            return None;
        }
        let is_own = |expr: &Expr| matches!(expr, Expr::Column(column) if self.target().schema().has_column(column));
        let of_source = |expr: &Expr| {
            let columns = expr.column_refs();
            !has_subquery(expr) && columns.iter().all(|column| self.source().schema().has_column(column))
        };
        let keys = split_conjunction(self.on()).into_iter().filter_map(|condition| match condition {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) if is_own(left) && of_source(right) => {
                Some((Expr::clone(left), Expr::clone(right)))
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) if is_own(right) && of_source(left) => {
                Some((Expr::clone(right), Expr::clone(left)))
            }
            _ => None,
        });
        Some(keys.collect::<Vec<_>>()).filter(|keys| !keys.is_empty())
    }
}

/// Whether values that are equal as one type are those that are equal as the other, once they are cast to it.
fn is_comparable(from: &DataType, to: &DataType) -> bool {
    use DataType::{Boolean, Date32, Date64, Decimal128, Decimal256, LargeUtf8, Timestamp, Utf8, Utf8View};
    let is_text = |kind: &DataType| matches!(kind, Utf8 | LargeUtf8 | Utf8View);
    let is_exact = matches!(to, Boolean | Date32 | Date64 | Decimal128(..) | Decimal256(..) | Timestamp(..));
    (from == to && is_exact) || (from.is_integer() && to.is_integer()) || (is_text(from) && is_text(to))
}

fn is_subquery(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_))
}

/// Whether an expression reads the rows of a query.
pub(super) fn has_subquery(expr: &Expr) -> bool {
    expr.exists(|part| Ok(is_subquery(part))).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    async fn plan(sql: &str) -> LogicalPlan {
        let context = SessionContext::new();
        context.sql("CREATE TABLE t (k BIGINT, g BIGINT)").await.unwrap();
        context.sql(sql).await.unwrap().into_unoptimized_plan()
    }

    #[tokio::test]
    async fn what_hangs_on_the_order_of_rows_is_not_settled() {
        for (sql, expected) in [
            ("SELECT k, sum(g) FROM t GROUP BY k", true),
            ("SELECT DISTINCT k FROM t", true),
            ("SELECT k FROM t LIMIT 1", false),
            ("SELECT k + random() FROM t", false),
            ("SELECT row_number() OVER (ORDER BY g) FROM t", false),
            ("SELECT DISTINCT ON (g) k FROM t", false),
            ("SELECT first_value(k) FROM t GROUP BY g", false),
            ("SELECT k FROM t WHERE g IN (SELECT row_number() OVER (ORDER BY g) FROM t)", false),
        ] {
            assert_eq!(is_settled(&plan(sql).await).unwrap(), expected, "{sql}");
        }
    }

    #[tokio::test]
    async fn parts_are_read_that_hang_on_no_row() {
        let first = "SELECT k, row_number() OVER (ORDER BY g) AS n FROM t";
        for (condition, expected) in [
            ("k IN (SELECT g FROM t)".to_owned(), 0),
            (format!("k IN (SELECT k FROM ({first}) WHERE n = 1)"), 1),
            // The same choice for both.
            (format!("k IN (SELECT k FROM ({first}) WHERE n = 1) OR g IN (SELECT k FROM ({first}) WHERE n = 1)"), 1),
            (format!("EXISTS (SELECT 1 FROM ({first}) AS f WHERE f.k = t.k) AND k > (SELECT g FROM t LIMIT 1)"), 2),
            ("k = (SELECT s.k FROM t AS s WHERE s.g = t.g LIMIT 1)".to_owned(), 0),
        ] {
            let asked = plan(&format!("SELECT * FROM t WHERE {condition}")).await;
            let LogicalPlan::Projection(of) = &asked else { unreachable!("SELECT * is a projection") };
            let parts = unsettled_parts(&of.input).unwrap();
            assert_eq!(parts.len(), expected, "{condition}");
            assert!(parts.iter().all(|part| stands_alone(part).unwrap() && !is_settled(part).unwrap()), "{condition}");
        }
    }

    #[test]
    fn floats_have_equal_values_of_other_bits() {
        for (from, to, expected) in [
            (DataType::Int64, DataType::Int32, true),
            (DataType::UInt8, DataType::Int64, true),
            (DataType::Utf8View, DataType::Utf8, true),
            (DataType::Date32, DataType::Date32, true),
            (DataType::Date32, DataType::Date64, false),
            (DataType::Decimal128(9, 2), DataType::Decimal128(9, 3), false),
            (DataType::Float64, DataType::Float64, false),
            (DataType::Int64, DataType::Float64, false),
            (DataType::Utf8, DataType::Int64, false),
        ] {
            assert_eq!(is_comparable(&from, &to), expected, "{from} {to}");
        }
    }
}
