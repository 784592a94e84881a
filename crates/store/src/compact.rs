//! Compaction: dead room is given back, in small steps.
//!
//! Where the medium can punch holes, dead parts of a segment are given back in place, and a segment is emptied only
//! when hardly anything in it is alive. Where the medium cannot, a segment that is more dead than alive is emptied: its
//! values are copied to the open segment, one commit names their new places, and the file is unlinked. All locks are
//! released between two steps, and each commit moves a value only if its key still names the old place.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use crate::core::Core;
use crate::index::{Action, Change, Depth, SegmentRow};
use crate::record::ValueLocation;
use crate::segments::{Extent, Pinned, Sealed, Writing};
use crate::sum::Sum;
use crate::{Expected, Key, StoreError};

/// Bytes copied in one step where nobody else waits for the core.
const STEP_BYTES: u64 = 1 << 20;
/// The bytes that are copied before a commit names them.
const MOVED_BYTES_MAX: u64 = 32 << 20;
/// The number of rows of the index that are read at once.
const PLACES_MAX: usize = 1_024;
/// Small segment files use less than an eighth of their room. More of them than this number are put together.
const SMALL_FILES_MAX: usize = 256;
/// The number of segments that a writer cleans when it has found no room.
const RECLAIMED_MAX: usize = 64;
/// How often a segment's values are looked for before it is left alone.
const PASSES_MAX: u32 = 4;
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

/// Compaction of one store: the job in hand, which whoever has time for a step takes further. Nothing of it outlives the process: what
/// was not committed is dead room, and the next job is chosen by what is dead.
#[derive(Debug, Default)]
pub(crate) struct Compaction {
    running: Option<Running>,
    done: Compacted,
}

#[derive(Debug)]
enum Running {
    Punch(Punching),
    Empty(Emptying),
}

/// Dead parts of a segment are given back in place.
#[derive(Debug)]
struct Punching {
    one: Sealed,
    /// Up to where gaps were looked for.
    at: u64,
    gaps: VecDeque<Range<u64>>,
    dead_bytes: u64,
}

/// What is alive in a segment goes elsewhere.
#[derive(Debug)]
struct Emptying {
    one: Sealed,
    /// Up to where places were looked for.
    at: u64,
    /// How often they were looked for from the beginning.
    passes: u32,
    places: VecDeque<(ValueLocation, Key)>,
    copying: Option<Copying>,
    moves: Moves,
}

/// A value of which a part was copied.
#[derive(Debug)]
struct Copying {
    key: Key,
    from: ValueLocation,
    checksum: u64,
    writing: Writing,
    sum: Sum,
    done: u64,
}

/// What a step of a job did.
enum Stepped {
    /// A part of it, over so many bytes.
    Did(u64),
    /// The last part.
    Ended,
}

impl Core {
    /// Cleans until nothing is worth it any more. `go_on` is asked between steps.
    pub fn compact(&self, go_on: &dyn Fn() -> bool) -> Result<Compacted, StoreError> {
        let before = self.work.compaction.lock().done;
        while go_on() && self.compact_step(STEP_BYTES)?.is_some() {}
        Ok(self.work.compaction.lock().done.since(before))
    }

    /// The next step of compaction, which copies at most so many bytes; how many it copied or gave back. None: there is nothing to do.
    pub fn compact_step(&self, bytes_max: u64) -> Result<Option<u64>, StoreError> {
        self.work.compaction.lock().step(self, bytes_max)
    }

