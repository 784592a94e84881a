//! [`TimesOfDay`]: texts that are times of a day have a colon. DataFusion takes `'12'`, and the number 12, for 12 nanoseconds after midnight.

use std::sync::Arc;

use arrow::array::{Array, AsArray, StringViewBuilder};
use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, exec_err, internal_err, plan_err};
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast,
};
use datafusion::optimizer::AnalyzerRule;

use crate::kept_names::{map_named, node_has};
use crate::wall_time::as_given;

/// The rule, for after types are made equal.
#[derive(Debug)]
pub(crate) struct TimesOfDay;

impl AnalyzerRule for TimesOfDay {
    fn name(&self) -> &'static str {
        "pithead_times_of_day"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_down_with_subqueries(|node| {
            if !node_has(&node, |part| cast_to_time(part).is_some())? {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            map_named(node, |expr| {
                expr.transform_up(|part| match cast_to_time(&part) {
                    Some(of) if is_read(of) => Ok(Transformed::no(part)),
                    Some(of) => match of.get_type(&schema)? {
                        given if given.is_integer() => {
                            plan_err!("a number cannot be cast to TIME; '12:30:00' is one, and make_time(12, 30, 0)")
                        }
                        given if given.is_string() => {
                            let must_fit = matches!(part, Expr::Cast(_));
                            let text = read(must_fit).call(vec![cast(of.clone(), DataType::Utf8View)]);
                            Ok(Transformed::yes(with_argument(part, text)))
                        }
                        _ => Ok(Transformed::no(part)),
                    },
                    None => Ok(Transformed::no(part)),
                })
            })
        })?;
        Ok(changed.data)
    }
}

/// What is cast to a time of day.
fn cast_to_time(expr: &Expr) -> Option<&Expr> {
    let (Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field })) = expr else { return None };
    matches!(field.data_type(), DataType::Time32(_) | DataType::Time64(_)).then_some(expr.as_ref())
}

/// Whether an argument was looked at before: plans are analysed more than once.
fn is_read(argument: &Expr) -> bool {
    matches!(argument, Expr::ScalarFunction(call) if NAMES.contains(&call.func.name()))
}

fn with_argument(part: Expr, argument: Expr) -> Expr {
    match part {
        Expr::Cast(part) => Expr::Cast(Cast { expr: Box::new(argument), ..part }),
        Expr::TryCast(part) => Expr::TryCast(TryCast { expr: Box::new(argument), ..part }),
        other => other,
    }
}

const NAMES: [&str; 2] = ["pithead_clock_text", "pithead_clock_text_or_null"];

pub(crate) fn clock_text_udfs() -> [ScalarUDF; 2] {
    [true, false].map(read)
}

fn read(must_fit: bool) -> ScalarUDF {
    let signature = Signature::exact(vec![DataType::Utf8View], Volatility::Immutable);
    ScalarUDF::new_from_impl(ClockText { must_fit, signature })
}

/// The text where it has a colon.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ClockText {
    /// Whether another one is an error, and not NULL.
    must_fit: bool,
    signature: Signature,
}

impl ScalarUDFImpl for ClockText {
    fn name(&self) -> &str {
        NAMES[usize::from(!self.must_fit)]
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [texts] = args.args.as_slice() else { return internal_err!("expected one argument") };
        let is_scalar = matches!(texts, ColumnarValue::Scalar(_));
        let texts = texts.to_array(args.number_rows)?;
        let texts = texts.as_string_view();
        let is_time = |text: &str| text.contains(':');
        if texts.iter().flatten().all(is_time) {
            return as_given(Arc::new(texts.clone()), is_scalar);
        }
        let mut times = StringViewBuilder::with_capacity(texts.len());
        for text in texts {
            match text {
                Some(text) if self.must_fit && !is_time(text) => {
                    return exec_err!("cannot cast '{text}' to TIME; expected a text such as '12:30:00'");
                }
                text => times.append_option(text.filter(|text| is_time(text))),
            }
        }
        as_given(Arc::new(times.finish()), is_scalar)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Array;
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    async fn run(sql: &str) -> Result<String, String> {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let batches = context.sql(sql).await.map_err(|error| error.to_string())?.collect().await;
        let batches = batches.map_err(|error| error.to_string())?;
        let column = batches[0].column(0);
        let shown = arrow::util::display::array_value_to_string(column, 0).map_err(|error| error.to_string())?;
        Ok(if column.is_null(0) { "NULL".to_owned() } else { shown })
    }

    #[tokio::test]
    async fn a_time_has_a_colon() {
        for (sql, expected) in [
            ("SELECT CAST('12:30' AS TIME)", "12:30:00"),
            ("SELECT TIME '12:30:15.5'", "12:30:15.500"),
            ("SELECT TRY_CAST('12' AS TIME)", "NULL"),
            ("SELECT TRY_CAST(t AS TIME) FROM (VALUES ('12:30'), ('7')) AS v(t)", "12:30:00"),
            ("SELECT TRY_CAST(t AS TIME) FROM (VALUES ('7'), ('12:30')) AS v(t)", "NULL"),
            ("SELECT CAST(NULL::text AS TIME)", "NULL"),
            ("SELECT CAST(timestamp '2024-01-01 07:08:09' AS TIME)", "07:08:09"),
        ] {
            assert_eq!(run(sql).await.as_deref(), Ok(expected), "{sql}");
        }
    }

    #[tokio::test]
    async fn numbers_are_no_times() {
        for (sql, expected) in [
            ("SELECT CAST('12' AS TIME)", "cannot cast '12' to TIME; expected a text such as '12:30:00'"),
            ("SELECT t::time FROM (VALUES ('12:30'), ('7')) AS v(t)", "cannot cast '7' to TIME"),
            ("SELECT CAST(12 AS TIME)", "a number cannot be cast to TIME"),
        ] {
            let error = run(sql).await.unwrap_err();
            assert!(error.contains(expected), "{sql}: {error}");
        }
    }
}
