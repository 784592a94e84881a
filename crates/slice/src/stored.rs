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

/// Ranges of bytes.
type Ranges = Vec<Range<u64>>;

/// Bytes of a file outside of the store, which are read as they are needed.
pub trait ReadAt: Send + Sync + Debug {
    /// Bytes of the file.
    fn bytes(&self) -> u64;

    /// Exactly these bytes of it, or an error: [`SliceError::Gone`] where the file is no longer what it was,
    /// [`SliceError::Medium`] where it cannot be read. Blocks.
    fn read_at(&self, range: Range<u64>) -> Result<Bytes, SliceError>;

    /// Whether reads wait for a server.
    fn is_far(&self) -> bool {
        false
    }

    /// Says which bytes will be read next, in any order. Where each read takes a trip over a network, they are had together.
    /// Blocks. Errors as [`ReadAt::read_at`] has them.
    fn prepare(&self, ranges: &[Range<u64>]) -> Result<(), SliceError> {
        let _ = ranges;
        Ok(())
    }
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
    parts: Arc<[BodyPart]>,
}

/// Bytes of a body that lie together.
#[derive(Clone, Debug)]
pub(crate) struct BodyPart {
    /// Where they start in the body.
    pub(crate) start: u64,
    pub(crate) place: BytesPlace,
}

/// Where the bytes of a part are.
#[derive(Clone, Debug)]
pub(crate) enum BytesPlace {
    Memory(Bytes),
    /// In a file outside of the store, which is read anew each time.
    File(Arc<dyn ReadAt>, Range<u64>),
}

impl BodyPart {
    fn len(&self) -> u64 {
        match &self.place {
            BytesPlace::Memory(bytes) => bytes.len() as u64,
            BytesPlace::File(_, range) => range.end - range.start,
        }
    }

    fn end(&self) -> u64 {
        self.start + self.len()
    }

    /// Bytes of the body that lie within this part.
    fn get(&self, range: Range<u64>) -> Result<Bytes, SliceError> {
        let within = range.start - self.start..range.end - self.start;
        match &self.place {
            BytesPlace::Memory(bytes) => Ok(bytes.slice(within.start as usize..within.end as usize)),
            BytesPlace::File(file, part) => file.read_at(part.start + within.start..part.start + within.end),
        }
    }
}

impl Stored {
    /// All of it.
    pub(crate) fn whole(body: Bytes) -> Stored {
        Stored { bytes: body.len() as u64, parts: [BodyPart { start: 0, place: BytesPlace::Memory(body) }].into() }
    }

    /// Of these parts, which lie behind one another without a gap from the body's start on.
    pub(crate) fn of(parts: Vec<BodyPart>) -> Stored {
        Stored { bytes: parts.last().map_or(0, BodyPart::end), parts: parts.into() }
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
        let part = |(start, bytes)| BodyPart { start, place: BytesPlace::Memory(bytes) };
        match free == bytes {
            true => Ok(Stored { bytes, parts: parts.into_iter().map(part).collect() }),
            false => Err(damaged("its end was not sent".to_owned())),
        }
    }

    /// The bytes at its end that are in memory without a gap.
    pub(crate) fn end(&self) -> Bytes {
        match self.parts.last().map(|part| &part.place) {
            Some(BytesPlace::Memory(bytes)) => bytes.clone(),
            _ => Bytes::new(),
        }
    }

    /// The same bytes, and more in memory behind them.
    pub(crate) fn with_end(&self, end: Bytes) -> Stored {
        let end = BodyPart { start: self.bytes, place: BytesPlace::Memory(end) };
        Stored { bytes: end.end(), parts: self.parts.iter().cloned().chain([end]).collect() }
    }

    /// Adds all of its bytes.
    pub(crate) fn copy_to(&self, into: &mut Vec<u8>) -> Result<(), SliceError> {
        self.prepare(std::iter::once(0..self.bytes))?;
        self.parts.iter().try_for_each(|part| {
            into.extend_from_slice(&part.get(part.start..part.end())?);
            Ok(())
        })
    }

