//! [`Column`]: an Arrow array, brought into one of the few forms that are encoded.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float32Array,
    Float64Array, Int16Array, Int32Array, Int64Array, IntervalMonthDayNanoArray, ListArray, StringArray, StringViewArray,
    Time64MicrosecondArray, TimestampMicrosecondArray, new_null_array,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};
use arrow::error::ArrowError;
use arrow::json::writer::{EncoderOptions, make_encoder};
use pithead_model::{Blame, Fault};
use pithead_pg_catalog::{TYPES, pg_type};

/// A column whose values can be written.
pub(crate) enum Column {
    Null,
    Bool(BooleanArray),
    Int2(Int16Array),
    Int4(Int32Array),
    Int8(Int64Array),
    Float4(Float32Array),
    Float8(Float64Array),
    Text(StringViewArray),
    /// A text that was made here: JSON, and decimals of more than 38 digits.
    Made(StringArray, MadeOf),
    Bytes(BinaryViewArray),
    Uuid(FixedSizeBinaryArray),
    Numeric(Decimal128Array, i8),
    Date(Date32Array),
    Time(Time64MicrosecondArray),
    Timestamp {
        values: TimestampMicrosecondArray,
        zoned: bool,
    },
    Interval(IntervalMonthDayNanoArray),
    List {
        lists: ListArray,
        items: Box<Column>,
        item_type: u32,
    },
}

/// What a text was made of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MadeOf {
    Json,
    Numeric,
}

impl Column {
    /// The column of an array.
    pub(crate) fn of(field: &Field, array: &ArrayRef) -> Result<Column, Fault> {
        let oid = pg_type(field);
        made(oid, field, array).map_err(|error| {
            Fault::new(Blame::Unsupported, format!("column {} ({}) cannot be sent: {error}", field.name(), field.data_type()))
        })
    }

    /// Whether a row has no value.
    pub(crate) fn is_null(&self, row: usize) -> bool {
        match self {
            Column::Null => true,
            Column::Bool(array) => array.is_null(row),
            Column::Int2(array) => array.is_null(row),
            Column::Int4(array) => array.is_null(row),
            Column::Int8(array) => array.is_null(row),
            Column::Float4(array) => array.is_null(row),
            Column::Float8(array) => array.is_null(row),
            Column::Text(array) => array.is_null(row),
            Column::Made(array, _) => array.is_null(row),
            Column::Bytes(array) => array.is_null(row),
            Column::Uuid(array) => array.is_null(row),
            Column::Numeric(array, _) => array.is_null(row),
            Column::Date(array) => array.is_null(row),
            Column::Time(array) => array.is_null(row),
            Column::Timestamp { values, .. } => values.is_null(row),
            Column::Interval(array) => array.is_null(row),
            Column::List { lists, .. } => lists.is_null(row),
        }
    }
}

fn made(oid: u32, field: &Field, array: &ArrayRef) -> Result<Column, ArrowError> {
    if array.data_type().is_null() {
        return Ok(Column::Null);
    }
    let to = |data_type: DataType| cast(array, &data_type);
    Ok(match oid {
        16 => Column::Bool(to(DataType::Boolean)?.as_boolean().clone()),
        21 => Column::Int2(to(DataType::Int16)?.as_primitive().clone()),
        23 => Column::Int4(to(DataType::Int32)?.as_primitive().clone()),
        20 => Column::Int8(to(DataType::Int64)?.as_primitive().clone()),
        700 => Column::Float4(to(DataType::Float32)?.as_primitive().clone()),
        701 => Column::Float8(to(DataType::Float64)?.as_primitive().clone()),
        25 => Column::Text(to(DataType::Utf8View)?.as_string_view().clone()),
        17 => Column::Bytes(bytes(array)?.as_binary_view().clone()),
        2950 => Column::Uuid(array.as_fixed_size_binary().clone()),
        1082 => Column::Date(to(DataType::Date32)?.as_primitive().clone()),
        1083 => Column::Time(to(DataType::Time64(TimeUnit::Microsecond))?.as_primitive().clone()),
        1114 => Column::Timestamp { values: moments(array)?, zoned: false },
        1184 => Column::Timestamp { values: moments(array)?, zoned: true },
        1186 => Column::Interval(intervals(array)?),
        1700 => numeric(array)?,
        114 => Column::Made(json(field, array)?, MadeOf::Json),
        _ => list(field, array)?,
    })
}

