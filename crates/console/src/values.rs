//! Rows as JSON that JavaScript does not spoil: what has more digits than its numbers is text.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use pithead_host::uuids_as_texts;
use serde_json::{Value as Json, json};

/// Most characters of a value that are sent.
const VALUE_CHARS_MAX: usize = 4_096;

/// A column, as the page has it.
pub(crate) fn column_json(field: &Field) -> Json {
    json!({ "name": field.name(), "type": field.data_type().to_string(), "is_number": field.data_type().is_numeric() })
}

/// The first rows of a batch, and about how many bytes they are.
pub(crate) fn rows_json(batch: &RecordBatch, rows_max: usize) -> Result<(Vec<Json>, usize), ArrowError> {
    let rows = batch.num_rows().min(rows_max);
    let batch = uuids_as_texts(batch);
    let columns = batch.columns().iter().map(|column| values(&column.slice(0, rows))).collect::<Result<Vec<_>, _>>()?;
    let bytes = columns.iter().flatten().map(|value| value.as_str().map_or(8, str::len) + 3).sum();
    let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
    let row = |_| Json::Array(columns.iter_mut().map(|column| column.next().unwrap_or(Json::Null)).collect());
    Ok(((0..rows).map(row).collect(), bytes))
}

fn values(column: &ArrayRef) -> Result<Vec<Json>, ArrowError> {
    use DataType::{Boolean, Float32, Float64, Int8, Int16, Int32, UInt8, UInt16, UInt32};
    let options = FormatOptions::new()
        .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
        .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:z"))
        .with_datetime_format(Some("%Y-%m-%d %H:%M:%S%.f"));
    let formatter = ArrayFormatter::try_new(column, &options)?;
    let nulls = column.logical_nulls();
    let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
    let text = |row: usize| -> Result<Json, ArrowError> { Ok(Json::String(shortened(formatter.value(row).try_to_string()?))) };
    let float = |row: usize| match column.data_type() {
        // By its shortest text: as a double, 0.1 would have more digits than it had.
        Float32 => column.as_primitive::<Float32Type>().value(row).to_string().parse().unwrap_or(f64::NAN),
        _ => column.as_primitive::<Float64Type>().value(row),
    };
    let value = |row: usize| match column.data_type() {
        _ if is_null(row) => Ok(Json::Null),
        Boolean => Ok(Json::Bool(column.as_boolean().value(row))),
        Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32 => {
            let digits = formatter.value(row).try_to_string()?;
            digits.parse::<i64>().map(Json::from).map_err(|error| ArrowError::CastError(error.to_string()))
        }
        Float32 | Float64 if float(row).is_finite() => Ok(json!(float(row))),
        _ => text(row),
    };
    (0..column.len()).map(value).collect()
}

fn shortened(text: String) -> String {
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        BooleanArray, Decimal128Array, Float32Array, Float64Array, Int32Array, Int64Array, NullArray, StringArray,
    };

    use super::*;

    fn shown(column: ArrayRef) -> Json {
        let batch = RecordBatch::try_from_iter([("v", column)]).unwrap();
        Json::Array(rows_json(&batch, 100).unwrap().0.into_iter().map(|row| row[0].clone()).collect())
    }

    #[test]
    fn digits_are_kept() {
        assert_eq!(shown(Arc::new(Int64Array::from(vec![i64::MAX, -1]))), json!(["9223372036854775807", "-1"]));
        let decimals = Decimal128Array::from(vec![10_i128.pow(30) + 1]).with_precision_and_scale(38, 2).unwrap();
        assert_eq!(shown(Arc::new(decimals)), json!(["10000000000000000000000000000.01"]));
        assert_eq!(shown(Arc::new(Int32Array::from(vec![Some(i32::MIN), None]))), json!([i32::MIN, null]));
        assert_eq!(shown(Arc::new(Float64Array::from(vec![0.1, f64::NAN, f64::INFINITY]))), json!([0.1, "NaN", "inf"]));
        assert_eq!(shown(Arc::new(Float32Array::from(vec![0.1]))), json!([0.1]));
        assert_eq!(shown(Arc::new(BooleanArray::from(vec![true]))), json!([true]));
        assert_eq!(shown(Arc::new(NullArray::new(1))), json!([null]));
    }

    #[test]
    fn rows_and_texts_have_bounds() {
        let long = StringArray::from(vec!["é".repeat(VALUE_CHARS_MAX + 1); 5]);
        let batch = RecordBatch::try_from_iter([("v", Arc::new(long) as ArrayRef)]).unwrap();
        let (rows, bytes) = rows_json(&batch, 2).unwrap();
        assert_eq!((rows.len(), rows[0][0].as_str().unwrap().chars().count()), (2, VALUE_CHARS_MAX + 1));
        assert!(bytes > 2 * 2 * VALUE_CHARS_MAX);
    }
}
