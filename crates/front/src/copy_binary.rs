//! Rows of COPY FROM in PostgreSQL's binary form.

use arrow::array::ArrayRef;
use arrow::datatypes::Field;

use crate::copy_rows::{Place, ROW_BYTES_MAX, ReadRows, Row, Value};
use crate::decode_columns::column;
use crate::error::Complaint;
use crate::sql_state::WRONG_COPY;

/// What the form begins with.
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
/// Flags that a reader has to know; there are none that are known here.
const CRITICAL: u32 = 0xffff_0000;

impl Value for Vec<u8> {
    fn length(&self) -> usize {
        self.len()
    }

    fn column(field: &Field, values: &[Option<&Vec<u8>>], _zone: &str) -> Result<ArrayRef, Complaint> {
        let values: Vec<Option<&[u8]>> = values.iter().map(|value| value.map(Vec::as_slice)).collect();
        column(field, &values)
    }
}

/// Cuts bytes into rows and fields.
pub(crate) struct BinaryReader {
    fields: usize,
    buffer: Vec<u8>,
    /// Where the next row begins.
    start: usize,
    begun: bool,
    ended: bool,
    row: u64,
}

/// What was read of something, and where it ends; none: its end is not there yet.
type ParseStep<T> = Result<Option<(T, usize)>, String>;

impl BinaryReader {
    /// A reader of rows of so many fields.
    pub(crate) fn new(fields: usize) -> BinaryReader {
        BinaryReader { fields, buffer: Vec::new(), start: 0, begun: false, ended: false, row: 0 }
    }

    fn wrong(&self, what: impl std::fmt::Display) -> Complaint {
        Complaint::error(WRONG_COPY, format!("{}: {what}", Place::Row(self.row)))
    }

    /// The header: a signature, flags and an extension that may be skipped.
    fn header(&self) -> ParseStep<()> {
        let there = &self.buffer[..self.buffer.len().min(SIGNATURE.len())];
        if !SIGNATURE.starts_with(there) {
            return Err("it does not begin as PostgreSQL's binary form does".to_owned());
        }
        let (Some(flags), Some(length)) = (int(&self.buffer, SIGNATURE.len()), int(&self.buffer, SIGNATURE.len() + 4)) else {
            return Ok(None);
        };
        if flags as u32 & CRITICAL != 0 {
            return Err(format!("its flags {flags:#x} are not known"));
        }
        let length = usize::try_from(length).ok().filter(|length| *length <= ROW_BYTES_MAX);
        let length = length.ok_or("its header has no proper length")?;
        let end = SIGNATURE.len() + 8 + length;
        Ok((end <= self.buffer.len()).then_some(((), end)))
    }

    /// The next row's fields; without them, it is the end.
    fn row(&self) -> ParseStep<Option<Row<Vec<u8>>>> {
        let mut at = self.start;
        let Some(count) = self.buffer.get(at..at + 2) else { return Ok(None) };
        let count = i16::from_be_bytes([count[0], count[1]]);
        at += 2;
        if count == -1 {
            return Ok(Some((None, at)));
        }
        if usize::try_from(count) != Ok(self.fields) {
            return Err(format!("it has {count} fields; expected {}", self.fields));
        }
        let mut row = Vec::with_capacity(self.fields);
        for field in 0..self.fields {
            let Some(length) = int(&self.buffer, at) else { return Ok(None) };
            at += 4;
            if length == -1 {
                row.push(None);
                continue;
            }
            let length = usize::try_from(length).map_err(|_| format!("field {} has {length} bytes", field + 1))?;
            if at + length - self.start > ROW_BYTES_MAX {
                return Err(format!("it has more than {ROW_BYTES_MAX} bytes"));
            }
            let Some(value) = self.buffer.get(at..at + length) else { return Ok(None) };
            row.push(Some(value.to_vec()));
            at += length;
        }
        Ok(Some((Some(row), at)))
    }
}

/// The number at a place.
fn int(buffer: &[u8], at: usize) -> Option<i32> {
    let bytes = buffer.get(at..at + 4)?;
    Some(i32::from_be_bytes(bytes.try_into().ok()?))
}

impl ReadRows for BinaryReader {
    type Field = Vec<u8>;

    fn push(&mut self, bytes: &[u8]) -> Result<(), Complaint> {
        if self.buffer.len() - self.start + bytes.len() > 2 * ROW_BYTES_MAX {
            return Err(self.wrong(format!("it has more than {ROW_BYTES_MAX} bytes")));
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn next(&mut self, last: bool) -> Result<Option<Row<Vec<u8>>>, Complaint> {
        if !self.begun {
            match self.header().map_err(|what| self.wrong(what))? {
                Some(((), end)) => (self.begun, self.start) = (true, end),
                None if last => return Err(self.wrong("it ends within its header")),
                None => return Ok(None),
            }
        }
        if !self.ended {
            self.row += u64::from(self.start < self.buffer.len());
            match self.row().map_err(|what| self.wrong(what))? {
                Some((Some(row), end)) => {
                    self.start = end;
                    return Ok(Some(row));
                }
                Some((None, end)) => (self.ended, self.start) = (true, end),
                None if last && self.start < self.buffer.len() => return Err(self.wrong("it ends within a row")),
                None => {
                    self.row -= u64::from(self.start < self.buffer.len());
                    return Ok(None);
                }
            }
        }
        match self.start < self.buffer.len() {
            true => Err(self.wrong("there are bytes after its end")),
            false => Ok(None),
        }
    }

    fn place(&self) -> Place {
        Place::Row(self.row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(rows: &[&[u8]]) -> Vec<u8> {
        [&[SIGNATURE, &[0; 8]], rows].concat().concat()
    }

    fn read(bytes: &[u8], cut: usize) -> Result<Vec<Row<Vec<u8>>>, String> {
        let mut reader = BinaryReader::new(2);
        let mut rows = Vec::new();
        for part in [&bytes[..cut], &bytes[cut..]] {
            reader.push(part).map_err(|complaint| complaint.message)?;
            while let Some(row) = reader.next(false).map_err(|complaint| complaint.message)? {
                rows.push(row);
            }
        }
        while let Some(row) = reader.next(true).map_err(|complaint| complaint.message)? {
            rows.push(row);
        }
        Ok(rows)
    }

    #[test]
    fn rows_are_the_same_however_their_bytes_are_cut() {
        let bytes = form(&[b"\0\x02\0\0\0\x01a\xff\xff\xff\xff", b"\0\x02\0\0\0\0\0\0\0\x02bc", b"\xff\xff"]);
        let expected = [vec![Some(b"a".to_vec()), None], vec![Some(vec![]), Some(b"bc".to_vec())]];
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes, cut).unwrap(), expected, "{cut}");
        }
        // The end may be told by the protocol alone.
        assert_eq!(read(&bytes[..bytes.len() - 2], 5).unwrap(), expected);
    }

    #[test]
    fn rows_that_lie_are_refused() {
        let mut flagged = form(&[]);
        flagged[12] = 1;
        let mut long = form(&[]);
        long[15] = 0x7f;
        for bytes in [
            b"".to_vec(),
            b"1\tx\n".to_vec(),
            flagged,
            long,
            form(&[b"\0\x01\0\0\0\x01a"]),
            form(&[b"\0\x02\0\0\0\x01a"]),
            form(&[b"\0\x02\xff\xff\xff\xfea"]),
            form(&[b"\0\x02\x7f\xff\xff\xff"]),
            form(&[b"\xff\xfe"]),
            form(&[b"\xff\xff", b"\0"]),
        ] {
            assert!(read(&bytes, 0).is_err(), "{bytes:?}");
        }
    }
}
