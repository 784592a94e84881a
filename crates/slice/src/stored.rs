//! [`Stored`]: the bytes of a slice's body that are at hand: all of them, or some parts. A reader that needs a byte of
//! another part gets an error, and never a zero in its place.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use pithead_model::SLICE_BYTES_MAX;

use crate::SliceError;

/// Parts that are closer to each other than this travel as one: naming a part costs bytes, too.
const GAP_BYTES: u64 = 128;
/// The most parts of a slice that a reader accepts.
pub(crate) const PARTS_MAX: usize = 1 << 16;

/// Bytes of a file outside of the store, which are read as they are needed.
pub trait ReadAt: Send + Sync + Debug {
    /// Bytes of the file.
    fn bytes(&self) -> u64;

    /// Exactly these bytes of it, or an error: [`SliceError::Gone`] where the file is no longer what it was,
    /// [`SliceError::Medium`] where it cannot be read. Blocks.
    fn read_at(&self, range: Range<u64>) -> Result<Bytes, SliceError>;
}

/// What of a slice's body a reader of some columns in some pages needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceParts {
    /// The encoding's number and version.
    pub encoding: (u16, u16),
    /// Rows of the whole slice.
    pub rows: u64,
    /// Bytes of the whole body.
    pub body_bytes: u64,
    /// Where each part starts in the body, and its bytes. Parts ascend and do not overlap; the last one reaches the end.
    pub parts: Vec<(u64, Bytes)>,
}

impl SliceParts {
    /// Bytes of all parts.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }
}

/// A body, as far as it is at hand.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    bytes: u64,
    parts: Arc<[(u64, Bytes)]>,
}

impl Stored {
    /// All of it.
    pub(crate) fn whole(body: Bytes) -> Stored {
        Stored { bytes: body.len() as u64, parts: [(0, body)].into() }
    }

    /// Parts of a body of so many bytes. The parts come from outside.
    pub(crate) fn some(bytes: u64, parts: Vec<(u64, Bytes)>) -> Result<Stored, SliceError> {
        if bytes > SLICE_BYTES_MAX as u64 || parts.len() > PARTS_MAX {
            return Err(damaged(format!("{} parts of a body of {bytes} bytes", parts.len())));
        }
        let mut free = 0;
        for (start, part) in &parts {
            let end = start.checked_add(part.len() as u64).filter(|end| *end <= bytes);
            free = match end {
                Some(end) if *start >= free && !part.is_empty() => end,
                _ => return Err(damaged(format!("a part of {} bytes lies at {start}", part.len()))),
            };
        }
        match free == bytes {
            true => Ok(Stored { bytes, parts: parts.into() }),
            false => Err(damaged("its end was not sent".to_owned())),
        }
    }

    /// The bytes at its end that are at hand without a gap.
    pub(crate) fn end(&self) -> Bytes {
        self.parts.last().map(|(_, part)| part.clone()).unwrap_or_default()
    }

    /// Bytes of the whole body.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Some of its bytes, without a copy.
    pub(crate) fn get(&self, range: Range<u64>) -> Result<Bytes, SliceError> {
        let after = self.parts.partition_point(|(start, _)| *start <= range.start);
        let part = after.checked_sub(1).and_then(|part| self.parts.get(part));
        let within = part.and_then(|(start, part)| {
            let from = usize::try_from(range.start - start).ok()?;
            let to = usize::try_from(range.end.checked_sub(*start)?).ok()?;
            (from <= to && to <= part.len()).then(|| part.slice(from..to))
        });
        within.ok_or_else(|| damaged(format!("bytes {} to {} of it are not at hand", range.start, range.end)))
    }

    /// These ranges of its bytes as parts, those that nearly touch as one.
    pub(crate) fn cut(&self, mut ranges: Vec<Range<u64>>) -> Result<Vec<(u64, Bytes)>, SliceError> {
        ranges.retain(|range| !range.is_empty());
        ranges.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start <= last.end.saturating_add(GAP_BYTES) => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged.into_iter().map(|range| Ok((range.start, self.get(range)?))).collect()
    }
}

fn damaged(what: String) -> SliceError {
    SliceError::Corrupt(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(start: u64, bytes: &'static [u8]) -> (u64, Bytes) {
        (start, Bytes::from_static(bytes))
    }

    #[test]
    fn what_is_not_at_hand_is_an_error() {
        let some = Stored::some(10, vec![part(0, b"ab"), part(4, b"efg"), part(8, b"ij")]).unwrap();
        for (range, bytes) in [(0..2, &b"ab"[..]), (5..7, b"fg"), (8..10, b"ij"), (9..9, b"")] {
            assert_eq!(some.get(range).unwrap(), bytes);
        }
        for range in [1..3, 2..4, 3..5, 6..9, 7..8, 8..11, 0..10, u64::MAX..u64::MAX] {
            assert!(some.get(range.clone()).is_err(), "{range:?}");
        }
        assert_eq!((some.end(), some.bytes()), (Bytes::from_static(b"ij"), 10));
    }

    #[test]
    fn parts_that_overlap_repeat_or_leave_the_end_out_are_refused() {
        let lies = [
            vec![part(0, b"abcd"), part(3, b"d"), part(4, b"e")],
            vec![part(0, b"abcde"), part(0, b"abcde")],
            vec![part(2, b"c"), part(0, b"ab")],
            vec![part(0, b"abcd")],
            vec![part(3, b"def")],
            vec![part(u64::MAX, b"ab")],
            vec![part(0, b""), part(0, b"abcde")],
            vec![],
        ];
        for parts in lies {
            assert!(Stored::some(5, parts.clone()).is_err(), "{parts:?}");
        }
        assert!(Stored::some(u64::MAX, vec![part(u64::MAX - 1, b"a")]).is_err());
        assert!(Stored::some(5, vec![part(4, b"e")]).is_ok());
    }

    #[test]
    fn ranges_that_nearly_touch_become_one_part() {
        let whole = Stored::whole(Bytes::from(vec![7; 1_000]));
        let parts = whole.cut(vec![900..1_000, 0..10, 5..20, 30..40, 300..300]).unwrap();
        let places: Vec<(u64, usize)> = parts.iter().map(|(start, bytes)| (*start, bytes.len())).collect();
        assert_eq!(places, [(0, 40), (900, 100)]);
    }
}
