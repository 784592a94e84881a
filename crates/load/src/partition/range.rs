//! Partitioning by ranges of one column: finding a row's range.

use arrow::array::ArrayRef;
use arrow::datatypes::Field;
use pithead_model::{Fault, Value};

use super::keys::{KeyForm, Keys, kind};

/// Where partitions end, in the column's kind. Partition `i` holds values below bound `i`, the last one the rest, NULLs
/// are in partition 0. NaN is larger than all, and the two zeros of a float are one value.
#[derive(Debug)]
pub(crate) enum Bounds {
    Int(Vec<i128>),
    Float(Vec<f64>),
    Text(Vec<String>),
    Bytes(Vec<Vec<u8>>),
}

impl Bounds {
    /// Checks the bounds against the column and the number of partitions.
    pub(crate) fn new(bounds: &[Value], field: &Field, partitions: usize) -> Result<Self, Fault> {
        if bounds.len() + 1 != partitions {
            return Err(Fault::invalid(format!(
                "expected {} range bounds for {partitions} partitions, got {}",
                partitions - 1,
                bounds.len()
            )));
        }
        if !bounds.is_sorted_by(|a, b| a.compare(b).is_some_and(|order| order.is_le())) {
            return Err(Fault::invalid("range bounds must be of one kind, and ascend"));
        }
        let typed = match kind(field.data_type()) {
            Some(KeyForm::Int | KeyForm::Wide) => {
                all(bounds, |v| if let Value::Int(v) = v { Some(*v) } else { None }).map(Bounds::Int)
            }
            Some(KeyForm::Float) => {
                all(bounds, |v| if let Value::Float(v) = v { Some(one_zero(*v)) } else { None }).map(Bounds::Float)
            }
            Some(KeyForm::Text) => {
                all(bounds, |v| if let Value::Text(v) = v { Some(v.clone()) } else { None }).map(Bounds::Text)
            }
            Some(KeyForm::Bytes) => {
                all(bounds, |v| if let Value::Bytes(v) = v { Some(v.clone()) } else { None }).map(Bounds::Bytes)
            }
            None => None,
        };
        typed.ok_or_else(|| {
            Fault::invalid(format!("range bounds do not fit column {} of type {}", field.name(), field.data_type()))
        })
    }

    /// The partition of each row.
    pub(super) fn place(&self, column: &ArrayRef) -> Result<Vec<u32>, Fault> {
        let keys = Keys::of(column)?;
        let mut places: Vec<u32> = match (self, &keys) {
            (Bounds::Int(bounds), Keys::Int(array)) => {
                array.values().iter().map(|value| below(bounds, |bound| *bound <= i128::from(*value))).collect()
            }
            (Bounds::Int(bounds), Keys::Wide(array)) => {
                array.values().iter().map(|value| below(bounds, |bound| bound <= value)).collect()
            }
            (Bounds::Float(bounds), Keys::Float(array)) => array
                .values()
                .iter()
                .map(|value| below(bounds, |bound| value.is_nan() || bound.total_cmp(&one_zero(*value)).is_le()))
                .collect(),
            (Bounds::Text(bounds), Keys::Text(array)) => {
                array.iter().map(|text| below(bounds, |bound| text.is_some_and(|text| bound.as_str() <= text))).collect()
            }
            (Bounds::Bytes(bounds), Keys::Bytes(array)) => {
                array.iter().map(|bytes| below(bounds, |bound| bytes.is_some_and(|bytes| bound.as_slice() <= bytes))).collect()
            }
            _ => return Err(Fault::bug("range bounds of another kind than their column")),
        };
        if let Some(nulls) = keys.array().nulls().filter(|nulls| nulls.null_count() > 0) {
            places.iter_mut().zip(nulls.iter()).filter(|(_, valid)| !valid).for_each(|(place, _)| *place = 0);
        }
        Ok(places)
    }
}

fn all<T>(bounds: &[Value], typed: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    bounds.iter().map(typed).collect()
}

/// The negative zero for both: what lies at a bound is above it in every order.
pub(super) fn one_zero(value: f64) -> f64 {
    if value == 0.0 { -0.0 } else { value }
}

fn below<T>(bounds: &[T], at_most: impl Fn(&T) -> bool) -> u32 {
    bounds.partition_point(at_most) as u32
}
