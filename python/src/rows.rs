//! Rows as Python values, for programs without an Arrow library.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Decimal128Type, Decimal256Type, Field, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, IntervalDayTimeType, IntervalMonthDayNanoType, IntervalUnit, IntervalYearMonthType, TimeUnit, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow::error::ArrowError;
use pithead_model::is_uuid;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::errors;
use crate::objects::{Object, ToObject, dict, list_of, made, none, tuple};
use crate::stream::arrow_error;

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

type Values<'py> = Vec<Object<'py>>;

/// Adds the rows of a batch, each a tuple.
pub(crate) fn to_tuples<'py>(py: Python<'py>, batch: &RecordBatch, rows: &Bound<'py, PyList>) -> PyResult<()> {
    let schema = batch.schema_ref();
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| values(py, column.as_ref(), field)).collect::<PyResult<Vec<_>>>()?;
    (0..batch.num_rows()).try_for_each(|row| rows.append(tuple(py, columns.iter().map(|column| column[row].clone()))?))
}

macro_rules! each {
    ($py:expr, $array:expr, $convert:expr) => {
        $array.iter().map(|value| value.map_or_else(|| Ok(none($py)), $convert)).collect::<PyResult<Values<'_>>>()
    };
}

macro_rules! plain {
    ($py:expr, $array:expr) => {
        each!($py, $array, |value| value.object($py))
    };
}

/// A column's values. What its field says beside its type is told by `field`.
fn values<'py>(py: Python<'py>, array: &dyn Array, field: &Field) -> PyResult<Values<'py>> {
    match array.data_type() {
        DataType::Null => Ok((0..array.len()).map(|_| none(py)).collect()),
        DataType::Boolean => plain!(py, array.as_boolean()),
        DataType::Int8 => plain!(py, array.as_primitive::<Int8Type>()),
        DataType::Int16 => plain!(py, array.as_primitive::<Int16Type>()),
        DataType::Int32 => plain!(py, array.as_primitive::<Int32Type>()),
        DataType::Int64 => plain!(py, array.as_primitive::<Int64Type>()),
        DataType::UInt8 => plain!(py, array.as_primitive::<UInt8Type>()),
        DataType::UInt16 => plain!(py, array.as_primitive::<UInt16Type>()),
        DataType::UInt32 => plain!(py, array.as_primitive::<UInt32Type>()),
        DataType::UInt64 => plain!(py, array.as_primitive::<UInt64Type>()),
        DataType::Float16 => each!(py, array.as_primitive::<Float16Type>(), |value| f32::from(value).object(py)),
        DataType::Float32 => plain!(py, array.as_primitive::<Float32Type>()),
        DataType::Float64 => plain!(py, array.as_primitive::<Float64Type>()),
        DataType::Utf8View => plain!(py, array.as_string_view()),
        DataType::Utf8 => plain!(py, array.as_string::<i32>()),
        DataType::LargeUtf8 => plain!(py, array.as_string::<i64>()),
        DataType::BinaryView => plain!(py, array.as_binary_view()),
        DataType::Binary => plain!(py, array.as_binary::<i32>()),
        DataType::FixedSizeBinary(_) if is_uuid(field) => {
            let make = maker(py, "identifier")?;
            each!(py, array.as_fixed_size_binary(), |value| made(&make, [value.object(py)]))
        }
        DataType::FixedSizeBinary(_) => plain!(py, array.as_fixed_size_binary()),
        DataType::Struct(fields) => {
            let structure = array.as_struct();
            let columns = structure.columns().iter().zip(fields);
            let columns = columns.map(|(column, field)| values(py, column, field)).collect::<PyResult<Vec<_>>>()?;
            let names = fields.iter().map(|field| field.name().as_str().object(py)).collect::<PyResult<Vec<_>>>()?;
            (0..array.len())
                .map(|row| {
                    if structure.is_null(row) {
                        return Ok(none(py));
                    }
                    let dict = dict(py)?;
                    names.iter().zip(&columns).try_for_each(|(name, column)| dict.set_item(name, &column[row]))?;
                    Ok(dict.into_any())
                })
                .collect()
        }
        DataType::List(item) => each!(py, array.as_list::<i32>(), |items| items_list(py, items.as_ref(), item)),
        DataType::LargeList(item) => each!(py, array.as_list::<i64>(), |items| items_list(py, items.as_ref(), item)),
        DataType::FixedSizeList(item, _) => {
            each!(py, array.as_fixed_size_list(), |items| items_list(py, items.as_ref(), item))
        }
        DataType::Map(entries, _) => (0..array.len()).map(|row| map_dict(py, array, row, entries)).collect(),
        DataType::Dictionary(_, value_type) => values(py, &cast(array, value_type).map_err(arrow_error)?, field),
        DataType::Decimal128(_, scale) => {
            let (make, scale) = (maker(py, "decimal")?, *scale);
            each!(py, array.as_primitive::<Decimal128Type>(), |value| made(&make, [digits(py, value), scale.object(py)]))
        }
        DataType::Decimal256(_, scale) => {
            let (make, scale) = (maker(py, "decimal")?, *scale);
            each!(py, array.as_primitive::<Decimal256Type>(), |value| {
                made(&make, [value.to_string().as_str().object(py), scale.object(py)])
            })
        }
        DataType::Interval(unit) => intervals(py, array, *unit),
        _ => moments(py, array),
    }
}

