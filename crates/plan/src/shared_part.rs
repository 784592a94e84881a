//! [`SharedPart`]: rows that both a query and one of its scalar subqueries need, computed once for both.
//!
//! TPC-H's Q11 compares the total of each group with a share of the total of all of them, and Q15 each group with the largest. The
//! subquery's value then comes from the groups, not from another look at the data (Zuzarte et al. 2003, WinMagic; see
//! `docs/bibliography.md`).

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, TableSource, cast};

use crate::ScalarQuery;
use crate::cutter::{renamed_scan, unaliased};
use crate::names::own;
use crate::recursion::stands_alone;

/// Functions whose value over all rows is their own value over those of the groups.
const FUNCTIONS_OF_THEMSELVES: [&str; 3] = ["sum", "min", "max"];

/// A table that has the rows of a part.
#[derive(Clone)]
pub struct PartTable {
    /// The part's place among those of its statement. Plans are equal where the names of their tables and columns are, whatever is in
    /// the tables, so no two parts may have the same number.
    pub number: usize,
    /// The rows, in columns of [`SharedPart::schema`].
    pub source: Arc<dyn TableSource>,
}

/// A part of a query that groups rows, and of which a scalar subquery needs all groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedPart {
    /// The part.
    pub plan: LogicalPlan,
}

