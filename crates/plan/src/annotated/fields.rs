//! The fields of a protobuf message as they are written, without making anything of them: a plan without its annotation has to
//! be the same bytes again.

use std::ops::Range;

use crate::PlanError;

/// Wire type of what has a length.
const LENGTH_DELIMITED: u8 = 2;

/// One field.
#[derive(Debug)]
pub(super) struct Field<'a> {
    /// Its number.
    pub(super) number: u64,
    /// Its wire type.
    pub(super) wire_type: u8,
    /// What is in it; nothing of a varint.
    pub(super) bytes: &'a [u8],
    /// Where it is in the message, its key and length included.
    pub(super) place: Range<usize>,
}

impl<'a> Field<'a> {
    /// What is in it, if it is a message, a text or bytes.
    pub(super) fn delimited(&self) -> Result<&'a [u8], PlanError> {
        match self.wire_type {
            LENGTH_DELIMITED => Ok(self.bytes),
            other => Err(broken(format!("field {} has wire type {other}", self.number))),
        }
    }
}

/// The fields of a message, in its order; after an error nothing more.
pub(super) struct Fields<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self { message, at: 0 }
    }

    fn field(&mut self) -> Result<Field<'a>, PlanError> {
        let start = self.at;
        let key = self.varint()?;
        let wire_type = (key & 7) as u8;
        let bytes = match wire_type {
            0 => self.varint().map(|_| &[][..])?,
            1 => self.take(8)?,
            LENGTH_DELIMITED => {
                let length = self.varint()?;
                self.take(length)?
            }
            5 => self.take(4)?,
            other => return Err(broken(format!("wire type {other} is not read"))),
        };
        Ok(Field { number: key >> 3, wire_type, bytes, place: start..self.at })
    }

    fn varint(&mut self) -> Result<u64, PlanError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.message.get(self.at).ok_or_else(|| broken("it ends within a number".to_owned()))?;
            self.at += 1;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(broken("a number has more than 64 bits".to_owned()))
    }

    fn take(&mut self, bytes: u64) -> Result<&'a [u8], PlanError> {
        let end = usize::try_from(bytes).ok().and_then(|bytes| self.at.checked_add(bytes));
        let taken =
            end.and_then(|end| self.message.get(self.at..end)).ok_or_else(|| broken("it ends within a field".to_owned()))?;
        self.at += taken.len();
        Ok(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, PlanError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.message.len() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.at = self.message.len();
        }
        Some(field)
    }
}

fn broken(what: String) -> PlanError {
    PlanError::Malformed(format!("as a protobuf message, {what}"))
}
