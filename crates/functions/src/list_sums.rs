//! `array_sum`, also called `list_sum`, that keeps the kind of its numbers: whole numbers have a whole total, decimals a decimal. DataFusion's
//! makes floats of all, which have no place for the digits of large whole numbers.

use std::sync::Arc;

use arrow::array::{ArrayRef, ArrowNativeTypeOp, AsArray, ListArray, PrimitiveArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Decimal128Type, Decimal256Type, Field,
    Float64Type, Int64Type, UInt64Type,
};
use datafusion::common::{Result, internal_err, plan_err};
use datafusion::functions_nested::array_sum::array_sum_udf;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use crate::delegated::as_standard;
use crate::sum_scalar::{check_digits, overflow};
use crate::wall_time::as_given;

pub(crate) fn list_sum_udf() -> ScalarUDF {
    ScalarUDF::new_from_impl(ListSum { standard: array_sum_udf(), signature: Signature::user_defined(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ListSum {
    standard: Arc<ScalarUDF>,
    signature: Signature,
}

/// The type of the total of such values.
fn total_of(values: &DataType) -> DataType {
    match values {
        DataType::UInt64 => DataType::UInt64,
        of if of.is_integer() => DataType::Int64,
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale) => {
            DataType::Decimal128(DECIMAL128_MAX_PRECISION, *scale)
        }
        DataType::Decimal256(_, scale) => DataType::Decimal256(DECIMAL256_MAX_PRECISION, *scale),
        _ => DataType::Float64,
    }
}

impl ScalarUDFImpl for ListSum {
    as_standard!(name aliases documentation);

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let total = match types {
            [DataType::List(values) | DataType::LargeList(values) | DataType::FixedSizeList(values, _)] => {
                total_of(values.data_type())
            }
            [DataType::Null] => DataType::Float64,
            [other] => return plan_err!("{} expects a list of numbers, and {other} was given", self.name()),
            _ => return plan_err!("{} expects one list of numbers", self.name()),
        };
        Ok(vec![DataType::List(Arc::new(Field::new_list_field(total, true)))])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [DataType::List(values) | DataType::LargeList(values) | DataType::FixedSizeList(values, _)] => {
                Ok(total_of(values.data_type()))
            }
            _ => Ok(DataType::Float64),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [lists] = args.args.as_slice() else { return internal_err!("expected one argument") };
        let is_scalar = matches!(lists, ColumnarValue::Scalar(_));
        let lists = lists.to_array(if is_scalar { 1 } else { args.number_rows })?;
        let Some(lists) = lists.as_list_opt::<i32>() else { return internal_err!("expected lists") };
        let totals = match &lists.value_type() {
            of @ DataType::Int64 => whole::<Int64Type>(lists, of),
            of @ DataType::UInt64 => whole::<UInt64Type>(lists, of),
            of @ DataType::Decimal128(..) => added::<Decimal128Type>(lists, of),
            of @ DataType::Decimal256(..) => added::<Decimal256Type>(lists, of),
            of @ DataType::Float64 => added::<Float64Type>(lists, of),
            other => internal_err!("no total is made of {other}"),
        };
        as_given(totals?, is_scalar)
    }
}

/// Totals that are checked when they are complete, so that the order of the values does not matter.
fn whole<T: ArrowPrimitiveType>(lists: &ListArray, of: &DataType) -> Result<ArrayRef>
where
    T::Native: Into<i128> + TryFrom<i128>,
{
    each(lists, of, |values: &PrimitiveArray<T>| {
        let total = values.iter().flatten().map(|value| -> i128 { value.into() }).reduce(|one, other| one + other);
        total.map(|total| T::Native::try_from(total).or_else(|_| overflow(of))).transpose()
    })
}

fn added<T: ArrowPrimitiveType>(lists: &ListArray, of: &DataType) -> Result<ArrayRef> {
    each(lists, of, |values: &PrimitiveArray<T>| {
        let mut values = values.iter().flatten();
        let Some(first) = values.next() else { return Ok(None) };
        values.try_fold(first, |total, value| total.add_checked(value).or_else(|_| overflow(of))).map(Some)
    })
}

/// The total of each list; none of lists without values.
fn each<T: ArrowPrimitiveType>(
    lists: &ListArray,
    of: &DataType,
    total: impl Fn(&PrimitiveArray<T>) -> Result<Option<T::Native>>,
) -> Result<ArrayRef> {
    let totals = lists.iter().map(|list| list.map_or(Ok(None), |list| total(list.as_primitive::<T>())));
    let totals: PrimitiveArray<T> = totals.collect::<Result<Vec<_>>>()?.into_iter().collect();
    let totals = totals.with_data_type(of.clone());
    check_digits(&totals)?;
    Ok(Arc::new(totals))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_of_the_kind_of_their_values_and_checked() {
        let of = |values: Vec<Option<Vec<Option<i64>>>>| {
            whole::<Int64Type>(&ListArray::from_iter_primitive::<Int64Type, _, _>(values), &DataType::Int64)
        };
        let lists = vec![
            Some(vec![Some(9_007_199_254_740_993), None, Some(1)]),
            None,
            Some(vec![]),
            Some(vec![None]),
            Some(vec![Some(i64::MAX), Some(1), Some(-1)]),
        ];
        let totals = of(lists).unwrap();
        let totals: Vec<Option<i64>> = totals.as_primitive::<Int64Type>().iter().collect();
        assert_eq!(totals, [Some(9_007_199_254_740_994), None, None, None, Some(i64::MAX)]);
        let error = of(vec![Some(vec![Some(i64::MAX), Some(1)])]).unwrap_err().to_string();
        assert!(error.contains("overflow in sum"), "{error}");
        assert_eq!(total_of(&DataType::Decimal128(5, 2)), DataType::Decimal128(38, 2));
    }
}
