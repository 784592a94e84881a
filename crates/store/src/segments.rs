//! Segment files: large values, one after the other, `segments/<number, 16 hexadecimal digits>.seg`.
//!
//! A value is in one piece and starts at a multiple of [`ALIGNMENT`](crate::medium::ALIGNMENT). Room is used in order
//! and never twice, so a place has one value for ever. The bytes between the values that keys name are dead.

mod open;
mod parts;
mod segment;
mod writing;

use std::collections::{HashMap, HashSet};
use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use lru::LruCache;
use parking_lot::Mutex;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

pub(crate) use self::open::file_number;
pub(crate) use self::segment::FOLDER;
use self::segment::Segment;
pub(crate) use self::writing::{Pinned, Writing};
use crate::bounds::check_value;
use crate::format::io_error;
use crate::index::{SegmentRow, corrupt};
use crate::medium::{Medium, MediumFile};
use crate::record::ValueLocation;
use crate::{Staged, StoreError, Value};

/// The most segment files that stay open for reading.
const HANDLES_MAX: usize = 256;

/// The segment files of one store.
#[derive(Debug)]
pub(crate) struct Segments {
    medium: Arc<dyn Medium>,
    segment_bytes: u64,
    state: Mutex<SegmentsState>,
    handles: Mutex<LruCache<u64, Arc<dyn MediumFile>>>,
    /// Files that are still on the medium, and nowhere else.
    forgotten: Mutex<Vec<u64>>,
    /// Held while files are unlinked.
    unlinking: Mutex<()>,
    /// Bytes by which all files shrank since the store was opened, less those that were copied for it.
    given_back: AtomicI64,
}

#[derive(Debug, Default)]
struct SegmentsState {
    files: HashMap<u64, Tally>,
    /// The segment that takes new values.
    open: Option<Room>,
    next_file: u64,
    staged: HashMap<(u64, u64), Extent>,
    /// Files that may have no value.
    empty: HashSet<u64>,
}

/// Room in the open segment.
#[derive(Debug)]
struct Room {
    segment: Arc<Segment>,
    next: u64,
    /// The end of the room that the medium has allocated.
    reserved: u64,
}

/// The state of a segment file, besides its row in the index.
#[derive(Clone, Debug, Default)]
struct Tally {
    /// The end of the room that was given to values.
    written: u64,
    live: u64,
    punched: u64,
    /// The room of values that are being written, are staged, or wait for their commit.
    pinned: u64,
    /// None once everything that this process wrote is durable and the segment takes no more.
    segment: Option<Arc<Segment>>,
}

/// A large value that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub place: ValueLocation,
    pub checksum: u64,
    /// The ticket of the write, which must be flushed before a durable commit names the place.
    pub ticket: u64,
}

/// A segment file as compaction sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub file: u64,
    pub row: SegmentRow,
}

impl Segments {
    /// Writes a value. It is not durable, and its room stays pinned: the caller adds it to a [`Pinned`]. `what` names
    /// the value in errors; `kept` bytes stay free on the medium.
    pub fn write(self: &Arc<Self>, what: &str, value: &[u8], kept: u64) -> Result<Extent, StoreError> {
        check_value(what, value.len())?;
        let mut writing = self.begin(value.len() as u64, kept)?;
        writing.append(value)?;
        Ok(writing.finish(xxh3_64(value)))
    }

    /// Room for a value that is written in parts.
    pub fn begin(self: &Arc<Self>, bytes: u64, kept: u64) -> Result<Writing, StoreError> {
        let (segment, offset) = self.allocate(bytes, kept)?;
        let place = ValueLocation { file: segment.file, offset, bytes };
        Ok(Writing { segments: Arc::clone(self), segment: Some(segment), place, done: 0 })
    }

    /// Makes extents durable.
    pub fn flush(&self, extents: &[Extent]) -> Result<(), StoreError> {
        let mut tickets: HashMap<u64, u64> = HashMap::new();
        for extent in extents {
            let ticket = tickets.entry(extent.place.file).or_default();
            *ticket = extent.ticket.max(*ticket);
        }
        for (file, ticket) in tickets {
            let segment = self.state.lock().files.get(&file).and_then(|tally| tally.segment.clone());
            // If there is none, all of the file is durable.
            let Some(segment) = segment else { continue };
            if let Err(error) = segment.flush(ticket, &*self.medium) {
                self.seal(Some(file));
                return Err(io_error(&self.path(file), 0, error));
            }
        }
        Ok(())
    }

    /// Keeps a written value for [`Segments::claim`].
    pub fn stage(&self, extent: Extent) -> Staged {
        let ValueLocation { file, offset, bytes } = extent.place;
        let checksum = extent.checksum;
        self.state.lock().staged.insert((file, offset), extent);
        Staged { file, offset, bytes, checksum }
    }

