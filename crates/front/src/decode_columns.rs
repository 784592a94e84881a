//! Columns from values in binary: those of COPY FROM, and parameters, which are columns of one value.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, FixedSizeBinaryArray, Float32Array, Float64Array, Int16Array,
    Int32Array, Int64Array, IntervalMonthDayNanoArray, ListArray, StringArray, Time64MicrosecondArray,
    TimestampMicrosecondArray, new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field};
use pithead_pg_catalog::{TYPES, pg_type};

use crate::decode_text::{arrow_type, casted, from_text};
use crate::error::Complaint;
use crate::moments::{Wrong, day, interval, micros, time_of_day};
use crate::numbers::decimal_from_binary;
use crate::sql_state::{NOT_SUPPORTED, WRONG_BINARY, WRONG_ENCODING};
use crate::{arrays, text};

/// The values of a column; its clients know it under its type of PostgreSQL's.
pub(crate) fn column(field: &Field, values: &[Option<&[u8]>]) -> Result<ArrayRef, Complaint> {
    of_type(pg_type(field), field.data_type(), values)
}

/// Values of a type of PostgreSQL, by its number, as a type that holds them.
pub(crate) fn of_type(oid: u32, data_type: &DataType, values: &[Option<&[u8]>]) -> Result<ArrayRef, Complaint> {
    let wrong = Wrong(oid);
    macro_rules! numbers {
        ($array:ty, $native:ty) => {{
            let number = |bytes: &[u8]| -> Result<$native, Complaint> {
                let bytes = bytes.try_into().map_err(|_| wrong.length(size_of::<$native>(), bytes))?;
                Ok(<$native>::from_be_bytes(bytes))
            };
            Arc::new(each(values, number)?.into_iter().collect::<$array>()) as ArrayRef
        }};
    }
    let found: ArrayRef = match oid {
        16 => {
            let read = |bytes: &[u8]| match bytes {
                [value] => Ok(*value != 0),
                _ => Err(wrong.length(1, bytes)),
            };
            Arc::new(each(values, read)?.into_iter().collect::<BooleanArray>())
        }
        17 => Arc::new(values.iter().copied().collect::<BinaryArray>()),
        20 => numbers!(Int64Array, i64),
        21 => numbers!(Int16Array, i16),
        23 => numbers!(Int32Array, i32),
        26 | 2205 | 2206 => {
            let read = |bytes: &[u8]| -> Result<i64, Complaint> {
                let bytes = bytes.try_into().map_err(|_| wrong.length(4, bytes))?;
                Ok(i64::from(u32::from_be_bytes(bytes)))
            };
            Arc::new(each(values, read)?.into_iter().collect::<Int64Array>())
        }
        700 => numbers!(Float32Array, f32),
        701 => numbers!(Float64Array, f64),
        1082 => Arc::new(each(values, |bytes| day(bytes, wrong))?.into_iter().collect::<Date32Array>()),
        1083 => Arc::new(each(values, |bytes| time_of_day(bytes, wrong))?.into_iter().collect::<Time64MicrosecondArray>()),
        1114 | 1184 => {
            let moments: TimestampMicrosecondArray = each(values, |bytes| micros(bytes, wrong))?.into_iter().collect();
            Arc::new(if oid == 1184 { moments.with_timezone("UTC") } else { moments })
        }
        1186 => Arc::new(each(values, |bytes| interval(bytes, wrong))?.into_iter().collect::<IntervalMonthDayNanoArray>()),
        1700 => {
            let texts = each(values, |bytes| decimal_from_binary(bytes).map_err(|what| wrong.because(what)))?;
            let texts: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
            return from_text(data_type, &texts, "UTC");
        }
        2950 if data_type == &DataType::Utf8 => {
            Arc::new(each(values, |bytes| uuid(bytes, wrong))?.into_iter().collect::<StringArray>())
        }
        2950 => {
            let read = |bytes: &[u8]| <[u8; 16]>::try_from(bytes).map_err(|_| wrong.length(16, bytes));
            let found = FixedSizeBinaryArray::try_from_sparse_iter_with_size(each(values, read)?.into_iter(), 16);
            Arc::new(found.map_err(|error| wrong.because(&error.to_string()))?)
        }
        _ if data_type.is_nested() && arrow_type(oid) == Some(DataType::Utf8) => {
            return Err(Complaint::error(NOT_SUPPORTED, format!("values of the type {data_type} cannot be given by COPY")));
        }
        3802 => Arc::new(each(values, |bytes| json(bytes, wrong))?.into_iter().collect::<StringArray>()),
        oid if arrow_type(oid) == Some(DataType::Utf8) => Arc::new(each(values, utf8)?.into_iter().collect::<StringArray>()),
        _ => lists(oid, values)?,
    };
    match found.data_type() == data_type {
        true => Ok(found),
        false => casted(&found, data_type),
    }
}

