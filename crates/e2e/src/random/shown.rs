//! A failure as text that can be kept: tables as `tests/data/make.py` makes them, and the query.

use std::fmt::Write;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, TimeUnit};
use pithead_host::PartitionBy;

use crate::random::shrink::Failure;
use crate::random::tables::Table;
use crate::render::cell;

/// All of a failure.
pub(crate) fn failure(failure: &Failure, seed: u64, number: u64) -> String {
    let mut told = format!("seed {seed}, query {number}: {}\n\n", failure.difference.told);
    for table in &failure.database.tables {
        told += &python(table);
    }
    let (ours, theirs) = (failure.query.sql.replace("DIV", "/"), failure.query.sql.replace("DIV", "//"));
    told += &ours;
    if ours != theirs {
        told += &format!("\n-- DuckDB: {theirs}");
    }
    told + "\n"
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
    let mut told = format!("@dataset({})\ndef {}():\n    return pa.table({{\n", arguments.join(", "), table.name);
    for (column, array) in table.columns.iter().zip(table.rows.columns()) {
        let cells: Vec<String> = (0..array.len()).map(|row| value(array, row)).collect();
        let array = match type_name(&column.data_type) {
            // pyarrow reads times of day from text by a cast only.
            (name, true) => format!("pa.array([{}]).cast({name})", cells.join(", ")),
            (name, false) => format!("pa.array([{}], {name})", cells.join(", ")),
        };
        writeln!(told, "        \"{}\": {array},", column.name).expect("text takes all");
    }
    let more = format!("copies={}, appended={}", table.layout.copies, table.layout.appended);
    told + &format!("    }})  # {more}\n\n")
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
            "NaN" | "inf" | "-inf" => format!("float(\"{shown}\")"),
            _ => shown,
        },
        _ if type_name(array.data_type()).1 => format!("\"{shown}\""),
        _ => shown,
    }
}
