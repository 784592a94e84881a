//! A bound of a directory as text.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Int32Array, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::util::display::ArrayFormatter;
use pithead_model::{ColumnSummary, Value};

use crate::output::cell_options;
use crate::terminal::grouped;

/// Longest text of a bound that is shown whole.
const TEXT_CHARS_MAX: usize = 32;

/// A value of a column of this type, as tables show it.
pub(crate) fn value_text(value: &Value, data_type: &DataType) -> String {
    match value {
        Value::Int(value) => int_text(*value, data_type),
        Value::Float(value) => value.to_string(),
        Value::Text(text) => short(text),
        Value::Bytes(bytes) => short(&bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    }
}

/// The number of nulls, as far as it is known.
pub(crate) fn nulls_text(summary: &ColumnSummary) -> String {
    if summary.nulls_unknown { "?".to_owned() } else { grouped(summary.nulls) }
}

/// Dates, times, decimals and so on travel as integers; Arrow knows how to show them.
fn int_text(value: i128, data_type: &DataType) -> String {
    if *data_type == DataType::Boolean {
        return (value != 0).to_string();
    }
    let array = (!data_type.is_integer()).then(|| array_of(value, data_type)).flatten();
    let text = array.and_then(|array| ArrayFormatter::try_new(&array, &cell_options()).ok()?.value(0).try_to_string().ok());
    text.unwrap_or_else(|| value.to_string())
}

fn array_of(value: i128, data_type: &DataType) -> Option<ArrayRef> {
    match data_type {
        DataType::Decimal128(precision, scale) => {
            Some(Arc::new(Decimal128Array::from(vec![value]).with_precision_and_scale(*precision, *scale).ok()?))
        }
        DataType::Date32 | DataType::Time32(_) => cast(&Int32Array::from(vec![i32::try_from(value).ok()?]), data_type).ok(),
        _ => cast(&Int64Array::from(vec![i64::try_from(value).ok()?]), data_type).ok(),
    }
}

fn short(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::TimeUnit;

    use super::*;

    #[test]
    fn integers_read_as_their_type_says() {
        let cases = [
            (DataType::Int64, -5, "-5"),
            (DataType::UInt64, i128::from(u64::MAX), "18446744073709551615"),
            (DataType::Boolean, 1, "true"),
            (DataType::Date32, -1, "1969-12-31"),
            (DataType::Decimal128(12, 2), -7, "-0.07"),
            (DataType::Timestamp(TimeUnit::Second, None), 86_400, "1970-01-02 00:00:00"),
            (DataType::Time32(TimeUnit::Second), 61, "00:01:01"),
        ];
        for (data_type, value, expected) in cases {
            assert_eq!(value_text(&Value::Int(value), &data_type), expected, "{data_type}");
        }
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(value_text(&Value::Text("é".repeat(40)), &DataType::Utf8View), "é".repeat(32) + "…");
        assert_eq!(value_text(&Value::Bytes(vec![0, 255]), &DataType::BinaryView), "00ff");
    }
}
