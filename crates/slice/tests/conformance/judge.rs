//! Predicates, evaluated row by row: slow, and plainly as the documentation of [`Predicate`] says.

use std::cmp::Ordering;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float64Type};
use pithead_model::Value;
use pithead_slice::{Compare, Predicate, value_at};

/// Whether a row satisfies a predicate.
pub fn satisfies(batch: &RecordBatch, row: usize, predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Compare { column, op, value } => order(batch, row, *column, value).is_some_and(|order| match op {
            Compare::Eq => order.is_eq(),
            Compare::Ne => order.is_ne(),
            Compare::Lt => order.is_lt(),
            Compare::Le => order.is_le(),
            Compare::Gt => order.is_gt(),
            Compare::Ge => order.is_ge(),
        }),
        Predicate::In { column, values } => {
            values.iter().any(|value| order(batch, row, *column, value) == Some(Ordering::Equal))
        }
        Predicate::Like { column, pattern, negated } => match value_at(batch.column(*column), row) {
            Some(Value::Text(text)) => {
                let (text, pattern): (Vec<char>, Vec<char>) = (text.chars().collect(), pattern.chars().collect());
                is_like(&text, &pattern) != *negated
            }
            _ => false,
        },
        Predicate::IsNull(column) => batch.column(*column).is_null(row),
        Predicate::IsNotNull(column) => batch.column(*column).is_valid(row),
        Predicate::Any(parts) => parts.iter().any(|part| satisfies(batch, row, part)),
        Predicate::All(parts) => parts.iter().all(|part| satisfies(batch, row, part)),
    }
}

fn order(batch: &RecordBatch, row: usize, column: usize, value: &Value) -> Option<Ordering> {
    let column = batch.column(column);
    if column.is_null(row) {
        return None;
    }
    match (column.data_type(), value) {
        (DataType::Float64, Value::Float(value)) => Some(column.as_primitive::<Float64Type>().value(row).total_cmp(value)),
        _ => value_at(column, row)?.compare(value),
    }
}

fn is_like(text: &[char], pattern: &[char]) -> bool {
    match (pattern.first(), text.first()) {
        (None, _) => text.is_empty(),
        (Some('%'), _) => (0..=text.len()).any(|skipped| is_like(&text[skipped..], &pattern[1..])),
        (Some('_'), Some(_)) => is_like(&text[1..], &pattern[1..]),
        (Some(wanted), Some(found)) if wanted == found => is_like(&text[1..], &pattern[1..]),
        _ => false,
    }
}
