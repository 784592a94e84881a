//! [`SeenNumbers`]: which whole numbers are too large for the type that arrow's guess has for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Fields};
use serde_json::Value;

/// Numbers at one place of the objects of a file, and at the places below it. Values of a list are at the place of the list.
#[derive(Debug, Default)]
pub(crate) struct SeenNumbers {
    has_negative: bool,
    has_fraction: bool,
    /// Whether one is 2^63 or more, and below 2^64.
    has_large: bool,
    below: BTreeMap<String, SeenNumbers>,
}

impl SeenNumbers {
    /// Takes note of the numbers of a value.
    pub(crate) fn look(&mut self, value: &Value) {
        match value {
            Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(number), _) => self.has_negative |= number < 0,
                (None, Some(_)) => self.has_large = true,
                (None, None) => self.has_fraction = true,
            },
            Value::Array(values) => values.iter().for_each(|value| self.look(value)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    match self.below.get_mut(name) {
                        Some(seen) => seen.look(value),
                        None => self.below.entry(name.clone()).or_default().look(value),
                    }
                }
            }
            _ => {}
        }
    }

    /// The guessed fields of the place, where whole numbers that fit into no type with a sign are ones without it. To the
    /// guess they are floats, which lose their last digits.
    pub(crate) fn of_fields(&self, guessed: &Fields) -> Fields {
        let seen = |field: &FieldRef| match self.below.get(field.name()) {
            Some(seen) => seen.of_field(field),
            None => Arc::clone(field),
        };
        guessed.iter().map(seen).collect()
    }

    fn of_field(&self, guessed: &FieldRef) -> FieldRef {
        let data_type = match guessed.data_type() {
            DataType::Float64 if self.has_large && !self.has_negative && !self.has_fraction => DataType::UInt64,
            DataType::List(item) => DataType::List(self.of_field(item)),
            DataType::Struct(fields) => DataType::Struct(self.of_fields(fields)),
            other => other.clone(),
        };
        Arc::new(guessed.as_ref().clone().with_data_type(data_type))
    }
}
