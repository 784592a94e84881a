//! [`Punching`]: dead parts of a segment are given back in place.

use std::collections::VecDeque;
use std::ops::Range;

use super::{Compacted, PLACES_MAX, Stepped, unused};
use crate::core::Core;
use crate::record::ValueLocation;
use crate::segments::Sealed;
use crate::{Key, StoreError};

/// Dead parts of a segment are given back in place.
#[derive(Debug)]
pub(super) struct Punching {
    pub one: Sealed,
    /// Up to where gaps were looked for.
    at: u64,
    gaps: VecDeque<Range<u64>>,
    dead_bytes: u64,
    /// Of them, those before the end of the last value that a commit named: what lies behind it is nothing to the index, and a file
    /// that is opened again ends there.
    named_dead_bytes: u64,
    named_end: u64,
    /// Dead bytes that no earlier job has given back, and that this one has not come to yet.
    fresh: u64,
}

impl Punching {
    pub fn new(one: Sealed) -> Self {
        let (dead_bytes, named_dead_bytes, named_end) = (0, 0, 0);
        Self { one, at: 0, gaps: VecDeque::new(), dead_bytes, named_dead_bytes, named_end, fresh: unused(one.row) }
    }

    pub fn step(&mut self, core: &Core, done: &mut Compacted) -> Result<Stepped, StoreError> {
        let Punching { one, .. } = *self;
        if let Some(gap) = self.gaps.pop_front() {
            let bytes = gap.end - gap.start;
            self.dead_bytes += bytes;
            self.named_dead_bytes += gap.end.min(self.named_end).saturating_sub(gap.start);
            // A gap may have been punched before, in whole or in part.
            let given_back = bytes.min(self.fresh);
            self.fresh -= given_back;
            return match core.segments.punch(one.file, gap) {
                Ok(true) => Ok(Stepped::Did(given_back)),
                Ok(false) => {
                    core.work.state.lock().no_punch = true;
                    Ok(Stepped::Ended)
                }
                // Everything in it has died meanwhile, and so it was unlinked.
                Err(_) if core.segments.row(one.file).is_none() => Ok(Stepped::Ended),
                Err(error) => Err(error),
            };
        }
        if self.at < one.row.written {
            self.named_end = named_end(core, one.file)?;
            let places = core.durable_places(one.file, self.at)?;
            let end = if places.len() < PLACES_MAX { Some(one.row.written) } else { None };
            let (gaps, next) = gaps(self.at, end, &places);
            (self.gaps, self.at) = (gaps.into(), next);
            return Ok(Stepped::Did(0));
        }
        done.punched_bytes += self.dead_bytes.saturating_sub(one.row.punched);
        core.segments.set_punched(one.file, self.dead_bytes);
        core.index.set_punched(one.file, self.named_dead_bytes)?;
        Ok(Stepped::Ended)
    }
}

/// The end of the last value in a segment that a commit named.
fn named_end(core: &Core, file: u64) -> Result<u64, StoreError> {
    Ok(core.index.segments()?.into_iter().find(|(named, _)| *named == file).map_or(0, |(_, row)| row.written))
}

impl Core {
    /// The next values of a segment from `at` on. What is dead according to them is so for good: all commits that they
    /// follow from are durable, so that neither a crash nor a failure of the index can undo one.
    fn durable_places(&self, file: u64, at: u64) -> Result<Vec<(ValueLocation, Key)>, StoreError> {
        let shown = self.queue.alone(|| {
            let is_durable = self.index.unflushed_bytes().is_none();
            is_durable.then(|| self.index.places(file, at, PLACES_MAX)).transpose()
        })?;
        match shown {
            Some(places) => Ok(places),
            None => self.index.places_of(&self.durable_snapshot(|| ())?, file, at, PLACES_MAX),
        }
    }
}

