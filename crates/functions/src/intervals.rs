//! Intervals as PostgreSQL and DuckDB compute with them: so many times as long, and the time from one moment to another in months, days
//! and hours.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{
    DataType, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
    TimestampMicrosecondType,
};
use chrono::{DateTime, Datelike, NaiveDateTime, Timelike};
use datafusion::common::{DFSchema, DataFusionError, Result, internal_err};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::wall_time::as_given;

const DAY_NANOSECONDS: i64 = 86_400_000_000_000;
/// Days of a month that is part of one.
const MONTH_DAYS: f64 = 30.0;

/// An interval with units for its clock time, and without signs that say nothing: `1 day 2 hours 3 minutes 4.5 seconds` for
/// `+1 day 02:03:04.5`. None: it is written so.
pub fn interval_with_units(text: &str) -> Option<String> {
    let mut found = false;
    let part = |part: &str| {
        let (sign, plain) = match part.strip_prefix('-') {
            Some(plain) => ("-", plain),
            None => ("", part.strip_prefix('+').unwrap_or(part)),
        };
        let fields: Vec<&str> = plain.split(':').collect();
        let is_number = |field: &&str| !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let units = ["hours", "minutes", "seconds"];
        if !(2..=3).contains(&fields.len()) || !fields.iter().all(is_number) {
            found |= part.starts_with('+');
            return format!("{sign}{plain}");
        }
        found = true;
        let fields = fields.iter().zip(units).map(|(field, unit)| format!("{sign}{field} {unit}"));
        fields.collect::<Vec<_>>().join(" ")
    };
    let text = text.split_whitespace().map(part).collect::<Vec<_>>().join(" ");
    found.then_some(text)
}

pub(crate) fn age_udf() -> ScalarUDF {
    let moment = DataType::Timestamp(TimeUnit::Microsecond, None);
    ScalarUDF::new_from_impl(Age { signature: Signature::exact(vec![moment.clone(), moment], Volatility::Immutable) })
}

pub(crate) fn times_udf() -> ScalarUDF {
    ScalarUDF::new_from_impl(Times { signature: Signature::any(2, Volatility::Immutable) })
}

/// Plans the product of an interval and a number, which the engine's operator does not know.
#[derive(Debug)]
pub(crate) struct Products;

impl ExprPlanner for Products {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        // The type of a chain of operators is found by walking it, which for each operator of it would be too much.
        let is_interval =
            |expr: &Expr| !matches!(expr, Expr::BinaryExpr(_)) && matches!(expr.get_type(schema), Ok(DataType::Interval(_)));
        let (interval, number) = match &expr.op {
            BinaryOperator::Multiply if is_interval(&expr.left) => (&expr.left, &expr.right),
            BinaryOperator::Multiply if is_interval(&expr.right) => (&expr.right, &expr.left),
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let number = match number.get_type(schema)? {
            of if of.is_integer() => cast(number.clone(), DataType::Int64),
            of if of.is_numeric() => cast(number.clone(), DataType::Float64),
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let interval = cast(interval.clone(), DataType::Interval(IntervalUnit::MonthDayNano));
        Ok(PlannerResult::Planned(times_udf().call(vec![interval, number])))
    }
}

/// An interval so many times.
fn times(interval: IntervalMonthDayNano, count: i64) -> Option<IntervalMonthDayNano> {
    let of_part = |part: i32| i32::try_from(i64::from(part).checked_mul(count)?).ok();
    let nanoseconds = interval.nanoseconds.checked_mul(count)?;
    Some(IntervalMonthDayNano::new(of_part(interval.months)?, of_part(interval.days)?, nanoseconds))
}

/// An interval by a number that is not whole: parts of a month become days, and parts of a day become hours, to the microsecond, as in
/// PostgreSQL.
fn scaled(interval: IntervalMonthDayNano, by: f64) -> Option<IntervalMonthDayNano> {
    let months = f64::from(interval.months) * by;
    let days = to_microseconds(f64::from(interval.days) * by + months.fract() * MONTH_DAYS, DAY_NANOSECONDS as f64);
    let nanoseconds = to_microseconds(interval.nanoseconds as f64 * by + days.fract() * DAY_NANOSECONDS as f64, 1.0);
    let is_within = |value: f64, max: f64| value.is_finite() && value.abs() < max;
    let fits = is_within(months, f64::from(i32::MAX)) && is_within(days, f64::from(i32::MAX)) && is_within(nanoseconds, 9.2e18);
    fits.then(|| IntervalMonthDayNano::new(months as i32, days as i32, nanoseconds as i64))
}

/// A number of units of so many nanoseconds, rounded to a microsecond.
fn to_microseconds(value: f64, unit: f64) -> f64 {
    (value * unit / 1_000.0).round() * 1_000.0 / unit
}

/// From one moment to a later or an earlier one: whole months and days by the calendar, and what is left.
fn age(to: NaiveDateTime, from: NaiveDateTime) -> IntervalMonthDayNano {
    let (earlier, later, sign) = if to < from { (to, from, -1) } else { (from, to, 1) };
    let month_of = |moment: NaiveDateTime| moment.year() * 12 + moment.month0() as i32;
    let nanoseconds_of =
        |moment: NaiveDateTime| i64::from(moment.num_seconds_from_midnight()) * 1_000_000_000 + i64::from(moment.nanosecond());
    let mut months = month_of(later) - month_of(earlier);
    let mut days = later.day() as i32 - earlier.day() as i32;
    let mut nanoseconds = nanoseconds_of(later) - nanoseconds_of(earlier);
    if nanoseconds < 0 {
        nanoseconds += DAY_NANOSECONDS;
        days -= 1;
    }
    if days < 0 {
        days += i32::from(earlier.num_days_in_month());
        months -= 1;
    }
    IntervalMonthDayNano::new(sign * months, sign * days, i64::from(sign) * nanoseconds)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Age {
    signature: Signature,
}

impl ScalarUDFImpl for Age {
    fn name(&self) -> &'static str {
        "pithead_age"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Interval(IntervalUnit::MonthDayNano))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (is_scalar, [to, from]) = columns(&args)?;
        let (to, from) = (to.as_primitive::<TimestampMicrosecondType>(), from.as_primitive::<TimestampMicrosecondType>());
        let moment = |micros: i64| match DateTime::from_timestamp_micros(micros) {
            Some(moment) => Ok(moment.naive_utc()),
            None => Err(DataFusionError::Execution(format!("the moment {micros} is out of the range of dates"))),
        };
        let of_row = |pair| match pair {
            (Some(to), Some(from)) => Ok(Some(age(moment(to)?, moment(from)?))),
            _ => Ok(None),
        };
        let ages: PrimitiveArray<IntervalMonthDayNanoType> = to.iter().zip(from).map(of_row).collect::<Result<_>>()?;
        as_given(Arc::new(ages), is_scalar)
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Times {
    signature: Signature,
}

impl ScalarUDFImpl for Times {
    fn name(&self) -> &'static str {
        "pithead_times"
    }

    fn display_name(&self, arguments: &[Expr]) -> Result<String> {
        self.schema_name(arguments)
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let names: Vec<String> = arguments.iter().map(|argument| argument.schema_name().to_string()).collect();
        Ok(names.join(" * "))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Interval(IntervalUnit::MonthDayNano))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (is_scalar, [intervals, numbers]) = columns(&args)?;
        let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
        let products = match numbers.data_type() {
            DataType::Int64 => products(intervals, numbers.as_primitive::<Int64Type>(), times)?,
            DataType::Float64 => products(intervals, numbers.as_primitive::<Float64Type>(), scaled)?,
            other => return internal_err!("an interval is multiplied by numbers, and {other} was given"),
        };
        as_given(products, is_scalar)
    }
}