/// What `pithead/_values.py` makes values with.
fn maker<'py>(py: Python<'py>, name: &str) -> PyResult<Object<'py>> {
    py.import("pithead._values")?.getattr(name)
}

/// The number that a decimal is made of: those of more than 64 bits as text.
fn digits(py: Python<'_>, value: i128) -> PyResult<Object<'_>> {
    match i64::try_from(value) {
        Ok(value) => value.object(py),
        Err(_) => value.to_string().as_str().object(py),
    }
}

/// Dates, times and durations: Python is given the numbers and how many of them are a second, since it holds all of them.
fn moments<'py>(py: Python<'py>, array: &dyn Array) -> PyResult<Values<'py>> {
    let numbers = |narrow: bool| match narrow {
        true => cast(array, &DataType::Int32).and_then(|array| cast(&array, &DataType::Int64)).map_err(arrow_error),
        false => cast(array, &DataType::Int64).map_err(arrow_error),
    };
    match array.data_type() {
        DataType::Date32 => {
            let make = maker(py, "date")?;
            each!(py, numbers(true)?.as_primitive::<Int64Type>(), |value| made(&make, [value.object(py)]))
        }
        DataType::Date64 => {
            let make = maker(py, "date")?;
            each!(py, numbers(false)?.as_primitive::<Int64Type>(), |value| made(&make, [value.div_euclid(DAY_MS).object(py)]))
        }
        DataType::Timestamp(unit, zone) => {
            let (make, second) = (maker(py, "timestamp")?, per_second(*unit));
            let zone = zone.as_deref().map_or_else(|| Ok(none(py)), |zone| zone.object(py))?;
            each!(py, numbers(false)?.as_primitive::<Int64Type>(), |value| {
                made(&make, [value.object(py), second.object(py), Ok(zone.clone())])
            })
        }
        DataType::Time32(unit) => {
            let (make, second) = (maker(py, "time")?, per_second(*unit));
            each!(py, numbers(true)?.as_primitive::<Int64Type>(), |value| made(&make, [value.object(py), second.object(py)]))
        }
        DataType::Time64(unit) => {
            let (make, second) = (maker(py, "time")?, per_second(*unit));
            each!(py, numbers(false)?.as_primitive::<Int64Type>(), |value| made(&make, [value.object(py), second.object(py)]))
        }
        DataType::Duration(unit) => {
            let (make, second) = (maker(py, "interval")?, per_second(*unit));
            each!(py, numbers(false)?.as_primitive::<Int64Type>(), |value| interval(py, &make, (0, 0, value, second)))
        }
        other => Err(errors::user(
            format!("values of type {} cannot be fetched as Python values", crate::types::type_name(other)),
            "take the result as Arrow, by .arrow(), or cast the column in the statement",
        )),
    }
}

fn intervals<'py>(py: Python<'py>, array: &dyn Array, unit: IntervalUnit) -> PyResult<Values<'py>> {
    let make = maker(py, "interval")?;
    let (milliseconds, nanoseconds) = (per_second(TimeUnit::Millisecond), per_second(TimeUnit::Nanosecond));
    match unit {
        IntervalUnit::YearMonth => {
            each!(py, array.as_primitive::<IntervalYearMonthType>(), |value| interval(py, &make, (value, 0, 0, nanoseconds)))
        }
        IntervalUnit::DayTime => each!(py, array.as_primitive::<IntervalDayTimeType>(), |value| {
            interval(py, &make, (0, value.days, value.milliseconds.into(), milliseconds))
        }),
        IntervalUnit::MonthDayNano => each!(py, array.as_primitive::<IntervalMonthDayNanoType>(), |value| {
            interval(py, &make, (value.months, value.days, value.nanoseconds, nanoseconds))
        }),
    }
}

/// Months, days, a count and how many of it are a second.
fn interval<'py>(py: Python<'py>, make: &Object<'py>, parts: (i32, i32, i64, i64)) -> PyResult<Object<'py>> {
    let (months, days, count, second) = parts;
    made(make, [months.object(py), days.object(py), count.object(py), second.object(py)])
}

fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

fn items_list<'py>(py: Python<'py>, items: &dyn Array, field: &Field) -> PyResult<Object<'py>> {
    list_of(py, values(py, items, field)?)
}

fn map_dict<'py>(py: Python<'py>, array: &dyn Array, row: usize, entries: &Field) -> PyResult<Object<'py>> {
    let map = array.as_map();
    if map.is_null(row) {
        return Ok(none(py));
    }
    let DataType::Struct(fields) = entries.data_type() else {
        return Err(arrow_error(ArrowError::SchemaError("a map has no entries".into())));
    };
    let entries = map.value(row);
    let dict = dict(py)?;
    let (keys, items) = (values(py, entries.column(0), &fields[0])?, values(py, entries.column(1), &fields[1])?);
    for (key, value) in keys.into_iter().zip(items) {
        dict.set_item(key, value)?;
    }
    Ok(dict.into_any())
}
