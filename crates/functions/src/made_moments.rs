//! `make_timestamp`: a moment of its year, month, day, hour, minute and seconds, or of microseconds since 1970, as in DuckDB.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, PrimitiveArray, TimestampMicrosecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use chrono::NaiveDate;
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use crate::wall_time::as_given;

const SECOND_US: i64 = 1_000_000;
/// The whole numbers before the seconds.
const PARTS: usize = 5;

pub(crate) fn made_moment_udf() -> ScalarUDF {
    ScalarUDF::new_from_impl(MakeTimestamp { signature: Signature::user_defined(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct MakeTimestamp {
    signature: Signature,
}

impl ScalarUDFImpl for MakeTimestamp {
    fn name(&self) -> &'static str {
        "make_timestamp"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let is_whole = |of: &DataType| of.is_integer() || of.is_null();
        match types {
            [microseconds] if is_whole(microseconds) => Ok(vec![DataType::Int64]),
            [parts @ .., seconds]
                if parts.len() == PARTS && parts.iter().all(is_whole) && (seconds.is_numeric() || seconds.is_null()) =>
            {
                Ok([vec![DataType::Int64; PARTS], vec![DataType::Float64]].concat())
            }
            _ => plan_err!(
                "make_timestamp expects a year, month, day, hour and minute as whole numbers, and seconds, or microseconds since 1970"
            ),
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Timestamp(TimeUnit::Microsecond, None))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let columns = args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let moments: ArrayRef = match &columns[..] {
            [microseconds] => cast(microseconds, &DataType::Timestamp(TimeUnit::Microsecond, None))?,
            [parts @ .., seconds] => Arc::new(made(parts, seconds.as_primitive())?),
            [] => return plan_err!("make_timestamp expects arguments"),
        };
        as_given(moments, is_scalar)
    }
}

fn made(parts: &[ArrayRef], seconds: &Float64Array) -> Result<TimestampMicrosecondArray> {
    let parts: Vec<&Int64Array> = parts.iter().map(|part| part.as_primitive::<Int64Type>()).collect();
    let value = |row: usize| -> Result<Option<i64>> {
        if seconds.is_null(row) || parts.iter().any(|part| part.is_null(row)) {
            return Ok(None);
        }
        match parts.iter().map(|part| part.value(row)).collect::<Vec<_>>()[..] {
            [year, month, day, hour, minute] => moment([year, month, day], [hour, minute], seconds.value(row)).map(Some),
            _ => plan_err!("make_timestamp expects {PARTS} whole numbers"),
        }
    };
    let moments: PrimitiveArray<_> = (0..seconds.len()).map(value).collect::<Result<Vec<_>>>()?.into_iter().collect();
    Ok(moments)
}

/// Microseconds since 1970. The last moment of a day or a minute may be written as its 24 hours or 60 seconds.
fn moment([year, month, day]: [i64; 3], [hour, minute]: [i64; 2], seconds: f64) -> Result<i64> {
    let date = || NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, u32::try_from(month).ok()?, u32::try_from(day).ok()?);
    let Some(date) = date() else { return exec_err!("make_timestamp: there is no day {year}-{month}-{day}") };
    let is_end = hour == 24 && minute == 0 && seconds == 0.0;
    if !(is_end || (0..24).contains(&hour)) || !(0..60).contains(&minute) || !(0.0..61.0).contains(&seconds) {
        return exec_err!("make_timestamp: there is no time {hour}:{minute}:{seconds}");
    }
    let midnight = date.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_micros();
    let microseconds = (seconds.fract() * SECOND_US as f64).round() as i64 + seconds.trunc() as i64 * SECOND_US;
    Ok(midnight + (hour * 3_600 + minute * 60) * SECOND_US + microseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_make_a_moment() {
        let day = moment([2024, 2, 29], [0, 0], 0.0).unwrap();
        assert_eq!(day, 1_709_164_800_000_000);
        for (time, seconds, expected) in [
            ([12, 30], 1.5, 45_001_500_000),
            ([23, 59], 60.0, 86_400_000_000),
            ([24, 0], 0.0, 86_400_000_000),
            ([23, 59], 59.999_999_9, 86_400_000_000),
            ([0, 0], 60.5, 60_500_000),
            ([0, 0], 1.000_000_5, 1_000_001),
            ([0, 0], 1.000_000_499_9, 1_000_000),
        ] {
            assert_eq!(moment([2024, 2, 29], time, seconds).unwrap() - day, expected, "{time:?} {seconds}");
        }
        assert!(moment([-5, 2, 2], [23, 59], 0.0).unwrap() < moment([1, 1, 1], [0, 0], 0.0).unwrap());
        for (date, time, seconds) in [
            ([2023, 2, 29], [0, 0], 0.0),
            ([2024, 13, 1], [0, 0], 0.0),
            ([1 << 40, 1, 1], [0, 0], 0.0),
            ([2024, 1, 1], [24, 0], 1.0),
            ([2024, 1, 1], [0, 60], 0.0),
            ([2024, 1, 1], [0, 0], 61.0),
            ([2024, 1, 1], [0, 0], -1.0),
            ([2024, 1, 1], [0, 0], f64::NAN),
        ] {
            assert!(moment(date, time, seconds).unwrap_err().to_string().contains("there is no"), "{date:?} {time:?}");
        }
    }

    #[test]
    fn a_moment_without_a_part_is_null() {
        let parts: Vec<ArrayRef> =
            [2024, 1, 2, 3, 4].map(|part| Arc::new(Int64Array::from(vec![part, part])) as ArrayRef).into();
        let moments = made(&parts, &Float64Array::from(vec![None, Some(5.0)])).unwrap();
        let found: Vec<Option<i64>> = moments.iter().collect();
        assert_eq!(found, [None, Some(1_704_164_645_000_000)]);
    }
}
