//! `date_trunc`, `date_bin` and `date_part` of moments that nanoseconds since 1970 do not reach: before 1677 and after 2262.
//!
//! DataFusion's functions compute in nanoseconds. The first fails for such moments, the second gives NULL; and 9999-12-31 stands for
//! "without end" in many tables. Of the third, `date_part('year', t) < 3000` becomes a comparison of `t` with the moment at which that
//! year begins, and with NULL where the unit of `t` does not reach it, or a zone's clocks left out that moment.

use std::str::FromStr;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array};
use arrow::compute::kernels::cast_utils::IntervalUnit;
use arrow::compute::kernels::zip::zip;
use arrow::compute::{cast, is_not_null, not, nullif};
use arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNano, TimeUnit, TimestampMicrosecondType};
use chrono::{DateTime, Datelike, Days, Months, NaiveDate, NaiveDateTime, NaiveTime, Offset, TimeDelta, TimeZone, Timelike};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::functions::datetime;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult};
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, lit};

use crate::delegated::as_standard;
use crate::wall_time::{as_given, each, moment_of, zone_of};

/// Microseconds since 1970 that nanoseconds reach.
const NEAR: std::ops::RangeInclusive<i64> = i64::MIN / 1_000 + 1..=i64::MAX / 1_000;

pub(crate) fn far_moments_udfs() -> [ScalarUDF; 3] {
    [Computed::Truncated, Computed::Binned, Computed::Part].map(Computed::udf)
}

/// A part of a moment.
pub(crate) fn part_of(unit: &str, moment: Expr) -> Expr {
    Computed::Part.udf().call(vec![lit(unit), moment])
}

/// Plans `extract(… FROM …)` as the `date_part` of these.
#[derive(Debug)]
pub(crate) struct Extracts;

