//! The index's entry for a key, as bytes.
//!
//! ```text
//! byte 0       kind: 2 inline, 3 segment, 4 recipe (0 and 1 are format 1's, see `upgrade`)
//!      1..9    checksum (xxh3) of the key and of all that follows, without an inline value
//!      9..17   checksum of the value (xxh3)      all numbers little-endian
//!      17..19  bytes of the version, then the version
//!              tag: algorithm (4), bytes (2), then the tag
//!              inline: the value
//!              segment: file (8), offset (8), bytes (8)
//!              recipe: see `recipe`
//! ```
//!
//! The key is part of the checksum, so that a reader detects a record that comes up under another key.

use xxhash_rust::xxh3::Xxh3;

use crate::Tag;
use crate::medium::ALIGNMENT;
use crate::recipe::Recipe;

const INLINE: u8 = 2;
const SEGMENT: u8 = 3;
const RECIPE: u8 = 4;

/// The place of a value in a segment file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ValueLocation {
    pub file: u64,
    pub offset: u64,
    pub bytes: u64,
}

impl ValueLocation {
    /// The bytes of the segment that it takes.
    pub fn room(&self) -> u64 {
        room(self.bytes)
    }

    /// The offset at which the next value may start.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.room())
    }
}

/// The bytes of a segment that a value takes. The empty value takes some, too, so that no two values share a place.
pub(crate) fn room(bytes: u64) -> u64 {
    bytes.max(1).checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX)
}

/// A key's value, or its place, or what it is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body<'a> {
    Inline(&'a [u8]),
    Segment(ValueLocation),
    Recipe(Recipe<'a>),
}

/// The index's entry for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub version: &'a [u8],
    pub tag_algorithm: i32,
    pub tag: &'a [u8],
    /// The checksum of the value.
    pub checksum: u64,
    pub body: Body<'a>,
}

impl<'a> Record<'a> {
    /// Bytes of the value.
    pub fn value_bytes(&self) -> u64 {
        match self.body {
            Body::Inline(value) => value.len() as u64,
            Body::Segment(place) => place.bytes,
            Body::Recipe(recipe) => recipe.bytes,
        }
    }

    /// The place of the value, if it is in a segment.
    pub fn place(&self) -> Option<ValueLocation> {
        match self.body {
            Body::Inline(_) | Body::Recipe(_) => None,
            Body::Segment(place) => Some(place),
        }
    }

    /// What the value is made of, if it is deduplicated.
    pub fn recipe(&self) -> Option<Recipe<'a>> {
        match self.body {
            Body::Recipe(recipe) => Some(recipe),
            Body::Inline(_) | Body::Segment(_) => None,
        }
    }

    pub fn tag(&self) -> Tag {
        Tag { algorithm: self.tag_algorithm, bytes: self.tag.to_vec().into() }
    }

    /// Makes a record. The version and the tag must be within their bounds.
    pub fn encode(&self, key: &[u8]) -> Vec<u8> {
        let value = if let Body::Inline(value) = self.body { value } else { &[] };
        let recipe_bytes = self.recipe().map_or(0, |recipe| recipe.encoded_bytes());
        let mut rest = Vec::with_capacity(48 + self.version.len() + self.tag.len() + value.len() + recipe_bytes);
        rest.extend(self.checksum.to_le_bytes());
        rest.extend((self.version.len() as u16).to_le_bytes());
        rest.extend(self.version);
        rest.extend(self.tag_algorithm.to_le_bytes());
        rest.extend((self.tag.len() as u16).to_le_bytes());
        rest.extend(self.tag);
        let kind = match self.body {
            Body::Inline(_) => INLINE,
            Body::Segment(ValueLocation { file, offset, bytes }) => {
                [file, offset, bytes].iter().for_each(|number| rest.extend(number.to_le_bytes()));
                SEGMENT
            }
            Body::Recipe(recipe) => {
                recipe.encode_into(&mut rest);
                RECIPE
            }
        };
        let sum = record_sum(key, kind, &rest);
        rest.extend(value);
        let mut encoded = Vec::with_capacity(9 + rest.len());
        encoded.push(kind);
        encoded.extend(sum.to_le_bytes());
        encoded.extend(rest);
        encoded
    }

    /// Reads a record. The error says what is wrong if the bytes are no record of this key. The value's checksum is not
    /// verified.
    pub fn decode(key: &[u8], bytes: &'a [u8]) -> Result<Self, String> {
        Self::parse(key, bytes).unwrap_or_else(|| Err(format!("its index record has {} bytes, too few", bytes.len())))
    }

    /// None if the bytes end too early.
    fn parse(key: &[u8], bytes: &'a [u8]) -> Option<Result<Self, String>> {
        let (&kind, after) = bytes.split_first()?;
        let (sum, body) = take_u64(after)?;
        let (checksum, after) = take_u64(body)?;
        let (version, after) = take_short(after)?;
        let (algorithm, after) = after.split_first_chunk::<4>()?;
        let (tag, value) = take_short(after)?;
        let (body_of, summed) = match kind {
            INLINE => (Body::Inline(value), body.len() - value.len()),
            SEGMENT => match decode_place(value) {
                Some(place) => (Body::Segment(place), body.len()),
                None => return Some(Err("its index record names no place in a segment".to_string())),
            },
            RECIPE => match Recipe::decode(value) {
                Some(recipe) => (Body::Recipe(recipe), body.len()),
                None => return Some(Err("its index record names no chunks that make a value".to_string())),
            },
            other => return Some(Err(format!("its index record has the unknown kind {other}"))),
        };
        if record_sum(key, kind, body.get(..summed)?) != sum {
            return Some(Err("the checksum of its index record does not hold".to_string()));
        }
        let tag_algorithm = i32::from_le_bytes(*algorithm);
        Some(Ok(Self { version, tag_algorithm, tag, checksum, body: body_of }))
    }
}

