//! Days, times of day, moments and intervals in binary, and what is said of bytes that are no value.

use arrow::datatypes::IntervalMonthDayNano;
use pithead_pg_catalog::TYPES;

use crate::binary::{EPOCH_DAYS, EPOCH_MICROS};
use crate::error::Complaint;
use crate::sql_state::WRONG_BINARY;

const DAY_MICROS: i64 = 86_400_000_000;

/// What is said of bytes that are no value of a type; the type's number.
#[derive(Clone, Copy)]
pub(crate) struct Wrong(pub(crate) u32);

impl Wrong {
    pub(crate) fn because(self, what: &str) -> Complaint {
        let name = TYPES.iter().find(|known| known.oid == self.0).map_or("array", |known| known.sql);
        Complaint::error(WRONG_BINARY, format!("a value of type {name} is malformed: {what}"))
    }

    pub(crate) fn length(self, expected: usize, bytes: &[u8]) -> Complaint {
        self.because(&format!("expected {expected} bytes, got {}", bytes.len()))
    }
}

/// A day in binary.
pub(crate) fn day(bytes: &[u8], wrong: Wrong) -> Result<i32, Complaint> {
    let days = i32::from_be_bytes(bytes.try_into().map_err(|_| wrong.length(4, bytes))?);
    let day = days.checked_add(EPOCH_DAYS).filter(|_| days != i32::MIN);
    day.ok_or_else(|| wrong.because("the day is out of range"))
}

/// A time of day in binary.
pub(crate) fn time_of_day(bytes: &[u8], wrong: Wrong) -> Result<i64, Complaint> {
    let micros = i64::from_be_bytes(bytes.try_into().map_err(|_| wrong.length(8, bytes))?);
    match (0..DAY_MICROS).contains(&micros) {
        true => Ok(micros),
        false => Err(wrong.because("the time of day is out of range")),
    }
}

/// A moment in binary.
pub(crate) fn micros(bytes: &[u8], wrong: Wrong) -> Result<i64, Complaint> {
    let micros = i64::from_be_bytes(bytes.try_into().map_err(|_| wrong.length(8, bytes))?);
    let moment = micros.checked_add(EPOCH_MICROS).filter(|_| micros != i64::MIN);
    moment.ok_or_else(|| wrong.because("out of range"))
}

/// An interval in binary.
pub(crate) fn interval(bytes: &[u8], wrong: Wrong) -> Result<IntervalMonthDayNano, Complaint> {
    let &[a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes else { return Err(wrong.length(16, bytes)) };
    let nanos = i64::from_be_bytes([a, b, c, d, e, f, g, h]).checked_mul(1000).ok_or_else(|| wrong.because("out of range"))?;
    Ok(IntervalMonthDayNano::new(i32::from_be_bytes([m, n, o, p]), i32::from_be_bytes([i, j, k, l]), nanos))
}
