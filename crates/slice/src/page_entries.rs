//! What the index of pages has for one column in one page, as bytes and back.

use pithead_model::{ColumnSummary, Value};

use crate::SliceError;

const HAS_MIN: u8 = 1;
const HAS_MAX: u8 = 2;
const EXACT: u8 = 4;
const NULLS_UNKNOWN: u8 = 8;

/// Writes what is known of a column in a page.
pub(crate) fn write_summary(out: &mut Vec<u8>, summary: &ColumnSummary) {
    let flag = |there: bool, flag: u8| if there { flag } else { 0 };
    let bounds = flag(summary.min.is_some(), HAS_MIN) | flag(summary.max.is_some(), HAS_MAX) | flag(summary.exact, EXACT);
    out.push(bounds | flag(summary.nulls_unknown, NULLS_UNKNOWN));
    let mut nulls = summary.nulls;
    while nulls >= 0x80 {
        out.push(nulls as u8 | 0x80);
        nulls >>= 7;
    }
    out.push(nulls as u8);
    summary.min.iter().chain(&summary.max).for_each(|value| write_value(out, value));
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    let mut put = |kind: u8, bytes: &[u8]| {
        out.extend_from_slice(&[kind, bytes.len() as u8]);
        out.extend_from_slice(bytes);
    };
    match value {
        Value::Int(value) => put(0, &value.to_le_bytes()),
        Value::Float(value) => put(1, &value.to_le_bytes()),
        Value::Text(text) => put(2, text.as_bytes()),
        Value::Bytes(bytes) => put(3, bytes),
    }
}

/// Reads entries. Each read checks how many bytes are left.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    fn take(&mut self, bytes: usize) -> Result<&[u8], SliceError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or_else(|| damaged("a column ends early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, SliceError> {
        Ok(self.take(1)?[0])
    }

    /// The next summary; its distinct values are not known.
    pub(crate) fn summary(&mut self) -> Result<ColumnSummary, SliceError> {
        let flags = self.byte()?;
        let mut nulls = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            nulls |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        let min = (flags & HAS_MIN != 0).then(|| self.value()).transpose()?;
        let max = (flags & HAS_MAX != 0).then(|| self.value()).transpose()?;
        Ok(ColumnSummary { min, max, exact: flags & EXACT != 0, nulls, nulls_unknown: flags & NULLS_UNKNOWN != 0, distinct: 0 })
    }

    fn value(&mut self) -> Result<Value, SliceError> {
        let (kind, length) = (self.byte()?, self.byte()?);
        let bytes = self.take(length.into())?;
        let value = match kind {
            0 => bytes.try_into().ok().map(|bytes| Value::Int(i128::from_le_bytes(bytes))),
            1 => bytes.try_into().ok().map(|bytes| Value::Float(f64::from_le_bytes(bytes))),
            2 => std::str::from_utf8(bytes).ok().map(|text| Value::Text(text.into())),
            3 => Some(Value::Bytes(bytes.into())),
            _ => None,
        };
        value.ok_or_else(|| damaged("a bound cannot be read"))
    }
}

/// The error of an index that cannot be read.
pub(crate) fn damaged(what: &str) -> SliceError {
    SliceError::Corrupt(format!("its index of pages: {what}"))
}
