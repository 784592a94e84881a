//! Columns from values in binary, as COPY FROM has them.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, FixedSizeBinaryArray, Float32Array, Float64Array, Int16Array,
    Int32Array, Int64Array, IntervalMonthDayNanoArray, StringArray, Time64MicrosecondArray, TimestampMicrosecondArray,
    new_null_array,
};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field};
use pithead_pg_catalog::pg_type;

use crate::decode::{array, arrow_type, casted, from_text};
use crate::error::{Complaint, NOT_SUPPORTED};
use crate::moments::{Wrong, day, interval, micros, time_of_day};
use crate::numbers::decimal_from_binary;

/// The values of a column; its clients know it under its type of PostgreSQL's.
pub(crate) fn column(field: &Field, values: &[Option<&[u8]>]) -> Result<ArrayRef, Complaint> {
    let (data_type, oid) = (field.data_type(), pg_type(field));
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
        2950 => {
            let read = |bytes: &[u8]| <[u8; 16]>::try_from(bytes).map_err(|_| wrong.length(16, bytes));
            let found = FixedSizeBinaryArray::try_from_sparse_iter_with_size(each(values, read)?.into_iter(), 16);
            Arc::new(found.map_err(|error| wrong.because(&error.to_string()))?)
        }
        _ if data_type.is_nested() && arrow_type(oid) == Some(DataType::Utf8) => {
            return Err(Complaint::error(NOT_SUPPORTED, format!("values of the type {data_type} cannot be given by COPY")));
        }
        oid if arrow_type(oid) == Some(DataType::Utf8) => {
            let read = |bytes: &[u8]| {
                let text = std::str::from_utf8(bytes);
                text.map(str::to_owned).map_err(|error| Complaint::error("22021", format!("a value is not UTF-8: {error}")))
            };
            Arc::new(each(values, read)?.into_iter().collect::<StringArray>())
        }
        _ => arrays(oid, values)?,
    };
    match found.data_type() == data_type {
        true => Ok(found),
        false => casted(&found, data_type),
    }
}

/// Each value that there is, read.
fn each<T>(values: &[Option<&[u8]>], read: impl Fn(&[u8]) -> Result<T, Complaint>) -> Result<Vec<Option<T>>, Complaint> {
    values.iter().map(|value| value.map(&read).transpose()).collect()
}

fn arrays(oid: u32, values: &[Option<&[u8]>]) -> Result<ArrayRef, Complaint> {
    let wanted = arrow_type(oid).ok_or_else(|| Complaint::error(NOT_SUPPORTED, format!("values of the type {oid}")))?;
    let lists = values.iter().map(|value| match value {
        Some(bytes) => array(oid, bytes),
        None => Ok(new_null_array(&wanted, 1)),
    });
    let lists = lists.collect::<Result<Vec<_>, _>>()?;
    let parts: Vec<&dyn Array> = lists.iter().map(AsRef::as_ref).collect();
    concat(&parts).map_err(|error| Wrong(oid).because(&error.to_string()))
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
            (DataType::Boolean, b"", "22P03"),
            (DataType::Date32, b"\x7f\xff\xff\xff", "22P03"),
            (DataType::new_list(DataType::Int32, true), b"\0", "22P03"),
        ] {
            assert_eq!(shown(data_type.clone(), bytes), Err(code), "{data_type}");
        }
    }
}
