//! `string_split`: the parts of a text between separators, as in DuckDB. A text without one is one part, an empty text too, and an empty
//! separator cuts between all characters.

use std::sync::Arc;

use arrow::array::{Array, AsArray, ListBuilder, StringViewBuilder};
use arrow::datatypes::{DataType, Field};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use crate::wall_time::as_given;

pub(crate) fn split_udf() -> ScalarUDF {
    ScalarUDF::new_from_impl(Split {
        signature: Signature::exact(vec![DataType::Utf8View, DataType::Utf8View], Volatility::Immutable),
        aliases: vec!["str_split".to_owned()],
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Split {
    signature: Signature,
    aliases: Vec<String>,
}

impl ScalarUDFImpl for Split {
    fn name(&self) -> &'static str {
        "string_split"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(Arc::new(Field::new_list_field(DataType::Utf8View, true))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [texts, separators] = args.args.as_slice() else { return internal_err!("expected two arguments") };
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let (texts, separators) = (texts.to_array(rows)?, separators.to_array(rows)?);
        let (texts, separators) = (texts.as_string_view(), separators.as_string_view());
        let mut lists = ListBuilder::new(StringViewBuilder::new());
        for row in 0..rows {
            if texts.is_valid(row) {
                let separator = separators.is_valid(row).then(|| separators.value(row));
                parts(texts.value(row), separator).for_each(|part| lists.values().append_value(part));
            }
            lists.append(texts.is_valid(row));
        }
        as_given(Arc::new(lists.finish()), is_scalar)
    }
}

/// The parts of a text, which is whole where there is no separator.
fn parts<'a>(text: &'a str, separator: Option<&'a str>) -> Box<dyn Iterator<Item = &'a str> + 'a> {
    match separator {
        Some("") if !text.is_empty() => Box::new(text.char_indices().map(|(at, char)| &text[at..at + char.len_utf8()])),
        None | Some("") => Box::new(std::iter::once(text)),
        Some(separator) => Box::new(text.split(separator)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_parts() {
        for (text, separator, expected) in [
            ("a,b,", Some(","), vec!["a", "b", ""]),
            ("äbc", Some(""), vec!["ä", "b", "c"]),
            ("", Some(","), vec![""]),
            ("", Some(""), vec![""]),
            ("a,b", None, vec!["a,b"]),
        ] {
            assert_eq!(parts(text, separator).collect::<Vec<_>>(), expected, "{text}");
        }
    }
}
