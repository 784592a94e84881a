//! The functions behind casts of texts to bytes and to arrays. The engine takes a text's letters for bytes, and the whole text
//! for the only value of an array.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryViewBuilder, ListBuilder, StringViewArray, StringViewBuilder};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DFSchema, Result, ScalarValue, exec_err, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    cast, lit,
};

use crate::compared::text_of;
use crate::text_forms::{bytes_of_text, list_of_text, no_bytes, no_list};
use crate::wall_time::as_given;

/// What texts are read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum As {
    /// The bytes that they stand for. Another text is an error.
    Bytes,
    /// The same, and NULL for another text.
    BytesOrNull,
    /// The bytes of their letters.
    Letters,
    /// Arrays of texts. Another text is an error.
    List,
    /// The same, and NULL for another text.
    ListOrNull,
}

impl As {
    const ALL: [As; 5] = [As::Bytes, As::BytesOrNull, As::Letters, As::List, As::ListOrNull];

    /// The text of an expression, read as this. A literal is read at once, unless that is an error, which the run reports.
    pub(crate) fn read(self, text: Expr, schema: &DFSchema) -> Result<Expr> {
        if let Some(value) = text_of(&text).and_then(|text| self.values(&StringViewArray::from(vec![text])).ok()) {
            return Ok(lit(ScalarValue::try_from_array(&value, 0)?));
        }
        let is_view = text.get_type(schema)? == DataType::Utf8View;
        Ok(self.udf().call(vec![if is_view { text } else { cast(text, DataType::Utf8View) }]))
    }

    fn udf(self) -> ScalarUDF {
        let signature = Signature::exact(vec![DataType::Utf8View], Volatility::Immutable);
        ScalarUDF::new_from_impl(ReadTexts { read: self, signature })
    }

    fn has_null(self) -> bool {
        matches!(self, As::BytesOrNull | As::ListOrNull)
    }

    fn data_type(self) -> DataType {
        match self {
            As::Bytes | As::BytesOrNull | As::Letters => DataType::BinaryView,
            As::List | As::ListOrNull => DataType::new_list(DataType::Utf8View, true),
        }
    }

    fn values(self, texts: &StringViewArray) -> Result<ArrayRef> {
        match self {
            As::Bytes | As::BytesOrNull => self.bytes(texts),
            As::Letters => Ok(Arc::new(texts.clone().to_binary_view())),
            As::List | As::ListOrNull => self.lists(texts),
        }
    }

    fn bytes(self, texts: &StringViewArray) -> Result<ArrayRef> {
        let mut values = BinaryViewBuilder::with_capacity(texts.len());
        for text in texts {
            match text.map(|text| bytes_of_text(text).ok_or(text)) {
                Some(Ok(bytes)) => values.append_value(bytes),
                Some(Err(text)) if !self.has_null() => return exec_err!("{}", no_bytes(text)),
                _ => values.append_null(),
            }
        }
        Ok(Arc::new(values.finish()))
    }

    fn lists(self, texts: &StringViewArray) -> Result<ArrayRef> {
        let mut values = ListBuilder::new(StringViewBuilder::new());
        for text in texts {
            match text.map(|text| list_of_text(text).ok_or(text)) {
                Some(Ok(items)) => {
                    items.into_iter().for_each(|item| values.values().append_option(item));
                    values.append(true);
                }
                Some(Err(text)) if !self.has_null() => return exec_err!("{}", no_list(text)),
                _ => values.append_null(),
            }
        }
        Ok(Arc::new(values.finish()))
    }
}

/// All of the functions.
pub(crate) fn read_texts_udfs() -> impl Iterator<Item = ScalarUDF> {
    As::ALL.into_iter().map(As::udf)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ReadTexts {
    read: As,
    signature: Signature,
}

impl ScalarUDFImpl for ReadTexts {
    fn name(&self) -> &str {
        match self.read {
            As::Bytes => "pithead_bytes",
            As::BytesOrNull => "pithead_try_bytes",
            As::Letters => "pithead_letters",
            As::List => "pithead_list_of_text",
            As::ListOrNull => "pithead_try_list_of_text",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.read.data_type())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let nullable = self.read.has_null() || args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.read.data_type(), nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [texts] = args.args.as_slice() else { return internal_err!("{} has one argument", self.name()) };
        let is_scalar = matches!(texts, ColumnarValue::Scalar(_));
        let texts = texts.to_array(if is_scalar { 1 } else { args.number_rows })?;
        as_given(self.read.values(texts.as_string_view())?, is_scalar)
    }
}
