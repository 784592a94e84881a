//! Rows as Python values, for programs without an Arrow library.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Decimal128Type, Decimal256Type, Field, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, IntervalDayTimeType, IntervalMonthDayNanoType, IntervalUnit, IntervalYearMonthType, TimeUnit, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow::error::ArrowError;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::errors;
use crate::stream::arrow_error;
use crate::types::is_uuid;

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

type Values<'py> = Vec<Bound<'py, PyAny>>;

/// Adds the rows of a batch, each a tuple.
pub(crate) fn to_tuples<'py>(py: Python<'py>, batch: &RecordBatch, rows: &mut Vec<Bound<'py, PyTuple>>) -> PyResult<()> {
    let schema = batch.schema_ref();
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| values(py, column.as_ref(), field)).collect::<PyResult<Vec<_>>>()?;
    rows.reserve(batch.num_rows());
    for row in 0..batch.num_rows() {
        rows.push(PyTuple::new(py, columns.iter().map(|column| &column[row]))?);
    }
    Ok(())
}

macro_rules! each {
    ($py:expr, $array:expr, $convert:expr) => {
        $array
            .iter()
            .map(|value| value.map_or_else(|| Ok($py.None().into_bound($py)), $convert))
            .collect::<PyResult<Values<'_>>>()
    };
}

macro_rules! plain {
    ($py:expr, $array:expr) => {
        each!($py, $array, |value| value.into_bound_py_any($py))
    };
}

/// A column's values. What its field says beside its type is told by `field`.
fn values<'py>(py: Python<'py>, array: &dyn Array, field: &Field) -> PyResult<Values<'py>> {
    match array.data_type() {
        DataType::Null => Ok((0..array.len()).map(|_| py.None().into_bound(py)).collect()),
        DataType::Boolean => plain!(py, array.as_boolean()),
        DataType::Int8 => plain!(py, array.as_primitive::<Int8Type>()),
        DataType::Int16 => plain!(py, array.as_primitive::<Int16Type>()),
        DataType::Int32 => plain!(py, array.as_primitive::<Int32Type>()),
        DataType::Int64 => plain!(py, array.as_primitive::<Int64Type>()),
        DataType::UInt8 => plain!(py, array.as_primitive::<UInt8Type>()),
        DataType::UInt16 => plain!(py, array.as_primitive::<UInt16Type>()),
        DataType::UInt32 => plain!(py, array.as_primitive::<UInt32Type>()),
        DataType::UInt64 => plain!(py, array.as_primitive::<UInt64Type>()),
        DataType::Float16 => each!(py, array.as_primitive::<Float16Type>(), |value| f32::from(value).into_bound_py_any(py)),
        DataType::Float32 => plain!(py, array.as_primitive::<Float32Type>()),
        DataType::Float64 => plain!(py, array.as_primitive::<Float64Type>()),
        DataType::Utf8View => plain!(py, array.as_string_view()),
        DataType::Utf8 => plain!(py, array.as_string::<i32>()),
        DataType::LargeUtf8 => plain!(py, array.as_string::<i64>()),
        DataType::BinaryView => each!(py, array.as_binary_view(), |value| PyBytes::new(py, value).into_bound_py_any(py)),
        DataType::Binary => each!(py, array.as_binary::<i32>(), |value| PyBytes::new(py, value).into_bound_py_any(py)),
        DataType::FixedSizeBinary(_) if is_uuid(field) => {
            let make = made(py, "identifier")?;
            each!(py, array.as_fixed_size_binary(), |value| make.call1((PyBytes::new(py, value),)))
        }
        DataType::FixedSizeBinary(_) => {
            each!(py, array.as_fixed_size_binary(), |value| PyBytes::new(py, value).into_bound_py_any(py))
        }
        DataType::Struct(fields) => {
            let structure = array.as_struct();
            let columns = structure.columns().iter().zip(fields);
            let columns = columns.map(|(column, field)| values(py, column, field)).collect::<PyResult<Vec<_>>>()?;
            (0..array.len())
                .map(|row| {
                    if structure.is_null(row) {
                        return Ok(py.None().into_bound(py));
                    }
                    let dict = PyDict::new(py);
                    fields.iter().zip(&columns).try_for_each(|(field, column)| dict.set_item(field.name(), &column[row]))?;
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
            let (make, scale) = (made(py, "decimal")?, *scale);
            each!(py, array.as_primitive::<Decimal128Type>(), |value| make.call1((value, scale)))
        }
        DataType::Decimal256(_, scale) => {
            let (make, scale) = (made(py, "decimal")?, *scale);
            each!(py, array.as_primitive::<Decimal256Type>(), |value| make.call1((value.to_string(), scale)))
        }
        DataType::Interval(unit) => intervals(py, array, *unit),
        _ => moments(py, array),
    }
}

/// What `pithead/_values.py` makes values with.
fn made<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("pithead._values")?.getattr(name)
}