/// Each value that there is, read.
fn each<'a, T>(
    values: &[Option<&'a [u8]>],
    read: impl Fn(&'a [u8]) -> Result<T, Complaint>,
) -> Result<Vec<Option<T>>, Complaint> {
    values.iter().map(|value| value.map(&read).transpose()).collect()
}

fn utf8(bytes: &[u8]) -> Result<&str, Complaint> {
    // As in texts: PostgreSQL has none, and neither has what clients make of it.
    if bytes.contains(&0) {
        return Err(Complaint::error(WRONG_ENCODING, "invalid byte sequence for encoding \"UTF8\": 0x00"));
    }
    std::str::from_utf8(bytes).map_err(|error| Complaint::error(WRONG_ENCODING, format!("a value is not UTF-8: {error}")))
}

fn json(bytes: &[u8], wrong: Wrong) -> Result<&str, Complaint> {
    match bytes {
        // The version of the form comes first.
        [1, json @ ..] => utf8(json),
        _ => Err(wrong.because("expected version 1")),
    }
}

fn uuid(bytes: &[u8], wrong: Wrong) -> Result<String, Complaint> {
    let uuid: &[u8; 16] = bytes.try_into().map_err(|_| wrong.length(16, bytes))?;
    let mut written = Vec::with_capacity(36);
    text::uuid(&mut written, uuid);
    Ok(String::from_utf8_lossy(&written).into_owned())
}

fn lists(oid: u32, values: &[Option<&[u8]>]) -> Result<ArrayRef, Complaint> {
    let wanted = arrow_type(oid).ok_or_else(|| Complaint::error(NOT_SUPPORTED, format!("values of the type {oid}")))?;
    let lists = values.iter().map(|value| match value {
        Some(bytes) => array(oid, bytes),
        None => Ok(new_null_array(&wanted, 1)),
    });
    let lists = lists.collect::<Result<Vec<_>, _>>()?;
    let parts: Vec<&dyn Array> = lists.iter().map(AsRef::as_ref).collect();
    concat(&parts).map_err(|error| Wrong(oid).because(&error.to_string()))
}

/// An array of values, as a list.
fn array(oid: u32, bytes: &[u8]) -> Result<ArrayRef, Complaint> {
    let wrong = |what: String| Complaint::error(WRONG_BINARY, format!("an array is malformed: {what}"));
    let known = TYPES.iter().find(|known| known.array == oid).ok_or_else(|| wrong(format!("{oid} is no type of arrays")))?;
    let (item_type, items) = arrays::read_binary(bytes).map_err(wrong)?;
    let is_text = |oid: u32| arrow_type(oid) == Some(DataType::Utf8);
    if item_type != known.oid && !(is_text(item_type) && is_text(known.oid)) {
        return Err(wrong(format!("its values are of the type {item_type}, and should be of {}", known.oid)));
    }
    let wanted = arrow_type(known.oid).unwrap_or(DataType::Utf8);
    let values = of_type(known.oid, &wanted, &items)?;
    let field = Arc::new(Field::new("item", wanted, true));
    let lists = ListArray::try_new(field, OffsetBuffer::from_lengths([values.len()]), values, None);
    Ok(Arc::new(lists.map_err(|error| wrong(error.to_string()))?))
}

#[cfg(test)]
mod tests {
    use arrow::util::display::array_value_to_string;

    use super::*;

    fn shown(data_type: DataType, bytes: &[u8]) -> Result<String, &'static str> {
        let array = column(&Field::new("c", data_type, true), &[None, Some(bytes)]).map_err(|complaint| complaint.code)?;
        assert!(array.is_null(0));
        Ok(array_value_to_string(&array, 1).unwrap())
    }

    #[test]
    fn values_become_those_of_the_column() {
        for (data_type, bytes, expected) in [
            (DataType::UInt8, &b"\0\x07"[..], "7"),
            (DataType::UInt32, b"\0\0\0\0\0\0\0\x07", "7"),
            (DataType::UInt64, b"\0\x01\0\0\0\0\0\0\0\x07", "7"),
            (DataType::Decimal128(10, 2), b"\0\x02\0\0\0\0\0\x02\0\x01\x13\x88", "1.50"),
            (DataType::Utf8View, b"abc", "abc"),
            (DataType::BinaryView, b"\x0a", "0a"),
            (DataType::Date32, b"\0\0\0\0", "2000-01-01"),
            (DataType::Boolean, b"\x01", "true"),
            (
                DataType::new_list(DataType::Int32, true),
                b"\0\0\0\x01\0\0\0\0\0\0\0\x17\0\0\0\x01\0\0\0\x01\0\0\0\x04\0\0\0\x05",
                "[5]",
            ),
        ] {
            assert_eq!(shown(data_type.clone(), bytes).as_deref(), Ok(expected), "{data_type}");
        }
    }

    #[test]
    fn lying_values_are_refused() {
        for (data_type, bytes, code) in [
            (DataType::Int64, &b"\0\0\0\x07"[..], "22P03"),
            (DataType::UInt8, b"\xff\xff", "22P02"),
            (DataType::Utf8View, b"\xff", "22021"),
            // A regression: a binary COPY stored it.
            (DataType::Utf8View, b"a\0b", "22021"),
            (DataType::Boolean, b"", "22P03"),
            (DataType::Date32, b"\x7f\xff\xff\xff", "22P03"),
            (DataType::new_list(DataType::Int32, true), b"\0", "22P03"),
        ] {
            assert_eq!(shown(data_type.clone(), bytes), Err(code), "{data_type}");
        }
    }
}
