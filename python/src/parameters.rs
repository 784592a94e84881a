//! Values for placeholders, from Python.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array, FixedSizeBinaryArray,
    Float64Array, Int64Array, IntervalMonthDayNanoArray, NullArray, RecordBatch, RecordBatchOptions, StringArray, StructArray,
    Time64MicrosecondArray, TimestampMicrosecondArray, TimestampNanosecondArray, UInt64Array,
};
use arrow::datatypes::{Field, FieldRef, IntervalMonthDayNanoType, Schema, i256};
use pithead_host::Parameters;
use pithead_model::{UUID_BYTES, uuid_metadata};
use pyo3::prelude::*;

use crate::common_type::list_of;
use crate::errors;

/// Values for the placeholders of a statement: kind and value of each, and their names where they have some.
#[derive(FromPyObject)]
pub(crate) struct ParameterValues {
    #[pyo3(item)]
    names: Option<Vec<String>>,
    #[pyo3(item)]
    values: Vec<ParameterValue>,
}

/// A value, as `pithead/_parameters.py` takes it apart: its kind, and a form with no more to it than the kind says.
#[derive(FromPyObject)]
struct ParameterValue(String, Py<PyAny>);

impl ParameterValues {
    pub(crate) fn parameters(self) -> PyResult<Parameters> {
        let columns = Python::attach(|py| self.values.iter().map(|kind| array(py, kind)).collect::<PyResult<Vec<_>>>())?;
        let by_name = self.names.is_some();
        let names = self.names.unwrap_or_else(|| vec![String::new(); columns.len()]);
        let fields = names.iter().zip(&columns).zip(&self.values).map(|((name, column), kind)| field(name, column, kind));
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

/// The field of a value: an identifier is told from other bytes by its field alone.
fn field(name: &str, column: &ArrayRef, ParameterValue(kind, _): &ParameterValue) -> FieldRef {
    let field = Field::new(name, column.data_type().clone(), true);
    let marks = (kind == "uuid").then(uuid_metadata);
    Arc::new(field.with_metadata(marks.unwrap_or_default()))
}

/// A value as an array of one.
fn array(py: Python<'_>, ParameterValue(kind, value): &ParameterValue) -> PyResult<ArrayRef> {
    let value = value.bind(py);
    Ok(match kind.as_str() {
        "null" => Arc::new(NullArray::new(1)),
        "bool" => Arc::new(BooleanArray::from(vec![value.extract::<bool>()?])),
        "int" => Arc::new(Int64Array::from(vec![value.extract::<i64>()?])),
        "uint" => Arc::new(UInt64Array::from(vec![value.extract::<u64>()?])),
        "float" => Arc::new(Float64Array::from(vec![value.extract::<f64>()?])),
        "str" => Arc::new(StringArray::from(vec![value.extract::<String>()?])),
        "bytes" => Arc::new(BinaryArray::from_vec(vec![value.extract::<&[u8]>()?])),
        "uuid" => {
            let bytes = [Some(value.extract::<&[u8]>()?)].into_iter();
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes, UUID_BYTES).map_err(unfit)?)
        }
        "date" => Arc::new(Date32Array::from(vec![value.extract::<i32>()?])),
        "time" => Arc::new(Time64MicrosecondArray::from(vec![value.extract::<i64>()?])),
        "timestamp" => Arc::new(TimestampMicrosecondArray::from(vec![value.extract::<i64>()?])),
        "timestamptz" => Arc::new(TimestampMicrosecondArray::from(vec![value.extract::<i64>()?]).with_timezone("UTC")),
        "timestamp_ns" => Arc::new(TimestampNanosecondArray::from(vec![value.extract::<i64>()?])),
        "timestamptz_ns" => Arc::new(TimestampNanosecondArray::from(vec![value.extract::<i64>()?]).with_timezone("UTC")),
        "interval" => {
            let (months, days, nanoseconds) = value.extract::<(i32, i32, i64)>()?;
            Arc::new(IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNanoType::make_value(months, days, nanoseconds)]))
        }
        "decimal" => decimal(&value.extract()?)?,
        "list" => {
            let items = value.extract::<Vec<ParameterValue>>()?;
            let items = items.iter().map(|item| array(py, item)).collect::<PyResult<Vec<_>>>()?;
            list_of(&items).map_err(unfit)?
        }
        "struct" => record(py, &value.extract::<Vec<(String, ParameterValue)>>()?)?,
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

fn record(py: Python<'_>, parts: &[(String, ParameterValue)]) -> PyResult<ArrayRef> {
    let columns = parts.iter().map(|(_, kind)| array(py, kind)).collect::<PyResult<Vec<_>>>()?;
    let fields = parts.iter().zip(&columns).map(|((name, kind), column)| field(name, column, kind));
    Ok(Arc::new(StructArray::try_new(fields.collect(), columns, None).map_err(unfit)?))
}

fn unfit(error: impl std::fmt::Display) -> PyErr {
    errors::user(format!("a parameter cannot be used: {error}"), "the values of a list must be of one type")
}
