//! Values as the suites write them. The rules, and why, are in `crates/e2e/suites/render.py`; this is the same in Rust.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Decimal256Type, DecimalType, Float32Type, Float64Type, Int64Type,
    IntervalMonthDayNanoType, IntervalUnit, SchemaRef, TimeUnit, UInt64Type,
};
use arrow::temporal_conversions::date32_to_datetime;

use crate::compare::{Column, Table};

const DAY_NS: i128 = 86_400_000_000_000;

/// Batches as columns and rows of cells.
pub fn table(schema: &SchemaRef, batches: &[RecordBatch]) -> Table {
    let columns = schema.fields().iter().map(|field| Column::of(field.data_type())).collect();
    let rows = batches
        .iter()
        .flat_map(|batch| (0..batch.num_rows()).map(|row| batch.columns().iter().map(|column| cell(column, row)).collect()));
    Table { columns, rows: rows.collect() }
}

/// One value.
pub fn cell(array: &ArrayRef, row: usize) -> String {
    if array.is_null(row) || matches!(array.data_type(), DataType::Null) {
        return "NULL".to_owned();
    }
    match array.data_type() {
        DataType::Boolean => array.as_boolean().value(row).to_string(),
        DataType::Utf8 => text(array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => text(array.as_string::<i64>().value(row)),
        DataType::Utf8View => text(array.as_string_view().value(row)),
        DataType::Binary => binary(array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => binary(array.as_binary::<i64>().value(row)),
        DataType::BinaryView => binary(array.as_binary_view().value(row)),
        DataType::FixedSizeBinary(_) => binary(array.as_fixed_size_binary().value(row)),
        DataType::Dictionary(_, values) => cell(&cast_to(array, values), row),
        DataType::Struct(fields) => {
            let members = fields.iter().zip(array.as_struct().columns());
            let members: Vec<String> =
                members.map(|(field, member)| format!("{}: {}", field.name(), cell(member, row))).collect();
            format!("{{{}}}", members.join(", "))
        }
        DataType::List(_) => list(&array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => list(&array.as_list::<i64>().value(row)),
        DataType::ListView(_) => list(&array.as_list_view::<i32>().value(row)),
        DataType::FixedSizeList(_, _) => list(&array.as_fixed_size_list().value(row)),
        _ => number_or_time(array, row),
    }
}

fn number_or_time(array: &ArrayRef, row: usize) -> String {
    let data_type = array.data_type();
    match data_type {
        DataType::UInt64 => primitive::<UInt64Type>(array, row).to_string(),
        other if other.is_integer() => primitive::<Int64Type>(&cast_to(array, &DataType::Int64), row).to_string(),
        DataType::Float32 => real(f64::from(primitive::<Float32Type>(array, row))),
        DataType::Float16 | DataType::Float64 => real(primitive::<Float64Type>(&cast_to(array, &DataType::Float64), row)),
        DataType::Decimal256(precision, scale) => {
            decimal(Decimal256Type::format_decimal(primitive::<Decimal256Type>(array, row), *precision, *scale))
        }
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale) => {
            let wide = cast_to(array, &DataType::Decimal128(*precision, *scale));
            decimal(Decimal128Type::format_decimal(primitive::<Decimal128Type>(&wide, row), *precision, *scale))
        }
        DataType::Date32 => date(i128::from(primitive::<Date32Type>(array, row))),
        DataType::Date64 => date(i128::from(count(array, row)).div_euclid(86_400_000)),
        DataType::Time32(unit) | DataType::Time64(unit) => clock(i128::from(count(array, row)) * nanoseconds(unit)),
        DataType::Timestamp(unit, zone) => {
            let (days, rest) = split_days(i128::from(count(array, row)) * nanoseconds(unit));
            format!("{} {}{}", date(days), clock(rest), if zone.is_some() { "Z" } else { "" })
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let value = primitive::<IntervalMonthDayNanoType>(array, row);
            format!("{} months {} days {} ns", value.months, value.days, value.nanoseconds)
        }
        other => format!("({other})"),
    }
}

/// The plain number under a time of any unit.
fn count(array: &ArrayRef, row: usize) -> i64 {
    let narrow = matches!(array.data_type(), DataType::Time32(_));
    let plain = if narrow { cast_to(array, &DataType::Int32) } else { cast_to(array, &DataType::Int64) };
    primitive::<Int64Type>(&cast_to(&plain, &DataType::Int64), row)
}

fn primitive<T: ArrowPrimitiveType>(array: &ArrayRef, row: usize) -> T::Native {
    array.as_primitive::<T>().value(row)
}

fn cast_to(array: &ArrayRef, data_type: &DataType) -> ArrayRef {
    cast(array, data_type).expect("a cast to a wider type does not fail")
}

fn list(items: &ArrayRef) -> String {
    let items: Vec<String> = (0..items.len()).map(|item| cell(items, item)).collect();
    format!("[{}]", items.join(", "))
}

fn text(value: &str) -> String {
    if value.is_empty() {
        return "(empty)".to_owned();
    }
    let mut shown = value.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r");
    if let Some(rest) = shown.strip_prefix(' ') {
        shown = format!("\\s{rest}");
    }
    if let Some(rest) = shown.strip_suffix(' ') {
        shown = format!("{rest}\\s");
    }
    shown
}

fn binary(value: &[u8]) -> String {
    value.iter().fold("0x".to_owned(), |shown, byte| format!("{shown}{byte:02x}"))
}

fn decimal(digits: String) -> String {
    match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => digits,
    }
}

fn real(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".to_owned(),
        value => format!("{value:?}"),
    }
}

fn nanoseconds(unit: &TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

fn split_days(nanoseconds: i128) -> (i128, i128) {
    (nanoseconds.div_euclid(DAY_NS), nanoseconds.rem_euclid(DAY_NS))
}

fn date(days: i128) -> String {
    let moment = i32::try_from(days).ok().and_then(date32_to_datetime);
    moment.map_or_else(|| format!("(day {days})"), |moment| moment.date().to_string())
}

fn clock(nanoseconds: i128) -> String {
    let (seconds, fraction) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    let shown = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    match fraction {
        0 => shown,
        _ => format!("{shown}.{fraction:09}").trim_end_matches('0').to_owned(),
    }
}
