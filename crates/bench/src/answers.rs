//! Answers: whether two are the same bag of rows; kept in files.

use std::cmp::Ordering;
use std::fs::File;
use std::path::Path;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Float64Type, Schema};
use arrow::error::ArrowError;
use arrow::ipc::reader::FileReader;
use arrow::ipc::writer::FileWriter;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use pithead_model::{Blame, Fault};

use crate::tables::io;

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
    let width = left.first().map_or(0, RecordBatch::num_columns);
    Ok(differing(rows(&columns(left)?)?, rows(&columns(right)?)?, &vec![0.0; width]))
}

/// The same for answers of two engines, which may give a column other types. Numbers of unlike types are compared as floats, and
/// where one is a decimal that was rounded, they may differ by its last digit.
pub(crate) fn difference_between_engines(left: &[RecordBatch], right: &[RecordBatch]) -> Result<Option<String>, Fault> {
    let (mut left, mut right) = (columns(left)?, columns(right)?);
    // No batches: no rows, and no columns are known.
    if !left.is_empty() && !right.is_empty() && left.len() != right.len() {
        return Ok(Some(format!("{} columns and {} columns", left.len(), right.len())));
    }
    let mut within = vec![0.0; left.len()];
    for ((a, b), within) in left.iter_mut().zip(&mut right).zip(&mut within) {
        if let Some(digit) = last_digit(a.data_type(), b.data_type()) {
            *a = cast(a, &DataType::Float64).map_err(bug)?;
            *b = cast(b, &DataType::Float64).map_err(bug)?;
            *within = digit;
        }
    }
    Ok(differing(rows(&left)?, rows(&right)?, &within))
}

/// What rounding may have changed in numbers of these types. None: they are compared as they are.
fn last_digit(a: &DataType, b: &DataType) -> Option<f64> {
    if !a.is_numeric() || !b.is_numeric() {
        return None;
    }
    let scale = |data_type: &DataType| match data_type {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => Some(*scale),
        data_type => data_type.is_integer().then_some(0),
    };
    match (scale(a), scale(b)) {
        (Some(a), Some(b)) if a == b => None,
        (a, b) => {
            let coarsest = a.into_iter().chain(b).filter(|scale| *scale > 0).min();
            Some(coarsest.map_or(0.0, |scale| 10f64.powi(-i32::from(scale))))
        }
    }
}

/// Writes an answer to a file of Arrow IPC.
pub(crate) fn write_answer(path: &Path, schema: &Schema, batches: &[RecordBatch]) -> Result<(), Fault> {
    let failed = |error: ArrowError| Fault::new(Blame::Device, format!("{}: {error}", path.display()));
    let file = File::create(path).map_err(|error| io(path, &error))?;
    let mut writer = FileWriter::try_new(file, schema).map_err(failed)?;
    batches.iter().try_for_each(|batch| writer.write(batch)).map_err(failed)?;
    writer.finish().map_err(failed)
}

/// Reads what [`write_answer`] wrote, or another writer of Arrow IPC.
pub(crate) fn read_answer(path: &Path) -> Result<Vec<RecordBatch>, Fault> {
    let failed = |error: ArrowError| Fault::new(Blame::Device, format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(|error| io(path, &error))?;
    FileReader::try_new(file, None).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)
}

fn differing(left: Vec<Vec<Cell>>, right: Vec<Vec<Cell>>, within: &[f64]) -> Option<String> {
    if left.len() != right.len() {
        return Some(format!("{} rows and {} rows", left.len(), right.len()));
    }
    let alike =
        |a: &[Cell], b: &[Cell]| a.len() == b.len() && a.iter().zip(b).zip(within).all(|((a, b), within)| same(a, b, *within));
    let differing = left.iter().zip(&right).find(|(a, b)| !alike(a, b));
    differing.map(|(a, b)| format!("{a:?} and {b:?}"))
}

fn same(a: &Cell, b: &Cell, within: f64) -> bool {
    match (a, b) {
        (Cell::Text(a), Cell::Text(b)) => a == b,
        (Cell::Number(a), Cell::Number(b)) => a == b || (a - b).abs() <= within.max(TOLERANCE * a.abs().max(b.abs())),
        _ => false,
    }
}

/// The columns in one piece each. None where there are no batches.
fn columns(batches: &[RecordBatch]) -> Result<Vec<ArrayRef>, Fault> {
    let Some(first) = batches.first() else { return Ok(vec![]) };
    Ok(concat_batches(&first.schema(), batches).map_err(bug)?.columns().to_vec())
}

/// The rows, sorted: by their exact cells first, so that floats do not decide between rows that differ elsewhere.
fn rows(columns: &[ArrayRef]) -> Result<Vec<Vec<Cell>>, Fault> {
    let count = columns.first().map_or(0, |column| column.len());
    let columns: Vec<Vec<Cell>> = columns.iter().map(cells).collect::<Result<_, _>>()?;
    let mut rows: Vec<Vec<Cell>> = (0..count).map(|row| columns.iter().map(|column| column[row].clone()).collect()).collect();
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

fn bug(error: ArrowError) -> Fault {
    Fault::new(Blame::Bug, format!("answers cannot be compared: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Decimal128Array, Float64Array, Int64Array};

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

    #[test]
    fn engines_may_round_but_not_differ() {
        let averages = |values: Vec<i128>| {
            let column = Decimal128Array::from(values).with_precision_and_scale(19, 6).unwrap();
            [RecordBatch::try_from_iter([("avg", Arc::new(column) as ArrayRef)]).unwrap()]
        };
        let floats = |values: Vec<f64>| {
            [RecordBatch::try_from_iter([("avg", Arc::new(Float64Array::from(values)) as ArrayRef)]).unwrap()]
        };
        let left = averages(vec![25_522_005, 1_000_000]);
        let differs = |values| difference_between_engines(&left, &floats(values)).unwrap().is_some();
        assert!(!differs(vec![1.0, 25.522_005_853_2]));
        assert!(differs(vec![1.0, 25.522_017]));
        assert!(differs(vec![1.0]));
        // An answer without rows may come without batches, and so without columns.
        assert_eq!(difference_between_engines(&[], &floats(vec![])).unwrap(), None);
        assert!(difference_between_engines(&[batch(vec![], vec![])], &floats(vec![])).unwrap().is_some());
    }
}