/// Dates, times and durations: Python is given the numbers and how many of them are a second, since it holds all of them.
fn moments<'py>(py: Python<'py>, array: &dyn Array) -> PyResult<Values<'py>> {
    let numbers = |narrow: bool| match narrow {
        true => cast(array, &DataType::Int32).and_then(|array| cast(&array, &DataType::Int64)).map_err(arrow_error),
        false => cast(array, &DataType::Int64).map_err(arrow_error),
    };
    match array.data_type() {
        DataType::Date32 => {
            let make = made(py, "date")?;
            each!(py, numbers(true)?.as_primitive::<Int64Type>(), |value| make.call1((value,)))
        }
        DataType::Date64 => {
            let make = made(py, "date")?;
            each!(py, numbers(false)?.as_primitive::<Int64Type>(), |value| make.call1((value.div_euclid(DAY_MS),)))
        }
        DataType::Timestamp(unit, zone) => {
            let (make, zone, second) = (made(py, "timestamp")?, zone.as_deref(), per_second(*unit));
            each!(py, numbers(false)?.as_primitive::<Int64Type>(), |value| make.call1((value, second, zone)))
        }
        DataType::Time32(unit) => {
            let (make, second) = (made(py, "time")?, per_second(*unit));
            each!(py, numbers(true)?.as_primitive::<Int64Type>(), |value| make.call1((value, second)))
        }
        DataType::Time64(unit) => {
            let (make, second) = (made(py, "time")?, per_second(*unit));
            each!(py, numbers(false)?.as_primitive::<Int64Type>(), |value| make.call1((value, second)))
        }
        DataType::Duration(unit) => {
            let (make, second) = (made(py, "interval")?, per_second(*unit));
            each!(py, numbers(false)?.as_primitive::<Int64Type>(), |value| make.call1((0, 0, value, second)))
        }
        other => Err(errors::user(
            format!("values of type {} cannot be fetched as Python values", crate::types::type_name(other)),
            "take the result as Arrow, by .arrow(), or cast the column in the statement",
        )),
    }
}

fn intervals<'py>(py: Python<'py>, array: &dyn Array, unit: IntervalUnit) -> PyResult<Values<'py>> {
    let make = made(py, "interval")?;
    let (milliseconds, nanoseconds) = (per_second(TimeUnit::Millisecond), per_second(TimeUnit::Nanosecond));
    match unit {
        IntervalUnit::YearMonth => {
            each!(py, array.as_primitive::<IntervalYearMonthType>(), |value| make.call1((value, 0, 0, nanoseconds)))
        }
        IntervalUnit::DayTime => each!(py, array.as_primitive::<IntervalDayTimeType>(), |value| {
            make.call1((0, value.days, value.milliseconds, milliseconds))
        }),
        IntervalUnit::MonthDayNano => each!(py, array.as_primitive::<IntervalMonthDayNanoType>(), |value| {
            make.call1((value.months, value.days, value.nanoseconds, nanoseconds))
        }),
    }
}

fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

fn items_list<'py>(py: Python<'py>, items: &dyn Array, field: &Field) -> PyResult<Bound<'py, PyAny>> {
    Ok(PyList::new(py, values(py, items, field)?)?.into_any())
}

fn map_dict<'py>(py: Python<'py>, array: &dyn Array, row: usize, entries: &Field) -> PyResult<Bound<'py, PyAny>> {
    let map = array.as_map();
    if map.is_null(row) {
        return Ok(py.None().into_bound(py));
    }
    let DataType::Struct(fields) = entries.data_type() else {
        return Err(arrow_error(ArrowError::SchemaError("a map has no entries".into())));
    };
    let entries = map.value(row);
    let dict = PyDict::new(py);
    let (keys, items) = (values(py, entries.column(0), &fields[0])?, values(py, entries.column(1), &fields[1])?);
    for (key, value) in keys.into_iter().zip(items) {
        dict.set_item(key, value)?;
    }
    Ok(dict.into_any())
}
