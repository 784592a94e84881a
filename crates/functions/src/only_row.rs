//! Scalar subqueries that refer to the query around them and may have several rows for one of its rows.
//!
//! DataFusion refuses them, since it cannot know that one row will be found. Here they are computed, and several rows are an error for
//! the row that has them, as in PostgreSQL and DuckDB: the subquery gives all of its values as a list, and [`OnlyRow`] takes the only one.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, AsArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result, plan_err};
use datafusion::error::DataFusionError;
use datafusion::functions::core::expr_fn::{get_field, named_struct};
use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Distinct, Expr, LogicalPlan, LogicalPlanBuilder, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Subquery, Volatility, lit, when,
};
use datafusion::optimizer::AnalyzerRule;
use pithead_model::{Blame, Fault};

use crate::kept_names::map_named;
use crate::repeatable::is_the_same_again;
use crate::subqueries::{has_part, is_subquery};
use crate::unnested::{add_outer_columns, hangs_on_another};

static ONLY: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new(ScalarUDF::from(OnlyValue::new())));

/// The function that takes the only value of a list.
pub(crate) fn only_value_udf() -> ScalarUDF {
    ONLY.as_ref().clone()
}

/// The only value of a list; several are an error.
pub(crate) fn only_value(list: Expr) -> Expr {
    ONLY.call(vec![list])
}

/// Takes the only row of each correlated scalar subquery that may have several.
#[derive(Debug)]
pub(crate) struct OnlyRow;

impl AnalyzerRule for OnlyRow {
    fn name(&self) -> &str {
        "pithead_only_row"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_part(&plan, is_correlated)? {
            return Ok(plan);
        }
        let only = |node: LogicalPlan| {
            let around = merge_schema(&node.inputs());
            map_named(node, |expr| expr.transform_up(|part| taken(part, &around)))
        };
        plan.transform_up_with_subqueries(only).map(|plan| plan.data)
    }
}

fn is_correlated(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarSubquery(subquery) if !subquery.outer_ref_columns.is_empty())
}

/// `around`: the columns of the query around a subquery.
fn taken(expr: Expr, around: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::ScalarSubquery(subquery) = expr else { return Ok(Transformed::no(expr)) };
    if subquery.outer_ref_columns.is_empty() || has_one(&subquery.subquery) {
        return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
    }
    let Some((value, rows, is_distinct)) = value_and_rows(&subquery.subquery)? else {
        return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
    };
    let Subquery { outer_ref_columns, spans, .. } = &subquery;
    let only = |value: Expr| {
        let all = AggregateFunction::new_udf(array_agg_udaf(), vec![value], is_distinct, None, vec![], None);
        let rows = LogicalPlanBuilder::from(Arc::clone(&rows));
        let plan = rows.aggregate(Vec::<Expr>::new(), [Expr::AggregateFunction(all)])?.build()?;
        let (outer_ref_columns, spans) = (outer_ref_columns.clone(), spans.clone());
        let list = Subquery { subquery: Arc::new(plan), outer_ref_columns, spans };
        Ok::<_, DataFusionError>(ONLY.call(vec![Expr::ScalarSubquery(list)]))
    };
    let mut outer = Vec::new();
    add_outer_columns(&value, &mut outer)?;
    if outer.is_empty() {
        return only(value).map(Transformed::yes);
    }
    // What hangs on the row around is computed above, of the columns of the only row.
    let inner: Vec<Column> = value.column_refs().into_iter().cloned().collect();
    let is_known = outer.iter().all(|column| around.has_column(column));
    if is_distinct || !is_known || value.is_volatile() || !is_the_same_again(&rows)? {
        return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
    }
    let members = inner.iter().enumerate().flat_map(|(number, column)| [lit(member(number)), Expr::Column(column.clone())]);
    let row = only(named_struct(members.chain([lit("there"), lit(true)]).collect()))?;
    let of_both = value.transform_up(|part| match part {
        Expr::OuterReferenceColumn(_, column) => Ok(Transformed::yes(Expr::Column(column))),
        Expr::Column(column) => match inner.iter().position(|known| *known == column) {
            Some(number) => Ok(Transformed::yes(get_field(row.clone(), member(number)))),
            None => Ok(Transformed::no(Expr::Column(column))),
        },
        part => Ok(Transformed::no(part)),
    })?;
    Ok(Transformed::yes(when(row.is_not_null(), of_both.data).end()?))
}

fn member(number: usize) -> String {
    format!("c{number}")
}

/// What a subquery selects, from which rows, and whether each value counts once; none: its rows are not those of a condition alone that
/// hangs on the query around it. Windows, limits and unions within would be computed of other rows.
fn value_and_rows(plan: &Arc<LogicalPlan>) -> Result<Option<(Expr, Arc<LogicalPlan>, bool)>> {
    match plan.as_ref() {
        LogicalPlan::Projection(projection) => {
            let value = projection.expr[0].clone().unalias();
            let is_plain = !value.exists(|part| Ok(is_subquery(part)))? && is_filter(&projection.input)?;
            Ok(is_plain.then(|| (value, Arc::clone(&projection.input), false)))
        }
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => value_and_rows(&sort.input),
        LogicalPlan::Distinct(Distinct::All(input)) => Ok(value_and_rows(input)?.map(|(value, rows, _)| (value, rows, true))),
        _ => Ok(None),
    }
}