    /// Bytes of the whole body.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Some of its bytes: without a copy where one part in memory has them.
    pub(crate) fn get(&self, range: Range<u64>) -> Result<Bytes, SliceError> {
        let missing = || damaged(format!("bytes {} to {} of it are not at hand", range.start, range.end));
        let first = self.parts.partition_point(|part| part.start <= range.start).checked_sub(1).ok_or_else(missing)?;
        if range.start > range.end {
            return Err(missing());
        }
        if range.end <= self.parts[first].end() {
            return if range.start <= self.parts[first].end() { self.parts[first].get(range) } else { Err(missing()) };
        }
        let mut at = range.start;
        let mut bytes = Vec::new();
        for part in self.parts[first..].iter().take_while(|part| part.start < range.end) {
            if at < part.start || at > part.end() {
                return Err(missing());
            }
            let end = part.end().min(range.end);
            bytes.extend_from_slice(&part.get(at..end)?);
            at = end;
        }
        if at == range.end { Ok(bytes.into()) } else { Err(missing()) }
    }

    /// Says which ranges of its bytes will be read next.
    pub(crate) fn prepare(&self, ranges: impl Iterator<Item = Range<u64>> + Clone) -> Result<(), SliceError> {
        let mut files: Vec<(&Arc<dyn ReadAt>, Ranges)> = Vec::new();
        for part in self.parts.iter() {
            let BytesPlace::File(file, place) = &part.place else { continue };
            let within = ranges.clone().map(|range| range.start.max(part.start)..range.end.min(part.end()));
            let within = within.filter(|range| !range.is_empty());
            let in_file: Vec<_> =
                within.map(|range| place.start + range.start - part.start..place.start + range.end - part.start).collect();
            match files.iter_mut().find(|(known, _)| Arc::ptr_eq(known, file)) {
                Some((_, known)) => known.extend(in_file),
                None => files.push((file, in_file)),
            }
        }
        files.iter().try_for_each(|(file, ranges)| file.prepare(ranges))
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
        self.prepare(merged.iter().cloned())?;
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

    /// Notes what it is told.
    #[derive(Debug, Default)]
    struct NotingFile(std::sync::Mutex<Vec<Range<u64>>>);

    impl ReadAt for NotingFile {
        fn bytes(&self) -> u64 {
            1_000
        }

        fn read_at(&self, range: Range<u64>) -> Result<Bytes, SliceError> {
            Ok(vec![1; (range.end - range.start) as usize].into())
        }

        fn prepare(&self, ranges: &[Range<u64>]) -> Result<(), SliceError> {
            self.0.lock().unwrap().extend_from_slice(ranges);
            Ok(())
        }
    }

    #[test]
    fn a_file_is_told_what_will_be_read_of_it() {
        let told = Arc::new(NotingFile::default());
        let file = Arc::clone(&told) as Arc<dyn ReadAt>;
        let parts = vec![
            BodyPart { start: 0, place: BytesPlace::Memory(Bytes::from_static(b"PAR1")) },
            BodyPart { start: 4, place: BytesPlace::File(Arc::clone(&file), 100..120) },
            BodyPart { start: 24, place: BytesPlace::File(file, 300..310) },
        ];
        let body = Stored::of(parts);
        body.cut(vec![0..6, 10..28]).unwrap();
        assert_eq!(*told.0.lock().unwrap(), [100..120, 300..304]);
    }

    #[test]
    fn ranges_that_nearly_touch_become_one_part() {
        let whole = Stored::whole(Bytes::from(vec![7; 1_000]));
        let parts = whole.cut(vec![900..1_000, 0..10, 5..20, 30..40, 300..300]).unwrap();
        let places: Vec<(u64, usize)> = parts.iter().map(|(start, bytes)| (*start, bytes.len())).collect();
        assert_eq!(places, [(0, 40), (900, 100)]);
    }
}
