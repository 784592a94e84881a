//! Values in PostgreSQL's binary forms.

use crate::arrays;
use crate::columns::{Column, MadeOf};
use crate::numbers::{decimal, decimal_to_binary};

/// Days from 1970-01-01 to 2000-01-01, from which PostgreSQL counts.
pub(crate) const EPOCH_DAYS: i32 = 10_957;
/// The same in microseconds.
pub(crate) const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// Writes the value of a row, which is not NULL.
pub(crate) fn write(out: &mut Vec<u8>, column: &Column, row: usize) {
    match column {
        Column::Null => {}
        Column::Bool(array) => out.push(u8::from(array.value(row))),
        Column::Int2(array) => out.extend_from_slice(&array.value(row).to_be_bytes()),
        Column::Int4(array) => out.extend_from_slice(&array.value(row).to_be_bytes()),
        Column::Int8(array) => out.extend_from_slice(&array.value(row).to_be_bytes()),
        Column::Float4(array) => out.extend_from_slice(&array.value(row).to_be_bytes()),
        Column::Float8(array) => out.extend_from_slice(&array.value(row).to_be_bytes()),
        Column::Text(array) => out.extend_from_slice(array.value(row).as_bytes()),
        Column::Made(array, MadeOf::Json) => out.extend_from_slice(array.value(row).as_bytes()),
        Column::Made(array, MadeOf::Numeric) => decimal_to_binary(out, array.value(row).as_bytes()),
        Column::Bytes(array) => out.extend_from_slice(array.value(row)),
        Column::Uuid(array) => out.extend_from_slice(array.value(row)),
        Column::Numeric(array, scale) => {
            let mut text = Vec::with_capacity(48);
            decimal(&mut text, array.value(row), *scale);
            decimal_to_binary(out, &text);
        }
        Column::Date(array) => out.extend_from_slice(&array.value(row).saturating_sub(EPOCH_DAYS).to_be_bytes()),
        Column::Time(array) => out.extend_from_slice(&array.value(row).to_be_bytes()),
        Column::Timestamp { values, .. } => {
            out.extend_from_slice(&values.value(row).saturating_sub(EPOCH_MICROS).to_be_bytes());
        }
        Column::Interval(array) => {
            let value = array.value(row);
            out.extend_from_slice(&(value.nanoseconds / 1000).to_be_bytes());
            out.extend_from_slice(&value.days.to_be_bytes());
            out.extend_from_slice(&value.months.to_be_bytes());
        }
        Column::List { lists, items, item_type } => {
            let offsets = lists.value_offsets();
            arrays::write_binary(out, items, *item_type, offsets[row] as usize..offsets[row + 1] as usize);
        }
    }
}
