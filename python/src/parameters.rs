//! Values for placeholders, from Python.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array, Float64Array, Int64Array,
    IntervalMonthDayNanoArray, ListArray, NullArray, RecordBatch, RecordBatchOptions, StringArray, Time64MicrosecondArray,
    TimestampMicrosecondArray, UInt64Array, new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, IntervalMonthDayNanoType, Schema, i256};
use pithead_host::Parameters;
use pyo3::prelude::*;

use crate::errors;

/// Values for the placeholders of a statement: kind and value of each, and their names where they have some.
#[derive(FromPyObject)]
pub(crate) struct Given {
    #[pyo3(item)]
    names: Option<Vec<String>>,
    #[pyo3(item)]
    values: Vec<Kind>,
}

/// A value, as `pithead/_parameters.py` takes it apart: its kind, and a form with no more to it than the kind says.
#[derive(FromPyObject)]
struct Kind(String, Py<PyAny>);

impl Given {
    pub(crate) fn parameters(self) -> PyResult<Parameters> {
        let columns = Python::attach(|py| self.values.iter().map(|kind| array(py, kind)).collect::<PyResult<Vec<_>>>())?;
        let by_name = self.names.is_some();
        let names = self.names.unwrap_or_else(|| vec![String::new(); columns.len()]);
        let fields = names.into_iter().zip(&columns).map(|(name, column)| Field::new(name, column.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let row = RecordBatch::try_new_with_options(schema, columns, &options).map_err(unfit)?;
        match by_name {
            true => Parameters::by_name(&row),
            false => Parameters::by_place(&row),
        }
        .map_err(errors::to_python)
    }
}

/// A value as an array of one.
fn array(py: Python<'_>, Kind(kind, value): &Kind) -> PyResult<ArrayRef> {
    let value = value.bind(py);
    Ok(match kind.as_str() {
        "null" => Arc::new(NullArray::new(1)),
        "bool" => Arc::new(BooleanArray::from(vec![value.extract::<bool>()?])),
        "int" => Arc::new(Int64Array::from(vec![value.extract::<i64>()?])),
        "uint" => Arc::new(UInt64Array::from(vec![value.extract::<u64>()?])),
        "float" => Arc::new(Float64Array::from(vec![value.extract::<f64>()?])),
        "str" => Arc::new(StringArray::from(vec![value.extract::<String>()?])),
        "bytes" => Arc::new(BinaryArray::from_vec(vec![value.extract::<&[u8]>()?])),
        "date" => Arc::new(Date32Array::from(vec![value.extract::<i32>()?])),
        "time" => Arc::new(Time64MicrosecondArray::from(vec![value.extract::<i64>()?])),
        "timestamp" => Arc::new(TimestampMicrosecondArray::from(vec![value.extract::<i64>()?])),
        "timestamptz" => Arc::new(TimestampMicrosecondArray::from(vec![value.extract::<i64>()?]).with_timezone("UTC")),
        "interval" => {
            let (days, nanoseconds) = value.extract::<(i32, i64)>()?;
            Arc::new(IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNanoType::make_value(0, days, nanoseconds)]))
        }
        "decimal" => decimal(&value.extract()?)?,
        "list" => list(py, &value.extract::<Vec<Kind>>()?)?,
        other => return Err(errors::user(format!("a parameter of kind {other} is not known"), "give a plain Python value")),
    })
}

/// Digits without a point, precision, scale.
fn decimal((digits, precision, scale): &(String, u8, i8)) -> PyResult<ArrayRef> {
    let wide = || i256::from_string(digits).ok_or_else(|| unfit(format!("{digits} is no decimal")));
    Ok(match digits.parse::<i128>() {
        Ok(value) if *precision <= 38 => {
            Arc::new(Decimal128Array::from(vec![value]).with_precision_and_scale(*precision, *scale).map_err(unfit)?)
        }
        _ => Arc::new(Decimal256Array::from(vec![wide()?]).with_precision_and_scale(*precision, *scale).map_err(unfit)?),
    })
}

fn list(py: Python<'_>, values: &[Kind]) -> PyResult<ArrayRef> {
    let items = values.iter().map(|value| array(py, value)).collect::<PyResult<Vec<_>>>()?;
    // Nulls are of the others' type.
    let known = items.iter().map(|item| item.data_type()).find(|known| **known != DataType::Null).unwrap_or(&DataType::Null);
    let typed = |item: &ArrayRef| if item.data_type() == &DataType::Null { new_null_array(known, 1) } else { Arc::clone(item) };
    let typed: Vec<ArrayRef> = items.iter().map(typed).collect();
    let parts: Vec<&dyn Array> = typed.iter().map(AsRef::as_ref).collect();
    let items = match parts.is_empty() {
        true => Arc::new(NullArray::new(0)) as ArrayRef,
        false => concat(&parts).map_err(unfit)?,
    };
    let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths([items.len()]);
    Ok(Arc::new(ListArray::try_new(field, offsets, items, None).map_err(unfit)?))
}

fn unfit(error: impl std::fmt::Display) -> PyErr {
    errors::user(format!("a parameter cannot be used: {error}"), "the values of a list must be of one type")
}
