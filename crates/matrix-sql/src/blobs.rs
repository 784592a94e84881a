//! Columns of bytes in any of Arrow's three types, and errors.

use arrow::array::{Array, ArrayRef, AsArray, BinaryViewArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_err};
use datafusion::logical_expr::ColumnarValue;
use pithead_matrix::Malformed;

/// An error of a function's arguments.
pub(crate) fn malformed(function: &str, error: Malformed) -> DataFusionError {
    DataFusionError::Execution(format!("{function}(): {error}"))
}

/// A column of bytes, one value for each row.
pub(crate) struct Blobs(BinaryViewArray);

impl Blobs {
    pub(crate) fn of(array: &ArrayRef, function: &str) -> Result<Blobs> {
        match array.data_type() {
            DataType::BinaryView => Ok(Blobs(array.as_binary_view().clone())),
            DataType::Binary | DataType::LargeBinary | DataType::Null => {
                Ok(Blobs(cast(array, &DataType::BinaryView)?.as_binary_view().clone()))
            }
            other => exec_err!("{function}() takes bytes, got {other}"),
        }
    }

    /// The bytes of a row; none if it is NULL.
    pub(crate) fn get(&self, row: usize) -> Option<&[u8]> {
        self.0.is_valid(row).then(|| self.0.value(row))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// An argument that has to be the same in every row: bytes, or the same bytes as a text of base64.
pub(crate) fn constant<'a>(value: &'a ColumnarValue, function: &str, what: &str) -> Result<&'a [u8]> {
    match value {
        ColumnarValue::Scalar(
            ScalarValue::Binary(Some(bytes)) | ScalarValue::LargeBinary(Some(bytes)) | ScalarValue::BinaryView(Some(bytes)),
        ) => Ok(bytes),
        ColumnarValue::Scalar(
            ScalarValue::Utf8(Some(text)) | ScalarValue::LargeUtf8(Some(text)) | ScalarValue::Utf8View(Some(text)),
        ) => Ok(text.as_bytes()),
        _ => exec_err!("{function}() takes {what} as one value of bytes or of base64, the same for every row"),
    }
}
