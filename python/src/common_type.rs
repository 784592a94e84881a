//! Values of several types as one list, where no value is lost by it.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ListArray, NullArray};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{CastOptions, cast_with_options, concat};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Field, FieldRef, TimeUnit};
use arrow::error::ArrowError;

/// One list of arrays of one value each.
pub(crate) fn list_of(items: &[ArrayRef]) -> Result<ArrayRef, ArrowError> {
    let mut common = DataType::Null;
    for item in items {
        common = common_type(&common, item.data_type()).ok_or_else(|| {
            let types = [&common, item.data_type()].map(crate::types::type_name);
            ArrowError::InvalidArgumentError(format!("a list has values of type {} and {}", types[0], types[1]))
        })?;
    }
    let items = items.iter().map(|item| exact(item, &common)).collect::<Result<Vec<_>, _>>()?;
    let parts: Vec<&dyn Array> = items.iter().map(AsRef::as_ref).collect();
    let items = if parts.is_empty() { Arc::new(NullArray::new(0)) as ArrayRef } else { concat(&parts)? };
    let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths([items.len()]);
    Ok(Arc::new(ListArray::try_new(field, offsets, items, None)?))
}

/// The type that holds the values of both; none where there is none.
fn common_type(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::{Date32, Float64, List, Null, Struct, Timestamp};
    match (a, b) {
        (same, other) if same == other => Some(same.clone()),
        (Null, known) | (known, Null) => Some(known.clone()),
        (List(a), List(b)) => Some(List(common_field(a, b)?)),
        (Struct(a), Struct(b)) if a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.name() == b.name()) => {
            Some(Struct(a.iter().zip(b).map(|(a, b)| common_field(a, b)).collect::<Option<_>>()?))
        }
        (Timestamp(_, zone), Timestamp(_, other)) if zone == other => Some(Timestamp(TimeUnit::Nanosecond, zone.clone())),
        (Date32, Timestamp(unit, None)) | (Timestamp(unit, None), Date32) => Some(Timestamp(*unit, None)),
        (Float64, other) | (other, Float64) => digits(other).map(|_| Float64),
        _ => common_decimal(digits(a)?, digits(b)?),
    }
}

fn common_field(a: &FieldRef, b: &FieldRef) -> Option<FieldRef> {
    let known = a.as_ref().clone();
    Some(Arc::new(known.with_data_type(common_type(a.data_type(), b.data_type())?)))
}

/// Digits before and behind the point that exact numbers of a type have at most.
fn digits(data_type: &DataType) -> Option<(i16, i16)> {
    match data_type {
        DataType::Int64 => Some((19, 0)),
        DataType::UInt64 => Some((20, 0)),
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            Some((i16::from(*precision) - i16::from(*scale), i16::from(*scale)))
        }
        _ => None,
    }
}

fn common_decimal((before, behind): (i16, i16), others: (i16, i16)) -> Option<DataType> {
    let (before, behind) = (before.max(others.0), behind.max(others.1));
    let (precision, scale) = (u8::try_from(before + behind).ok()?, i8::try_from(behind).ok()?);
    if precision <= DECIMAL128_MAX_PRECISION {
        return Some(DataType::Decimal128(precision, scale));
    }
    (precision <= DECIMAL256_MAX_PRECISION).then_some(DataType::Decimal256(precision, scale))
}

/// The array in another type. A value that would not come back is an error.
fn exact(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let changed = cast_with_options(array, to, &options)?;
    // What has no way back holds nulls only.
    let back = cast_with_options(&changed, array.data_type(), &CastOptions::default());
    match back.map_or(true, |back| back.as_ref() == array.as_ref()) {
        true => Ok(changed),
        false => Err(ArrowError::CastError(format!(
            "a list has a value of type {} that {} does not hold exactly",
            crate::types::type_name(array.data_type()),
            crate::types::type_name(to)
        ))),
    }
}
