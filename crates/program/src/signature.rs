//! [`Signature`]: the type of a port, as text and as a check of the bytes that go through it.

use std::fmt;
use std::str::FromStr;

use arrow::datatypes::SchemaRef;

use crate::arrow_port::check_stream;
use crate::limits::{BATCH_BYTES_MAX, COLUMNS_MAX};

/// The type of one column of a row. Numbers travel as little-endian bytes without padding, strings and bytes behind their
/// length as `u32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
    /// UTF-8.
    String,
    Bytes,
}

const NAMES: [(&str, Type); 13] = [
    ("bool", Type::Bool),
    ("i8", Type::I8),
    ("i16", Type::I16),
    ("i32", Type::I32),
    ("i64", Type::I64),
    ("u8", Type::U8),
    ("u16", Type::U16),
    ("u32", Type::U32),
    ("u64", Type::U64),
    ("f32", Type::F32),
    ("f64", Type::F64),
    ("string", Type::String),
    ("bytes", Type::Bytes),
];

impl Type {
    /// The bytes of a value, None if its length is in front of it.
    #[inline]
    pub(crate) fn width(self) -> Option<usize> {
        match self {
            Self::Bool | Self::I8 | Self::U8 => Some(1),
            Self::I16 | Self::U16 => Some(2),
            Self::I32 | Self::U32 | Self::F32 => Some(4),
            Self::I64 | Self::U64 | Self::F64 => Some(8),
            Self::String | Self::Bytes => None,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, of)| of == self).map_or("?", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for Type {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(name, _)| *name == text).map(|(_, of)| *of);
        found.ok_or_else(|| {
            let names: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
            format!("no type is called {text:?}; the types are {}", names.join(", "))
        })
    }
}

/// What goes through a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Signature {
    /// Rows of these columns, at least one. As text: the types with commas between them, `string,u32`.
    Rows(Vec<Type>),
    /// Arrow record batches, all of one schema, each as an IPC stream of its own. As text: `arrow`.
    Arrow,
}

impl Signature {
    /// Checks that bytes are a batch of this type. The error is a sentence that says what is wrong with them.
    pub fn check(&self, batch: &[u8]) -> Result<(), String> {
        self.checked(batch).map(|_| ())
    }

    /// The same, and the batch's schema where it has one.
    pub(crate) fn checked(&self, batch: &[u8]) -> Result<Option<SchemaRef>, String> {
        if batch.is_empty() || batch.len() > BATCH_BYTES_MAX {
            return Err(format!("a batch has 1 to {BATCH_BYTES_MAX} bytes, not {}", batch.len()));
        }
        match self {
            Self::Rows(types) => check_rows(types, batch).map(|_| None),
            Self::Arrow => check_stream(batch).map(Some),
        }
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Rows(types) = self else { return f.write_str("arrow") };
        for (index, one) in types.iter().enumerate() {
            write!(f, "{}{one}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Signature {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "arrow" {
            return Ok(Self::Arrow);
        }
        let types: Vec<Type> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
        match types.len() {
            0..=COLUMNS_MAX => Ok(Self::Rows(types)),
            columns => Err(format!("a row has at most {COLUMNS_MAX} columns, not {columns}")),
        }
    }
}

/// Checks that `bytes` are whole rows of `types`. Returns their number; the error says which row is wrong, and how.
pub(crate) fn check_rows(types: &[Type], bytes: &[u8]) -> Result<usize, String> {
    let width: Option<usize> = types.iter().map(|one| one.width()).sum();
    match width {
        Some(width) if !bytes.len().is_multiple_of(width) => {
            return Err(format!("{} bytes are no whole number of rows of {width} bytes", bytes.len()));
        }
        Some(width) if !types.contains(&Type::Bool) => return Ok(bytes.len() / width),
        _ => {}
    }
    // Where all bytes are ASCII, all strings are, and only their lengths are left to check.
    let is_ascii = bytes.is_ascii();
    let mut rest = bytes;
    let mut rows = 0;
    while !rest.is_empty() {
        for (column, one) in types.iter().enumerate() {
            let Some((value, behind)) = split_value(*one, rest) else {
                return Err(format!("column {column} of row {rows} is cut off: its {one} has less bytes than it says"));
            };
            match one {
                Type::Bool if value[0] > 1 => {
                    return Err(format!("column {column} of row {rows} is no bool: it is {}, not 0 or 1", value[0]));
                }
                Type::String if !is_ascii && std::str::from_utf8(value).is_err() => {
                    return Err(format!("column {column} of row {rows} is a string that is not UTF-8"));
                }
                _ => rest = behind,
            }
        }
        rows += 1;
    }
    Ok(rows)
}

/// The bytes of the first value, without its length, and the bytes behind it. None if the bytes end before the value does.
#[inline]
pub(crate) fn split_value(one: Type, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let Some(width) = one.width() else {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        return rest.split_at_checked(u32::from_le_bytes(*length) as usize);
    };
    bytes.split_at_checked(width)
}
