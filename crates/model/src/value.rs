//! A single value of a column, for bounds in directories and for range partitioning.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

/// A value, read together with its column's Arrow type.
///
/// `Int` carries booleans (0 and 1), all integers, dates, times, timestamps and durations (in the type's own unit) and
/// decimals (unscaled). Nested, interval and dictionary types have no bounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// See above. Serialised as text, since JSON numbers lose digits.
    Int(#[serde(with = "int_text")] i128),
    /// Finite or infinite, never NaN. Serialised as its bits.
    Float(#[serde(with = "float_bits")] f64),
    /// Ordered by its UTF-8 bytes.
    Text(String),
    /// Ordered bytewise.
    Bytes(Vec<u8>),
}

impl Value {
    /// The order within one column; `None` across kinds.
    pub fn compare(&self, other: &Value) -> Option<Ordering> {
        match (self, other) {
            (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
            (Value::Float(a), Value::Float(b)) => Some(a.total_cmp(b)),
            (Value::Text(a), Value::Text(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
            (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }

    /// The value as a number on a line, so that estimates can tell how far along a range it lies.
    pub fn position(&self) -> f64 {
        match self {
            Value::Int(value) => *value as f64,
            Value::Float(value) => *value,
            Value::Text(text) => bytes_position(text.as_bytes()),
            Value::Bytes(bytes) => bytes_position(bytes),
        }
    }
}

fn bytes_position(bytes: &[u8]) -> f64 {
    bytes.iter().take(6).rev().fold(0.0, |position, byte| (position + f64::from(*byte)) / 256.0)
}

mod int_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(value: &i128, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i128, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

mod float_bits {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(value.to_bits())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        u64::deserialize(deserializer).map(f64::from_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_json() {
        for value in
            [Value::Int(i128::MIN), Value::Float(f64::NEG_INFINITY), Value::Text("é".into()), Value::Bytes(vec![0, 255])]
        {
            let text = serde_json::to_string(&value).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        }
    }
}
