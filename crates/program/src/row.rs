//! [`Value`]: one value of a row, and rows as bytes.

use std::fmt;

use crate::signature::{Type, split_value};

/// One value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Bool(bool),
    I8(i8),
    I16(i16),
    I32(i32),
    I64(i64),
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    F32(f32),
    F64(f64),
    String(String),
    Bytes(Vec<u8>),
}

impl Value {
    /// The value's type.
    pub fn of(&self) -> Type {
        match self {
            Self::Bool(_) => Type::Bool,
            Self::I8(_) => Type::I8,
            Self::I16(_) => Type::I16,
            Self::I32(_) => Type::I32,
            Self::I64(_) => Type::I64,
            Self::U8(_) => Type::U8,
            Self::U16(_) => Type::U16,
            Self::U32(_) => Type::U32,
            Self::U64(_) => Type::U64,
            Self::F32(_) => Type::F32,
            Self::F64(_) => Type::F64,
            Self::String(_) => Type::String,
            Self::Bytes(_) => Type::Bytes,
        }
    }

    /// Parses a value from text as a person types it; bytes are taken as they are.
    pub fn parse(of: Type, text: &str) -> Result<Self, String> {
        fn number<T: std::str::FromStr>(of: Type, text: &str) -> Result<T, String> {
            text.parse().map_err(|_| format!("{text:?} is no {of}"))
        }
        Ok(match of {
            Type::Bool => Self::Bool(number(of, text)?),
            Type::I8 => Self::I8(number(of, text)?),
            Type::I16 => Self::I16(number(of, text)?),
            Type::I32 => Self::I32(number(of, text)?),
            Type::I64 => Self::I64(number(of, text)?),
            Type::U8 => Self::U8(number(of, text)?),
            Type::U16 => Self::U16(number(of, text)?),
            Type::U32 => Self::U32(number(of, text)?),
            Type::U64 => Self::U64(number(of, text)?),
            Type::F32 => Self::F32(number(of, text)?),
            Type::F64 => Self::F64(number(of, text)?),
            Type::String => Self::String(text.to_owned()),
            Type::Bytes => Self::Bytes(text.as_bytes().to_vec()),
        })
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::I8(value) => value.fmt(f),
            Self::I16(value) => value.fmt(f),
            Self::I32(value) => value.fmt(f),
            Self::I64(value) => value.fmt(f),
            Self::U8(value) => value.fmt(f),
            Self::U16(value) => value.fmt(f),
            Self::U32(value) => value.fmt(f),
            Self::U64(value) => value.fmt(f),
            Self::F32(value) => value.fmt(f),
            Self::F64(value) => value.fmt(f),
            Self::String(value) => value.fmt(f),
            Self::Bytes(value) => String::from_utf8_lossy(value).fmt(f),
        }
    }
}

/// Appends one row to `bytes`.
pub fn encode_row(row: &[Value], bytes: &mut Vec<u8>) {
    row.iter().for_each(|value| encode(value, bytes));
}

pub(crate) fn encode(value: &Value, bytes: &mut Vec<u8>) {
    match value {
        Value::Bool(value) => bytes.push(u8::from(*value)),
        Value::I8(value) => bytes.extend_from_slice(&value.to_le_bytes()),
        Value::I16(value) => bytes.extend_from_slice(&value.to_le_bytes()),
        Value::I32(value) => bytes.extend_from_slice(&value.to_le_bytes()),
        Value::I64(value) => bytes.extend_from_slice(&value.to_le_bytes()),
        Value::U8(value) => bytes.push(*value),
        Value::U16(value) => bytes.extend_from_slice(&value.to_le_bytes()),
        Value::U32(value) => bytes.extend_from_slice(&value.to_le_bytes()),
        Value::U64(value) => bytes.extend_from_slice(&value.to_le_bytes()),
        Value::F32(value) => bytes.extend_from_slice(&value.to_le_bytes()),
        Value::F64(value) => bytes.extend_from_slice(&value.to_le_bytes()),
        Value::String(value) => encode_bytes(value.as_bytes(), bytes),
        Value::Bytes(value) => encode_bytes(value, bytes),
    }
}

/// A length that does not fit into 32 bits is written as the largest one, which every check refuses.
fn encode_bytes(value: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(value);
}

/// The rows that `bytes` hold. The error says which value is cut off or wrong.
pub fn decode_rows(types: &[Type], bytes: &[u8]) -> Result<Vec<Vec<Value>>, String> {
    let mut rest = bytes;
    let mut rows = Vec::new();
    while !rest.is_empty() && !types.is_empty() {
        let mut row = Vec::with_capacity(types.len());
        for of in types {
            let (value, behind) = split_value(*of, rest).ok_or_else(|| format!("row {} is cut off in its {of}", rows.len()))?;
            row.push(decode(*of, value).ok_or_else(|| format!("row {} holds what is no {of}", rows.len()))?);
            rest = behind;
        }
        rows.push(row);
    }
    Ok(rows)
}

fn decode(of: Type, bytes: &[u8]) -> Option<Value> {
    Some(match of {
        Type::Bool => Value::Bool(match bytes {
            [0] => false,
            [1] => true,
            _ => return None,
        }),
        Type::I8 => Value::I8(i8::from_le_bytes(bytes.try_into().ok()?)),
        Type::I16 => Value::I16(i16::from_le_bytes(bytes.try_into().ok()?)),
        Type::I32 => Value::I32(i32::from_le_bytes(bytes.try_into().ok()?)),
        Type::I64 => Value::I64(i64::from_le_bytes(bytes.try_into().ok()?)),
        Type::U8 => Value::U8(u8::from_le_bytes(bytes.try_into().ok()?)),
        Type::U16 => Value::U16(u16::from_le_bytes(bytes.try_into().ok()?)),
        Type::U32 => Value::U32(u32::from_le_bytes(bytes.try_into().ok()?)),
        Type::U64 => Value::U64(u64::from_le_bytes(bytes.try_into().ok()?)),
        Type::F32 => Value::F32(f32::from_le_bytes(bytes.try_into().ok()?)),
        Type::F64 => Value::F64(f64::from_le_bytes(bytes.try_into().ok()?)),
        Type::String => Value::String(std::str::from_utf8(bytes).ok()?.to_owned()),
        Type::Bytes => Value::Bytes(bytes.to_vec()),
    })
}
