//! One value to represent all values that are equal to it, also within lists and structs: floats and intervals.

use std::sync::Arc;

use arrow::array::types::Float16Type;
use arrow::array::{Array, ArrayRef, AsArray, make_array};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Field, FieldRef, Float32Type, Float64Type, IntervalDayTime, IntervalDayTimeType,
    IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

/// Days of a month, where months and days are compared.
const MONTH_DAYS: i64 = 30;
/// Nanoseconds of a day.
const DAY_NANOS: i64 = 24 * 3_600 * 1_000_000_000;
/// Milliseconds of a day.
const DAY_MILLIS: i32 = 24 * 3_600 * 1_000;

/// Whether values of this type are or contain values that may be equal to others without being the same.
pub(crate) fn has_synonyms(data_type: &DataType) -> bool {
    match data_type {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => true,
        DataType::Interval(unit) => is_ambiguous(*unit),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::Map(field, _) => has_synonyms(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_synonyms(field.data_type())),
        DataType::Dictionary(_, values) => has_synonyms(values),
        DataType::RunEndEncoded(_, values) => has_synonyms(values.data_type()),
        _ => false,
    }
}

/// Whether intervals of this unit have several parts, of which one may stand for some of another.
fn is_ambiguous(unit: IntervalUnit) -> bool {
    matches!(unit, IntervalUnit::DayTime | IntervalUnit::MonthDayNano)
}

/// The values, with 0.0 for every zero, the one positive NaN for every NaN, and intervals of less than 30 days beside their months and
/// less than 24 hours beside their days. Those are equal to the ones that they stand for, as in DuckDB and PostgreSQL, and in their
/// order. An array without others comes back unchanged.
pub(crate) fn canonical(array: &ArrayRef) -> Result<ArrayRef> {
    match array.data_type() {
        DataType::Float16 => Ok(floats::<Float16Type>(array)),
        DataType::Float32 => Ok(floats::<Float32Type>(array)),
        DataType::Float64 => Ok(floats::<Float64Type>(array)),
        DataType::Interval(IntervalUnit::MonthDayNano) => Ok(Arc::new(
            array.as_primitive::<IntervalMonthDayNanoType>().unary::<_, IntervalMonthDayNanoType>(months_days_nanos),
        )),
        DataType::Interval(IntervalUnit::DayTime) => {
            Ok(Arc::new(array.as_primitive::<IntervalDayTimeType>().unary::<_, IntervalDayTimeType>(days_millis)))
        }
        data_type if has_synonyms(data_type) => {
            let data = array.to_data();
            let children = data.child_data().iter().map(|child| Ok(canonical(&make_array(child.clone()))?.to_data()));
            let children = children.collect::<Result<Vec<_>>>()?;
            Ok(make_array(data.into_builder().child_data(children).build()?))
        }
        _ => Ok(Arc::clone(array)),
    }
}

fn floats<T: Bits>(array: &ArrayRef) -> ArrayRef {
    let values = array.as_primitive::<T>();
    match T::has_odd(values.values()) {
        true => Arc::new(values.unary::<_, T>(T::plain)),
        false => Arc::clone(array),
    }
}

/// The same time with less than 24 hours and 30 days; an interval that no such one is equal to stays.
fn months_days_nanos(value: IntervalMonthDayNano) -> IntervalMonthDayNano {
    let days = i64::from(value.days) + value.nanoseconds.div_euclid(DAY_NANOS);
    let months = i32::try_from(i64::from(value.months) + days.div_euclid(MONTH_DAYS));
    let plain = |months| IntervalMonthDayNano {
        months,
        days: days.rem_euclid(MONTH_DAYS) as i32,
        nanoseconds: value.nanoseconds.rem_euclid(DAY_NANOS),
    };
    months.map_or(value, plain)
}

/// The same for days and milliseconds.
fn days_millis(value: IntervalDayTime) -> IntervalDayTime {
    let days = value.days.checked_add(value.milliseconds.div_euclid(DAY_MILLIS));
    days.map_or(value, |days| IntervalDayTime { days, milliseconds: value.milliseconds.rem_euclid(DAY_MILLIS) })
}

