//! Compaction: dead room is given back, in small steps.
//!
//! Where the medium can punch holes, dead parts of a segment are given back in place, and a segment is emptied only
//! when hardly anything in it is alive. Where the medium cannot, a segment that is more dead than alive is emptied: its
//! values are copied to the open segment, one commit names their new places, and the file is unlinked. All locks are
//! released between two steps, and each commit moves a value only if its key still names the old place.

use std::ops::Range;
use std::time::Duration;

use xxhash_rust::xxh3::Xxh3;

use crate::core::Core;
use crate::index::{Action, Change, SegmentRow};
use crate::record::ValueLocation;
use crate::segments::{Extent, Pinned, Sealed};
use crate::{Durability, Expected, Key, StoreError};

/// Bytes copied in one step.
const STEP_BYTES: u64 = 1 << 20;
/// The bytes that are copied before a commit names them.
const MOVED_BYTES_MAX: u64 = 32 << 20;
/// The number of rows of the index that are read at once.
const PLACES_MAX: usize = 1_024;
/// Small segment files use less than an eighth of their room. More of them than this number are put together.
const SMALL_FILES_MAX: usize = 256;
/// The number of segments that a writer cleans when it has found no room.
const RECLAIMED_MAX: usize = 64;
/// The longest time that such a writer waits for compaction in progress.
const RECLAIM_WAIT: Duration = Duration::from_secs(10);

/// What compaction has achieved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Bytes of values copied to other segments.
    pub moved_bytes: u64,
    /// Bytes given back in the middle of segments.
    pub punched_bytes: u64,
    /// Segments that were emptied.
    pub segments: u64,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    Punch(Sealed),
    Empty(Sealed),
}

impl Core {
    /// Cleans until nothing is worth it any more. `go_on` is asked between steps.
    pub fn compact(&self, go_on: &dyn Fn() -> bool) -> Result<Compacted, StoreError> {
        let _one = self.work.compacting.lock();
        let mut done = Compacted::default();
        while go_on()
            && let Some(job) = self.next_job()
        {
            if !self.run(job, go_on, &mut done)? {
                break;
            }
        }
        Ok(done)
    }

    /// Gives back dead room until `needed` bytes came back. False if there is no more dead room.
    pub fn reclaim(&self, needed: u64) -> bool {
        let (dead, _) = self.segments.spare();
        if dead == 0 && !self.segments.has_empty() {
            return false;
        }
        // Another thread that compacts for so long gives back room as well.
        let Some(_one) = self.work.compacting.try_lock_for(RECLAIM_WAIT) else { return true };
        self.segments.seal(None);
        let tried = self.flush().and_then(|()| {
            let mut done = Compacted::default();
            for _ in 0..RECLAIMED_MAX {
                let Some(job) = self.next_job() else { break };
                self.run(job, &|| true, &mut done)?;
                let (left, _) = self.segments.spare();
                if dead.saturating_sub(left) > needed {
                    break;
                }
            }
            Ok(())
        });
        if let Err(error) = tried {
            tracing::warn!(%error, "dead room could not be given back");
        }
        true
    }

    /// The segment that gives back the most room for the least copying.
    fn next_job(&self) -> Option<Job> {
        let mut sealed = self.segments.sealed();
        let (punches, stuck) = {
            let state = self.work.state.lock();
            (!state.no_punch, state.stuck.clone())
        };
        let share_max = if punches { 8 } else { 2 };
        let to_empty = sealed.iter().filter(|one| !stuck.contains(&one.file) && one.row.live > 0);
        let least = to_empty.filter(|one| one.row.live < one.row.written / share_max).min_by_key(|one| per_mille(one.row));
        if let Some(least) = least {
            return Some(Job::Empty(*least));
        }
        let dead = |one: &Sealed| one.row.written.saturating_sub(one.row.live + one.row.punched);
        let most = sealed.iter().filter(|one| punches && one.row.live > 0 && dead(one) > 0).max_by_key(|one| dead(one));
        if let Some(most) = most {
            return Some(Job::Punch(*most));
        }
        sealed.retain(|one| !stuck.contains(&one.file) && one.row.live > 0 && one.row.written < self.segment_bytes / 8);
        if sealed.len() <= SMALL_FILES_MAX {
            return None;
        }
        sealed.into_iter().min_by_key(|one| one.row.live).map(Job::Empty)
    }

    /// False if it was told to stop.
    fn run(&self, job: Job, go_on: &dyn Fn() -> bool, done: &mut Compacted) -> Result<bool, StoreError> {
        match job {
            Job::Punch(one) => self.punch(one, go_on, done),
            Job::Empty(one) => self.empty(one, go_on, done),
        }
    }