impl ExprPlanner for Extracts {
    fn plan_extract(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(Computed::Part.udf().call(args)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Computed {
    Truncated,
    Binned,
    Part,
}

impl Computed {
    fn udf(self) -> ScalarUDF {
        let standard = match self {
            Computed::Truncated => datetime::date_trunc(),
            Computed::Binned => datetime::date_bin(),
            Computed::Part => datetime::date_part(),
        };
        ScalarUDF::new_from_impl(FarMoments { computed: self, standard })
    }
}

/// DataFusion's function of moments that are near, and the same in microseconds of those that are far. A part of a moment is computed
/// alike for all of them.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FarMoments {
    computed: Computed,
    standard: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for FarMoments {
    as_standard!(name aliases signature return_type return_field_from_args output_ordering documentation);

    fn preimage(&self, args: &[Expr], value: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        Ok(match self.standard.preimage(args, value, info)? {
            PreimageResult::Range { interval, .. } if interval.lower().is_null() || interval.upper().is_null() => {
                PreimageResult::None
            }
            found => found,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if self.computed == Computed::Part {
            return match part_of_duration(&args)? {
                Some(part) => Ok(part),
                None => self.standard.invoke_with_args(args),
            };
        }
        let Some(DataType::Timestamp(TimeUnit::Microsecond, zone)) = args.args.get(1).map(ColumnarValue::data_type) else {
            return self.standard.invoke_with_args(args);
        };
        let is_scalar = matches!(args.args[1], ColumnarValue::Scalar(_));
        let moments = args.args[1].to_array(if is_scalar { 1 } else { args.number_rows })?;
        if moments.as_primitive::<TimestampMicrosecondType>().iter().flatten().all(|moment| NEAR.contains(&moment)) {
            return self.standard.invoke_with_args(args);
        }
        let ColumnarValue::Scalar(by) = &args.args[0] else { return self.standard.invoke_with_args(args) };
        let (near, moments) = apart(&moments)?;
        let far = match (self.computed, by.try_as_str().flatten(), by) {
            (Computed::Truncated, Some(unit), _) => all_truncated(&moments, zone, &unit.to_lowercase())?,
            (Computed::Binned, _, ScalarValue::IntervalMonthDayNano(Some(width))) => {
                let Some(origin) = origin_of(args.args.get(2))? else { return self.standard.invoke_with_args(args) };
                each::<TimestampMicrosecondType>(&moments, zone, |_, moment| binned(moment, *width, origin))?
            }
            _ => return self.standard.invoke_with_args(args),
        };
        let is_far = is_not_null(&far)?;
        let (number_rows, mut args) = (near.len(), args);
        args.args[1] = ColumnarValue::Array(near);
        let near = self.standard.invoke_with_args(ScalarFunctionArgs { number_rows, ..args })?.to_array(number_rows)?;
        as_given(zip(&is_far, &far, &near)?, is_scalar)
    }
}

/// A part of the time between two moments: of its days, and of the hours, minutes and seconds that are left, as in PostgreSQL; its epoch
/// are all of its seconds. DataFusion 55.2 gives all of it in the part's unit, whole. None: it is of something else, or another part.
fn part_of_duration(args: &ScalarFunctionArgs) -> Result<Option<ColumnarValue>> {
    let [ColumnarValue::Scalar(part), durations] = args.args.as_slice() else { return Ok(None) };
    let (Some(part), DataType::Duration(unit)) = (part.try_as_str().flatten(), durations.data_type()) else { return Ok(None) };
    let per_second: i64 = match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    };
    let is_scalar = matches!(durations, ColumnarValue::Scalar(_));
    let ticks = cast(&durations.to_array(if is_scalar { 1 } else { args.number_rows })?, &DataType::Int64)?;
    let ticks = ticks.as_primitive::<Int64Type>();
    let (minute, hour, day) = (60 * per_second, 3_600 * per_second, 86_400 * per_second);
    let seconds_in =
        |many: i64| move |ticks: i64| (i128::from(ticks % minute) * i128::from(many) / i128::from(per_second)) as i64;
    let part = part.trim_matches(['\'', '"']);
    if part.eq_ignore_ascii_case("epoch") {
        let seconds: Float64Array = ticks.unary(|ticks| ticks as f64 / per_second as f64);
        return as_given(Arc::new(seconds), is_scalar).map(Some);
    }
    let whole: Int64Array = match IntervalUnit::from_str(part) {
        Ok(IntervalUnit::Day) => ticks.unary(|ticks| ticks / day),
        Ok(IntervalUnit::Hour) => ticks.unary(|ticks| ticks % day / hour),
        Ok(IntervalUnit::Minute) => ticks.unary(|ticks| ticks % hour / minute),
        Ok(IntervalUnit::Second) => ticks.unary(seconds_in(1)),
        Ok(IntervalUnit::Millisecond) => ticks.unary(seconds_in(1_000)),
        Ok(IntervalUnit::Microsecond) => ticks.unary(seconds_in(1_000_000)),
        Ok(IntervalUnit::Nanosecond) => ticks.unary(seconds_in(1_000_000_000)),
        _ => return Ok(None),
    };
    as_given(cast(&whole, args.return_field.data_type())?, is_scalar).map(Some)
}

/// The moments that nanoseconds reach, and the others, each with NULL for the rest: what is computed of one is the same whatever is beside
/// it.
fn apart(moments: &ArrayRef) -> Result<(ArrayRef, ArrayRef)> {
    let is_near: BooleanArray =
        moments.as_primitive::<TimestampMicrosecondType>().iter().map(|it| it.map(|it| NEAR.contains(&it))).collect();
    Ok((nullif(moments, &not(&is_near)?)?, nullif(moments, &is_near)?))
}

fn all_truncated(moments: &ArrayRef, zone: Option<Arc<str>>, unit: &str) -> Result<ArrayRef> {
    if truncated(NaiveDateTime::default(), unit).is_none() {
        return exec_err!(
            "date_trunc knows no unit {unit}; it knows microsecond, second, minute, hour, day, week, month and so on"
        );
    }
    let Some(name) = zone else {
        return each::<TimestampMicrosecondType>(moments, None, |_, moment| truncated(moment, unit));
    };
    let tz = zone_of(&name)?;
    each::<TimestampMicrosecondType>(moments, Some(name), |_, moment| {
        let there = moment.checked_add_offset(tz.offset_from_utc_datetime(&moment).fix())?;
        moment_of(truncated(there, unit)?, &tz)
    })
}

/// The beginning of the unit that a moment is in; none: there is no such unit.
fn truncated(moment: NaiveDateTime, unit: &str) -> Option<NaiveDateTime> {
    let (date, time) = (moment.date(), moment.time());
    let first_of = |month0: u32| NaiveDate::from_ymd_opt(date.year(), month0 + 1, 1);
    let to = |nanosecond: u32| time.with_nanosecond(time.nanosecond() / nanosecond * nanosecond);
    let time = match unit {
        "microsecond" => to(1_000)?,
        "millisecond" => to(1_000_000)?,
        "second" => time.with_nanosecond(0)?,
        "minute" => NaiveTime::from_hms_opt(time.hour(), time.minute(), 0)?,
        "hour" => NaiveTime::from_hms_opt(time.hour(), 0, 0)?,
        _ => NaiveTime::MIN,
    };
    let date = match unit {
        "microsecond" | "millisecond" | "second" | "minute" | "hour" | "day" => date,
        "week" => date.checked_sub_days(Days::new(u64::from(date.weekday().num_days_from_monday())))?,
        "month" => first_of(date.month0())?,
        "quarter" => first_of(date.month0() / 3 * 3)?,
        "year" => first_of(0)?,
        _ => return None,
    };
    Some(date.and_time(time))
}

/// The moment at which some bin begins; none: it hangs on the row.
fn origin_of(arg: Option<&ColumnarValue>) -> Result<Option<NaiveDateTime>> {
    Ok(match arg {
        None => Some(NaiveDateTime::default()),
        Some(ColumnarValue::Scalar(origin)) => match origin.cast_to(&DataType::Timestamp(TimeUnit::Microsecond, None))? {
            ScalarValue::TimestampMicrosecond(Some(origin), _) => {
                DateTime::from_timestamp_micros(origin).map(|origin| origin.naive_utc())
            }
            _ => None,
        },
        Some(ColumnarValue::Array(_)) => None,
    })
}

/// The beginning of the bin that a moment is in; none: bins of this width cannot be told, or it is out of the range of moments.
fn binned(moment: NaiveDateTime, width: IntervalMonthDayNano, origin: NaiveDateTime) -> Option<NaiveDateTime> {
    let months_of = |moment: NaiveDateTime| moment.year() * 12 + moment.month0() as i32;
    if width.months > 0 && width.days == 0 && width.nanoseconds == 0 {
        let away = months_of(moment) - months_of(origin);
        let whole = away - away.rem_euclid(width.months);
        let begin = later_by(origin, whole)?;
        return if begin > moment { later_by(origin, whole - width.months) } else { Some(begin) };
    }
    let width = i128::from(width.days) * 86_400_000_000_000 + i128::from(width.nanoseconds);
    let away = moment - origin;
    let away = i128::from(away.num_seconds()) * 1_000_000_000 + i128::from(away.subsec_nanos());
    let into = away.checked_rem_euclid(width).filter(|_| width > 0)?;
    moment.checked_sub_signed(TimeDelta::nanoseconds(i64::try_from(into).ok()?))
}

fn later_by(moment: NaiveDateTime, months: i32) -> Option<NaiveDateTime> {
    let by = Months::new(months.unsigned_abs());
    if months < 0 { moment.checked_sub_months(by) } else { moment.checked_add_months(by) }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    use super::*;

    /// The one value of a query.
    async fn value(sql: &str) -> String {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
        let value = arrow::util::display::array_value_to_string(batches[0].column(0), 0).unwrap();
        value.replace('T', " ")
    }

    #[tokio::test]
    async fn far_moments_are_truncated_and_binned_as_near_ones() {
        for unit in ["microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year"] {
            // 400 years are whole weeks.
            let of = |year| format!("SELECT date_trunc('{unit}', CAST('{year}-08-09 10:11:12.123456' AS TIMESTAMP(6)))");
            let (near, far) = (value(&of(2124)).await, value(&of(2524)).await);
            assert_eq!(near.replacen("2124", "2524", 1), far, "{unit}");
        }
        for width in ["1 month", "5 months", "1 year", "1 day", "36 hours", "7 minutes"] {
            let moment: NaiveDateTime = "2124-08-09T10:11:12".parse().unwrap();
            let near = value(&format!("SELECT date_bin(INTERVAL '{width}', CAST('{moment}' AS TIMESTAMP(6)))")).await;
            let ScalarValue::IntervalMonthDayNano(Some(by)) =
                ScalarValue::from(width).cast_to(&DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano)).unwrap()
            else {
                panic!("expected an interval")
            };
            let begin = binned(moment, by, NaiveDateTime::default()).unwrap();
            assert_eq!(begin.to_string(), near, "{width}");
        }
        assert_eq!(
            value("SELECT date_bin(INTERVAL '1 month', CAST('9999-12-31 10:00:00' AS TIMESTAMP(6)))").await,
            "9999-12-01 00:00:00"
        );
        assert_eq!(value("SELECT date_trunc('month', DATE '9999-12-31')").await, "9999-12-01 00:00:00");
        assert_eq!(value("SELECT CAST('9999-12-31 10:00:00' AS TIMESTAMP(6)) > now()").await, "true");
    }

    #[tokio::test]
    async fn a_year_that_nanoseconds_do_not_reach_is_a_year() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let rows = "SELECT CAST(column1 AS TIMESTAMP(9)) AS t FROM (VALUES ('1900-01-01'), ('2020-06-01'), (NULL))";
        context.sql(&format!("CREATE TABLE moments AS {rows}")).await.unwrap().collect().await.unwrap();
        for (condition, expected) in [
            ("date_part('year', t) < 3000", 2),
            ("date_part('year', t) BETWEEN 1950 AND 2300", 1),
            ("extract(year FROM t) >= 1600", 2),
            ("date_part('year', t) <> 9999", 2),
            ("date_part('year', t) NOT IN (2020, 9999)", 1),
            ("date_part('year', t) = 2020", 1),
            ("date_part('year', t) > 2262", 0),
        ] {
            let frame = context.sql(&format!("SELECT count(*) FROM moments WHERE {condition}")).await.unwrap();
            let batches = frame.collect().await.unwrap();
            assert_eq!(batches[0].column(0).as_primitive::<arrow::datatypes::Int64Type>().value(0), expected, "{condition}");
        }
    }
}