impl SharedPart {
    /// What a query has in common with one of its scalar subqueries: the groups that the subquery reads, or groups of the rows that it
    /// reads. The query itself is looked at, not its other subqueries.
    pub fn of(plan: &LogicalPlan, query: &ScalarQuery) -> Result<Option<SharedPart>> {
        let Some(total) = total(&query.plan) else { return Ok(None) };
        let rows = unaliased(&total.input);
        if !stands_alone(rows) {
            return Ok(None);
        }
        let is_of_groups = has_groups(rows);
        let mut found = None;
        plan.apply(|node| {
            let serves = match node {
                LogicalPlan::Aggregate(groups) if !is_of_groups => is_made_of(total, groups),
                node => is_of_groups && node == rows,
            };
            if serves {
                found = Some(SharedPart { plan: node.clone() });
            }
            Ok(if serves { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        Ok(found)
    }

    /// The columns of a table that has the part's rows, under names that are of no consequence.
    pub fn schema(&self) -> Schema {
        let field = |(place, field): (usize, &Arc<Field>)| {
            Field::new(format!("c{place}"), field.data_type().clone(), field.is_nullable())
        };
        Schema::new(self.plan.schema().fields().iter().enumerate().map(field).collect::<Vec<Field>>())
    }

    /// The query, where it reads the part's rows from a table.
    pub fn replaced(&self, plan: LogicalPlan, table: &PartTable) -> Result<LogicalPlan> {
        let replaced = plan.transform_down(|node| match node == self.plan {
            true => Ok(Transformed::new(self.scan(table)?, true, TreeNodeRecursion::Jump)),
            false => Ok(Transformed::no(node)),
        })?;
        Ok(replaced.data)
    }

    /// The subquery, where it reads the part's rows from a table.
    pub fn value_of(&self, query: &ScalarQuery, table: &PartTable) -> Result<LogicalPlan> {
        let LogicalPlan::Aggregate(groups) = &self.plan else { return self.replaced(query.plan.clone(), table) };
        let replaced = query.plan.clone().transform_down(|node| match node {
            LogicalPlan::Aggregate(total) if total.group_expr.is_empty() && is_made_of(&total, groups) => {
                Ok(Transformed::new(self.total_of(&total, table)?, true, TreeNodeRecursion::Jump))
            }
            node if node == self.plan => Ok(Transformed::new(self.scan(table)?, true, TreeNodeRecursion::Jump)),
            node => Ok(Transformed::no(node)),
        })?;
        Ok(replaced.data)
    }

    /// The total of the groups' totals, in columns of the names and types of the total of all rows.
    fn total_of(&self, total: &Aggregate, table: &PartTable) -> Result<LogicalPlan> {
        let groups = self.scan(table)?;
        let of_groups = |expr: &Expr| match expr {
            Expr::AggregateFunction(AggregateFunction { func, .. }) => {
                func.call(vec![Expr::Column(Column::from_name(expr.schema_name().to_string()))])
            }
            other => other.clone(),
        };
        let totals: Vec<Expr> = total.aggr_expr.iter().map(of_groups).collect();
        let aggregate = LogicalPlanBuilder::from(groups).aggregate(Vec::<Expr>::new(), totals.clone())?.build()?;
        let named = totals.iter().zip(total.schema.fields()).map(|(expr, field)| {
            let column = Expr::Column(Column::from_name(expr.schema_name().to_string()));
            // A total of decimals has more digits than what it is made of, and one of totals more again.
            let column = match column.get_type(aggregate.schema())? == *field.data_type() {
                true => column,
                false => cast(column, field.data_type().clone()),
            };
            Ok(column.alias(field.name()))
        });
        let named = named.collect::<Result<Vec<Expr>>>()?;
        LogicalPlanBuilder::from(aggregate).project(named)?.build()
    }

    fn scan(&self, table: &PartTable) -> Result<LogicalPlan> {
        renamed_scan(own("shared", table.number), Arc::clone(&table.source), &self.plan)
    }
}

/// The aggregate of all rows that a scalar subquery gives the value of, or computes its value from.
fn total(plan: &LogicalPlan) -> Option<&Aggregate> {
    match plan {
        LogicalPlan::Projection(projection) => total(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => total(&alias.input),
        LogicalPlan::Aggregate(aggregate) => Some(aggregate).filter(|aggregate| aggregate.group_expr.is_empty()),
        _ => None,
    }
}

/// Whether rows are groups, and so are likely to be few.
fn has_groups(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_groups(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_groups(&alias.input),
        LogicalPlan::Filter(filter) => has_groups(&filter.input),
        LogicalPlan::Aggregate(aggregate) => !aggregate.group_expr.is_empty(),
        _ => false,
    }
}

/// Whether the totals of all rows are totals of these groups' totals, which groups of the same rows are.
fn is_made_of(total: &Aggregate, groups: &Aggregate) -> bool {
    let is_plain = !groups.group_expr.is_empty() && !groups.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_)));
    let is_there = |expr: &Expr| groups.aggr_expr.contains(expr) && is_function_of_itself(expr, total);
    is_plain && !total.aggr_expr.is_empty() && total.aggr_expr.iter().all(is_there) && total.input == groups.input
}

/// Whether the function over the groups' values gives, to the last digit, what it gives over all rows.
fn is_function_of_itself(expr: &Expr, total: &Aggregate) -> bool {
    let Expr::AggregateFunction(AggregateFunction { func, params }) = expr else { return false };
    let is_known = FUNCTIONS_OF_THEMSELVES.contains(&func.name());
    let is_exact = expr.get_type(total.input.schema()).is_ok_and(|data_type| is_exact(&data_type));
    is_known && is_exact && !params.distinct && params.order_by.is_empty() && params.null_treatment.is_none()
}

/// Whether sums of values hang on no order, and equal values are the same.
fn is_exact(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_decimal() || matches!(data_type, DataType::Date32 | DataType::Timestamp(..))
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::builder::LogicalTableSource;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::scalar_queries;

    async fn in_common(sql: &str) -> Option<(LogicalPlan, ScalarQuery, SharedPart)> {
        let context = SessionContext::new();
        context.sql("CREATE TABLE t (k BIGINT, g BIGINT, v DECIMAL(12, 2), f DOUBLE)").await.unwrap();
        let plan = context.state().create_logical_plan(sql).await.unwrap();
        let query = scalar_queries(&plan).unwrap().remove(0);
        let part = SharedPart::of(&plan, &query).unwrap()?;
        Some((plan, query, part))
    }

    fn table_of(part: &SharedPart, number: usize) -> PartTable {
        PartTable { number, source: Arc::new(LogicalTableSource::new(part.schema().into())) }
    }

    /// How often a plan reads the table, apart from its subqueries.
    fn scans(plan: &LogicalPlan) -> usize {
        let mut scans = 0;
        plan.apply(|node| {
            scans += usize::from(matches!(node, LogicalPlan::TableScan(scan) if scan.table_name.table() == "t"));
            Ok(TreeNodeRecursion::Continue)
        })
        .unwrap();
        scans
    }

    #[tokio::test]
    async fn both_read_the_groups_under_the_same_names_and_types() {
        for sql in [
            "SELECT k, sum(v) FROM t WHERE g > 3 GROUP BY k HAVING sum(v) > (SELECT sum(v) * 0.1 FROM t WHERE g > 3)",
            "SELECT k FROM t GROUP BY k HAVING min(g) > (SELECT max(g) - min(g) FROM t) AND max(g) < 9",
            "WITH r AS (SELECT k, sum(f) AS s FROM t GROUP BY k) SELECT k FROM r WHERE s = (SELECT max(s) FROM r)",
        ] {
            let (plan, query, part) = in_common(sql).await.unwrap();
            let table = table_of(&part, 1);
            let (whole, value) = (part.replaced(plan.clone(), &table).unwrap(), part.value_of(&query, &table).unwrap());
            assert_eq!((scans(&whole), scans(&value)), (0, 0), "{sql}");
            assert_eq!(whole.schema().columns(), plan.schema().columns(), "{sql}");
            assert_eq!(value.schema().field(0).data_type(), query.plan.schema().field(0).data_type(), "{sql}");
        }
    }

    /// Two parts whose columns are alike once had one name, and one stood for the other.
    #[tokio::test]
    async fn parts_of_other_rows_are_read_from_tables_of_other_names() {
        let (mut read, mut values) = (Vec::new(), Vec::new());
        for (number, condition) in ["", "WHERE g > 3"].into_iter().enumerate() {
            let sql = format!("SELECT k FROM t {condition} GROUP BY k HAVING max(v) = (SELECT max(v) FROM t {condition})");
            let (plan, query, part) = in_common(&sql).await.unwrap();
            let table = table_of(&part, number);
            read.push(part.replaced(plan, &table).unwrap());
            values.push(part.value_of(&query, &table).unwrap());
        }
        // What is in the conditions differs in any case.
        assert_ne!(read[0].inputs()[0].inputs(), read[1].inputs()[0].inputs());
        assert_ne!(values[0], values[1]);
    }

    #[tokio::test]
    async fn what_is_not_the_same_or_not_exact_is_computed_twice() {
        for sql in [
            "SELECT k FROM t GROUP BY k HAVING sum(v) > (SELECT sum(v) FROM t WHERE g > 3)",
            "SELECT k FROM t GROUP BY k HAVING sum(f) > (SELECT sum(f) FROM t)",
            "SELECT k FROM t GROUP BY k HAVING avg(v) > (SELECT avg(v) FROM t)",
            "SELECT k FROM t GROUP BY k HAVING sum(DISTINCT v) > (SELECT sum(DISTINCT v) FROM t)",
            "SELECT k FROM t GROUP BY ROLLUP (k) HAVING sum(v) > (SELECT sum(v) FROM t)",
            "SELECT k FROM t WHERE v > (SELECT max(v) FROM t)",
            "SELECT k FROM t GROUP BY k HAVING sum(v) > (SELECT sum(g) FROM t)",
        ] {
            assert!(in_common(sql).await.is_none(), "{sql}");
        }
    }
}