/// The gaps between the places from `at` on, and up to `end` if that is given; and where to go on.
fn gaps(mut at: u64, end: Option<u64>, places: &[(ValueLocation, Key)]) -> (Vec<Range<u64>>, u64) {
    let mut gaps = Vec::new();
    for (place, _) in places {
        if place.offset > at {
            gaps.push(at..place.offset);
        }
        at = at.max(place.end());
    }
    if let Some(end) = end {
        if end > at {
            gaps.push(at..end);
        }
        at = at.max(end);
    }
    (gaps, at)
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::conformance::{Through as _, delete, put, small_options, value};
    use crate::{DiskStore, Durability, Store as _, StoreOptions};

    /// Commits were given up between the look at what is dead and the commit that made it durable, and the values that
    /// they had deleted were punched.
    #[test]
    fn what_lives_again_is_not_punched() {
        let dir = tempfile::tempdir().unwrap();
        let store = DiskStore::open(dir.path(), StoreOptions { background: false, ..small_options() }).unwrap();
        let key = |n: u8| format!("k{n}");
        store.through((0..8).map(|n| put(&key(n), value(n, 1 << 19))).collect()).unwrap();
        store.through(vec![delete(&key(7))]).unwrap();
        store.write(vec![delete(&key(1)), delete(&key(2))], Durability::Back).unwrap();
        let core = store.core();
        core.segments.seal(None);
        let one = core.segments.sealed()[0];
        thread::scope(|scope| {
            let job = core.queue.alone(|| {
                let job = scope.spawn(|| {
                    let (mut punching, mut done) = (Punching::new(one), Compacted::default());
                    while let Stepped::Did(_) = punching.step(core, &mut done).unwrap() {}
                });
                // By then the job waits for its turn.
                thread::sleep(Duration::from_millis(300));
                core.index.give_up_unflushed("a test");
                job
            });
            job.join().unwrap();
        });
        for n in 0..7 {
            assert_eq!(store.held(&key(n)).unwrap(), value(n, 1 << 19));
        }
        assert!(store.flush().is_err(), "nobody was told");
    }

    /// A segment with old holes in it is punched once more, for a small value.
    #[test]
    fn what_was_given_back_before_does_not_count_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = DiskStore::open(dir.path(), StoreOptions { background: false, ..small_options() }).unwrap();
        store
            .through((0..7).map(|n| put(&format!("k{n}"), value(n, 1 << 19))).chain([put("s", value(9, 1 << 16))]).collect())
            .unwrap();
        store.core().segments.seal(None);
        let given_back = |keys: &[&str]| {
            store.through(keys.iter().map(|key| delete(key)).collect()).unwrap();
            std::iter::from_fn(|| store.compact_step(1 << 20).unwrap()).sum::<u64>()
        };
        assert_eq!(given_back(&["k1", "k3", "k4"]), 3 << 19);
        assert_eq!(given_back(&["s"]), 1 << 16);
        assert_eq!(given_back(&["k5"]), 1 << 19);
        assert_eq!(store.usage().unwrap().dead_bytes, 0);
    }

    /// The hole in the place of what was never named counted for what died before it, once the file was opened again.
    #[test]
    fn a_hole_behind_the_last_value_is_not_counted_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let open = || DiskStore::open(dir.path(), StoreOptions { background: false, ..small_options() }).unwrap();
        let store = open();
        store.through((0..4).map(|n| put(&format!("k{n}"), value(n, 1 << 19))).collect()).unwrap();
        let staged: Vec<_> = (0..3).map(|n| store.stage(value(n, 1 << 19)).unwrap()).collect();
        staged.into_iter().for_each(|staged| store.unstage(staged));
        store.core().segments.seal(None);
        while store.compact_step(1 << 20).unwrap().is_some() {}
        assert_eq!(store.usage().unwrap().dead_bytes, 0, "all of it was given back");
        store.core().index.settle().unwrap();
        drop(store);
        let store = open();
        store.through(vec![delete("k1")]).unwrap();
        assert_eq!(store.usage().unwrap().dead_bytes, 1 << 19);
        store.core().segments.seal(None);
        while store.compact_step(1 << 20).unwrap().is_some() {}
        assert_eq!(store.usage().unwrap().dead_bytes, 0);
        assert_eq!(store.held("k2").unwrap(), value(2, 1 << 19));
    }
}
