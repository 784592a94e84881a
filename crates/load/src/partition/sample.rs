//! Values of a column that a new dataset's partitioning is chosen by.

use std::cmp::Ordering;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::Field;
use pithead_model::Value;
use pithead_slice::value_at;

use super::PIECE_ROWS_MIN;
use super::keys::{KeyForm, kind};
use super::range::one_zero;

/// Rows that are looked at in one batch of a sample.
const SAMPLE_ROWS: usize = 1024;
/// Most of a partition's share of the rows, as one part in so many, that may have one value of a column that finds the partition.
const REPEATS_PART: usize = 16;

/// Values of a column, spread over its rows.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    values: Vec<Value>,
    nulls: usize,
}

impl Sample {
    /// Adds some of the column's values, evenly spread over its rows.
    pub(crate) fn add(&mut self, column: &ArrayRef) {
        let step = column.len().div_ceil(SAMPLE_ROWS).max(1);
        for row in (0..column.len()).step_by(step) {
            match value_at(column, row) {
                Some(value) => self.values.push(value),
                None => self.nulls += 1,
            }
        }
    }

    /// Whether the values spread rows evenly over the partitions: they are so many that one slice is not better, and none of them is
    /// frequent, nor NULL.
    pub(crate) fn spreads(mut self, partitions: usize) -> bool {
        self.values.sort_by(in_order);
        let repeats = self.values.chunk_by(|a, b| in_order(a, b).is_eq()).map(<[Value]>::len).max().unwrap_or(0);
        let rows = self.values.len() + self.nulls;
        rows >= PIECE_ROWS_MIN && repeats.max(self.nulls) <= (rows / (REPEATS_PART * partitions)).max(1)
    }

    /// Bounds that cut the sample in equal parts. A sample without values gives bounds that all are the kind's zero; a float's is
    /// the negative one (see [`Partitioning::may_part_zeros`](pithead_model::Partitioning::may_part_zeros)).
    pub(crate) fn bounds(mut self, field: &Field, partitions: usize) -> Vec<Value> {
        self.values.sort_by(in_order);
        let zero = match kind(field.data_type()) {
            Some(KeyForm::Float) => Value::Float(-0.0),
            Some(KeyForm::Text) => Value::Text(String::new()),
            Some(KeyForm::Bytes) => Value::Bytes(Vec::new()),
            _ => Value::Int(0),
        };
        let count = self.values.len();
        let bound = |part: usize| match self.values.get(part * count / partitions).unwrap_or(&zero) {
            Value::Float(value) if value.is_nan() => Value::Float(f64::NAN),
            Value::Float(value) => Value::Float(one_zero(*value)),
            value => value.clone(),
        };
        (1..partitions).map(bound).collect()
    }
}

fn in_order(a: &Value, b: &Value) -> Ordering {
    a.compare(b).unwrap_or(Ordering::Equal)
}
