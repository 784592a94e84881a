//! [`Slices`]: a drive's slices as read-only key-values, in stripes that a Kinetic client can take.

use std::fmt::Debug;
use std::ops::Bound;

use bytes::Bytes;
use pithead_store::{Entry, Key, StoreError, Tag, Value, Version};

/// Comes before the names of slices, as clients see them. Clients cannot put or delete keys that begin with it.
pub const SLICES: &[u8] = b"pithead/slice/";
/// Bytes of a stripe; the last one of a slice may have fewer.
const STRIPE_BYTES: u64 = 1 << 20;
/// Slices that are listed at one time.
const PAGE: usize = 64;

/// A slice that a drive has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSlice {
    /// Its name: domain, dataset, load, partition and number.
    pub name: Bytes,
    /// Its bytes.
    pub bytes: u64,
}

/// The slices of a drive, as they are stored. Calls block.
pub trait Slices: Send + Sync + Debug {
    /// Slices with names between two bounds, in the order of their names as bytes, or from the last to the first.
    fn list(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, reverse: bool, limit: usize)
    -> Result<Vec<StoredSlice>, StoreError>;

    /// The bytes of a slice; none if there is no such slice.
    fn read(&self, name: &[u8]) -> Result<Option<Value>, StoreError>;
}

/// No slices.
#[derive(Debug)]
pub struct NoSlices;

impl Slices for NoSlices {
    fn list(&self, _: Bound<&[u8]>, _: Bound<&[u8]>, _: bool, _: usize) -> Result<Vec<StoredSlice>, StoreError> {
        Ok(Vec::new())
    }

    fn read(&self, _: &[u8]) -> Result<Option<Value>, StoreError> {
        Ok(None)
    }
}

/// A stripe: `pithead/slice/NAME.NN`, a dense number after the slice's name (Montana et al. 2023, Skytether, section 5.1; see
/// `docs/bibliography.md`).
fn stripe_key(name: &[u8], number: u64) -> Key {
    [SLICES, name, format!(".{number:02}").as_bytes()].concat().into()
}

/// The slice's name and the number in a stripe's name without [`SLICES`].
fn parse_stripe(name: &[u8]) -> Option<(&[u8], u64)> {
    let at = name.iter().rposition(|byte| *byte == b'.')?;
    let digits = std::str::from_utf8(&name[at + 1..]).ok().filter(|digits| digits.len() == 2)?;
    Some((&name[..at], digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())??))
}

fn stripes(slice: &StoredSlice) -> impl DoubleEndedIterator<Item = Entry> + '_ {
    (0..slice.bytes.div_ceil(STRIPE_BYTES).max(1)).map(|number| Entry {
        key: stripe_key(&slice.name, number),
        version: Version::new(),
        tag: Tag::default(),
        bytes: slice.bytes.saturating_sub(number * STRIPE_BYTES).min(STRIPE_BYTES),
    })
}

/// Stripes between two keys of clients, in order.
pub(crate) fn list_stripes(
    slices: &dyn Slices,
    start: &Bound<Key>,
    end: &Bound<Key>,
    reverse: bool,
    limit: usize,
) -> Result<Vec<Entry>, StoreError> {
    let mut found: Vec<Entry> = Vec::new();
    let (Some(mut from), Some(mut upto)) = (first_slice(start), last_slice(end)) else { return Ok(found) };
    loop {
        let page = slices.list(as_slice(&from), as_slice(&upto), reverse, PAGE)?;
        for slice in &page {
            let inside = |entry: &Entry| contains(start, end, &entry.key);
            let room = limit - found.len();
            if reverse {
                found.extend(stripes(slice).rev().filter(inside).take(room));
            } else {
                found.extend(stripes(slice).filter(inside).take(room));
            }
        }
        let Some(last) = page.last().filter(|_| page.len() == PAGE && found.len() < limit) else { return Ok(found) };
        let behind = Bound::Excluded(last.name.clone());
        if reverse { upto = behind } else { from = behind }
    }
}