    /// Gives back dead room until `needed` bytes came back. False if there is no more dead room.
    pub fn reclaim(&self, needed: u64) -> bool {
        let (dead, _) = self.segments.spare();
        if dead == 0 && !self.segments.has_empty() {
            return false;
        }
        // Another thread that compacts for so long gives back room as well.
        let Some(mut compaction) = self.work.compaction.try_lock_for(RECLAIM_WAIT) else { return true };
        self.segments.seal(None);
        let tried = self.make_durable().and_then(|()| {
            for _ in 0..RECLAIMED_MAX {
                if !compaction.end_job(self)? {
                    break;
                }
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
            sealed.retain(|one| !state.odd.contains(&one.file));
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

    /// Called after a job. If it has changed nothing, the account for which it was chosen is not right: it is read again. If
    /// it is still the same, the job would be chosen for ever, so the segment is left alone; a check tells why.
    fn end_of(&self, job: &Running) -> Result<(), StoreError> {
        let one = match job {
            Running::Punch(_) if self.work.state.lock().no_punch => return Ok(()),
            Running::Punch(punching) => punching.one,
            Running::Empty(emptying) => emptying.one,
        };
        if self.segments.row(one.file) != Some(one.row) {
            return Ok(());
        }
        self.queue.alone(|| self.reload())?;
        if self.segments.row(one.file) == Some(one.row) {
            tracing::warn!(file = one.file, "the account of a segment is not what the index names in it");
            self.work.state.lock().odd.insert(one.file);
        }
        Ok(())
    }
}

impl Compaction {
    fn step(&mut self, core: &Core, bytes_max: u64) -> Result<Option<u64>, StoreError> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => {
                core.queue.alone(|| core.refresh())?;
                match core.next_job() {
                    Some(job) => Running::new(job, core),
                    None => return Ok(None),
                }
            }
        };
        let stepped = match &mut running {
            Running::Punch(punching) => punching.step(core, &mut self.done)?,
            Running::Empty(emptying) => emptying.step(core, bytes_max, &mut self.done)?,
        };
        match stepped {
            Stepped::Did(bytes) => {
                self.running = Some(running);
                Ok(Some(bytes))
            }
            Stepped::Ended => {
                core.end_of(&running)?;
                Ok(Some(0))
            }
        }
    }

    /// Takes the job in hand, or the next one, to its end. False: there is none.
    fn end_job(&mut self, core: &Core) -> Result<bool, StoreError> {
        let mut has_job = false;
        while self.step(core, STEP_BYTES)?.is_some() {
            has_job = true;
            if self.running.is_none() {
                break;
            }
        }
        Ok(has_job)
    }
}

impl Running {
    fn new(job: Job, core: &Core) -> Running {
        match job {
            Job::Punch(one) => Running::Punch(Punching { one, at: 0, gaps: VecDeque::new(), dead_bytes: 0 }),
            Job::Empty(one) => {
                let (places, moves) = (VecDeque::new(), Moves::new(core));
                Running::Empty(Emptying { one, at: 0, passes: 1, places, copying: None, moves })
            }
        }
    }
}

impl Punching {
    fn step(&mut self, core: &Core, done: &mut Compacted) -> Result<Stepped, StoreError> {
        let Punching { one, .. } = *self;
        if let Some(gap) = self.gaps.pop_front() {
            let bytes = gap.end - gap.start;
            self.dead_bytes += bytes;
            return match core.segments.punch(one.file, gap) {
                Ok(true) => Ok(Stepped::Did(bytes)),
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
            let places = core.index.places(one.file, self.at, PLACES_MAX)?;
            let end = if places.len() < PLACES_MAX { Some(one.row.written) } else { None };
            let (gaps, next) = gaps(self.at, end, &places);
            // A crash must not bring back values that are dead here.
            core.make_durable()?;
            (self.gaps, self.at) = (gaps.into(), next);
            return Ok(Stepped::Did(0));
        }
        done.punched_bytes += self.dead_bytes.saturating_sub(one.row.punched);
        core.segments.set_punched(one.file, self.dead_bytes);
        core.index.set_punched(one.file, self.dead_bytes)?;
        Ok(Stepped::Ended)
    }
}

impl Emptying {
    fn step(&mut self, core: &Core, bytes_max: u64, done: &mut Compacted) -> Result<Stepped, StoreError> {
        if let Some(copying) = self.copying.take() {
            return self.copy(copying, core, bytes_max, done);
        }
        if let Some((from, key)) = self.places.pop_front() {
            match core.index.place(&key) {
                Ok(Some((place, checksum))) if place == from => {
                    let writing = core.segments.begin(from.bytes, 0)?;
                    self.copying = Some(Copying { key, from, checksum, writing, sum: Sum::new(), done: 0 });
                }
                // The key names another place by now.
                Ok(_) => {}
                Err(StoreError::Corrupt { .. }) => self.is_stuck(core),
                Err(error) => return Err(error),
            }
            return Ok(Stepped::Did(0));
        }
        self.commit(core, done)?;
        self.places = core.index.places(self.one.file, self.at, PLACES_MAX)?.into();
        if let Some((last, _)) = self.places.back() {
            self.at = last.end();
            return Ok(Stepped::Did(0));
        }
        if core.index.places(self.one.file, 0, 1)?.is_empty() {
            done.segments += 1;
        } else if self.passes < PASSES_MAX && !core.work.state.lock().stuck.contains(&self.one.file) {
            // Values that became shares meanwhile lie where they lay, under other keys.
            (self.passes, self.at) = (self.passes + 1, 0);
            return Ok(Stepped::Did(0));
        } else {
            self.is_stuck(core);
        }
        Ok(Stepped::Ended)
    }

    /// Copies the next part of a value to the open segment.
    fn copy(&mut self, mut copying: Copying, core: &Core, bytes_max: u64, done: &mut Compacted) -> Result<Stepped, StoreError> {
        let from = copying.from;
        let upto = (copying.done + bytes_max).min(from.bytes);
        let part = match core.segments.read_part(from.file, from.offset + copying.done..from.offset + upto) {
            Err(StoreError::Io { source, .. }) => {
                // Where the key names another place by now, the segment may be gone, and nothing is wrong.
                if core.index.place(&copying.key)?.is_some_and(|(now, _)| now == from) {
                    let key = crate::api::show_key(&copying.key);
                    tracing::warn!(error = %source, key, "a value cannot be read to be moved");
                    self.is_stuck(core);
                }
                return Ok(Stepped::Did(0));
            }
            read => read?,
        };
        copying.sum.add(&part);
        copying.writing.append(&part)?;
        copying.done = upto;
        if upto < from.bytes {
            self.copying = Some(copying);
        } else if copying.sum.digest() == copying.checksum {
            self.moves.add(copying.key, from, copying.writing.finish(copying.checksum));
            if self.moves.bytes >= MOVED_BYTES_MAX {
                self.commit(core, done)?;
            }
        } else {
            self.is_stuck(core);
        }
        Ok(Stepped::Did(part.len() as u64))
    }

    fn commit(&mut self, core: &Core, done: &mut Compacted) -> Result<(), StoreError> {
        done.moved_bytes += std::mem::replace(&mut self.moves, Moves::new(core)).commit(core)?;
        Ok(())
    }

    /// A value cannot be moved. It stays where it is, and whoever reads it gets an error that names it.
    fn is_stuck(&self, core: &Core) {
        core.work.state.lock().stuck.insert(self.one.file);
    }
}

impl Compacted {
    fn since(self, before: Compacted) -> Compacted {
        Compacted {
            moved_bytes: self.moved_bytes - before.moved_bytes,
            punched_bytes: self.punched_bytes - before.punched_bytes,
            segments: self.segments - before.segments,
        }
    }
}

/// Copies that wait for the commit that names them.
#[derive(Debug)]
struct Moves {
    changes: Vec<Change>,
    pinned: Pinned,
    bytes: u64,
}

impl Moves {
    fn new(core: &Core) -> Self {
        Self { changes: Vec::new(), pinned: Pinned::new(core.segments.clone()), bytes: 0 }
    }

    fn add(&mut self, key: Key, from: ValueLocation, extent: Extent) {
        self.bytes += from.bytes;
        self.changes.push(Change { key, expected: Expected::Any, action: Action::Move { from, to: extent.place } });
        self.pinned.add(extent);
    }

    /// Returns the bytes that were moved.
    fn commit(self, core: &Core) -> Result<u64, StoreError> {
        if self.changes.is_empty() {
            return Ok(0);
        }
        core.segments.flush(self.pinned.extents())?;
        core.submit(self.changes, self.pinned, Depth::Logged)?;
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
