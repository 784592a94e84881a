//! [`MomentTexts`]: moments as texts, as PostgreSQL and DuckDB write them: `2024-02-29 12:30:00.5`, and `+00` behind it where they have a
//! zone. DataFusion writes a `T` between day and time, and fills fractions up.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{ArrayRef, AsArray, StringViewBuilder};
use arrow::datatypes::{
    DataType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use chrono::{Datelike, NaiveDateTime, Offset, TimeZone, Timelike};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast,
};
use datafusion::optimizer::AnalyzerRule;

use crate::kept_names::{map_named, node_has};
use crate::moments_in_time::SessionZone;
use crate::wall_time::{Unit, as_given, zone_of};

/// The rule, for after types are made equal: what is written beside texts is cast by then.
#[derive(Debug)]
pub(crate) struct MomentTexts;

impl AnalyzerRule for MomentTexts {
    fn name(&self) -> &'static str {
        "pithead_moment_texts"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let zone = SessionZone::of(config);
        let changed = plan.transform_down_with_subqueries(|node| {
            if !node_has(&node, |part| cast_to_text(part).is_some())? {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            map_named(node, |expr| {
                expr.transform_up(|part| {
                    let (moment, to) = match cast_to_text(&part) {
                        Some((moment, to)) if matches!(moment.get_type(&schema)?, DataType::Timestamp(..)) => (moment, to),
                        _ => return Ok(Transformed::no(part)),
                    };
                    let moment = zone.here(moment.clone(), &schema).data;
                    Ok(Transformed::yes(cast(moment_text_udf().call(vec![moment]), to.clone())))
                })
            })
        })?;
        Ok(changed.data)
    }
}

/// What is cast to a text, and the type of that.
pub(crate) fn cast_to_text(expr: &Expr) -> Option<(&Expr, &DataType)> {
    let (Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field })) = expr else { return None };
    field.data_type().is_string().then(|| (expr.as_ref(), field.data_type()))
}

pub(crate) fn moment_text_udf() -> ScalarUDF {
    ScalarUDF::new_from_impl(MomentText { signature: Signature::any(1, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct MomentText {
    signature: Signature,
}

impl ScalarUDFImpl for MomentText {
    fn name(&self) -> &'static str {
        "pithead_moment_text"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [moments] = args.args.as_slice() else { return internal_err!("expected one argument") };
        let is_scalar = matches!(moments, ColumnarValue::Scalar(_));
        let moments = moments.to_array(args.number_rows)?;
        let DataType::Timestamp(unit, zone) = moments.data_type() else { return internal_err!("expected moments") };
        let zone = zone.as_deref().map(zone_of).transpose()?;
        let texts = match unit {
            TimeUnit::Second => texts::<TimestampSecondType>(&moments, zone),
            TimeUnit::Millisecond => texts::<TimestampMillisecondType>(&moments, zone),
            TimeUnit::Microsecond => texts::<TimestampMicrosecondType>(&moments, zone),
            TimeUnit::Nanosecond => texts::<TimestampNanosecondType>(&moments, zone),
        };
        as_given(texts?, is_scalar)
    }
}

fn texts<T: Unit>(moments: &ArrayRef, zone: Option<Tz>) -> Result<ArrayRef> {
    let moments = moments.as_primitive::<T>();
    let mut texts = StringViewBuilder::with_capacity(moments.len());
    let mut text = String::new();
    for value in moments {
        let Some(value) = value else {
            texts.append_null();
            continue;
        };
        let Some(moment) = T::read(value) else { return exec_err!("the moment {value} is out of the range of dates") };
        text.clear();
        // Text takes all that is written.
        let _ = write_moment(&mut text, moment, zone);
        texts.append_value(&text);
    }
    Ok(Arc::new(texts.finish()))
}

fn write_moment(text: &mut String, moment: NaiveDateTime, zone: Option<Tz>) -> std::fmt::Result {
    let offset = zone.map(|zone| zone.offset_from_utc_datetime(&moment).fix());
    let shown = offset.and_then(|offset| moment.checked_add_offset(offset)).unwrap_or(moment);
    let (year, era) = if shown.year() > 0 { (shown.year(), "") } else { (1 - shown.year(), " (BC)") };
    write!(text, "{year:04}-{:02}-{:02}{era} ", shown.month(), shown.day())?;
    write!(text, "{:02}:{:02}:{:02}", shown.hour(), shown.minute(), shown.second())?;
    if shown.nanosecond() > 0 {
        let fraction = format!("{:09}", shown.nanosecond());
        write!(text, ".{}", fraction.trim_end_matches('0'))?;
    }
    let Some(seconds) = offset.map(|offset| offset.local_minus_utc()) else { return Ok(()) };
    let (sign, seconds) = (if seconds < 0 { '-' } else { '+' }, seconds.unsigned_abs());
    write!(text, "{sign}{:02}", seconds / 3_600)?;
    if seconds % 3_600 > 0 {
        write!(text, ":{:02}", seconds / 60 % 60)?;
    }
    if seconds % 60 > 0 {
        write!(text, ":{:02}", seconds % 60)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_in_sql() {
        let written = |moment: &str, zone: Option<&str>| {
            let mut text = String::new();
            write_moment(&mut text, moment.parse().unwrap(), zone.map(|zone| zone_of(zone).unwrap())).unwrap();
            text
        };
        for (moment, zone, expected) in [
            ("2024-02-29T12:30:00", None, "2024-02-29 12:30:00"),
            ("2024-02-29T12:30:00.5", None, "2024-02-29 12:30:00.5"),
            ("1969-12-31T23:59:59.000000001", None, "1969-12-31 23:59:59.000000001"),
            ("0099-01-01T00:00:00", None, "0099-01-01 00:00:00"),
            ("+10000-01-02T00:00:00", None, "10000-01-02 00:00:00"),
            ("-0001-01-01T00:00:00", None, "0002-01-01 (BC) 00:00:00"),
            ("2024-07-01T00:00:00", Some("UTC"), "2024-07-01 00:00:00+00"),
            ("2024-07-01T00:00:00", Some("America/St_Johns"), "2024-06-30 21:30:00-02:30"),
            ("2024-12-31T20:00:00.25", Some("Asia/Kolkata"), "2025-01-01 01:30:00.25+05:30"),
        ] {
            assert_eq!(written(moment, zone), expected);
        }
    }
}
