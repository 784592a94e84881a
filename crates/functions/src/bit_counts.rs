//! `bit_count`: the bits of a whole number that are set, as in DuckDB. Those of a number below 0 are of its type.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int8Array, PrimitiveArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use datafusion::common::{Result, internal_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use crate::wall_time::as_given;

pub(crate) fn bit_count_udf() -> ScalarUDF {
    ScalarUDF::new_from_impl(BitCount { signature: Signature::user_defined(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct BitCount {
    signature: Signature,
}

impl ScalarUDFImpl for BitCount {
    fn name(&self) -> &'static str {
        "bit_count"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [of] if of.is_integer() => Ok(types.to_vec()),
            [DataType::Null] => Ok(vec![DataType::Int64]),
            [other] => plan_err!("bit_count expects a whole number, and {other} was given"),
            _ => plan_err!("bit_count expects one whole number"),
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [numbers] = args.args.as_slice() else { return internal_err!("expected one argument") };
        let is_scalar = matches!(numbers, ColumnarValue::Scalar(_));
        as_given(counts(&numbers.to_array(if is_scalar { 1 } else { args.number_rows })?)?, is_scalar)
    }
}

fn counts(numbers: &ArrayRef) -> Result<ArrayRef> {
    fn of<T: ArrowPrimitiveType>(numbers: &ArrayRef, count: fn(T::Native) -> u32) -> ArrayRef {
        let numbers: &PrimitiveArray<T> = numbers.as_primitive();
        Arc::new(numbers.unary::<_, Int8Type>(|number| count(number) as i8) as Int8Array)
    }
    Ok(match numbers.data_type() {
        DataType::Int8 => of::<Int8Type>(numbers, i8::count_ones),
        DataType::Int16 => of::<Int16Type>(numbers, i16::count_ones),
        DataType::Int32 => of::<Int32Type>(numbers, i32::count_ones),
        DataType::Int64 => of::<Int64Type>(numbers, i64::count_ones),
        DataType::UInt8 => of::<UInt8Type>(numbers, u8::count_ones),
        DataType::UInt16 => of::<UInt16Type>(numbers, u16::count_ones),
        DataType::UInt32 => of::<UInt32Type>(numbers, u32::count_ones),
        DataType::UInt64 => of::<UInt64Type>(numbers, u64::count_ones),
        other => return internal_err!("bits of {other}"),
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, UInt8Array};

    use super::*;

    #[test]
    fn bits_are_those_of_the_type() {
        let of = |numbers: ArrayRef| counts(&numbers).unwrap().as_primitive::<Int8Type>().iter().collect::<Vec<_>>();
        assert_eq!(of(Arc::new(Int64Array::from(vec![Some(5), Some(-1), Some(0), None]))), [Some(2), Some(64), Some(0), None]);
        assert_eq!(of(Arc::new(Int8Array::from(vec![-1, i8::MIN]))), [Some(8), Some(1)]);
        assert_eq!(of(Arc::new(UInt8Array::from(vec![255]))), [Some(8)]);
    }
}
