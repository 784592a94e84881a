//! `pg_sleep` and its kin: they wait without keeping a thread, so that a statement that sleeps is cancelled as any other.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, DurationMicrosecondType, Float64Type, IntervalMonthDayNanoType, IntervalUnit};
use async_trait::async_trait;
use datafusion::common::{Result, not_impl_err};
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

const DAY_NANOS: i128 = 86_400_000_000_000;
/// Longest that one call waits; PostgreSQL's clock has such a bound, too.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);

/// The functions that wait.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    ["pg_sleep", "pg_sleep_for"].map(|name| AsyncScalarUDF::new(Arc::new(Sleep::new(name))).into_scalar_udf()).into()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sleep {
    name: &'static str,
    signature: Signature,
}

impl Sleep {
    fn new(name: &'static str) -> Sleep {
        Sleep { name, signature: Signature::one_of(vec![TypeSignature::Any(1)], Volatility::Volatile) }
    }
}

impl ScalarUDFImpl for Sleep {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        not_impl_err!("{} in this place of a statement", self.name)
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for Sleep {
    async fn invoke_async_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let times = match args.args.first() {
            Some(times) => times.to_array(args.number_rows)?,
            None => return not_impl_err!("{} without a time", self.name),
        };
        let mut texts = Vec::with_capacity(times.len());
        for time in durations(&times)? {
            if let Some(time) = time {
                tokio::time::sleep(time.min(LONGEST)).await;
            }
            // PostgreSQL's void, which is shown as an empty text.
            texts.push(time.map(|_| ""));
        }
        Ok(ColumnarValue::Array(Arc::new(StringArray::from(texts))))
    }
}

/// How long each row waits: seconds, or an interval. None: NULL.
fn durations(times: &ArrayRef) -> Result<Vec<Option<Duration>>> {
    let nanos = |nanos: i128| Duration::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX));
    Ok(match times.data_type() {
        DataType::Interval(_) => {
            let times = cast(times, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            let of = |time: <IntervalMonthDayNanoType as arrow::datatypes::ArrowPrimitiveType>::Native| {
                let days = i128::from(time.months) * 30 + i128::from(time.days);
                nanos(days * DAY_NANOS + i128::from(time.nanoseconds))
            };
            times.as_primitive::<IntervalMonthDayNanoType>().iter().map(|time| time.map(of)).collect()
        }
        DataType::Duration(_) => {
            let times = cast(times, &DataType::Duration(arrow::datatypes::TimeUnit::Microsecond))?;
            let times = times.as_primitive::<DurationMicrosecondType>().iter();
            times.map(|time| time.map(|micros| nanos(i128::from(micros) * 1000))).collect()
        }
        _ => {
            let times = cast(times, &DataType::Float64)?;
            let of = |seconds: f64| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(LONGEST);
            times.as_primitive::<Float64Type>().iter().map(|time| time.map(of)).collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, IntervalMonthDayNanoArray};
    use arrow::datatypes::IntervalMonthDayNano;

    use super::*;

    #[test]
    fn times_are_seconds_or_intervals() {
        let seconds: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.5), Some(-1.0), None, Some(f64::NAN), Some(1e300)]));
        let found = durations(&seconds).unwrap();
        let expected = [Some(Duration::from_millis(1500)), Some(Duration::ZERO), None, Some(Duration::ZERO), Some(LONGEST)];
        assert_eq!(found, expected);
        let interval: ArrayRef =
            Arc::new(IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(0, 1, 1_000_000_000)]));
        assert_eq!(durations(&interval).unwrap(), [Some(Duration::from_secs(86_401))]);
    }
}