trait Bits: ArrowPrimitiveType {
    /// Whether one of the values is -0.0 or a NaN. Comparisons of floats, and of the bits of those that pass, become
    /// vector code on every processor; comparisons of 64-bit integers do not.
    fn has_odd(values: &[Self::Native]) -> bool;

    /// 0.0 for a zero, the one NaN for a NaN, and any other value unchanged.
    fn plain(value: Self::Native) -> Self::Native;
}

macro_rules! bits {
    ($type:ty, $zero:expr, $sign:expr) => {
        impl Bits for $type {
            fn has_odd(values: &[Self::Native]) -> bool {
                let odd = values.iter().fold(0, |odd, value| {
                    let zero = if *value == $zero { value.to_bits() } else { 0 };
                    let nan = if value.is_nan() { $sign } else { 0 };
                    odd | zero | nan
                });
                odd & $sign != 0
            }

            #[inline]
            fn plain(value: Self::Native) -> Self::Native {
                match value {
                    value if value.is_nan() => Self::Native::NAN,
                    value if value == $zero => $zero,
                    value => value,
                }
            }
        }
    };
}

bits!(Float16Type, <Float16Type as ArrowPrimitiveType>::Native::ZERO, 1u16 << 15);
bits!(Float32Type, 0.0f32, 1u32 << 31);
bits!(Float64Type, 0.0f64, 1u64 << 63);

/// [`canonical`] as a function, under the name of the expression that it is applied to. It has no name that SQL can
/// spell, is never registered, and never travels.
pub(super) fn one_value(expr: Expr) -> Expr {
    if matches!(&expr, Expr::ScalarFunction(function) if function.func.inner().is::<OneValue>()) {
        return expr;
    }
    ScalarUDF::new_from_impl(OneValue::new(true)).call(vec![expr])
}

/// The same for what is looked for in a list, which is then equal only to what is looked for in the same list.
pub(super) fn looked_for_in(expr: Expr, list: &[Expr], negated: bool) -> Expr {
    let only_in = Some((list.to_vec(), negated));
    ScalarUDF::new_from_impl(OneValue { only_in, ..OneValue::new(true) }).call(vec![expr])
}

/// The function itself.
pub(crate) fn one_value_udf() -> ScalarUDF {
    ScalarUDF::new_from_impl(OneValue::new(true))
}

/// The argument of the function, where `function` is that one.
pub(crate) fn without_one_value(function: &ScalarFunction) -> Option<Expr> {
    let is_ours = function.func.inner().downcast_ref::<OneValue>().is_some_and(|one| one.keeps_name);
    is_ours.then(|| function.args.first().cloned()).flatten()
}

/// The same function under a name of its own, for columns beside the columns that they are computed from.
pub(super) fn another_value(expr: Expr) -> Expr {
    ScalarUDF::new_from_impl(OneValue::new(false)).call(vec![expr])
}