/// A stripe and its bytes.
pub(crate) fn read_stripe(slices: &dyn Slices, key: &[u8]) -> Result<Option<(Value, Entry)>, StoreError> {
    let Some((name, number)) = key.strip_prefix(SLICES).and_then(parse_stripe) else { return Ok(None) };
    let Some(value) = slices.read(name)? else { return Ok(None) };
    let slice = StoredSlice { name: Bytes::copy_from_slice(name), bytes: value.len() as u64 };
    let entry = stripes(&slice).nth(number as usize);
    Ok(entry.map(|entry| {
        let start = (number * STRIPE_BYTES) as usize;
        (value.slice(start..start + entry.bytes as usize), entry)
    }))
}

/// A stripe without its bytes, which are not read.
pub(crate) fn stripe(slices: &dyn Slices, key: &[u8]) -> Result<Option<Entry>, StoreError> {
    let Some((name, number)) = key.strip_prefix(SLICES).and_then(parse_stripe) else { return Ok(None) };
    let found = slices.list(Bound::Included(name), Bound::Included(name), false, 1)?;
    let slice = found.iter().find(|slice| slice.name == name);
    Ok(slice.and_then(|slice| stripes(slice).nth(number as usize)))
}

/// From which slice on there may be stripes within a lower bound; none: all slices are below it.
fn first_slice(start: &Bound<Key>) -> Option<Bound<Bytes>> {
    let (Bound::Included(key) | Bound::Excluded(key)) = start else { return Some(Bound::Unbounded) };
    match key.strip_prefix(SLICES) {
        // A stripe begins with its slice's name.
        Some(name) => Some(Bound::Included(Bytes::copy_from_slice(parse_stripe(name).map_or(name, |(slice, _)| slice)))),
        None => (&key[..] < SLICES).then_some(Bound::Unbounded),
    }
}

/// Up to which slice there may be stripes within an upper bound; none: all slices are above it.
fn last_slice(end: &Bound<Key>) -> Option<Bound<Bytes>> {
    let (Bound::Included(key) | Bound::Excluded(key)) = end else { return Some(Bound::Unbounded) };
    match key.strip_prefix(SLICES) {
        Some(name) => Some(Bound::Included(Bytes::copy_from_slice(name))),
        None => (&key[..] > SLICES).then_some(Bound::Unbounded),
    }
}

fn as_slice(bound: &Bound<Bytes>) -> Bound<&[u8]> {
    bound.as_ref().map(|bytes| &bytes[..])
}

