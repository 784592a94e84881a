//! Finds out which segment files there are, and which one takes new values.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use parking_lot::Mutex;

use super::segment::Segment;
use super::{FOLDER, Room, Segments, SegmentsState, Tally, file_name, new_handles};
use crate::format::io_error;
use crate::index::SegmentRow;
use crate::medium::{ALIGNMENT, Medium};
use crate::record::room;
use crate::{StoreError, StoreOptions};

/// Room is allocated in steps of this many bytes, or of a sixteenth of the free room if that is less.
const RESERVE_STEP: u64 = 64 << 20;

impl Segments {
    /// Takes the files that `rows` name, and unlinks the others, which a crash has left of values that were never
    /// adopted or that were deleted. No new file gets a number up to `last_file`.
    pub fn open(
        medium: Arc<dyn Medium>,
        options: &StoreOptions,
        rows: &[(u64, SegmentRow)],
        last_file: u64,
    ) -> Result<Self, StoreError> {
        let failed = |error| io_error(&medium.path().join(FOLDER), 0, error);
        let mut state = SegmentsState { next_file: last_file.saturating_add(1), ..SegmentsState::default() };
        state.load(rows);
        for entry in medium.list(FOLDER).map_err(failed)? {
            let Some(file) = file_number(&entry) else { continue };
            state.next_file = state.next_file.max(file.saturating_add(1));
            if !state.files.contains_key(&file) && !medium.is_read_only() {
                tracing::info!(path = %medium.path().join(file_name(file)).display(), "deleting a segment that no key names");
                medium.remove(&file_name(file)).map_err(failed)?;
            }
        }
        let segment_bytes = options.segment_bytes.max(ALIGNMENT);
        let segments = Self::of(medium, segment_bytes, state);
        if !segments.medium.is_read_only() {
            segments.go_on();
        }
        Ok(segments)
    }

    /// Opens the files for reading only: none is unlinked or written.
    pub fn to_read(medium: Arc<dyn Medium>) -> Self {
        Self::of(medium, 0, SegmentsState::default())
    }

    fn of(medium: Arc<dyn Medium>, segment_bytes: u64, state: SegmentsState) -> Self {
        let (forgotten, unlinking, given_back) = (Mutex::default(), Mutex::default(), AtomicI64::default());
        Self { medium, segment_bytes, state: state.into(), handles: new_handles(), forgotten, unlinking, given_back }
    }

    /// Called after the index was opened again, which may have lost commits.
    pub fn reload(&self, rows: &[(u64, SegmentRow)]) {
        self.state.lock().load(rows);
    }

    /// Ends writing to the open segment; with `file`, only if that is the open one. Its allocated room is given back.
    pub fn seal(&self, file: Option<u64>) {
        let mut state = self.state.lock();
        if file.is_none_or(|file| state.open.as_ref().is_some_and(|room| room.segment.file == file)) {
            state.close();
        }
    }

    /// Goes on with the newest file if it has room. Nothing names the bytes after its last value.
    fn go_on(&self) {
        let mut state = self.state.lock();
        let Some((file, written)) = state.files.iter().map(|(file, tally)| (*file, tally.written)).max() else { return };
        let Ok(handle) = self.medium.open(&file_name(file), false) else { return };
        let next = written.next_multiple_of(ALIGNMENT);
        if handle.len().is_ok_and(|bytes| bytes > next) && handle.set_len(next).is_err() {
            return;
        }
        if next > self.segment_bytes / 2 {
            return;
        }
        let segment = Arc::new(Segment::new(file, handle, false));
        if let Some(tally) = state.files.get_mut(&file) {
            tally.segment = Some(segment.clone());
        }
        state.open = Some(Room { segment, next, reserved: next });
    }