/// The expression before [`canonical`] was applied to it. For a reader that takes both zeros as one anyway, such as the
/// bounds of slices, the two mean the same.
pub fn before_one_value(expr: &Arc<dyn PhysicalExpr>) -> &Arc<dyn PhysicalExpr> {
    let function = expr.downcast_ref::<ScalarFunctionExpr>().filter(|function| function.fun().inner().is::<OneValue>());
    match function.map(ScalarFunctionExpr::args) {
        Some([argument]) => argument,
        _ => expr,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OneValue {
    keeps_name: bool,
    /// The list that its argument is looked for in, and whether it is not to be there.
    only_in: Option<(Vec<Expr>, bool)>,
    signature: Signature,
}

impl OneValue {
    fn new(keeps_name: bool) -> Self {
        Self { keeps_name, only_in: None, signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for OneValue {
    fn name(&self) -> &'static str {
        "one value"
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        match arguments {
            [argument] if self.keeps_name => Ok(argument.schema_name().to_string()),
            [argument] => Ok(format!("{}({})", self.name(), argument.schema_name())),
            _ => internal_err!("expected one argument"),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [data_type] => Ok(data_type.clone()),
            _ => internal_err!("expected one argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields {
            [field] => Ok(Arc::new(Field::new(self.name(), field.data_type().clone(), field.is_nullable()))),
            _ => internal_err!("expected one argument"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Array(array)] => canonical(array).map(ColumnarValue::Array),
            [ColumnarValue::Scalar(scalar)] => {
                let array = canonical(&scalar.to_array()?)?;
                ScalarValue::try_from_array(array.as_ref(), 0).map(ColumnarValue::Scalar)
            }
            _ => internal_err!("expected one argument"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float64Array, Int32Array, ListArray, StructArray};
    use arrow::buffer::{NullBuffer, OffsetBuffer};

    #[test]
    fn zeros_and_nans_become_one() {
        let payload = f64::from_bits(f64::NAN.to_bits() | 7);
        let array: ArrayRef =
            Arc::new(Float64Array::from(vec![Some(-0.0), None, Some(-f64::NAN), Some(payload), Some(0.0), Some(-1.5)]));
        let bits = |array: &ArrayRef| -> Vec<Option<u64>> {
            array.as_primitive::<Float64Type>().iter().map(|value| value.map(f64::to_bits)).collect()
        };
        let expected = [Some(0.0), None, Some(f64::NAN), Some(f64::NAN), Some(0.0), Some(-1.5)].map(|v| v.map(f64::to_bits));
        assert_eq!(bits(&canonical(&array).unwrap()), expected);
        assert_eq!(bits(&canonical(&array.slice(2, 3)).unwrap()), expected[2..5]);
    }

    #[test]
    fn equal_intervals_become_one_and_keep_their_order() {
        let interval = |months, days, hours: i64| IntervalMonthDayNano { months, days, nanoseconds: hours * 3_600_000_000_000 };
        for (value, expected) in [
            (interval(0, 0, 24), interval(0, 1, 0)),
            (interval(0, 0, 25), interval(0, 1, 1)),
            (interval(0, 31, 0), interval(1, 1, 0)),
            (interval(0, 0, -1), interval(-1, 29, 23)),
            (interval(-1, 0, 0), interval(-1, 0, 0)),
            (interval(0, -30, 0), interval(-1, 0, 0)),
            (interval(i32::MAX, 31, 0), interval(i32::MAX, 31, 0)),
        ] {
            assert_eq!(months_days_nanos(value), expected, "{value:?}");
            let total = |it: IntervalMonthDayNano| {
                (i128::from(it.months) * 30 + i128::from(it.days)) * i128::from(DAY_NANOS) + i128::from(it.nanoseconds)
            };
            assert_eq!(total(value), total(expected));
        }
        let days = IntervalDayTime { days: 1, milliseconds: -1 };
        assert_eq!(days_millis(days), IntervalDayTime { days: 0, milliseconds: DAY_MILLIS - 1 });
    }

    #[test]
    fn nested_values_are_reached_and_all_else_stays() {
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![-0.0, 1.0, -0.0]));
        let item = Arc::new(Field::new("item", DataType::Float64, true));
        let lists: ArrayRef = Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([2, 0, 1]), floats, None));
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
        let fields = vec![Field::new("n", DataType::Int32, true), Field::new("l", lists.data_type().clone(), true)];
        let nulls = NullBuffer::from(vec![true, false, true]);
        let structs: ArrayRef = Arc::new(StructArray::new(fields.into(), vec![numbers, lists], Some(nulls)));
        let plain = canonical(&structs.slice(1, 2)).unwrap();
        assert_eq!((plain.len(), plain.null_count()), (2, 1));
        let last = plain.as_struct().column(1).as_list::<i32>().value(1);
        assert_eq!(last.as_primitive::<Float64Type>().value(0).to_bits(), 0);
    }
}
