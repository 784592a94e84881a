//! Wall times in a zone whose clocks are changed: the moments that they are, and moments some days and months later.
//!
//! An hour that clocks skip or show twice is an error to arrow's kernels, and one such row would fail its query. Here a wall time that
//! clocks skip is read as if they had not been changed yet, and one that they show twice is the later moment, as in PostgreSQL and
//! DuckDB.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::cast as cast_array;
use arrow::datatypes::{
    ArrowTimestampType, DataType, Field, FieldRef, IntervalMonthDayNanoType, IntervalUnit, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use chrono::{DateTime, Days, MappedLocalTime, Months, NaiveDateTime, Offset, TimeDelta, TimeZone};
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_err, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast, lit,
};

/// The moment of a wall time, in the zone of this name.
pub(crate) fn moment_at(wall_time: Expr, zone: &str) -> Expr {
    moment_at_udf().call(vec![wall_time, lit(zone)])
}

/// A moment with a zone, so much later; `sign`: 1, or -1 for so much sooner. Days and months are those of the zone's clocks.
pub(crate) fn shifted(moment: Expr, interval: Expr, sign: i32) -> Expr {
    shifted_udf().call(vec![moment, cast(interval, DataType::Interval(IntervalUnit::MonthDayNano)), lit(sign)])
}

pub(crate) fn moment_at_udf() -> ScalarUDF {
    ScalarUDF::new_from_impl(MomentAt { signature: Signature::any(2, Volatility::Immutable) })
}

pub(crate) fn shifted_udf() -> ScalarUDF {
    ScalarUDF::new_from_impl(Shifted { signature: Signature::any(3, Volatility::Immutable) })
}

/// The moment at which clocks of a zone show a wall time.
pub(crate) fn moment_of(wall_time: NaiveDateTime, zone: &Tz) -> Option<NaiveDateTime> {
    let offset = match zone.offset_from_local_datetime(&wall_time) {
        MappedLocalTime::Single(offset) | MappedLocalTime::Ambiguous(_, offset) => offset,
        // No clock skips more than a day.
        MappedLocalTime::None => zone.offset_from_local_datetime(&wall_time.checked_sub_days(Days::new(1))?).earliest()?,
    };
    wall_time.checked_sub_offset(offset.fix())
}

macro_rules! each_of_unit {
    ($unit:expr, $moments:expr, $zone:expr, $change:expr) => {
        match $unit {
            TimeUnit::Second => each::<TimestampSecondType>($moments, $zone, $change),
            TimeUnit::Millisecond => each::<TimestampMillisecondType>($moments, $zone, $change),
            TimeUnit::Microsecond => each::<TimestampMicrosecondType>($moments, $zone, $change),
            TimeUnit::Nanosecond => each::<TimestampNanosecondType>($moments, $zone, $change),
        }
    };
}

/// The moments at which clocks of a zone show wall times.
pub fn moments_at(wall_times: &ArrayRef, zone: &str) -> Result<ArrayRef> {
    let DataType::Timestamp(unit, None) = wall_times.data_type() else {
        return internal_err!("expected wall times, and {} were given", wall_times.data_type());
    };
    let tz = zone_of(zone)?;
    each_of_unit!(unit, wall_times, Some(zone.into()), |_, wall_time| moment_of(wall_time, &tz))
}

/// A moment so many months, days and nanoseconds later, by the clocks of a zone.
pub(crate) fn later(moment: NaiveDateTime, months: i32, days: i32, nanoseconds: i64, zone: &Tz) -> Option<NaiveDateTime> {
    let moment = match (months, days) {
        (0, 0) => moment,
        _ => {
            let there = moment.checked_add_offset(zone.offset_from_utc_datetime(&moment).fix())?;
            let by = Months::new(months.unsigned_abs());
            let there = if months < 0 { there.checked_sub_months(by)? } else { there.checked_add_months(by)? };
            let by = Days::new(u64::from(days.unsigned_abs()));
            let there = if days < 0 { there.checked_sub_days(by)? } else { there.checked_add_days(by)? };
            moment_of(there, zone)?
        }
    };
    moment.checked_add_signed(TimeDelta::nanoseconds(nanoseconds))
}

/// A unit of moments.
pub(crate) trait Unit: ArrowTimestampType {
    fn read(value: i64) -> Option<NaiveDateTime>;
    fn write(moment: NaiveDateTime) -> Option<i64>;
}

macro_rules! unit {
    ($type:ty, $read:expr, $write:expr) => {
        impl Unit for $type {
            fn read(value: i64) -> Option<NaiveDateTime> {
                $read(value).map(|moment: DateTime<_>| moment.naive_utc())
            }

            fn write(moment: NaiveDateTime) -> Option<i64> {
                $write(&moment.and_utc())
            }
        }
    };
}

unit!(TimestampSecondType, |value| DateTime::from_timestamp(value, 0), |moment: &DateTime<_>| Some(moment.timestamp()));
unit!(TimestampMillisecondType, DateTime::from_timestamp_millis, |moment: &DateTime<_>| Some(moment.timestamp_millis()));
unit!(TimestampMicrosecondType, DateTime::from_timestamp_micros, |moment: &DateTime<_>| Some(moment.timestamp_micros()));
unit!(TimestampNanosecondType, |value| Some(DateTime::from_timestamp_nanos(value)), |moment: &DateTime<_>| moment
    .timestamp_nanos_opt());

fn out_of_range(value: NaiveDateTime) -> DataFusionError {
    DataFusionError::Execution(format!("{value} in this zone is out of the range of moments"))
}