/// A value that does not fit is an error, never NULL.
fn cast(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    match array.data_type() == data_type {
        true => Ok(Arc::clone(array)),
        false => cast_with_options(array, data_type, &CastOptions { safe: false, ..CastOptions::default() }),
    }
}

fn bytes(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match array.data_type() {
        DataType::FixedSizeBinary(_) => cast(&cast(array, &DataType::Binary)?, &DataType::BinaryView),
        _ => cast(array, &DataType::BinaryView),
    }
}

/// Microseconds, as PostgreSQL has them; what is finer is cut off.
fn moments(array: &ArrayRef) -> Result<TimestampMicrosecondArray, ArrowError> {
    let zone = match array.data_type() {
        DataType::Timestamp(_, zone) => zone.clone(),
        DataType::Dictionary(_, values) => return moments(&cast(array, values)?),
        _ => None,
    };
    Ok(cast(array, &DataType::Timestamp(TimeUnit::Microsecond, zone))?.as_primitive().clone())
}

fn intervals(array: &ArrayRef) -> Result<IntervalMonthDayNanoArray, ArrowError> {
    let wanted = DataType::Interval(IntervalUnit::MonthDayNano);
    if let DataType::Duration(_) = array.data_type() {
        let micros = cast(array, &DataType::Duration(TimeUnit::Microsecond))?;
        let micros = micros.as_primitive::<arrow::datatypes::DurationMicrosecondType>();
        let one = |micros: i64| {
            let nanos = micros.checked_mul(1000).ok_or_else(|| ArrowError::ComputeError("a duration is too long".into()))?;
            Ok(arrow::datatypes::IntervalMonthDayNano::new(0, 0, nanos))
        };
        return micros.iter().map(|value| value.map(one).transpose()).collect::<Result<_, ArrowError>>();
    }
    Ok(cast(array, &wanted)?.as_primitive().clone())
}

fn numeric(array: &ArrayRef) -> Result<Column, ArrowError> {
    Ok(match array.data_type() {
        DataType::UInt64 => Column::Numeric(cast(array, &DataType::Decimal128(20, 0))?.as_primitive().clone(), 0),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale) => {
            Column::Numeric(cast(array, &DataType::Decimal128(*precision, *scale))?.as_primitive().clone(), *scale)
        }
        DataType::Dictionary(_, values) => numeric(&cast(array, values)?)?,
        DataType::RunEndEncoded(_, values) => numeric(&cast(array, values.data_type())?)?,
        _ => Column::Made(cast(array, &DataType::Utf8)?.as_string::<i32>().clone(), MadeOf::Numeric),
    })
}

/// Each value as JSON.
fn json(field: &Field, array: &ArrayRef) -> Result<StringArray, ArrowError> {
    let field: FieldRef =
        Arc::new(Field::new("value", array.data_type().clone(), true).with_metadata(field.metadata().clone()));
    let options = EncoderOptions::default().with_explicit_nulls(true);
    let mut encoder = make_encoder(&field, array.as_ref(), &options)?;
    let mut texts = Vec::with_capacity(array.len());
    for row in 0..array.len() {
        if encoder.is_null(row) {
            texts.push(None);
            continue;
        }
        let mut text = Vec::new();
        encoder.encode(row, &mut text);
        texts.push(Some(String::from_utf8(text).map_err(|error| ArrowError::JsonError(error.to_string()))?));
    }
    Ok(texts.into_iter().collect())
}

fn list(field: &Field, array: &ArrayRef) -> Result<Column, ArrowError> {
    let item = match field.data_type() {
        DataType::List(item) | DataType::LargeList(item) | DataType::ListView(item) | DataType::LargeListView(item) => item,
        DataType::FixedSizeList(item, _) => item,
        DataType::Dictionary(_, values) => {
            let array = cast(array, values)?;
            return list(&field.clone().with_data_type(array.data_type().clone()), &array);
        }
        other => return Err(ArrowError::NotYetImplemented(format!("values of type {other}"))),
    };
    let lists = cast(array, &DataType::List(Arc::clone(item)))?.as_list::<i32>().clone();
    let item_type = pg_type(item);
    let values = if lists.values().is_empty() { new_null_array(item.data_type(), 0) } else { Arc::clone(lists.values()) };
    let items = Box::new(made(item_type, item, &values)?);
    Ok(Column::List { lists, items, item_type })
}

/// The bytes of a type's values; -1: they differ.
pub(crate) fn length_of(oid: u32) -> i16 {
    TYPES.iter().find(|known| known.oid == oid).map_or(-1, |known| known.length)
}
