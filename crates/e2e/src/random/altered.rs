//! Tables whose columns were others when their first rows came.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int32Array, RecordBatch, new_null_array};
use arrow::compute::{CastOptions, cast_with_options, concat, take};
use arrow::datatypes::{DataType, Field, Schema};
use pithead_host::PartitionBy;
use rand::Rng;
use rand::rngs::StdRng;

use crate::random::layout::Layout;
use crate::random::values::literal;

/// A column that is there at first, and is dropped.
const DROPPED: &str = "dropped before";

/// The first rows of a table as they come, and the statements that make of their columns those that the table has.
pub(super) struct Before {
    pub(super) rows: RecordBatch,
    pub(super) statements: Vec<String>,
}

/// The same rows, the first of which may have one value in the last column, as if it had been added later.
pub(super) fn as_if_added(random: &mut StdRng, rows: &RecordBatch, layout: &Layout) -> RecordBatch {
    let (last, half) = (rows.num_columns() - 1, rows.num_rows() / 2);
    if half == 0 || is_laid_out(layout, rows.schema_ref().field(last)) || random.random_bool(0.3) {
        return rows.clone();
    }
    let column = rows.column(last);
    let first = match random.random_bool(0.5) {
        true => new_null_array(column.data_type(), half),
        false => take(column, &Int32Array::from(vec![0; half]), None).expect("the first value, again and again"),
    };
    let mut columns = rows.columns().to_vec();
    columns[last] = concat(&[&first, &column.slice(half, rows.num_rows() - half)]).expect("values of one type");
    RecordBatch::try_new(rows.schema(), columns).expect("as many values")
}

impl Before {
    /// Of the first rows of a table.
    pub(super) fn of(table: &str, rows: &RecordBatch, layout: &Layout) -> Before {
        let schema = rows.schema();
        let last = schema.fields().len() - 1;
        let added = (!is_laid_out(layout, schema.field(last))).then(|| added(rows.column(last))).flatten();
        let kept = if added.is_some() { last } else { last + 1 };
        let free: Vec<usize> = (0..kept).filter(|place| !is_laid_out(layout, schema.field(*place))).collect();
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        let (mut aside, mut back, mut types) = (Vec::new(), Vec::new(), Vec::new());
        for place in 0..kept {
            let (field, column) = (schema.field(place), rows.column(place));
            let turn = free.iter().position(|free| *free == place);
            let Some(turn) = turn else {
                fields.push(field.clone());
                columns.push(Arc::clone(column));
                continue;
            };
            // Each has the name of the next one at first, and the last that of the first.
            let name = schema.field(free[(turn + 1) % free.len()]).name();
            let (narrow, retyped) = narrower(column);
            types.extend(retyped.map(|sql| format!("ALTER COLUMN {} TYPE {sql}", quoted(field.name()))));
            aside.push(format!("RENAME COLUMN {} TO {}", quoted(name), quoted(&format!("aside {place}"))));
            back.push(format!("RENAME COLUMN {} TO {}", quoted(&format!("aside {place}")), quoted(field.name())));
            fields.push(Field::new(name, narrow.data_type().clone(), field.is_nullable()));
            columns.push(narrow);
        }
        fields.insert(1, Field::new(DROPPED, DataType::Int32, true));
        columns.insert(1, Arc::new(Int32Array::from_iter_values(0..rows.num_rows() as i32)));
        let first = [aside.join(", "), back.join(", "), format!("DROP COLUMN {}", quoted(DROPPED)), types.join(", ")];
        let statements =
            first.into_iter().chain(added.map(|value| format!("ADD COLUMN {} {value}", quoted(schema.field(last).name()))));
        Before {
            rows: RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("columns are as the schema says"),
            statements: statements
                .filter(|changes| !changes.is_empty())
                .map(|changes| format!("ALTER TABLE {table} {changes}"))
                .collect(),
        }
    }
}

fn is_laid_out(layout: &Layout, field: &Field) -> bool {
    let name = field.name();
    let is_key = match &layout.partitioning {
        PartitionBy::RoundRobin => false,
        PartitionBy::Range(column) => column == name,
        PartitionBy::Hash(columns) => columns.contains(name),
    };
    is_key || layout.sort.as_ref() == Some(name) || name == "id"
}

/// The type and the default of a column that has one value; none: it has several, or a type that SQL has no name for here.
fn added(column: &ArrayRef) -> Option<String> {
    let sql = type_name(column.data_type())?;
    if column.null_count() == column.len() {
        return Some(sql.to_owned());
    }
    let one = take(column, &Int32Array::from(vec![0; column.len()]), None).ok()?;
    let is_one = !column.data_type().is_floating() && one.to_data() == column.to_data();
    is_one.then(|| format!("{sql} DEFAULT {}", literal(column, 0, column.data_type())))
}

/// The same values in a smaller type, and the name of the type that they have.
fn narrower(column: &ArrayRef) -> (ArrayRef, Option<&'static str>) {
    let smaller = match column.data_type() {
        DataType::Int64 => DataType::Int16,
        DataType::Int32 => DataType::Int8,
        DataType::UInt64 => DataType::UInt32,
        DataType::Float64 => DataType::Float32,
        _ => return (Arc::clone(column), None),
    };
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let narrow = cast_with_options(column, &smaller, &options);
    let again = narrow.as_ref().ok().and_then(|narrow| cast_with_options(narrow, column.data_type(), &options).ok());
    match (narrow, again) {
        (Ok(narrow), Some(again)) if again.to_data() == column.to_data() => (narrow, type_name(column.data_type())),
        _ => (Arc::clone(column), None),
    }
}

fn type_name(data_type: &DataType) -> Option<&'static str> {
    Some(match data_type {
        DataType::Int16 => "SMALLINT",
        DataType::Int32 => "INTEGER",
        DataType::Int64 => "BIGINT",
        DataType::UInt32 => "UINTEGER",
        DataType::UInt64 => "UBIGINT",
        DataType::Float64 => "DOUBLE",
        DataType::Utf8 => "VARCHAR",
        DataType::Boolean => "BOOLEAN",
        DataType::Date32 => "DATE",
        _ => return None,
    })
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
