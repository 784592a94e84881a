//! What the server sends: messages put together in a buffer.

use crate::error::Complaint;

/// Bytes that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    pub(crate) bytes: Vec<u8>,
}

/// A column as RowDescription names it.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    pub(crate) name: String,
    /// The number of its table; 0: it is of none.
    pub(crate) table: u32,
    /// Its number there, from 1.
    pub(crate) number: i16,
    pub(crate) oid: u32,
    pub(crate) length: i16,
    pub(crate) modifier: i32,
    pub(crate) binary: bool,
}

impl Replies {
    /// A message, whose body `fill` writes.
    pub(crate) fn message(&mut self, tag: u8, fill: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.push(tag);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        fill(&mut self.bytes);
        end_length(&mut self.bytes, start, true);
    }

    pub(crate) fn authentication(&mut self, code: i32) {
        self.message(b'R', |out| out.extend_from_slice(&code.to_be_bytes()));
    }

    pub(crate) fn parameter(&mut self, name: &str, value: &str) {
        self.message(b'S', |out| {
            text(out, name);
            text(out, value);
        });
    }

    pub(crate) fn key(&mut self, process: i32, secret: i32) {
        self.message(b'K', |out| {
            out.extend_from_slice(&process.to_be_bytes());
            out.extend_from_slice(&secret.to_be_bytes());
        });
    }

    /// Tells that a later minor version, or options of it, are not spoken.
    pub(crate) fn negotiate(&mut self, unknown: &[String]) {
        self.message(b'v', |out| {
            out.extend_from_slice(&(3_i32 << 16).to_be_bytes());
            out.extend_from_slice(&(unknown.len() as i32).to_be_bytes());
            unknown.iter().for_each(|name| text(out, name));
        });
    }

    pub(crate) fn ready(&mut self, status: u8) {
        self.message(b'Z', |out| out.push(status));
    }

    pub(crate) fn complete(&mut self, tag: &str) {
        self.message(b'C', |out| text(out, tag));
    }

    pub(crate) fn error(&mut self, complaint: &Complaint) {
        self.message(b'E', |out| complaint.write(out));
    }

    pub(crate) fn notice(&mut self, complaint: &Complaint) {
        self.message(b'N', |out| complaint.write(out));
    }

    pub(crate) fn empty(&mut self, tag: u8) {
        self.message(tag, |_| {});
    }

    pub(crate) fn parameters(&mut self, types: &[u32]) {
        self.message(b't', |out| {
            out.extend_from_slice(&(types.len() as u16).to_be_bytes());
            types.iter().for_each(|oid| out.extend_from_slice(&oid.to_be_bytes()));
        });
    }

    pub(crate) fn columns(&mut self, columns: &[Described]) {
        self.message(b'T', |out| {
            out.extend_from_slice(&(columns.len() as u16).to_be_bytes());
            for column in columns {
                text(out, &column.name);
                out.extend_from_slice(&column.table.to_be_bytes());
                out.extend_from_slice(&column.number.to_be_bytes());
                out.extend_from_slice(&column.oid.to_be_bytes());
                out.extend_from_slice(&column.length.to_be_bytes());
                out.extend_from_slice(&column.modifier.to_be_bytes());
                out.extend_from_slice(&i16::from(column.binary).to_be_bytes());
            }
        });
    }

    /// COPY begins: `tag` is that of its direction.
    pub(crate) fn copy(&mut self, tag: u8, binary: bool, columns: usize) {
        self.message(tag, |out| {
            out.push(u8::from(binary));
            out.extend_from_slice(&(columns as u16).to_be_bytes());
            (0..columns).for_each(|_| out.extend_from_slice(&i16::from(binary).to_be_bytes()));
        });
    }
}

/// Writes the length of what follows `start`, where its four bytes are; `counted`: they count themselves.
pub(crate) fn end_length(out: &mut [u8], start: usize, counted: bool) {
    let length = out.len() - start - if counted { 0 } else { 4 };
    // Messages are bounded by the largest values that are stored.
    let length = i32::try_from(length).unwrap_or(i32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// A text and its end. What is after a zero byte would not be read as its part.
pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    out.extend(text.bytes().filter(|byte| *byte != 0));
    out.push(0);
}
