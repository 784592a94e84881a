//! What the fuzzer calls: everything here that reads bytes of clients. An answer only says whether they were accepted.

use crate::copy::{Copy, CopyFormat};
use crate::copy_binary::BinaryReader;
use crate::copy_rows::ReadRows;
use crate::copy_text::RowReader;
use crate::decode;
use crate::message::{Message, Startup};

/// Reads what a connection begins with.
pub fn startup(bytes: &[u8]) -> bool {
    Startup::read(bytes).is_ok()
}

/// Reads messages, one after the other.
pub fn messages(mut bytes: &[u8]) -> bool {
    while let Some(([tag, length @ ..], rest)) = bytes.split_first_chunk::<5>() {
        let length = u32::from_be_bytes(*length).saturating_sub(4) as usize;
        let Some((body, after)) = rest.split_at_checked(length) else { return false };
        if Message::read(*tag, body.to_vec()).is_err() {
            return false;
        }
        bytes = after;
    }
    bytes.is_empty()
}

/// Reads a parameter: its type by number, and whether it is in binary.
pub fn parameter(oid: u32, binary: bool, bytes: &[u8]) -> bool {
    decode::parameter(oid, None, binary, Some(bytes), "UTC").is_ok()
}

/// Tells a statement apart, as the server does before the host reads it.
pub fn statement(sql: &str) -> bool {
    crate::kind::kind(sql).is_ok()
}

/// Reads rows of so many fields, as the options of a COPY statement say.
pub fn copy(statement: &str, fields: usize, bytes: &[u8]) -> bool {
    let Ok(read) = Copy::read(statement) else { return false };
    match read.options.format {
        CopyFormat::Binary => rows(BinaryReader::new(fields), bytes),
        CopyFormat::Text | CopyFormat::Csv => {
            let columns: Vec<String> = (0..fields).map(|place| place.to_string()).collect();
            rows(RowReader::new(read.options, &columns), bytes)
        }
    }
}

fn rows(mut reader: impl ReadRows, bytes: &[u8]) -> bool {
    for part in bytes.chunks(7) {
        if reader.push(part).is_err() || !all(&mut reader, false) {
            return false;
        }
    }
    all(&mut reader, true)
}

fn all(reader: &mut impl ReadRows, last: bool) -> bool {
    loop {
        match reader.next(last) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}
