//! Compaction: dead room is given back, in small steps.
//!
//! Where the medium can punch holes, dead parts of a segment are given back in place, and a segment is emptied only
//! when hardly anything in it is alive. Where the medium cannot, a segment that is more dead than alive is emptied: its
//! values are copied to the open segment, one commit names their new places, and the file is unlinked. All locks are
//! released between two steps, and each commit moves a value only if its key still names the old place.
//!
//! The open segment takes part in none of this. Once nothing else is to do, nobody writes to it, and enough of it is dead,
//! it is sealed: no step of a job then knows it from other segments.
//!
//! Punching needs no room. Where a value finds none to be copied to, its segment waits, and dead parts of all segments
//! are punched first.

mod emptying;
mod punching;

use std::collections::HashMap;
use std::time::Duration;

use self::emptying::Emptying;
use self::punching::Punching;
use crate::StoreError;
use crate::core::Core;
use crate::index::SegmentRow;
use crate::segments::Sealed;

/// Bytes copied in one step where nobody else waits for the core.
const STEP_BYTES: u64 = 1 << 20;
/// The number of rows of the index that are read at once.
const PLACES_MAX: usize = 1_024;
/// Small segment files use less than an eighth of their room. More of them than this number are put together.
const SMALL_FILES_MAX: usize = 256;
/// The open segment is sealed for more dead room than this part of a full one's bytes.
const SEALED_FOR: u64 = 32;
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

/// Compaction of one store: the job in hand, which whoever has time for a step takes further. Nothing of it outlives the process: what
/// was not committed is dead room, and the next job is chosen by what is dead.
#[derive(Debug, Default)]
pub(crate) struct Compaction {
    running: Option<Running>,
    done: Compacted,
    /// Segments with a value for which there was no room elsewhere, and the error. When a job ends, there may be room again.
    no_room: HashMap<u64, StoreError>,
    /// The open segment, and up to where it was written, when nothing was to do the last time.
    seen_open: Option<(u64, u64)>,
}

#[derive(Debug)]
enum Running {
    Punch(Punching),
    Empty(Emptying),
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

    /// Gives back dead room until `needed` bytes came back, what was set aside for large values, and segments that wait to be unlinked.
    /// False if there is none of these.
    pub fn reclaim(&self, needed: u64) -> bool {
        let has_unlinked = self.segments.unlink_forgotten();
        let (dead, aside) = self.segments.spare();
        if dead == 0 && !self.segments.has_empty() {
            if aside > 0 {
                self.segments.seal(None);
            }
            return aside > 0 || has_unlinked;
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
        self.segments.unlink_forgotten();
        true
    }

    /// The segment that gives back the most room for the least copying. Those in `no_room` are not emptied, and while
    /// there are any, what needs no room comes first.
    fn next_job(&self, no_room: &HashMap<u64, StoreError>) -> Option<Job> {
        let mut sealed = self.segments.sealed();
        let (punches, stuck) = {
            let state = self.work.state.lock();
            sealed.retain(|one| !state.odd.contains(&one.file));
            (!state.no_punch, state.stuck.clone())
        };
        let share_max = if punches { 8 } else { 2 };
        let can_go = |one: &Sealed| !stuck.contains(&one.file) && !no_room.contains_key(&one.file) && one.row.live > 0;
        let to_empty = sealed.iter().filter(|one| can_go(one) && one.row.live < one.row.written / share_max);
        let least = to_empty.min_by_key(|one| per_mille(one.row)).copied().map(Job::Empty);
        let to_punch = sealed.iter().filter(|one| punches && one.row.live > 0 && unused(one.row) > 0);
        let most = to_punch.max_by_key(|one| unused(one.row)).copied().map(Job::Punch);
        let job = if no_room.is_empty() { least.or(most) } else { most.or(least) };
        if job.is_some() {
            return job;
        }
        sealed.retain(|one| can_go(one) && one.row.written < self.segment_bytes / 8);
        if sealed.len() <= SMALL_FILES_MAX {
            return None;
        }
        sealed.into_iter().min_by_key(|one| one.row.live).map(Job::Empty)
    }

    /// Whether dead room in the open segment is worth a new file. Of a segment that cannot be punched, so much has to be dead
    /// that it is emptied.
    fn is_worth_sealing(&self, row: SegmentRow) -> bool {
        let share = if self.work.state.lock().no_punch { 2 } else { 4 };
        unused(row) > (self.segment_bytes / SEALED_FOR).max(row.written / share)
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
                match core.next_job(&self.no_room) {
                    Some(job) => Running::new(job, core),
                    None if self.seal_dead(core) => return Ok(Some(0)),
                    None => return self.without_job(core),
                }
            }
        };
        let stepped = match &mut running {
            Running::Punch(punching) => punching.step(core, &mut self.done)?,
            Running::Empty(emptying) => match emptying.step(core, bytes_max, &mut self.done) {
                Err(error @ StoreError::NoSpace { .. }) => {
                    emptying.leave(core, &mut self.done)?;
                    self.no_room.insert(emptying.one.file, error);
                    return Ok(Some(0));
                }
                stepped => stepped?,
            },
        };
        match stepped {
            Stepped::Did(bytes) => {
                self.running = Some(running);
                Ok(Some(bytes))
            }
            Stepped::Ended => {
                self.no_room.clear();
                core.end_of(&running)?;
                Ok(Some(0))
            }
        }
    }

    /// Seals the open segment if much of it is dead, so that the next step finds it among the others; false: it is not worth
    /// it, or something was written to it since the last time. Whoever writes all the time soon fills it.
    fn seal_dead(&mut self, core: &Core) -> bool {
        let open = core.segments.open_one();
        let seen = open.map(|open| (open.file, open.row.written));
        let is_quiet = std::mem::replace(&mut self.seen_open, seen) == seen;
        let Some(open) = open.filter(|open| is_quiet && core.is_worth_sealing(open.row)) else { return false };
        core.segments.seal(Some(open.file));
        true
    }

    /// There is nothing to do, or all that is left needs room that is not there. Segments that were emptied keep their room
    /// until they are unlinked.
    fn without_job(&mut self, core: &Core) -> Result<Option<u64>, StoreError> {
        let Some(error) = std::mem::take(&mut self.no_room).into_values().next() else { return Ok(None) };
        if !core.segments.has_empty() {
            return Err(error);
        }
        core.make_durable()?;
        if core.segments.has_empty() { Err(error) } else { Ok(Some(0)) }
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
            Job::Punch(one) => Running::Punch(Punching::new(one)),
            Job::Empty(one) => Running::Empty(Emptying::new(one, core)),
        }
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

/// Dead bytes of a segment that were not given back.
fn unused(row: SegmentRow) -> u64 {
    row.written.saturating_sub(row.live + row.punched)
}

fn per_mille(row: SegmentRow) -> u64 {
    row.live.saturating_mul(1_000).checked_div(row.written).unwrap_or(0)
}
