//! What COPY's readers make of bytes: rows of fields.

use arrow::array::ArrayRef;
use arrow::datatypes::Field;

use crate::error::Complaint;

/// Longest row.
pub(crate) const ROW_BYTES_MAX: usize = 16 << 20;

/// The fields of a row; none: NULL.
pub(crate) type Row<V> = Vec<Option<V>>;

/// A field of a row as it came.
pub(crate) trait Value: Send + Sync + Sized {
    /// How many bytes it has.
    fn length(&self) -> usize;

    /// The values of a column from its fields.
    fn column(field: &Field, values: &[Option<&Self>], zone: &str) -> Result<ArrayRef, Complaint>;
}

/// Cuts bytes into rows and fields.
pub(crate) trait ReadRows: Send {
    type Field: Value;

    /// Takes more bytes.
    fn push(&mut self, bytes: &[u8]) -> Result<(), Complaint>;

    /// The next row; none: more bytes are needed, or with `last`, there are no more.
    fn next(&mut self, last: bool) -> Result<Option<Row<Self::Field>>, Complaint>;
}
