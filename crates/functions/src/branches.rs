//! [`Branches`]: what the branches of a UNION give in a column, as one type.
//!
//! DataFusion 55.2 has rules of its own for that: of a decimal and a float it makes DECIMAL(30, 15), which has neither 1e-20 nor 1e300;
//! of a day and a moment it makes nanoseconds, which end in 2262; and a wall time becomes a moment of the column's zone, which is not the
//! session's. Here the branches of a UNION become what the branches of a CASE become, as in DuckDB.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Union};
use datafusion::optimizer::AnalyzerRule;

use crate::at_zone::has_zone;
use crate::decimal_floats::{Alike, Operand};
use crate::moments_in_time::SessionZone;
use crate::same_moments::same;

/// The rule.
#[derive(Debug)]
pub(crate) struct Branches;

impl AnalyzerRule for Branches {
    fn name(&self) -> &'static str {
        "pithead_branches"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_unions(&plan)? {
            return Ok(plan);
        }
        let zone = SessionZone::of(config);
        let mut is_changed = false;
        // A union's type is that of the columns above it, too.
        let changed = plan.transform_up_with_subqueries(|node| {
            let node = match node {
                LogicalPlan::Union(union) => of_one_type(union, &zone)?,
                node => Transformed::no(node),
            };
            is_changed |= node.transformed;
            if is_changed { node.map_data(LogicalPlan::recompute_schema) } else { Ok(node) }
        })?;
        Ok(changed.data)
    }
}

fn has_unions(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found = matches!(node, LogicalPlan::Union(_));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// A union of branches whose columns have one type each, where they are decimals and floats, days and moments, or times of day.
fn of_one_type(union: Union, zone: &SessionZone) -> Result<Transformed<LogicalPlan>> {
    let mut branches: Vec<Branch> = union.inputs.iter().map(Branch::new).collect();
    let width = branches.first().map_or(0, |branch| branch.columns.len());
    if branches.iter().any(|branch| branch.columns.len() != width) {
        return Ok(Transformed::no(LogicalPlan::Union(union)));
    }
    for place in 0..width {
        numbers(&mut branches, place);
        times(&mut branches, place);
        moments(&mut branches, place, zone);
    }
    if !branches.iter().any(|branch| branch.is_changed) {
        return Ok(Transformed::no(LogicalPlan::Union(union)));
    }
    let inputs = branches.into_iter().map(Branch::plan).collect::<Result<Vec<_>>>()?;
    Ok(Transformed::yes(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?)))
}

/// Decimals and floats.
fn numbers(branches: &mut [Branch], place: usize) {
    let operands = branches.iter().map(|branch| Operand::of(branch.constant(place), branch.data_type(place)));
    let Some(target) = Alike::of_operands(operands) else { return };
    for branch in branches {
        let constant = branch.constant(place).cloned();
        let changed = target.of_typed(branch.columns[place].clone(), constant.as_ref(), branch.data_type(place));
        branch.put(place, changed);
    }
}

/// Days beside moments, and times of day in several units.
fn times(branches: &mut [Branch], place: usize) {
    let mut columns: Vec<Expr> = branches.iter().map(|branch| branch.columns[place].clone()).collect();
    let types: Vec<Option<DataType>> = branches.iter().map(|branch| Some(branch.data_type(place).clone())).collect();
    if same(&mut columns, &types) {
        branches.iter_mut().zip(columns).for_each(|(branch, column)| branch.put(place, Transformed::yes(column)));
    }
}

/// Wall times beside moments of a zone.
fn moments(branches: &mut [Branch], place: usize, zone: &SessionZone) {
    let Some(of) = branches.iter().map(|branch| branch.data_type(place)).find(|of| has_zone(of)).cloned() else { return };
    for branch in branches {
        // A text beside a moment stays a text.
        if !branch.data_type(place).is_string() {
            let schema = Arc::clone(branch.input.schema());
            let changed = zone.moment(branch.columns[place].clone(), &of, &schema);
            branch.put(place, changed);
        }
    }
}

/// A branch, and its columns as they are to be.
struct Branch {
    input: Arc<LogicalPlan>,
    columns: Vec<Expr>,
    is_changed: bool,
}

impl Branch {
    fn new(input: &Arc<LogicalPlan>) -> Branch {
        let columns = input.schema().columns().into_iter().map(Expr::Column).collect();
        Branch { input: Arc::clone(input), columns, is_changed: false }
    }

