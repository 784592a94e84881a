//! Rows as Python values, for programs without an Arrow library.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, DurationMicrosecondType, Float16Type, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, IntervalDayTimeType, IntervalMonthDayNanoType, IntervalUnit,
    IntervalYearMonthType, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::errors;
use crate::stream::arrow_error;

type Values<'py> = Vec<Bound<'py, PyAny>>;

/// Adds the rows of a batch, each a tuple.
pub(crate) fn to_tuples<'py>(py: Python<'py>, batch: &RecordBatch, rows: &mut Vec<Bound<'py, PyTuple>>) -> PyResult<()> {
    let columns = batch.columns().iter().map(|column| values(py, column.as_ref())).collect::<PyResult<Vec<_>>>()?;
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

/// A column's values.
fn values<'py>(py: Python<'py>, array: &dyn Array) -> PyResult<Values<'py>> {
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
        DataType::FixedSizeBinary(_) => {
            each!(py, array.as_fixed_size_binary(), |value| PyBytes::new(py, value).into_bound_py_any(py))
        }
        DataType::Struct(fields) => {
            let structure = array.as_struct();
            let columns = structure.columns().iter().map(|column| values(py, column)).collect::<PyResult<Vec<_>>>()?;
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
        DataType::List(_) => each!(py, array.as_list::<i32>(), |items| items_list(py, items.as_ref())),
        DataType::LargeList(_) => each!(py, array.as_list::<i64>(), |items| items_list(py, items.as_ref())),
        DataType::FixedSizeList(..) => each!(py, array.as_fixed_size_list(), |items| items_list(py, items.as_ref())),
        DataType::Map(..) => (0..array.len()).map(|row| map_dict(py, array, row)).collect(),
        _ => moments(py, array),
    }
}

/// Decimals, times and intervals, which Python has classes of its own for.
fn moments<'py>(py: Python<'py>, array: &dyn Array) -> PyResult<Values<'py>> {
    let made = |made: &str| py.import("pithead._values")?.getattr(made);
    let in_microseconds = |to: DataType| cast(array, &to).map_err(arrow_error);
    match array.data_type() {
        DataType::Decimal128(_, scale) => {
            let (make, scale) = (made("decimal")?, *scale);
            each!(py, array.as_primitive::<Decimal128Type>(), |value| make.call1((value, scale)))
        }
        DataType::Decimal256(_, scale) => {
            let (make, scale) = (made("decimal")?, *scale);
            each!(py, array.as_primitive::<Decimal256Type>(), |value| make.call1((value.to_string(), scale)))
        }
        DataType::Date32 => {
            let make = made("date")?;
            each!(py, array.as_primitive::<Date32Type>(), |value| make.call1((value,)))
        }
        DataType::Date64 => values(py, &in_microseconds(DataType::Timestamp(TimeUnit::Microsecond, None))?),
        DataType::Timestamp(_, zone) => {
            let array = in_microseconds(DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))?;
            let (make, zone) = (made("timestamp")?, zone.as_deref());
            each!(py, array.as_primitive::<TimestampMicrosecondType>(), |value| make.call1((value, zone)))
        }
        DataType::Time32(_) | DataType::Time64(_) => {
            let array = in_microseconds(DataType::Time64(TimeUnit::Microsecond))?;
            let make = made("time")?;
            each!(py, array.as_primitive::<Time64MicrosecondType>(), |value| make.call1((value,)))
        }
        DataType::Duration(_) => {
            let array = in_microseconds(DataType::Duration(TimeUnit::Microsecond))?;
            let make = made("interval")?;
            each!(py, array.as_primitive::<DurationMicrosecondType>(), |value| make.call1((0, 0, value)))
        }
        DataType::Interval(unit) => {
            let make = made("interval")?;
            match unit {
                IntervalUnit::YearMonth => {
                    each!(py, array.as_primitive::<IntervalYearMonthType>(), |value| make.call1((value, 0, 0)))
                }
                IntervalUnit::DayTime => each!(py, array.as_primitive::<IntervalDayTimeType>(), |value| {
                    make.call1((0, value.days, i64::from(value.milliseconds) * 1000))
                }),
                IntervalUnit::MonthDayNano => each!(py, array.as_primitive::<IntervalMonthDayNanoType>(), |value| {
                    make.call1((value.months, value.days, value.nanoseconds / 1000))
                }),
            }
        }
        DataType::Dictionary(_, value_type) => values(py, &cast(array, value_type).map_err(arrow_error)?),
        other => Err(errors::user(
            format!("values of type {} cannot be fetched as Python values", crate::types::type_name(other)),
            "take the result as Arrow, by .arrow(), or cast the column in the statement",
        )),
    }
}

fn items_list<'py>(py: Python<'py>, items: &dyn Array) -> PyResult<Bound<'py, PyAny>> {
    Ok(PyList::new(py, values(py, items)?)?.into_any())
}

fn map_dict<'py>(py: Python<'py>, array: &dyn Array, row: usize) -> PyResult<Bound<'py, PyAny>> {
    let map = array.as_map();
    if map.is_null(row) {
        return Ok(py.None().into_bound(py));
    }
    let entries = map.value(row);
    let dict = PyDict::new(py);
    for (key, value) in values(py, entries.column(0))?.into_iter().zip(values(py, entries.column(1))?) {
        dict.set_item(key, value)?;
    }
    Ok(dict.into_any())
}