/// Each interval by the number of its row.
fn products<N: arrow::datatypes::ArrowPrimitiveType>(
    intervals: &PrimitiveArray<IntervalMonthDayNanoType>,
    numbers: &PrimitiveArray<N>,
    product: impl Fn(IntervalMonthDayNano, N::Native) -> Option<IntervalMonthDayNano>,
) -> Result<ArrayRef> {
    let of_row = |pair| {
        let (Some(interval), Some(number)) = pair else { return Ok(None) };
        let too_long = || DataFusionError::Execution(format!("an interval times {number:?} is out of the range of intervals"));
        product(interval, number).map(Some).ok_or_else(too_long)
    };
    let products: PrimitiveArray<IntervalMonthDayNanoType> =
        intervals.iter().zip(numbers).map(of_row).collect::<Result<_>>()?;
    Ok(Arc::new(products))
}

/// Both arguments as columns of as many rows, and whether they are constants.
fn columns(args: &ScalarFunctionArgs) -> Result<(bool, [ArrayRef; 2])> {
    let [one, other] = args.args.as_slice() else { return internal_err!("expected two arguments") };
    let is_scalar = [one, other].iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    Ok((is_scalar, [one.to_array(args.number_rows)?, other.to_array(args.number_rows)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(months: i32, days: i32, nanoseconds: i64) -> IntervalMonthDayNano {
        IntervalMonthDayNano::new(months, days, nanoseconds)
    }

    #[test]
    fn products_are_exact_or_none() {
        assert_eq!(times(interval(1, -2, 3), -2), Some(interval(-2, 4, -6)));
        assert_eq!(times(interval(i32::MAX, 0, 0), 2), None);
        assert_eq!(times(interval(0, 0, i64::MAX), 2), None);
        assert_eq!(scaled(interval(1, 0, 0), 0.5), Some(interval(0, 15, 0)));
        assert_eq!(scaled(interval(1, 0, 0), 1.1), Some(interval(1, 3, 0)));
        assert_eq!(scaled(interval(0, 1, 0), 0.25), Some(interval(0, 0, DAY_NANOSECONDS / 4)));
        assert_eq!(scaled(interval(0, 1, 0), -1.5), Some(interval(0, -1, -DAY_NANOSECONDS / 2)));
        for by in [f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(scaled(interval(0, 0, 1), by), None, "{by}");
        }
    }

    #[test]
    fn ages_are_those_of_the_calendar() {
        let between = |to: &str, from: &str| age(to.parse().unwrap(), from.parse().unwrap());
        assert_eq!(between("2024-03-31T00:00:00", "2024-02-29T00:00:00"), interval(1, 2, 0));
        assert_eq!(between("2024-03-05T01:00:00", "2023-01-31T02:00:00"), interval(13, 4, 23 * 3_600_000_000_000));
        assert_eq!(between("2023-01-31T02:00:00", "2024-03-05T01:00:00"), interval(-13, -4, -23 * 3_600_000_000_000));
        assert_eq!(between("2024-01-01T00:00:00", "2024-01-01T00:00:00"), interval(0, 0, 0));
    }
}