    fn field(&self, place: usize) -> &FieldRef {
        self.input.schema().field(place)
    }

    fn data_type(&self, place: usize) -> &DataType {
        self.field(place).data_type()
    }

    /// The expression of a column whose value the branch says: it may be a constant.
    fn constant(&self, place: usize) -> Option<&Expr> {
        let LogicalPlan::Projection(projection) = self.input.as_ref() else { return None };
        projection.expr.get(place).map(|mut expr| {
            while let Expr::Alias(alias) = expr {
                expr = &alias.expr;
            }
            expr
        })
    }

    fn put(&mut self, place: usize, column: Transformed<Expr>) {
        self.is_changed |= column.transformed;
        self.columns[place] = column.data;
    }

    /// The branch with its columns, under the names that they have.
    fn plan(self) -> Result<Arc<LogicalPlan>> {
        if !self.is_changed {
            return Ok(self.input);
        }
        let named =
            self.columns.into_iter().zip(self.input.schema().columns()).map(
                |(expr, Column { relation, name, .. })| match expr {
                    Expr::Column(_) => expr,
                    expr => expr.alias_qualified(relation, name),
                },
            );
        Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(named.collect(), Arc::clone(&self.input))?)))
    }
}

#[cfg(test)]
mod tests {
    use arrow::util::display::array_value_to_string;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::{EngineOptions, session_state};

    /// The first column of all rows, and its type.
    async fn column(sql: &str, zone: &str) -> (Vec<String>, DataType) {
        let options = EngineOptions { time_zone: Some(zone.to_owned()), ..EngineOptions::default() };
        let context = SessionContext::new_with_state(session_state(&options));
        let found = context.sql(sql).await.unwrap().collect().await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let values = found.iter().flat_map(|batch| {
            let column = batch.column(0);
            (0..batch.num_rows()).map(|row| array_value_to_string(column, row).unwrap()).collect::<Vec<_>>()
        });
        let mut values: Vec<String> = values.collect();
        values.sort();
        (values, found[0].schema().field(0).data_type().clone())
    }

    #[tokio::test]
    async fn branches_become_one_type() {
        let decimal = "SELECT CAST(1.25 AS decimal(10, 2)) AS v";
        let floats = "SELECT v FROM (VALUES (1e-20::double), ('NaN'::double), (1e300::double)) AS t(v)";
        for (sql, values, is) in [
            (
                format!("{decimal} UNION ALL {floats}"),
                vec!["1.25", "1e-20", "1e300", "NaN"],
                DataType::is_floating as fn(&_) -> _,
            ),
            (format!("{floats} UNION ALL {decimal}"), vec!["1.25", "1e-20", "1e300", "NaN"], DataType::is_floating),
            (
                format!("SELECT v + 1 FROM ({decimal} UNION {floats}) AS t WHERE v < 1.5"),
                vec!["1.0", "2.25"],
                DataType::is_floating,
            ),
            (format!("{decimal} UNION ALL SELECT 8.46"), vec!["1.25", "8.46"], |of| of.is_decimal()),
            (
                "SELECT d FROM (SELECT DATE '9999-12-31' AS d UNION ALL SELECT arrow_cast('2024-01-01', 'Timestamp(Microsecond, None)')) AS t"
                    .to_owned(),
                vec!["2024-01-01T00:00:00", "9999-12-31T00:00:00"],
                |of| matches!(of, DataType::Timestamp(..)),
            ),
        ] {
            let (found, of) = column(&sql, "UTC").await;
            assert_eq!(found, values, "{sql}");
            assert!(is(&of), "{sql}: {of}");
        }
    }

    #[tokio::test]
    async fn a_wall_time_is_one_of_the_sessions_zone() {
        let sql = "SELECT to_char(CAST(t AS timestamptz), '%H:%M') FROM (SELECT TIMESTAMP '2024-07-01 12:00:00' AS t UNION ALL \
                   SELECT arrow_cast('2024-07-01 11:00:00', 'Timestamp(Microsecond, Some(\"UTC\"))')) AS u";
        assert_eq!(column(sql, "Europe/Berlin").await.0, ["12:00", "13:00"]);
        assert_eq!(column(sql, "UTC").await.0, ["11:00", "12:00"]);
    }
}