fn contains(start: &Bound<Key>, end: &Bound<Key>, key: &Key) -> bool {
    let above = match start {
        Bound::Included(start) => key >= start,
        Bound::Excluded(start) => key > start,
        Bound::Unbounded => true,
    };
    let below = match end {
        Bound::Included(end) => key <= end,
        Bound::Excluded(end) => key < end,
        Bound::Unbounded => true,
    };
    above && below
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Slices in memory.
    #[derive(Debug, Default)]
    pub(crate) struct MemorySlices(pub BTreeMap<Vec<u8>, Value>);

    impl Slices for MemorySlices {
        fn list(
            &self,
            start: Bound<&[u8]>,
            end: Bound<&[u8]>,
            reverse: bool,
            limit: usize,
        ) -> Result<Vec<StoredSlice>, StoreError> {
            let all = self.0.iter().map(|(name, value)| StoredSlice { name: name.clone().into(), bytes: value.len() as u64 });
            let bounds = (start.map(Key::copy_from_slice), end.map(Key::copy_from_slice));
            let mut inside: Vec<_> = all.filter(|slice| contains(&bounds.0, &bounds.1, &slice.name)).collect();
            if reverse {
                inside.reverse();
            }
            inside.truncate(limit);
            Ok(inside)
        }

        fn read(&self, name: &[u8]) -> Result<Option<Value>, StoreError> {
            Ok(self.0.get(name).cloned())
        }
    }

    /// Slices that cannot be read.
    #[derive(Debug)]
    struct Unread(MemorySlices);

    impl Slices for Unread {
        fn list(
            &self,
            start: Bound<&[u8]>,
            end: Bound<&[u8]>,
            reverse: bool,
            limit: usize,
        ) -> Result<Vec<StoredSlice>, StoreError> {
            self.0.list(start, end, reverse, limit)
        }

        fn read(&self, _: &[u8]) -> Result<Option<Value>, StoreError> {
            Err(StoreError::TooLarge("it is not to be read".to_owned()))
        }
    }

    fn held() -> MemorySlices {
        let slices =
            [("d/t@1/1/00000.00000000", 0), ("d/t@1/1/00000.00000001", 3 << 20), ("d/t@1/1/00000.meta", (1 << 20) + 7)];
        MemorySlices(slices.into_iter().map(|(name, bytes)| (name.into(), vec![7; bytes].into())).collect())
    }

    #[test]
    fn stripes_are_dense_and_in_order() {
        let slices = held();
        let all = list_stripes(&slices, &Bound::Unbounded, &Bound::Unbounded, false, 100).unwrap();
        let names: Vec<String> = all.iter().map(|entry| entry.key.escape_ascii().to_string()).collect();
        assert_eq!(
            names,
            [
                "pithead/slice/d/t@1/1/00000.00000000.00",
                "pithead/slice/d/t@1/1/00000.00000001.00",
                "pithead/slice/d/t@1/1/00000.00000001.01",
                "pithead/slice/d/t@1/1/00000.00000001.02",
                "pithead/slice/d/t@1/1/00000.meta.00",
                "pithead/slice/d/t@1/1/00000.meta.01",
            ]
        );
        assert_eq!(all.iter().map(|entry| entry.bytes).collect::<Vec<_>>(), [0, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 7]);
        for entry in &all {
            let (value, read) = read_stripe(&slices, &entry.key).unwrap().unwrap();
            assert_eq!((value.len() as u64, &read), (entry.bytes, entry));
            assert_eq!(stripe(&Unread(held()), &entry.key).unwrap().as_ref(), Some(entry));
        }
        for absent in
            ["pithead/slice/d/t@1/1/00000.00000001.03", "pithead/slice/x.00", "pithead/slice/d", "d/t@1", "pithead/slice/.+1"]
        {
            assert_eq!(read_stripe(&slices, absent.as_bytes()).unwrap(), None, "{absent}");
            assert_eq!(stripe(&slices, absent.as_bytes()).unwrap(), None, "{absent}");
        }
    }

    #[test]
    fn every_range_is_the_part_of_all_stripes() {
        let slices = held();
        let all = list_stripes(&slices, &Bound::Unbounded, &Bound::Unbounded, false, 100).unwrap();
        let mut ends: Vec<Key> = all.iter().map(|entry| entry.key.clone()).collect();
        for other in [
            "",
            "a",
            "pithead/slice/",
            "pithead/slice0",
            "z",
            "pithead/slice/d/t@1/1/00000.00000001",
            "pithead/slice/d/t@1/1/00000.00000001.05",
        ] {
            ends.push(other.into());
        }
        for (start, end) in ends.iter().flat_map(|start| ends.iter().map(move |end| (start, end))) {
            for (start, end) in [
                (Bound::Included(start.clone()), Bound::Included(end.clone())),
                (Bound::Excluded(start.clone()), Bound::Excluded(end.clone())),
            ] {
                let mut expected: Vec<_> = all.iter().filter(|entry| contains(&start, &end, &entry.key)).cloned().collect();
                assert_eq!(list_stripes(&slices, &start, &end, false, 100).unwrap(), expected, "{start:?} {end:?}");
                expected.reverse();
                expected.truncate(2);
                assert_eq!(list_stripes(&slices, &start, &end, true, 2).unwrap(), expected, "{start:?} {end:?} reversed");
            }
        }
    }
}
