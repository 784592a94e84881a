//! Whether two answers are the same bag of rows.

use std::cmp::Ordering;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Float64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use pithead_model::{Blame, Fault};

/// Floats may differ by this share of their magnitude.
const TOLERANCE: f64 = 1e-9;

/// A value as it is compared.
#[derive(Clone, Debug)]
enum Cell {
    Text(String),
    Number(f64),
}

/// What is different between two answers, in any order of rows; floats may differ by 1e-9 of their magnitude.
pub fn difference(left: &[RecordBatch], right: &[RecordBatch]) -> Result<Option<String>, Fault> {
    let (left, right) = (rows(left)?, rows(right)?);
    if left.len() != right.len() {
        return Ok(Some(format!("{} rows and {} rows", left.len(), right.len())));
    }
    let differing = left.iter().zip(&right).find(|(a, b)| a.len() != b.len() || !a.iter().zip(*b).all(|(a, b)| same(a, b)));
    Ok(differing.map(|(a, b)| format!("{a:?} and {b:?}")))
}

fn same(a: &Cell, b: &Cell) -> bool {
    match (a, b) {
        (Cell::Text(a), Cell::Text(b)) => a == b,
        (Cell::Number(a), Cell::Number(b)) => a == b || (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()),
        _ => false,
    }
}

/// The rows, sorted: by their exact cells first, so that floats do not decide between rows that differ elsewhere.
fn rows(batches: &[RecordBatch]) -> Result<Vec<Vec<Cell>>, Fault> {
    let Some(first) = batches.first() else { return Ok(vec![]) };
    let whole = concat_batches(&first.schema(), batches).map_err(bug)?;
    let columns: Vec<Vec<Cell>> = whole.columns().iter().map(cells).collect::<Result<_, _>>()?;
    let mut rows: Vec<Vec<Cell>> =
        (0..whole.num_rows()).map(|row| columns.iter().map(|column| column[row].clone()).collect()).collect();
    rows.sort_by(|a, b| order(a, b, false).then_with(|| order(a, b, true)));
    Ok(rows)
}

fn order(a: &[Cell], b: &[Cell], numbers: bool) -> Ordering {
    a.iter()
        .zip(b)
        .map(|(a, b)| match (a, b) {
            (Cell::Text(a), Cell::Text(b)) if !numbers => a.cmp(b),
            (Cell::Number(a), Cell::Number(b)) if numbers => a.total_cmp(b),
            _ => Ordering::Equal,
        })
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

fn cells(column: &ArrayRef) -> Result<Vec<Cell>, Fault> {
    if column.data_type().is_floating() {
        let column = cast(column, &DataType::Float64).map_err(bug)?;
        let values = column.as_primitive::<Float64Type>().iter();
        return Ok(values.map(|value| value.map_or(Cell::Text("NULL".into()), Cell::Number)).collect());
    }
    let options = FormatOptions::default();
    let format = ArrayFormatter::try_new(column, &options).map_err(bug)?;
    Ok((0..column.len())
        .map(|row| Cell::Text(if column.is_null(row) { "NULL".into() } else { format.value(row).to_string() }))
        .collect())
}

fn bug(error: arrow::error::ArrowError) -> Fault {
    Fault::new(Blame::Bug, format!("answers cannot be compared: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int64Array};

    use super::*;

    fn batch(keys: Vec<i64>, values: Vec<f64>) -> RecordBatch {
        let columns: [(&str, ArrayRef); 2] =
            [("k", Arc::new(Int64Array::from(keys))), ("v", Arc::new(Float64Array::from(values)))];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn order_and_last_digits_do_not_count() {
        let a = [batch(vec![1, 2], vec![0.1, 0.3])];
        let b = [batch(vec![2], vec![0.1 + 0.2]), batch(vec![1], vec![0.1])];
        assert_eq!(difference(&a, &b).unwrap(), None);
        assert!(difference(&a, &[batch(vec![1, 2], vec![0.1, 0.4])]).unwrap().is_some());
        assert!(difference(&a, &[batch(vec![1], vec![0.1])]).unwrap().is_some());
    }
}