/// Each moment changed.
pub(crate) fn each<T: Unit>(
    moments: &ArrayRef,
    zone: Option<Arc<str>>,
    mut change: impl FnMut(usize, NaiveDateTime) -> Option<NaiveDateTime>,
) -> Result<ArrayRef> {
    let moments = moments.as_primitive::<T>();
    let mut changed = Vec::with_capacity(moments.len());
    for (row, value) in moments.iter().enumerate() {
        let Some(value) = value else {
            changed.push(None);
            continue;
        };
        let Some(before) = T::read(value) else { return exec_err!("the moment {value} is out of the range of dates") };
        let after = change(row, before).and_then(T::write).ok_or_else(|| out_of_range(before))?;
        changed.push(Some(after));
    }
    let array: PrimitiveArray<T> = changed.into_iter().collect();
    Ok(Arc::new(array.with_timezone_opt(zone)))
}

/// The zone of a name.
pub(crate) fn zone_of(name: &str) -> Result<Tz> {
    name.parse().map_err(|_| DataFusionError::Plan(format!("there is no time zone {name}")))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct MomentAt {
    signature: Signature,
}

impl ScalarUDFImpl for MomentAt {
    fn name(&self) -> &'static str {
        "pithead_moment_at"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        internal_err!("the type hangs on the zone")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let zone = args.scalar_arguments.get(1).copied().flatten().and_then(|zone| zone.try_as_str().flatten());
        let (Some(zone), [wall_time, _]) = (zone, args.arg_fields) else { return plan_err!("expected a wall time and a zone") };
        let DataType::Timestamp(unit, None) = wall_time.data_type() else {
            return plan_err!("expected a wall time, and {} was given", wall_time.data_type());
        };
        Ok(Arc::new(Field::new(self.name(), DataType::Timestamp(*unit, Some(zone.into())), wall_time.is_nullable())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let DataType::Timestamp(_, Some(zone)) = args.return_field.data_type() else {
            return internal_err!("expected a zone");
        };
        let is_scalar = matches!(args.args[0], ColumnarValue::Scalar(_));
        as_given(moments_at(&args.args[0].to_array(args.number_rows)?, zone)?, is_scalar)
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Shifted {
    signature: Signature,
}

impl ScalarUDFImpl for Shifted {
    fn name(&self) -> &'static str {
        "pithead_shifted"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [moment @ DataType::Timestamp(_, Some(_)), ..] => Ok(moment.clone()),
            _ => plan_err!("expected a moment with a zone"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [moment, interval, ColumnarValue::Scalar(ScalarValue::Int32(Some(sign)))] = args.args.as_slice() else {
            return internal_err!("expected a moment, an interval and a sign");
        };
        let DataType::Timestamp(unit, Some(zone)) = args.return_field.data_type() else {
            return internal_err!("expected a zone");
        };
        let tz = zone_of(zone)?;
        let is_scalar = [moment, interval].iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let (moments, intervals) = (moment.to_array(args.number_rows)?, interval.to_array(args.number_rows)?);
        let intervals = cast_array(&intervals, &DataType::Interval(IntervalUnit::MonthDayNano))?;
        let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
        let moments = if intervals.null_count() == 0 { moments } else { null_where(&moments, intervals)? };
        let moments = each_of_unit!(unit, &moments, Some(Arc::clone(zone)), |row, moment| {
            let by = intervals.value(row);
            let (months, days) = (by.months.checked_mul(*sign)?, by.days.checked_mul(*sign)?);
            later(moment, months, days, by.nanoseconds.checked_mul(i64::from(*sign))?, &tz)
        })?;
        as_given(moments, is_scalar)
    }
}

/// The moments without those whose interval is NULL.
fn null_where(moments: &ArrayRef, intervals: &dyn Array) -> Result<ArrayRef> {
    let nulls = arrow::compute::is_null(intervals)?;
    Ok(arrow::compute::nullif(moments, &nulls)?)
}

/// Values of a function: a constant, where its arguments are.
pub(crate) fn as_given(values: ArrayRef, is_scalar: bool) -> Result<ColumnarValue> {
    Ok(match is_scalar && !values.is_empty() {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?),
        false => ColumnarValue::Array(values),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wall(text: &str) -> NaiveDateTime {
        text.parse().unwrap()
    }

    #[test]
    fn clocks_that_are_changed_are_read_as_postgresql_reads_them() {
        let oslo: Tz = "Europe/Oslo".parse().unwrap();
        let moment = |text| moment_of(wall(text), &oslo).unwrap();
        assert_eq!(moment("2024-03-31T02:30:00"), wall("2024-03-31T01:30:00"), "skipped");
        assert_eq!(moment("2024-10-27T02:30:00"), wall("2024-10-27T01:30:00"), "shown twice");
        assert_eq!(moment("2024-07-01T02:30:00"), wall("2024-07-01T00:30:00"));
        let apia: Tz = "Pacific/Apia".parse().unwrap();
        assert_eq!(
            moment_of(wall("2011-12-30T12:00:00"), &apia).unwrap(),
            wall("2011-12-30T22:00:00"),
            "a day that was left out"
        );
    }

    #[test]
    fn days_are_those_of_clocks_and_hours_those_that_pass() {
        let oslo: Tz = "Europe/Oslo".parse().unwrap();
        let from = wall("2024-10-26T00:30:00");
        assert_eq!(later(from, 0, 1, 0, &oslo).unwrap(), wall("2024-10-27T01:30:00"));
        assert_eq!(later(from, 0, 0, 86_400_000_000_000, &oslo).unwrap(), wall("2024-10-27T00:30:00"));
        assert_eq!(later(wall("2024-01-31T11:00:00"), 1, -1, 0, &oslo).unwrap(), wall("2024-02-28T11:00:00"));
        assert!(later(from, i32::MAX, i32::MAX, 0, &oslo).is_none());
    }
}
