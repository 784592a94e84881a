//! What the index keeps for a key, as bytes.
//!
//! ```text
//! byte 0       kind: 0 inline, 1 segment
//!      1..9    version              all numbers little-endian
//!      9..17   checksum of the value (xxh3)
//!      17..    inline: the value
//!              segment: file (8), offset (8), bytes (8)
//! ```

use crate::Version;

const INLINE: u8 = 0;
const SEGMENT: u8 = 1;
const HEADER_BYTES: usize = 17;

/// Where a value lies in a segment file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub file: u64,
    pub offset: u64,
    pub bytes: u64,
}

/// A key's value, or where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body<'a> {
    Inline(&'a [u8]),
    Segment(Place),
}

/// What the index keeps for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub version: Version,
    pub checksum: u64,
    pub body: Body<'a>,
}

impl<'a> Record<'a> {
    /// Bytes of the value.
    pub fn value_bytes(&self) -> u64 {
        match self.body {
            Body::Inline(value) => value.len() as u64,
            Body::Segment(place) => place.bytes,
        }
    }

    /// The segment file that holds the value, if one does.
    pub fn file(&self) -> Option<u64> {
        match self.body {
            Body::Inline(_) => None,
            Body::Segment(place) => Some(place.file),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let (kind, place);
        let rest: &[u8] = match self.body {
            Body::Inline(value) => {
                kind = INLINE;
                value
            }
            Body::Segment(Place { file, offset, bytes }) => {
                kind = SEGMENT;
                place = [file.to_le_bytes(), offset.to_le_bytes(), bytes.to_le_bytes()].concat();
                &place
            }
        };
        let mut encoded = Vec::with_capacity(HEADER_BYTES + rest.len());
        encoded.push(kind);
        encoded.extend(self.version.to_le_bytes());
        encoded.extend(self.checksum.to_le_bytes());
        encoded.extend(rest);
        encoded
    }

    /// Says what does not hold where the bytes are no record. The value's checksum is not looked at.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, String> {
        let short = || format!("its index record has {} bytes, too few", bytes.len());
        let (kind, rest) = bytes.split_first().ok_or_else(short)?;
        let (version, rest) = take_u64(rest).ok_or_else(short)?;
        let (checksum, rest) = take_u64(rest).ok_or_else(short)?;
        let body = match *kind {
            INLINE => Body::Inline(rest),
            SEGMENT => {
                Body::Segment(decode_place(rest).ok_or_else(|| "its index record names no place in a segment".to_string())?)
            }
            other => return Err(format!("its index record has the unknown kind {other}")),
        };
        Ok(Self { version, checksum, body })
    }
}

fn decode_place(bytes: &[u8]) -> Option<Place> {
    let (file, rest) = take_u64(bytes)?;
    let (offset, rest) = take_u64(rest)?;
    let (bytes, rest) = take_u64(rest)?;
    rest.is_empty().then_some(Place { file, offset, bytes })
}

fn take_u64(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_read_as_written(version: u64, checksum: u64, value: Vec<u8>, file: u64, offset: u64, bytes: u64, inline: bool) {
            let body = if inline { Body::Inline(&value) } else { Body::Segment(Place { file, offset, bytes }) };
            let record = Record { version, checksum, body };
            let encoded = record.encode();
            prop_assert_eq!(Record::decode(&encoded).unwrap(), record);
        }

        #[test]
        fn any_bytes_decode_or_fail_clearly(bytes: Vec<u8>) {
            if let Ok(record) = Record::decode(&bytes) {
                prop_assert_eq!(record.encode(), bytes);
            }
        }
    }
}
