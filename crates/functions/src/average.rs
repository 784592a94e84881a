//! `pithead_average(sum, count)`: the last step of an `avg` that was computed in parts.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DataType, Decimal128Type, Float64Type, Int64Type};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

/// Digits that `avg` adds to a decimal's scale.
const SCALE_ADDED: i8 = 4;

static AVERAGE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new(ScalarUDF::from(Average::new())));

/// `sum / count`, divided as `avg` divides: floats as floats; decimals to four more digits, truncated and not rounded.
/// NULL where `sum` is NULL or `count` is 0. It runs at the host only, so it is in no sub-plan.
pub fn average(sum: Expr, count: Expr) -> Expr {
    AVERAGE.call(vec![sum, count])
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
                let values =
                    sums.iter().zip(counts).map(|(sum, count)| divide(sum, count, added)).collect::<Result<Vec<_>>>()?;
                let array: Decimal128Array = values.into_iter().collect();
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

fn divide(sum: Option<i128>, count: Option<i64>, added: i8) -> Result<Option<i128>> {
    let (Some(sum), Some(count)) = (sum, count.filter(|n| *n != 0)) else { return Ok(None) };
    match sum.checked_mul(10_i128.pow(added as u32)) {
        Some(scaled) => Ok(Some(scaled / i128::from(count))),
        None => exec_err!("overflow in avg: a sum of {sum} cannot be held with {added} more digits"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_cut_and_empty_groups_are_null() {
        assert_eq!(divide(Some(200), Some(3), 4).unwrap(), Some(666_666));
        assert_eq!(divide(Some(-200), Some(3), 4).unwrap(), Some(-666_666));
        assert_eq!(divide(None, Some(0), 4).unwrap(), None);
        assert!(divide(Some(i128::MAX / 2), Some(1), 4).is_err());
    }
}
