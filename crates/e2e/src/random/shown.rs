//! A failure as text that can be kept: tables as `crates/e2e/suites/data/make.py` makes them, and the query.

use std::fmt::Write;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Fields, Float64Type, TimeUnit};
use pithead_host::PartitionBy;

use crate::random::layout::Layout;
use crate::random::script::{Load, Step};
use crate::random::shrink::Failure;
use crate::random::tables::Table;
use crate::render::cell;

/// All of a failure.
pub(crate) fn failure(failure: &Failure, number: usize) -> String {
    let Failure { database, seed, script, difference, repeated } = failure;
    let mut told = format!("seed {seed}, step {number}: {}\n\n", difference.told);
    match repeated {
        Some(true) => {}
        Some(false) => {
            told += "It did not come again on fresh drives, after the same steps; here is the statement alone.\n\n";
            return told + &statement(&difference.sql);
        }
        None => return told + &statement(&difference.sql),
    }
    for table in &database.tables {
        told += &python(table);
    }
    for step in script {
        match step {
            Step::Ask(query) => told.extend(query.asks.iter().map(|ask| statement(&ask.sql))),
            Step::Load(load) => told += &change(load),
        }
    }
    told
}

/// A statement as Pithead reads it, and as DuckDB does where that is another text.
fn statement(sql: &str) -> String {
    let (ours, theirs) = (sql.replace("DIV", "/"), sql.replace("DIV", "//"));
    if ours == theirs { format!("{ours};\n") } else { format!("{ours};\n-- DuckDB: {theirs};\n") }
}

/// A load as a comment, and its rows.
fn change(load: &Load) -> String {
    let rows = rows(load.rows.schema().fields(), load.rows.columns());
    format!("# load into {}, {:?}: pa.table({{\n{rows}    }})\n", load.table, load.mode)
}

fn python(table: &Table) -> String {
    let mut arguments = vec![format!("slice_rows={}", table.layout.slice_rows)];
    match &table.layout.partitioning {
        PartitionBy::RoundRobin => {}
        PartitionBy::Hash(columns) => arguments.push(format!("partitioning={{\"hash\": {columns:?}}}")),
        PartitionBy::Range(column) => arguments.push(format!("partitioning={{\"range\": {column:?}}}")),
    }
    if let Some(column) = &table.layout.sort {
        arguments.push(format!("sort=[{column:?}]"));
    }
    let rows = rows(table.rows.schema().fields(), table.rows.columns());
    let Layout { partitions, copies, arrival, .. } = &table.layout;
    let more = format!("{}: partitions={partitions:?}, copies={copies}, arrival={arrival:?}", table.name);
    format!(
        "@dataset({})\ndef {}():\n    return pa.table({{\n{rows}    }})  # {more}\n\n",
        arguments.join(", "),
        table.bare_name()
    )
}

/// A line a column.
fn rows(fields: &Fields, columns: &[ArrayRef]) -> String {
    let mut told = String::new();
    for (field, array) in fields.iter().zip(columns) {
        let cells: Vec<String> = (0..array.len()).map(|row| value(array, row)).collect();
        let array = match type_name(field.data_type()) {
            // pyarrow reads times of day from text by a cast only.
            (name, true) => format!("pa.array([{}]).cast({name})", cells.join(", ")),
            (name, false) => format!("pa.array([{}], {name})", cells.join(", ")),
        };
        writeln!(told, "        \"{}\": {array},", field.name()).expect("text takes all");
    }
    told
}

/// pyarrow's name of a type, and whether its values are written as text.
fn type_name(data_type: &DataType) -> (String, bool) {
    match data_type {
        DataType::Utf8 => ("pa.string()".to_owned(), false),
        DataType::Boolean => ("pa.bool_()".to_owned(), false),
        DataType::Date32 => ("pa.date32()".to_owned(), true),
        DataType::Decimal128(precision, scale) => (format!("pa.decimal128({precision}, {scale})"), true),
        DataType::Timestamp(TimeUnit::Millisecond, _) => ("pa.timestamp(\"ms\")".to_owned(), true),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => ("pa.timestamp(\"ns\")".to_owned(), true),
        DataType::Timestamp(..) => ("pa.timestamp(\"us\")".to_owned(), true),
        DataType::Struct(_) => ("pa.struct([(\"a\", pa.int64()), (\"b\", pa.string())])".to_owned(), false),
        DataType::List(_) => ("pa.list_(pa.int64())".to_owned(), false),
        other => (format!("pa.{}()", other.to_string().to_lowercase()), false),
    }
}

fn value(array: &ArrayRef, row: usize) -> String {
    if array.is_null(row) {
        return "None".to_owned();
    }
    let shown = cell(array, row);
    match array.data_type() {
        DataType::Utf8 => format!("{:?}", array.as_string::<i32>().value(row)),
        DataType::Binary => format!("b{:?}", String::from_utf8_lossy(array.as_binary::<i32>().value(row))),
        DataType::Boolean => if shown == "true" { "True" } else { "False" }.to_owned(),
        DataType::Float32 | DataType::Float64 => match shown.as_str() {
            "NaN" if is_negative(array, row) => "float(\"-nan\")".to_owned(),
            "NaN" | "inf" | "-inf" => format!("float(\"{shown}\")"),
            _ => shown,
        },
        DataType::Struct(_) => {
            let [a, b] = [0, 1].map(|place| value(array.as_struct().column(place), row));
            format!("{{\"a\": {a}, \"b\": {b}}}")
        }
        DataType::List(_) => {
            let numbers = array.as_list::<i32>().value(row);
            let numbers: Vec<String> = (0..numbers.len()).map(|place| value(&numbers, place)).collect();
            format!("[{}]", numbers.join(", "))
        }
        _ if type_name(array.data_type()).1 => format!("\"{shown}\""),
        _ => shown,
    }
}

fn is_negative(array: &ArrayRef, row: usize) -> bool {
    let wide = cast(array, &DataType::Float64).expect("floats widen");
    wide.as_primitive::<Float64Type>().value(row).is_sign_negative()
}
