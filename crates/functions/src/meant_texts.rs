//! Texts of a statement beside truth values and intervals: `is_open = 'true'`, `waited > '1 hour'`, and the same in BETWEEN and IN.
//! PostgreSQL and DuckDB read them as values of the other side's type; the engine's planner refuses them. And texts that are cast to
//! intervals, of which the engine knows no clock times: `1 day 02:03:04`.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, AsArray, StringViewBuilder};
use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, internal_err};
use datafusion::logical_expr::expr::{Between, Cast, InList, TryCast};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast,
    lit,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::compared::{read_compared, text_of};
use crate::intervals::interval_with_units;
use crate::kept_names::{map_named, node_has};
use crate::wall_time::as_given;

/// What operators compare, while they are planned; and casts, the lists of IN and the bounds of BETWEEN, before types are made equal.
#[derive(Debug)]
pub(crate) struct MeantTexts;

impl ExprPlanner for MeantTexts {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
        if !matches!(expr.op, Eq | NotEq | Lt | LtEq | Gt | GtEq) {
            return Ok(PlannerResult::Original(expr));
        }
        let RawBinaryExpr { op, left, right } = expr;
        // Only beside a text is the type of the other side asked for, which takes a walk over it.
        let (left, right) = match (text_of(&left).is_some(), text_of(&right).is_some()) {
            (true, false) => (read(left, meant_by(&right, schema)), right),
            (false, true) => {
                let meant = meant_by(&left, schema);
                (left, read(right, meant))
            }
            _ => (left, right),
        };
        Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }))
    }
}

impl AnalyzerRule for MeantTexts {
    fn name(&self) -> &'static str {
        "pithead_meant_texts"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_down_with_subqueries(|node| {
            if matches!(node, LogicalPlan::TableScan(_)) || !node_has(&node, may_have_texts)? {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            map_named(node, |expr| {
                expr.transform_up(|part| match meant_in(&part, &schema) {
                    Some(meant) => read_compared(part, |_| true, |side| Ok(read(side, Some(meant.clone())))),
                    None => with_clock_times(part, &schema),
                })
            })
        })?;
        Ok(changed.data)
    }
}

fn may_have_texts(expr: &Expr) -> bool {
    has_texts(expr) || cast_to_interval(expr).is_some()
}

/// What is cast to an interval, unless it has been looked at.
fn cast_to_interval(expr: &Expr) -> Option<&Expr> {
    let (Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field })) = expr else { return None };
    let is_read = matches!(expr.as_ref(), Expr::ScalarFunction(call) if call.func.name() == INTERVAL_TEXT);
    (matches!(field.data_type(), DataType::Interval(_)) && !is_read).then_some(expr)
}

/// A cast of texts to intervals, which may have clock times.
fn with_clock_times(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if !cast_to_interval(&expr).is_some_and(|of| of.get_type(schema).is_ok_and(|of| of.is_string())) {
        return Ok(Transformed::no(expr));
    }
    expr.map_children(|text| {
        Ok(match text_of(&text).map(interval_with_units) {
            Some(Some(units)) => Transformed::yes(lit(units)),
            Some(None) => Transformed::no(text),
            None => Transformed::yes(interval_text_udf().call(vec![cast(text, DataType::Utf8View)])),
        })
    })
}

const INTERVAL_TEXT: &str = "pithead_interval_text";

pub(crate) fn interval_text_udf() -> ScalarUDF {
    let signature = Signature::exact(vec![DataType::Utf8View], Volatility::Immutable);
    ScalarUDF::new_from_impl(IntervalText { signature })
}

/// Intervals as texts with units for their clock times, which the engine knows.
#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalText {
    signature: Signature,
}

