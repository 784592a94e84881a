//! Partitioning keys as a few kinds of array, whatever the column's type.

use arrow::array::{Array, ArrayRef, AsArray, BinaryViewArray, Decimal128Array, Float64Array, Int64Array, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type};
use pithead_model::Fault;

/// A column in the kind that keys are compared and hashed in.
#[derive(Debug)]
pub(crate) enum Keys {
    /// Booleans, integers that fit, dates, times, timestamps, durations (in their own unit).
    Int(Int64Array),
    /// UInt64 and decimals, unscaled.
    Wide(Decimal128Array),
    /// All floats.
    Float(Float64Array),
    /// Texts.
    Text(StringViewArray),
    /// Bytes.
    Bytes(BinaryViewArray),
}

/// The kind of [`Keys`] that a type has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyForm {
    Int,
    Wide,
    Float,
    Text,
    Bytes,
}

impl Keys {
    /// The column as keys; an error for types that cannot be one.
    pub(crate) fn of(column: &ArrayRef) -> Result<Keys, Fault> {
        let data_type = column.data_type();
        let kind = kind(data_type).ok_or_else(|| Fault::invalid(format!("a column of type {data_type} cannot be a key")))?;
        let as_type = |to: &DataType| cast(column, to).map_err(Fault::bug);
        Ok(match kind {
            KeyForm::Int => Keys::Int(integers(column)?.as_primitive::<Int64Type>().clone()),
            KeyForm::Wide if matches!(data_type, DataType::Decimal128(..)) => {
                Keys::Wide(column.as_primitive::<Decimal128Type>().clone())
            }
            KeyForm::Wide => Keys::Wide(as_type(&DataType::Decimal128(20, 0))?.as_primitive::<Decimal128Type>().clone()),
            KeyForm::Float => Keys::Float(as_type(&DataType::Float64)?.as_primitive::<Float64Type>().clone()),
            KeyForm::Text => Keys::Text(as_type(&DataType::Utf8View)?.as_string_view().clone()),
            KeyForm::Bytes => Keys::Bytes(as_type(&DataType::BinaryView)?.as_binary_view().clone()),
        })
    }

    pub(super) fn array(&self) -> &dyn Array {
        match self {
            Keys::Int(array) => array,
            Keys::Wide(array) => array,
            Keys::Float(array) => array,
            Keys::Text(array) => array,
            Keys::Bytes(array) => array,
        }
    }
}

/// Whether a column of this type can be a partitioning key.
pub(super) fn is_key(data_type: &DataType) -> bool {
    kind(data_type).is_some()
}

pub(super) fn kind(data_type: &DataType) -> Option<KeyForm> {
    use DataType::*;
    Some(match data_type {
        Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 => KeyForm::Int,
        Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..) | Duration(_) => KeyForm::Int,
        UInt64 => KeyForm::Wide,
        Decimal32(_, scale) | Decimal64(_, scale) | Decimal128(_, scale) if *scale >= 0 => KeyForm::Wide,
        Float16 | Float32 | Float64 => KeyForm::Float,
        Utf8 | LargeUtf8 | Utf8View => KeyForm::Text,
        Binary | LargeBinary | BinaryView => KeyForm::Bytes,
        _ => return None,
    })
}

/// Integers and times as Int64. The 32-bit times have no direct cast to it.
fn integers(column: &ArrayRef) -> Result<ArrayRef, Fault> {
    let narrow = matches!(column.data_type(), DataType::Date32 | DataType::Time32(_));
    match narrow {
        true => cast(&cast(column, &DataType::Int32).map_err(Fault::bug)?, &DataType::Int64).map_err(Fault::bug),
        false => cast(column, &DataType::Int64).map_err(Fault::bug),
    }
}
