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

    /// Where the last row is, for people.
    fn place(&self) -> Place;
}

/// Where a row is in what is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The line that it begins in, from 1.
    Line(u64),
    /// Its number, from 1.
    Row(u64),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Line(number) => write!(f, "COPY, line {number}"),
            Place::Row(number) => write!(f, "COPY in binary, row {number}"),
        }
    }
}