    fn punch(&self, one: Sealed, go_on: &dyn Fn() -> bool, done: &mut Compacted) -> Result<bool, StoreError> {
        let mut at = 0;
        let mut dead_bytes = 0;
        while at < one.row.written {
            let places = self.index.places(one.file, at, PLACES_MAX)?;
            let end = if places.len() < PLACES_MAX { Some(one.row.written) } else { None };
            let (gaps, next) = gaps(at, end, &places);
            // A crash must not bring back values that are dead here.
            self.flush()?;
            for gap in gaps {
                dead_bytes += gap.end - gap.start;
                if !self.segments.punch(one.file, gap)? {
                    self.work.state.lock().no_punch = true;
                    return Ok(true);
                }
                if !go_on() {
                    return Ok(false);
                }
            }
            at = next;
        }
        done.punched_bytes += dead_bytes.saturating_sub(one.row.punched);
        self.segments.set_punched(one.file, dead_bytes);
        self.index.set_punched(one.file, dead_bytes)?;
        Ok(true)
    }

    fn empty(&self, one: Sealed, go_on: &dyn Fn() -> bool, done: &mut Compacted) -> Result<bool, StoreError> {
        let mut at = 0;
        loop {
            let places = self.index.places(one.file, at, PLACES_MAX)?;
            let Some((last, _)) = places.last() else { break };
            at = last.end();
            let mut moves = Moves::new(self);
            for (place, key) in places {
                match self.copy(place, &key, go_on)? {
                    Copied::Stopped => return Ok(false),
                    Copied::Gone => {}
                    Copied::Damaged => {
                        // The value stays where it is, and whoever reads it gets an error that names it.
                        self.work.state.lock().stuck.insert(one.file);
                    }
                    Copied::To(extent) => moves.add(key, place, extent),
                }
                if moves.bytes >= MOVED_BYTES_MAX {
                    done.moved_bytes += moves.commit()?;
                    moves = Moves::new(self);
                }
            }
            done.moved_bytes += moves.commit()?;
        }
        let left = self.index.places(one.file, 0, 1)?;
        if left.is_empty() {
            done.segments += 1;
        } else {
            self.work.state.lock().stuck.insert(one.file);
        }
        Ok(true)
    }

    /// Copies a value to the open segment, step by step.
    fn copy(&self, from: ValueLocation, key: &Key, go_on: &dyn Fn() -> bool) -> Result<Copied, StoreError> {
        let checksum = match self.index.place(key) {
            Ok(Some((place, checksum))) if place == from => checksum,
            Ok(_) => return Ok(Copied::Gone),
            Err(StoreError::Corrupt { .. }) => return Ok(Copied::Damaged),
            Err(error) => return Err(error),
        };
        let mut writing = self.segments.begin(from.bytes, 0)?;
        let mut sum = Xxh3::new();
        for done in (0..from.bytes).step_by(STEP_BYTES as usize) {
            let upto = (done + STEP_BYTES).min(from.bytes);
            let part = match self.segments.read_part(from.file, from.offset + done..from.offset + upto) {
                Err(StoreError::Io { source, .. }) => {
                    tracing::warn!(error = %source, key = crate::api::show_key(key), "a value cannot be read to be moved");
                    return Ok(Copied::Damaged);
                }
                read => read?,
            };
            sum.update(&part);
            writing.append(&part)?;
            if !go_on() {
                return Ok(Copied::Stopped);
            }
        }
        if sum.digest() != checksum {
            return Ok(Copied::Damaged);
        }
        Ok(Copied::To(writing.finish(checksum)))
    }
}

enum Copied {
    To(Extent),
    /// The key names another place by now.
    Gone,
    Damaged,
    Stopped,
}

/// Copies that wait for the commit that names them.
struct Moves<'a> {
    core: &'a Core,
    changes: Vec<Change>,
    pinned: Pinned,
    bytes: u64,
}

impl<'a> Moves<'a> {
    fn new(core: &'a Core) -> Self {
        Self { core, changes: Vec::new(), pinned: Pinned::new(core.segments.clone()), bytes: 0 }
    }

    fn add(&mut self, key: Key, from: ValueLocation, extent: Extent) {
        self.bytes += from.bytes;
        self.changes.push(Change { key, expected: Expected::Any, action: Action::Move { from, to: extent.place } });
        self.pinned.add(extent);
    }

    /// Returns the bytes that were moved.
    fn commit(self) -> Result<u64, StoreError> {
        if self.changes.is_empty() {
            return Ok(0);
        }
        self.core.segments.flush(self.pinned.extents())?;
        self.core.submit(self.changes, self.pinned, Durability::Through)?;
        Ok(self.bytes)
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

fn per_mille(row: SegmentRow) -> u64 {
    row.live.saturating_mul(1_000).checked_div(row.written).unwrap_or(0)
}
