//! `format('{} {:.2f}', …)` and `printf('%s %.2f', …)`: values in a text, as in DuckDB, which has both from the library fmt.

mod parse;
mod style;
mod write;

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, StringViewArray, StringViewBuilder, UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Float64Type, Int64Type, UInt64Type};
use datafusion::common::{Result, exec_err, internal_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use self::parse::Part;
pub(crate) use self::style::Style;
use self::write::Value;
use crate::wall_time::as_given;

impl Style {
    /// The most bytes of a result of a format beside those of texts that are given, and how often a text may be written.
    pub(crate) fn sizes(self, format: &str) -> (u64, u64) {
        // A format that cannot be read has no result.
        let parts = self.parts(format).unwrap_or_default();
        let bytes = parts.iter().map(|part| match part {
            Part::Text(text) => text.len(),
            Part::Value(_, spec) => spec.bytes_max(),
        });
        let places = parts.iter().filter(|part| matches!(part, Part::Value(..))).count();
        (bytes.sum::<usize>() as u64, places as u64)
    }

    /// The text of each row; NULL where an argument is NULL.
    fn texts(self, formats: &ArrayRef, values: &[ArrayRef]) -> Result<ArrayRef> {
        let columns = values.iter().map(Column::of).collect::<Result<Vec<_>>>()?;
        let nulls = values
            .iter()
            .fold(formats.logical_nulls(), |nulls, column| NullBuffer::union(nulls.as_ref(), column.logical_nulls().as_ref()));
        let formats = formats.as_string_view();
        let mut texts = StringViewBuilder::with_capacity(formats.len());
        let (mut format, mut parts) = (None, vec![]);
        let mut text = String::new();
        for row in 0..formats.len() {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                texts.append_null();
                continue;
            }
            if format != Some(formats.value(row)) {
                format = Some(formats.value(row));
                parts = self.parts(formats.value(row))?;
            }
            text.clear();
            for part in &parts {
                match part {
                    Part::Text(part) => text.push_str(part),
                    Part::Value(place, spec) => match columns.get(*place) {
                        Some(column) => spec.write(&mut text, column.value(row), self)?,
                        None => return exec_err!("{}: no value {}; {} are given", self.name(), place + 1, columns.len()),
                    },
                }
            }
            texts.append_value(&text);
        }
        Ok(Arc::new(texts.finish()))
    }
}

pub(crate) fn formatted_udfs() -> [ScalarUDF; 2] {
    let signature = Signature::user_defined(Volatility::Immutable);
    [Style::Braces, Style::Percent].map(|style| ScalarUDF::new_from_impl(Formatted { style, signature: signature.clone() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Formatted {
    style: Style,
    signature: Signature,
}

/// The type as which a value is written.
fn written_as(of: &DataType) -> DataType {
    match of {
        DataType::Boolean | DataType::UInt64 => of.clone(),
        whole if whole.is_integer() => DataType::Int64,
        number if number.is_numeric() => DataType::Float64,
        _ => DataType::Utf8View,
    }
}

impl ScalarUDFImpl for Formatted {
    fn name(&self) -> &str {
        self.style.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [format, values @ ..] if format.is_string() || format.is_null() => {
                Ok([DataType::Utf8View].into_iter().chain(values.iter().map(written_as)).collect())
            }
            _ => plan_err!("{} expects a text that says how, and then values", self.name()),
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let columns = args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let [formats, values @ ..] = columns.as_slice() else { return internal_err!("expected a format") };
        as_given(self.style.texts(formats, values)?, is_scalar)
    }
}

/// The values of an argument.
enum Column<'a> {
    Bool(&'a BooleanArray),
    Whole(&'a Int64Array),
    Unsigned(&'a UInt64Array),
    Float(&'a Float64Array),
    Text(&'a StringViewArray),
}

impl<'a> Column<'a> {
    fn of(values: &'a ArrayRef) -> Result<Self> {
        Ok(match values.data_type() {
            DataType::Boolean => Column::Bool(values.as_boolean()),
            DataType::Int64 => Column::Whole(values.as_primitive::<Int64Type>()),
            DataType::UInt64 => Column::Unsigned(values.as_primitive::<UInt64Type>()),
            DataType::Float64 => Column::Float(values.as_primitive::<Float64Type>()),
            DataType::Utf8View => Column::Text(values.as_string_view()),
            other => return internal_err!("no text is made of {other}"),
        })
    }

    fn value(&self, row: usize) -> Value<'a> {
        match self {
            Column::Bool(values) => Value::Bool(values.value(row)),
            Column::Whole(values) => Value::Whole(values.value(row).into()),
            Column::Unsigned(values) => Value::Whole(values.value(row).into()),
            Column::Float(values) => Value::Float(values.value(row)),
            Column::Text(values) => Value::Text(values.value(row)),
        }
    }
}

#[cfg(test)]
mod tests;