    /// The staged value, if this store staged it and it was neither adopted nor discarded since. It counts as claimed
    /// from now on.
    pub fn claim(&self, staged: &Staged) -> Option<Extent> {
        let mut state = self.state.lock();
        let at = (staged.file, staged.offset);
        let extent = state.staged.get(&at)?;
        if (extent.place.bytes, extent.checksum) != (staged.bytes, staged.checksum) {
            return None;
        }
        state.staged.remove(&at)
    }

    /// Files that take no more values and have none left. Nothing names them once all commits are durable.
    pub fn take_empty(&self) -> Vec<u64> {
        let mut state = self.state.lock();
        let taken: Vec<u64> = state.empty.iter().copied().filter(|file| state.is_over(*file)).collect();
        state.empty.retain(|file| !taken.contains(file));
        taken
    }

    /// Notes that the file was not unlinked after all.
    pub fn put_back_empty(&self, file: u64) {
        self.state.lock().empty.insert(file);
    }

    /// Whether [`Segments::take_empty`] would return a file.
    pub fn has_empty(&self) -> bool {
        let state = self.state.lock();
        state.empty.iter().any(|file| state.is_over(*file))
    }

    /// Called after a commit: keys name the places in `placed` now, and no longer name those in `dead`.
    pub fn settle(&self, placed: &[ValueLocation], dead: &[ValueLocation]) {
        let mut state = self.state.lock();
        for place in placed {
            let tally = state.files.entry(place.file).or_default();
            tally.live += place.room();
            tally.written = tally.written.max(place.end());
        }
        for place in dead {
            if let Some(tally) = state.files.get_mut(&place.file) {
                tally.live = tally.live.saturating_sub(place.room());
                if tally.live == 0 {
                    state.empty.insert(place.file);
                }
            }
        }
    }

    /// The value at `place`, after its checksum was verified.
    pub fn read(&self, key: &[u8], place: ValueLocation, checksum: u64) -> Result<Value, StoreError> {
        let at = || format!("{} at byte {}", self.path(place.file).display(), place.offset);
        let end = place.offset.checked_add(place.bytes);
        let end = end.ok_or_else(|| corrupt(key, &format!("its place ends past any file ({})", at())))?;
        check_value("a place in the index", usize::try_from(place.bytes).unwrap_or(usize::MAX))
            .map_err(|_| corrupt(key, &format!("its place has {} bytes, more than any value", place.bytes)))?;
        if place.bytes == 0 {
            return Ok(Value::new());
        }
        let mut sum = Xxh3::new();
        let read = self.handle(place.file);
        // The checksum is computed while the rest is on its way.
        let read = read.and_then(|handle| handle.read_large_with(place.offset..end, &mut |part| sum.update(part)));
        let value = match read {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => {
                return Err(corrupt(key, &format!("its value is missing: {error} ({})", at())));
            }
            read => read.map_err(|error| io_error(&self.path(place.file), 0, error))?,
        };
        if sum.digest() != checksum {
            return Err(corrupt(key, &format!("the checksum of its value does not hold ({})", at())));
        }
        Ok(value)
    }

    /// Segment files that take no more values, and in which nothing is pinned.
    pub fn sealed(&self) -> Vec<Sealed> {
        let mut state = self.state.lock();
        let open = state.open.as_ref().map(|room| room.segment.file);
        state.files.iter_mut().for_each(|(file, tally)| tally.forget_settled(Some(*file) == open));
        let idle = state.files.iter().filter(|(file, tally)| Some(**file) != open && tally.pinned == 0);
        idle.map(|(file, tally)| Sealed { file: *file, row: tally.row() }).collect()
    }

    /// The segment that takes new values. What is pinned in it counts as alive.
    pub fn open_one(&self) -> Option<Sealed> {
        let state = self.state.lock();
        let file = state.open.as_ref()?.segment.file;
        let tally = state.files.get(&file)?;
        let row = tally.row();
        Some(Sealed { file, row: SegmentRow { live: row.live + tally.pinned, ..row } })
    }

    /// The account of a file, if it is there.
    pub fn row(&self, file: u64) -> Option<SegmentRow> {
        let state = self.state.lock();
        state.files.get(&file).map(Tally::row)
    }

    /// Bytes on the medium that no value uses, and bytes that are allocated in the open segment.
    pub fn spare(&self) -> (u64, u64) {
        let state = self.state.lock();
        let dead = |tally: &Tally| tally.written.saturating_sub(tally.live + tally.punched + tally.pinned);
        let dead = state.files.values().map(dead).sum();
        (dead, state.open.as_ref().map_or(0, |room| room.reserved.saturating_sub(room.next)))
    }

