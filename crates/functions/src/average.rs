//! `pithead_average(sum, count)`: the last step of an `avg` that was computed in parts.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DataType, Decimal128Type, Float64Type, Int64Type, i256,
};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use crate::fault;

/// Digits that `avg` adds to a decimal's scale.
const SCALE_ADDED: i8 = 4;

static AVERAGE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new(ScalarUDF::from(Average::new())));

/// `sum / count`, divided as `avg` divides: floats as floats; decimals to four more digits, truncated and not rounded.
/// NULL where `sum` is NULL or `count` is 0. It runs at the host only, so it is in no sub-plan.
pub fn average(sum: Expr, count: Expr) -> Expr {
    AVERAGE.call(vec![sum, count])
}

/// The function itself.
pub(crate) fn average_udf() -> ScalarUDF {
    AVERAGE.as_ref().clone()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Average {
    signature: Signature,
}

impl Average {
    fn new() -> Self {
        Self { signature: Signature::any(2, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Average {
    fn name(&self) -> &str {
        "pithead_average"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [DataType::Float64, DataType::Int64] => Ok(DataType::Float64),
            [DataType::Decimal128(_, scale), DataType::Int64] => {
                Ok(DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale_of(*scale)))
            }
            _ => plan_err!("expected pithead_average(Float64 or Decimal128, Int64), got {types:?}"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let counts = arrays[1].as_primitive::<Int64Type>();
        let divided: ArrayRef = match arrays[0].data_type() {
            DataType::Float64 => {
                let sums = arrays[0].as_primitive::<Float64Type>();
                let value = |(sum, count): (Option<f64>, Option<i64>)| Some(sum? / count.filter(|n| *n != 0)? as f64);
                Arc::new(sums.iter().zip(counts).map(value).collect::<Float64Array>())
            }
            DataType::Decimal128(_, scale) => {
                let sums = arrays[0].as_primitive::<Decimal128Type>();
                let added = scale_of(*scale) - scale;
                let mean = |(sum, count): (Option<i128>, Option<i64>)| match (sum, count) {
                    (Some(sum), Some(count)) if count != 0 => {
                        divide(sum, count.into(), added, DECIMAL128_MAX_PRECISION).map(Some)
                    }
                    _ => Ok(None),
                };
                let array = sums.iter().zip(counts).map(mean).collect::<Result<Decimal128Array>>()?;
                Arc::new(array.with_precision_and_scale(DECIMAL128_MAX_PRECISION, scale_of(*scale))?)
            }
            other => return exec_err!("pithead_average of {other}"),
        };
        Ok(ColumnarValue::Array(divided))
    }
}

fn scale_of(scale: i8) -> i8 {
    (scale + SCALE_ADDED).min(DECIMAL128_MAX_SCALE)
}

/// `sum / count` with `added` more digits, cut and not rounded; an error if it has more than `digits` in all.
pub(crate) fn divide(sum: i128, count: i128, added: i8, digits: u8) -> Result<i128> {
    let mean = match 10_i128.checked_pow(added.max(0) as u32).and_then(|factor| sum.checked_mul(factor)) {
        Some(scaled) => Some(scaled / count),
        // 38 digits and four more fit into 256 bits.
        None => i256::from_i128(sum)
            .checked_mul(i256::from_i128(10_i128.pow(added.max(0) as u32)))
            .and_then(|scaled| scaled.checked_div(i256::from_i128(count)))
            .and_then(i256::to_i128),
    };
    match mean.filter(|mean| mean.unsigned_abs() < 10_u128.pow(digits.into())) {
        Some(mean) => Ok(mean),
        None => Err(fault::overflow(format!(
            "overflow in avg: the mean does not fit in {digits} digits, {added} of them after those of its values"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_cut() {
        assert_eq!(divide(200, 3, 4, 38).unwrap(), 666_666);
        assert_eq!(divide(-200, 3, 4, 38).unwrap(), -666_666);
        assert_eq!(divide(i128::MAX / 2, 1 << 20, 4, 38).unwrap(), i128::MAX / 2 / (1 << 20) * 10_000 + 9_999);
        assert!(divide(i128::MAX / 2, 1, 4, 38).is_err());
        assert!(divide(10_i128.pow(9), 1, 0, 9).is_err());
    }
}
