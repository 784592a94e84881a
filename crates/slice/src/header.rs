//! The header that makes a body a slice: the encoding, the length, and checksums of header and body.
//!
//! Integers are little-endian. The header is as long as the widest alignment that a body asks for, so a body keeps
//! the alignment of the value that it is part of.
//!
//! ```text
//! byte  0        8         10        12        14      16      24        32          40        44        56        64
//!       +--------+---------+---------+---------+-------+-------+---------+-----------+---------+---------+---------+------
//!       | magic  | header  | encod.  | encod.  | zero  | rows  | body    | body      | columns | zero    | header  | body
//!       | 8      | vers. 2 | id 2    | vers. 2 | 2     | 8     | bytes 8 | xxh3-64 8 | 4       | 12      | xxh3 8  |
//!       +--------+---------+---------+---------+-------+-------+---------+-----------+---------+---------+---------+------
//! ```
//!
//! The header's checksum covers bytes 0 to 55. Nothing follows the body.

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use crate::SliceError;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"PITHSLCE";
const HEADER_VERSION: u16 = 1;
const CHECKED_BYTES: usize = 56;

/// The header of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The encoding's number and version.
    pub encoding: (u16, u16),
    /// Rows of the slice, at least 1.
    pub rows: u64,
    /// Columns of the slice.
    pub columns: u32,
    /// Bytes of the body.
    pub body_bytes: u64,
    /// xxh3-64 of the body.
    pub checksum: u64,
}

/// A slice: the header, then `body`.
pub fn seal(encoding: (u16, u16), rows: u64, columns: u32, body: &[u8]) -> Vec<u8> {
    let mut slice = Vec::with_capacity(HEADER_BYTES + body.len());
    slice.resize(HEADER_BYTES, 0);
    slice.extend_from_slice(body);
    seal_in_place(encoding, rows, columns, &mut slice);
    slice
}

/// Writes the header of a slice into the place before its body that was left for it.
pub(crate) fn seal_in_place(encoding: (u16, u16), rows: u64, columns: u32, slice: &mut [u8]) {
    let (place, body) = slice.split_at_mut(HEADER_BYTES);
    let header = Header { encoding, rows, columns, body_bytes: body.len() as u64, checksum: xxh3_64(body) };
    place.copy_from_slice(&header.to_bytes());
}

/// Reads a slice's header and takes its body, without a copy. It does not check the body's checksum: see [`verify`].
pub fn unseal(slice: Bytes) -> Result<(Header, Bytes), SliceError> {
    let header = Header::from_bytes(&slice)?;
    let there = (slice.len() - HEADER_BYTES) as u64;
    if header.body_bytes != there {
        return Err(corrupt(format!("the header names a body of {} bytes, and there are {there}", header.body_bytes)));
    }
    Ok((header, slice.slice(HEADER_BYTES..)))
}

/// Checks a body against its header. One check is enough for as long as the bytes cannot change.
pub fn verify(header: &Header, body: &[u8]) -> Result<(), SliceError> {
    let found = xxh3_64(body);
    match found == header.checksum {
        true => Ok(()),
        false => Err(corrupt(format!("the body's checksum should be {:016x} and is {found:016x}", header.checksum))),
    }
}

impl Header {
    fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&HEADER_VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.encoding.0.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.encoding.1.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.rows.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.columns.to_le_bytes());
        let checksum = xxh3_64(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn from_bytes(slice: &[u8]) -> Result<Self, SliceError> {
        let Some(bytes) = slice.first_chunk::<HEADER_BYTES>() else {
            return Err(corrupt(format!("{} bytes are too few for a header of {HEADER_BYTES}", slice.len())));
        };
        if bytes[..8] != MAGIC {
            return Err(corrupt("it does not start as a slice does".into()));
        }
        if xxh3_64(&bytes[..CHECKED_BYTES]) != u64_at(bytes, CHECKED_BYTES) {
            return Err(corrupt("the header's checksum does not hold".into()));
        }
        let version = u16_at(bytes, 8);
        if version != HEADER_VERSION {
            return Err(corrupt(format!("the header has version {version}; this release reads {HEADER_VERSION}")));
        }
        let header = Header {
            encoding: (u16_at(bytes, 10), u16_at(bytes, 12)),
            rows: u64_at(bytes, 16),
            columns: u32::from_le_bytes([bytes[40], bytes[41], bytes[42], bytes[43]]),
            body_bytes: u64_at(bytes, 24),
            checksum: u64_at(bytes, 32),
        };
        match header.rows {
            0 => Err(corrupt("the header names no rows".into())),
            _ => Ok(header),
        }
    }
}

fn u16_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u64_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

fn corrupt(what: String) -> SliceError {
    SliceError::Corrupt(what)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_sealed_body_comes_back_without_a_copy() {
        let slice = Bytes::from(seal((7, 3), 12, 4, b"body"));
        let (header, body) = unseal(slice.clone()).unwrap();
        assert_eq!((header.encoding, header.rows, header.columns, &body[..]), ((7, 3), 12, 4, &b"body"[..]));
        assert_eq!(body.as_ptr(), slice[HEADER_BYTES..].as_ptr());
        verify(&header, &body).unwrap();
    }

    #[test]
    fn a_length_that_lies_is_an_error() {
        let mut slice = seal((7, 3), 12, 4, b"body");
        slice.push(0);
        let error = unseal(slice.into()).unwrap_err().to_string();
        assert!(error.contains("4 bytes, and there are 5"), "{error}");
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_seen(at in 0usize..(HEADER_BYTES + 9) * 8) {
            let mut slice = seal((1, 1), 5, 1, b"some body");
            slice[at / 8] ^= 1 << (at % 8);
            let seen = unseal(slice.into()).and_then(|(header, body)| verify(&header, &body));
            prop_assert!(seen.is_err());
        }

        #[test]
        fn any_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(unseal(bytes.into()).is_err());
        }
    }
}
