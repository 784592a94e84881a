//! [`ByteTexts`]: bytes as texts, as DuckDB writes them: the letters that they are in ASCII, and `\xFF` for other bytes. Every
//! such text stands for the bytes that it was made of. The engine's are the bytes themselves, which may be zero, or no text at
//! all.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{Array, AsArray, StringViewBuilder};
use arrow::compute::cast as cast_array;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, cast,
};
use datafusion::optimizer::AnalyzerRule;

use crate::kept_names::{map_named, node_has};
use crate::moment_texts::cast_to_text;
use crate::wall_time::as_given;

/// The rule, for after types are made equal: what is written beside texts is cast by then.
#[derive(Debug)]
pub(crate) struct ByteTexts;

impl AnalyzerRule for ByteTexts {
    fn name(&self) -> &'static str {
        "pithead_byte_texts"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_down_with_subqueries(|node| {
            if !node_has(&node, |part| cast_to_text(part).is_some())? {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            map_named(node, |expr| {
                expr.transform_up(|part| match cast_to_text(&part) {
                    Some((bytes, to)) if bytes.get_type(&schema)?.is_binary() => {
                        let text = byte_text_udf().call(vec![bytes.clone()]);
                        let is_view = *to == DataType::Utf8View;
                        Ok(Transformed::yes(if is_view { text } else { cast(text, to.clone()) }))
                    }
                    _ => Ok(Transformed::no(part)),
                })
            })
        })?;
        Ok(changed.data)
    }
}

pub(crate) fn byte_text_udf() -> ScalarUDF {
    ScalarUDF::new_from_impl(ByteText { signature: Signature::any(1, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ByteText {
    signature: Signature,
}

impl ScalarUDFImpl for ByteText {
    fn name(&self) -> &'static str {
        "pithead_byte_text"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), DataType::Utf8View, nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [values] = args.args.as_slice() else { return internal_err!("expected one argument") };
        let is_scalar = matches!(values, ColumnarValue::Scalar(_));
        let values = values.to_array(if is_scalar { 1 } else { args.number_rows })?;
        let values = cast_array(&values, &DataType::BinaryView)?;
        let mut texts = StringViewBuilder::with_capacity(values.len());
        let mut text = String::new();
        for bytes in values.as_binary_view() {
            let Some(bytes) = bytes else {
                texts.append_null();
                continue;
            };
            text.clear();
            write_bytes(&mut text, bytes);
            texts.append_value(&text);
        }
        as_given(Arc::new(texts.finish()), is_scalar)
    }
}

fn write_bytes(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            b'\\' | b'\'' | b'"' | ..b' ' | 0x7f.. => {
                // Text takes all that is written.
                let _ = write!(text, "\\x{byte:02X}");
            }
            letter => text.push(char::from(*letter)),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::util::display::array_value_to_string;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::{EngineOptions, bytes_of_text, session_state};

    #[test]
    fn texts_stand_for_the_bytes_that_they_are_made_of() {
        for (bytes, expected) in [
            (&b"AB c~"[..], "AB c~"),
            (b"\x00\x1f\x7f\x80\xff", "\\x00\\x1F\\x7F\\x80\\xFF"),
            (b"a\\'\"", "a\\x5C\\x27\\x22"),
            (b"x\xc3\xa4", "x\\xC3\\xA4"),
            (b"\xdeAD", "\\xDEAD"),
            (b"", ""),
        ] {
            let mut text = String::new();
            write_bytes(&mut text, bytes);
            assert_eq!(text, expected);
        }
    }

    #[tokio::test]
    async fn casts_to_text_have_no_zero_bytes() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        for (sql, expected) in [
            (r"SELECT '\x4142'::bytea::text", "AB"),
            (r"SELECT CAST(X'00ff' AS VARCHAR)", r"\x00\xFF"),
            (r"SELECT TRY_CAST(x::bytea AS VARCHAR) FROM (VALUES ('\x01ff')) AS v(x)", r"\x01\xFF"),
            (r"SELECT x::bytea || '!' FROM (VALUES ('\x4100')) AS v(x)", r"A\x00!"),
            (r"SELECT CAST(CAST(NULL AS BYTEA) AS VARCHAR) IS NULL", "true"),
        ] {
            let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
            assert_eq!(array_value_to_string(batches[0].column(0), 0).unwrap(), expected, "{sql}");
        }
        assert_eq!(bytes_of_text(r"\x01\xFF"), Some(vec![1, 255]));
    }
}