    /// Gives back the room of a part of a file that nothing names. False if the medium cannot.
    pub fn punch(&self, file: u64, part: std::ops::Range<u64>) -> Result<bool, StoreError> {
        self.handle(file).and_then(|handle| handle.punch(part)).map_err(|error| io_error(&self.path(file), 0, error))
    }

    /// Sets how many bytes of a file were given back in all.
    pub fn set_punched(&self, file: u64, punched: u64) {
        if let Some(tally) = self.state.lock().files.get_mut(&file) {
            self.shrank(punched.saturating_sub(tally.punched) as i64);
            tally.punched = punched;
        }
    }

    /// Counts bytes by which the files shrank, or below 0 by which they grew for it.
    pub fn shrank(&self, bytes: i64) {
        self.given_back.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes by which compaction and deletes have shrunk the files since the store was opened.
    pub fn given_back(&self) -> u64 {
        u64::try_from(self.given_back.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Forgets a file that nothing names. [`Segments::unlink_forgotten`] unlinks it, or else the next open does.
    pub fn forget(&self, file: u64) {
        if let Some(tally) = self.state.lock().files.remove(&file) {
            self.shrank(tally.written.saturating_sub(tally.punched) as i64);
        }
        self.handles.lock().pop(&file);
        self.forgotten.lock().push(file);
    }

    /// Unlinks files that were forgotten, or waits for whoever is at it. False: there were none. A file system takes its time for a
    /// large file: no commit should wait for this.
    pub fn unlink_forgotten(&self) -> bool {
        let (_unlinking, has_waited) = match self.unlinking.try_lock() {
            Some(unlinking) => (unlinking, false),
            None => (self.unlinking.lock(), true),
        };
        let files = std::mem::take(&mut *self.forgotten.lock());
        for &file in &files {
            match self.medium.remove(&file_name(file)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(path = %self.path(file).display(), %error, "a segment could not be deleted");
                }
                _ => {}
            }
        }
        has_waited || !files.is_empty()
    }

    /// Reads a part of a file, to copy it.
    pub fn read_part(&self, file: u64, part: std::ops::Range<u64>) -> Result<Value, StoreError> {
        self.handle(file).and_then(|handle| handle.read_large(part)).map_err(|error| io_error(&self.path(file), 0, error))
    }

    pub fn path(&self, file: u64) -> PathBuf {
        self.medium.path().join(file_name(file))
    }

    fn handle(&self, file: u64) -> io::Result<Arc<dyn MediumFile>> {
        if let Some(segment) = self.state.lock().files.get(&file).and_then(|tally| tally.segment.as_ref()) {
            return Ok(segment.handle.clone());
        }
        if let Some(handle) = self.handles.lock().get(&file) {
            return Ok(handle.clone());
        }
        let handle = self.medium.open(&file_name(file), false)?;
        self.handles.lock().put(file, handle.clone());
        // A file that was unlinked meanwhile would keep its room as long as it is open.
        if !self.state.lock().files.contains_key(&file) {
            self.handles.lock().pop(&file);
        }
        Ok(handle)
    }
}

impl SegmentsState {
    fn is_over(&self, file: u64) -> bool {
        let open = self.open.as_ref().is_some_and(|room| room.segment.file == file);
        !open && self.files.get(&file).is_none_or(|tally| tally.pinned == 0 && tally.live == 0)
    }

    fn unpin(&mut self, place: ValueLocation) {
        let open = self.open.as_ref().map(|room| room.segment.file);
        if let Some(tally) = self.files.get_mut(&place.file) {
            tally.pinned = tally.pinned.saturating_sub(place.room());
            if tally.pinned == 0 && tally.live == 0 {
                self.empty.insert(place.file);
            }
            tally.forget_settled(open == Some(place.file));
        }
    }
}

impl Tally {
    fn row(&self) -> SegmentRow {
        SegmentRow { written: self.written, live: self.live, punched: self.punched }
    }

    fn forget_settled(&mut self, open: bool) {
        if !open && self.pinned == 0 && self.segment.as_ref().is_some_and(|segment| segment.is_settled()) {
            self.segment = None;
        }
    }
}

/// A segment file's name, relative to the store.
pub(crate) fn file_name(file: u64) -> String {
    format!("{FOLDER}/{file:016x}.seg")
}

fn new_handles() -> Mutex<LruCache<u64, Arc<dyn MediumFile>>> {
    Mutex::new(LruCache::new(NonZeroUsize::new(HANDLES_MAX).unwrap_or(NonZeroUsize::MIN)))
}