/// The record without its value, if that is inline. Its checksum holds for these bytes as well.
pub(crate) fn without_value(record: &[u8]) -> &[u8] {
    let head = || {
        let (_, rest) = take_u64(record.get(9..)?)?;
        let (_, rest) = take_short(rest)?;
        let (_, rest) = take_short(rest.get(4..)?)?;
        record.get(..record.len() - rest.len())
    };
    if lacks_value(record) { head().unwrap_or(record) } else { record }
}

/// Whether a record whose value is left out says no more than that there is one.
pub(crate) fn lacks_value(record: &[u8]) -> bool {
    record.first() == Some(&INLINE)
}

/// Makes a record's checksum correct, if it is long enough to have one.
pub(crate) fn reseal(key: &[u8], bytes: &mut [u8]) {
    let Some((&mut kind, after)) = bytes.split_first_mut() else { return };
    let Some((sum, body)) = after.split_first_chunk_mut::<8>() else { return };
    let value_bytes = || {
        let (_, after) = take_u64(body)?;
        let (_, after) = take_short(after)?;
        let (_, after) = after.split_first_chunk::<4>()?;
        take_short(after).map(|(_, value)| value.len())
    };
    let value_bytes = if kind == INLINE { value_bytes().unwrap_or(0) } else { 0 };
    let summed = body.get(..body.len() - value_bytes).unwrap_or_default();
    *sum = record_sum(key, kind, summed).to_le_bytes();
}

fn record_sum(key: &[u8], kind: u8, rest: &[u8]) -> u64 {
    let mut sum = Xxh3::new();
    sum.update(&(key.len() as u64).to_le_bytes());
    sum.update(key);
    sum.update(&[kind]);
    sum.update(rest);
    sum.digest()
}

pub(crate) fn decode_place(bytes: &[u8]) -> Option<ValueLocation> {
    let (file, rest) = take_u64(bytes)?;
    let (offset, rest) = take_u64(rest)?;
    let (bytes, rest) = take_u64(rest)?;
    rest.is_empty().then_some(ValueLocation { file, offset, bytes })
}

pub(crate) fn take_u64(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*number), rest))
}

/// Bytes that are preceded by their length.
fn take_short(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(u16::from_le_bytes(*length) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_read_as_written(
            key in vec(any::<u8>(), 0..100),
            version in vec(any::<u8>(), 0..2_049),
            tag in vec(any::<u8>(), 0..2_049),
            value in vec(any::<u8>(), 0..100),
            (checksum, tag_algorithm) in any::<(u64, i32)>(),
            (file, offset, bytes) in any::<(u64, u64, u64)>(),
            inline in any::<bool>(),
        ) {
            let body = if inline { Body::Inline(&value) } else { Body::Segment(ValueLocation { file, offset, bytes }) };
            let record = Record { version: &version, tag_algorithm, tag: &tag, checksum, body };
            let encoded = record.encode(&key);
            prop_assert_eq!(Record::decode(&key, &encoded).unwrap(), record);
            let other = [&key[..], b"x"].concat();
            prop_assert!(Record::decode(&other, &encoded).is_err());
        }

        #[test]
        fn any_bytes_decode_or_fail_clearly(bytes: Vec<u8>) {
            if let Ok(record) = Record::decode(b"k", &bytes) {
                prop_assert_eq!(record.encode(b"k"), bytes);
            }
        }

        #[test]
        fn a_flipped_bit_is_seen(value in any::<[u8; 16]>(), bit in 0..(24 + 24) * 8usize) {
            let body = Body::Segment(ValueLocation { file: 1, offset: 4_096, bytes: 70_000 });
            let record = Record { version: &value[..1], tag_algorithm: 1, tag: &value[..1], checksum: 7, body };
            let mut encoded = record.encode(b"key");
            encoded[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Record::decode(b"key", &encoded).is_err());
        }
    }
}