/// Whether rows are those of others that the query around has no part in, by a condition.
fn is_filter(plan: &LogicalPlan) -> Result<bool> {
    let LogicalPlan::Filter(filter) = plan else { return Ok(false) };
    Ok(!hangs_on_another(&filter.input)?)
}

/// Whether there is one row at most, or the engine finds out: it knows which groups have one row for each of the query around.
fn has_one(plan: &LogicalPlan) -> bool {
    plan.schema().fields().len() != 1 || plan.max_rows().is_some_and(|rows| rows <= 1) || is_grouped(plan)
}

fn is_grouped(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => !aggregate.aggr_expr.is_empty(),
        LogicalPlan::Projection(projection) => is_grouped(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_grouped(&alias.input),
        LogicalPlan::Sort(sort) => is_grouped(&sort.input),
        LogicalPlan::Filter(filter) => matches!(filter.input.as_ref(), LogicalPlan::Aggregate(_)) && is_grouped(&filter.input),
        _ => false,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OnlyValue {
    signature: Signature,
}

impl OnlyValue {
    fn new() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for OnlyValue {
    fn name(&self) -> &str {
        "pithead_only_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [DataType::List(item)] => Ok(item.data_type().clone()),
            _ => plan_err!("expected pithead_only_value(list)"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let lists = arrays[0].as_list::<i32>();
        let place = |row: usize| -> Result<Option<u32>> {
            match lists.is_valid(row).then(|| lists.value_length(row)) {
                None | Some(0) => Ok(None),
                Some(1) => Ok(Some(lists.value_offsets()[row] as u32)),
                Some(_) => Err(DataFusionError::External(Box::new(several()))),
            }
        };
        let places = (0..lists.len()).map(place).collect::<Result<UInt32Array>>()?;
        Ok(ColumnarValue::Array(take(lists.values(), &places, None)?))
    }
}

/// A scalar subquery has several rows.
pub fn several() -> Fault {
    Fault::new(Blame::User, "a scalar subquery returned more than one row").hint("add LIMIT 1 or an aggregate to it")
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, fault_from_datafusion, session_state};

    #[tokio::test]
    async fn the_only_row_is_taken_and_several_are_an_error() {
        let outer = "(VALUES (1), (2), (3)) AS o(id)";
        let inner = "(VALUES (1, 10), (2, NULL), (7, 70), (7, 71), (4, 1)) AS n(a, x)";
        let outer2 = "(VALUES (1), (2)) AS m(k)";
        let sum = async |value: &str| {
            let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
            let sql = format!("SELECT string_agg(coalesce(({value})::text, '-'), ' ' ORDER BY id) FROM {outer}");
            let found =
                context.sql(&sql).await.map_err(fault_from_datafusion)?.collect().await.map_err(fault_from_datafusion)?;
            Ok::<_, pithead_model::Fault>(arrow::util::display::array_value_to_string(found[0].column(0), 0).unwrap())
        };
        for (value, expected) in [
            (format!("SELECT x FROM {inner} WHERE a = id"), "10 - -"),
            (format!("SELECT a + x FROM {inner} WHERE a = id AND x > 3"), "11 - -"),
            (format!("SELECT DISTINCT x FROM {inner} WHERE a = id"), "10 - -"),
            (format!("SELECT x + id FROM {inner} WHERE a = id"), "11 - -"),
            (format!("SELECT coalesce(x, id * 100) FROM {inner} WHERE a = id"), "10 200 -"),
            (format!("SELECT id FROM {inner} WHERE a = id"), "1 2 -"),
            (format!("SELECT x FROM {inner} WHERE a > id AND x = 1"), "1 1 1"),
            (format!("SELECT x FROM {inner} WHERE a = id ORDER BY x"), "10 - -"),
            (format!("SELECT count(*) FROM {inner} WHERE a = id"), "1 1 0"),
        ] {
            assert_eq!(sum(&value).await.unwrap_or_else(|fault| panic!("{value}: {fault}")), expected, "{value}");
        }
        // These are computed by `Correlated`, and have the only row of several, too.
        for (value, expected) in [
            (format!("SELECT sum(x) OVER () FROM {inner} WHERE a = id"), "10 - -"),
            (format!("SELECT x FROM {inner} WHERE a = id LIMIT 2"), "10 - -"),
            (format!("SELECT id + (SELECT max(k) FROM {outer2} WHERE k = n.a) FROM {inner} WHERE a = id"), "2 4 -"),
        ] {
            assert_eq!(sum(&value).await.unwrap_or_else(|fault| panic!("{value}: {fault}")), expected, "{value}");
        }
        let fault = sum(&format!("SELECT sum(x) OVER () FROM {inner} WHERE a > id")).await.unwrap_err();
        assert_eq!(fault.message, "a scalar subquery returned more than one row");
        let fault = sum(&format!("SELECT x FROM {inner} WHERE a = id + 4 AND x > 0")).await.unwrap_err();
        assert_eq!(fault.message, "a scalar subquery returned more than one row");
    }
}
