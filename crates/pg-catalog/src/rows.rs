//! Rows as they are written down here, into Arrow.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int16Array, Int32Array, Int64Array, Int64Builder, IntervalMonthDayNanoArray,
    ListBuilder, RecordBatch, StringArray, StringBuilder, TimestampMicrosecondArray, new_null_array,
};
use arrow::datatypes::{DataType, Field, IntervalMonthDayNano, Schema};

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Texts(Vec<String>),
    Ints(Vec<i64>),
}

/// Where a row is shorter than the columns.
static MISSING: Cell = Cell::Null;
/// `NULL`, for columns about which there is nothing to say.
pub(crate) const NULL: Cell = Cell::Null;

impl From<bool> for Cell {
    fn from(value: bool) -> Cell {
        Cell::Bool(value)
    }
}

impl From<i64> for Cell {
    fn from(value: i64) -> Cell {
        Cell::Int(value)
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Cell {
        Cell::Float(value)
    }
}

impl From<Vec<String>> for Cell {
    fn from(value: Vec<String>) -> Cell {
        Cell::Texts(value)
    }
}

impl From<Vec<i64>> for Cell {
    fn from(value: Vec<i64>) -> Cell {
        Cell::Ints(value)
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Cell {
        Cell::Text(value.to_owned())
    }
}

impl From<&String> for Cell {
    fn from(value: &String) -> Cell {
        Cell::Text(value.clone())
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Cell {
        Cell::Text(value)
    }
}

/// A row of cells from values of several types.
macro_rules! row {
    ($($value:expr),* $(,)?) => { vec![$($crate::rows::Cell::from($value)),*] };
}
pub(crate) use row;

/// A row of cells that are told by the names of their columns, which are as those of [`batch`]. The others are NULL.
pub(crate) fn row_of(columns: &str, cells: Vec<(&str, Cell)>) -> Vec<Cell> {
    let cell = |column: &str| {
        let name = column.split(':').next();
        cells.iter().find(|(known, _)| Some(*known) == name).map_or(NULL, |(_, cell)| cell.clone())
    };
    columns.split_whitespace().map(cell).collect()
}

/// Columns as `name:type`, with spaces between them. Types: `b` boolean, `h`, `i` and `o` whole numbers of 2, 4 and 8 bytes, `f` a
/// float, `t` a moment and `v` an interval, both in microseconds, `s` a text, `O`, `F` and `S` lists. Rows may be shorter than the
/// columns: the rest is NULL.
pub(crate) fn batch(columns: &str, rows: &[Vec<Cell>]) -> RecordBatch {
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns
        .split_whitespace()
        .enumerate()
        .map(|(place, column)| {
            let (name, kind) = column.split_once(':').unwrap_or((column, "s"));
            let array = array(kind, rows.iter().map(|row| row.get(place).unwrap_or(&MISSING)));
            (Field::new(name, array.data_type().clone(), true), array)
        })
        .unzip();
    let schema = Arc::new(Schema::new(fields));
    RecordBatch::try_new(Arc::clone(&schema), arrays).unwrap_or_else(|_| RecordBatch::new_empty(schema))
}

fn array<'a>(kind: &str, cells: impl Iterator<Item = &'a Cell>) -> ArrayRef {
    let int = |cell: &Cell| match cell {
        Cell::Int(value) => Some(*value),
        _ => None,
    };
    match kind {
        "b" => {
            Arc::new(cells.map(|cell| if let Cell::Bool(value) = cell { Some(*value) } else { None }).collect::<BooleanArray>())
        }
        "h" => Arc::new(cells.map(|cell| int(cell).and_then(|value| i16::try_from(value).ok())).collect::<Int16Array>()),
        "i" => Arc::new(cells.map(|cell| int(cell).and_then(|value| i32::try_from(value).ok())).collect::<Int32Array>()),
        "o" => Arc::new(cells.map(int).collect::<Int64Array>()),
        "f" => Arc::new(cells.map(float).collect::<Float64Array>()),
        "t" => Arc::new(cells.map(int).collect::<TimestampMicrosecondArray>().with_timezone("UTC")),
        "v" => Arc::new(cells.map(|cell| int(cell).map(interval)).collect::<IntervalMonthDayNanoArray>()),
        "S" => texts(cells),
        "O" => ints(cells),
        // There are no values of these.
        "F" => new_null_array(&DataType::new_list(DataType::Float64, true), cells.count()),
        _ => Arc::new(
            cells.map(|cell| if let Cell::Text(text) = cell { Some(text.as_str()) } else { None }).collect::<StringArray>(),
        ),
    }
}

fn float(cell: &Cell) -> Option<f64> {
    match cell {
        Cell::Int(value) => Some(*value as f64),
        Cell::Float(value) => Some(*value),
        _ => None,
    }
}

fn interval(micros: i64) -> IntervalMonthDayNano {
    IntervalMonthDayNano::new(0, 0, micros.saturating_mul(1000))
}

fn ints<'a>(cells: impl Iterator<Item = &'a Cell>) -> ArrayRef {
    let mut lists = ListBuilder::new(Int64Builder::new());
    for cell in cells {
        lists.append_option(match cell {
            Cell::Ints(ints) => Some(ints.iter().copied().map(Some)),
            _ => None,
        });
    }
    Arc::new(lists.finish())
}

fn texts<'a>(cells: impl Iterator<Item = &'a Cell>) -> ArrayRef {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for cell in cells {
        lists.append_option(match cell {
            Cell::Texts(texts) => Some(texts.iter().map(Some)),
            _ => None,
        });
    }
    Arc::new(lists.finish())
}
