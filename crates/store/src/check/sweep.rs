//! Reads all records that can be read, around pages that cannot.
//!
//! redb reports that a page is damaged, but not which keys are on it. So the sweep tries keys between the last key that
//! was read and the end: the keys of large values, which the table of places has, and some that are spread evenly. From
//! each key that it finds, it goes on reading in both directions.

use std::ops::Bound;

use crate::index::Index;
use crate::listing::{TRIES, spread};
use crate::{Key, StoreError};

/// The number of rows that are read at once.
const ROWS_MAX: usize = 256;
/// The depth to which holes within holes are searched.
const DEPTH_MAX: u32 = 12;

/// A range of keys in which something cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    /// The last key before the range; none if it begins with the first key.
    pub after: Option<Key>,
    /// The first key after the range; none if it ends with the last key.
    pub before: Option<Key>,
    pub why: String,
}

impl Hole {
    /// Whether a key may have been lost in the range.
    pub fn holds(&self, key: &Key) -> bool {
        self.after.as_ref().is_none_or(|after| after < key) && self.before.as_ref().is_none_or(|before| key < before)
    }
}

/// A row of the index: a key and its record.
pub(super) type Row = (Key, Vec<u8>);

/// A function that receives a key and its record.
pub(super) type OnRow<'a> = dyn FnMut(&Key, &[u8]) -> Result<(), StoreError> + 'a;

/// Hands on each record that can be read, once, but not always in order. `known` are keys that should exist.
pub(super) fn sweep(index: &Index, known: &[Key], on_row: &mut OnRow<'_>) -> Result<Vec<Hole>, StoreError> {
    let mut sweep = Sweep { index, known, on_row, holes: Vec::new() };
    let (last, failed) = sweep.forward(None, None)?;
    if let Some(why) = failed {
        // The sweep also reads from the other end, so that the hole has two ends.
        if let Some(before) = sweep.backward(last.as_ref(), None)? {
            sweep.between(Hole { after: last, before, why }, 0)?;
        }
    }
    Ok(sweep.holes)
}

struct Sweep<'a> {
    index: &'a Index,
    known: &'a [Key],
    on_row: &'a mut OnRow<'a>,
    holes: Vec<Hole>,
}

impl Sweep<'_> {
    /// Reads on after a key until `before`, or until a page that cannot be read. Returns the last key, and why it
    /// stopped early.
    fn forward(&mut self, after: Option<Key>, before: Option<&Key>) -> Result<(Option<Key>, Option<String>), StoreError> {
        let mut last = after;
        loop {
            let start = last.clone().map_or(Bound::Unbounded, Bound::Excluded);
            let end = before.cloned().map_or(Bound::Unbounded, Bound::Excluded);
            let (rows, failed) = self.rows(start, end, false, ROWS_MAX)?;
            for (key, record) in &rows {
                (self.on_row)(key, record)?;
            }
            let full = rows.len() == ROWS_MAX;
            last = rows.into_iter().next_back().map(|(key, _)| key).or(last);
            if failed.is_some() || !full {
                return Ok((last, failed));
            }
        }
    }

    /// Like [`Sweep::forward`], from `before` down to `after`. Returns the first key, if any, before which something is
    /// damaged; none if nothing is.
    fn backward(&mut self, after: Option<&Key>, before: Option<Key>) -> Result<Option<Option<Key>>, StoreError> {
        let mut first = before;
        loop {
            let start = after.cloned().map_or(Bound::Unbounded, Bound::Excluded);
            let end = first.clone().map_or(Bound::Unbounded, Bound::Excluded);
            let (rows, failed) = self.rows(start, end, true, ROWS_MAX)?;
            for (key, record) in &rows {
                (self.on_row)(key, record)?;
            }
            let full = rows.len() == ROWS_MAX;
            first = rows.into_iter().next_back().map(|(key, _)| key).or(first);
            if failed.is_some() {
                return Ok(Some(first));
            }
            if !full {
                return Ok(None);
            }
        }
    }

    /// Searches a hole for keys, and for holes beside them.
    fn between(&mut self, hole: Hole, depth: u32) -> Result<(), StoreError> {
        let found = if depth < DEPTH_MAX { self.find(&hole)? } else { None };
        let Some((key, record)) = found else {
            self.holes.push(hole);
            return Ok(());
        };
        (self.on_row)(&key, &record)?;
        if let Some(first) = self.backward(hole.after.as_ref(), Some(key.clone()))? {
            let below = Hole { after: hole.after, before: first, why: hole.why.clone() };
            self.between(below, depth + 1)?;
        }
        let (last, failed) = self.forward(Some(key), hole.before.as_ref())?;
        if let Some(why) = failed {
            self.between(Hole { after: last, before: hole.before, why }, depth + 1)?;
        }
        Ok(())
    }

    fn find(&self, hole: &Hole) -> Result<Option<Row>, StoreError> {
        let from = self.known.partition_point(|key| Some(key) <= hole.after.as_ref());
        let known = self.known[from..].iter().take_while(|key| hole.before.as_ref().is_none_or(|before| *key < before));
        // If there are many, it takes some from all parts.
        let step = known.clone().count() / TRIES as usize + 1;
        let tried = known.step_by(step).cloned().chain(spread(hole.after.as_ref(), hole.before.as_ref()));
        for key in tried {
            let end = hole.before.clone().map_or(Bound::Unbounded, Bound::Excluded);
            if hole.before.as_ref().is_some_and(|before| *before <= key) {
                continue;
            }
            let (mut rows, _) = self.rows(Bound::Included(key), end, false, 1)?;
            if let Some(row) = rows.pop() {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    fn rows(
        &self,
        start: Bound<Key>,
        end: Bound<Key>,
        reverse: bool,
        limit: usize,
    ) -> Result<(Vec<Row>, Option<String>), StoreError> {
        match self.index.rows(&start, &end, reverse, limit) {
            (rows, Ok(())) => Ok((rows, None)),
            (rows, Err(StoreError::Corrupt { what, .. })) => Ok((rows, Some(what))),
            (_, Err(error)) => Err(error),
        }
    }
}