impl ScalarUDFImpl for IntervalText {
    fn name(&self) -> &'static str {
        INTERVAL_TEXT
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [texts] = args.args.as_slice() else { return internal_err!("expected one argument") };
        let (is_scalar, texts) = (matches!(texts, ColumnarValue::Scalar(_)), texts.to_array(args.number_rows)?);
        let mut read = StringViewBuilder::with_capacity(texts.len());
        for text in texts.as_string_view() {
            read.append_option(text.map(|text| interval_with_units(text).map_or(Cow::Borrowed(text), Cow::Owned)));
        }
        as_given(Arc::new(read.finish()), is_scalar)
    }
}

/// Whether a BETWEEN or an IN has texts.
fn has_texts(expr: &Expr) -> bool {
    match expr {
        Expr::Between(Between { low, high, .. }) => text_of(low).is_some() || text_of(high).is_some(),
        Expr::InList(InList { list, .. }) => list.iter().any(|value| text_of(value).is_some()),
        _ => false,
    }
}

fn meant_in(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    match expr {
        Expr::Between(Between { expr: of, .. }) | Expr::InList(InList { expr: of, .. }) if has_texts(expr) => {
            meant_by(of, schema)
        }
        _ => None,
    }
}

/// The type that texts beside this expression are read as; none: they are texts.
fn meant_by(other: &Expr, schema: &DFSchema) -> Option<DataType> {
    other.get_type(schema).ok().filter(|of| matches!(of, DataType::Boolean | DataType::Interval(_)))
}

/// A text as a value of the type; another expression as it is.
fn read(expr: Expr, meant: Option<DataType>) -> Expr {
    match (meant, text_of(&expr)) {
        (Some(meant @ DataType::Interval(_)), Some(text)) => {
            let text = interval_with_units(text).unwrap_or_else(|| text.to_owned());
            cast(lit(text), meant)
        }
        (Some(meant), Some(text)) => cast(lit(text.trim().to_lowercase()), meant),
        _ => expr,
    }
}

#[cfg(test)]
mod tests {
    use arrow::util::display::array_value_to_string;
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    async fn rows(sql: &str) -> std::result::Result<String, String> {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let batches = async { context.sql(sql).await?.collect().await }.await.map_err(|error| error.to_string())?;
        let values =
            batches.iter().flat_map(|batch| (0..batch.num_rows()).map(|row| array_value_to_string(batch.column(0), row)));
        Ok(values.collect::<std::result::Result<Vec<_>, _>>().map_err(|error| error.to_string())?.join(" "))
    }

    #[tokio::test]
    async fn texts_mean_what_they_are_beside() {
        let table = "(VALUES (1, true, INTERVAL '1 day'), (2, false, INTERVAL '2 hours'), (3, NULL, NULL)) AS v(id, b, i)";
        for (condition, expected) in [
            ("b = 'true'", "1"),
            ("'F' = b", "2"),
            ("b <> 'yes'", "2"),
            ("b IN ('t', 'no')", "1 2"),
            ("b NOT IN (' off ')", "1"),
            ("i = '24:00:00'", "1"),
            ("i > '1 hour 30 minutes'", "1 2"),
            ("i BETWEEN '1 hour' AND '03:00:00'", "2"),
            ("i IN ('2 hours')", "2"),
            ("i - INTERVAL '1 hour' = '1 hour'", "2"),
            ("(id = 1) = 'true'", "1"),
        ] {
            let sql = format!("SELECT id FROM {table} WHERE {condition} ORDER BY id");
            assert_eq!(rows(&sql).await.as_deref(), Ok(expected), "{sql}");
        }
        let cast = "SELECT CAST(x AS INTERVAL) = INTERVAL '1 day 2 hours' FROM (VALUES ('1 day 02:00:00'), ('1 day 2 hours'), (NULL)) AS v(x)";
        assert_eq!(rows(cast).await.as_deref(), Ok("true true "));
        for (condition, expected) in [("b = 'maybe'", "maybe"), ("i > 'long'", "long"), ("b IN ('t', 'x')", "'x'")] {
            let sql = format!("SELECT id FROM {table} WHERE {condition}");
            assert!(rows(&sql).await.unwrap_err().contains(expected), "{sql}");
        }
    }
}