    /// Room for a value in the open segment, or in a new one, pinned. At least `kept` bytes stay free on the medium.
    pub(super) fn allocate(&self, bytes: u64, kept: u64) -> Result<(Arc<Segment>, u64), StoreError> {
        let needed = room(bytes);
        let mut state = self.state.lock();
        let fits = |room: &Room| room.next.saturating_add(needed) <= self.segment_bytes || room.next == 0;
        if state.open.as_ref().is_some_and(|room| !fits(room) || room.segment.has_failed()) {
            state.close();
        }
        let fresh = state.open.is_none();
        if fresh {
            self.check_room(needed, kept)?;
            let room = self.create(&mut state)?;
            state.files.insert(room.segment.file, Tally { segment: Some(room.segment.clone()), ..Tally::default() });
            state.open = Some(room);
        }
        let SegmentsState { open: Some(room), files, .. } = &mut *state else {
            return Err(io_error(self.medium.path(), bytes, io::Error::other("no segment is open")));
        };
        self.set_aside(room, needed, kept)?;
        let (segment, offset) = (room.segment.clone(), room.next);
        room.next += needed;
        let tally = files.entry(segment.file).or_default();
        tally.pinned += needed;
        tally.written = tally.written.max(room.next);
        Ok((segment, offset))
    }

    fn create(&self, state: &mut SegmentsState) -> Result<Room, StoreError> {
        let file = state.next_file;
        state.next_file = file.saturating_add(1);
        let handle = self.medium.open(&file_name(file), true).map_err(|error| io_error(&self.path(file), 0, error))?;
        Ok(Room { segment: Arc::new(Segment::new(file, handle, true)), next: 0, reserved: 0 })
    }

    /// Makes sure that the medium has allocated `needed` bytes from `room.next` on: a large step if it has plenty, and
    /// just enough if it has not.
    fn set_aside(&self, room: &mut Room, needed: u64, kept: u64) -> Result<(), StoreError> {
        let end = room.next.saturating_add(needed);
        if end <= room.reserved {
            return Ok(());
        }
        let free = self.check_room(end - room.reserved, kept)?;
        let step = RESERVE_STEP.min(free / 16).min(self.segment_bytes.saturating_sub(room.reserved));
        let upto = end.max((room.reserved + step) / ALIGNMENT * ALIGNMENT);
        let handle = &room.segment.handle;
        let reserved =
            handle.reserve(room.reserved..upto).map(|()| upto).or_else(|_| handle.reserve(room.reserved..end).map(|()| end));
        room.reserved = reserved.map_err(|error| io_error(&self.path(room.segment.file), needed, error))?;
        Ok(())
    }

    /// The free bytes on the medium without the reserve, if they are enough.
    fn check_room(&self, needed: u64, kept: u64) -> Result<u64, StoreError> {
        let free = self.medium.free_bytes().map_err(|error| io_error(self.medium.path(), 0, error))?;
        match free.checked_sub(kept) {
            Some(free) if free >= needed => Ok(free),
            _ => Err(StoreError::NoSpace { path: self.medium.path().to_path_buf(), needed }),
        }
    }
}

impl SegmentsState {
    fn load(&mut self, rows: &[(u64, SegmentRow)]) {
        let rows: HashMap<u64, SegmentRow> = rows.iter().copied().collect();
        for (file, tally) in &mut self.files {
            tally.live = rows.get(file).map_or(0, |row| row.live);
        }
        for (file, row) in rows {
            let tally = self.files.entry(file).or_default();
            tally.written = tally.written.max(row.written);
            tally.live = row.live;
            // This process also knows of holes behind the last value that was named.
            tally.punched = tally.punched.max(row.punched);
        }
        // What became dead by commits that were given up has no other way to be noticed.
        let dead = self.files.iter().filter(|(_, tally)| tally.live == 0 && tally.pinned == 0).map(|(file, _)| *file);
        self.empty.extend(dead);
    }

    fn close(&mut self) {
        let Some(room) = self.open.take() else { return };
        // Giving the room back only saves room: a file that keeps it is still good.
        if room.reserved > room.next
            && let Err(error) = room.segment.handle.set_len(room.next)
        {
            tracing::warn!(file = room.segment.file, %error, "room set aside could not be given back");
        }
        if let Some(tally) = self.files.get_mut(&room.segment.file) {
            tally.forget_settled(false);
        }
    }
}

/// The number in a segment file's name.
pub(crate) fn file_number(name: &str) -> Option<u64> {
    let stem = name.strip_suffix(".seg").filter(|stem| stem.len() == 16)?;
    // `from_str_radix` would accept a sign.
    stem.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u64::from_str_radix(stem, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_names_are_segments() {
        assert_eq!(file_number("00000000000000ff.seg"), Some(255));
        for other in ["ff.seg", "00000000000000ff", "00000000000000ff.tmp", "00000000000000fg.seg", "+0000000000000ff.seg"] {
            assert_eq!(file_number(other), None, "{other}");
        }
    }
}
