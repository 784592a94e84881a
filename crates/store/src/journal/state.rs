//! [`Journal`]: the journal of an open store.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pithead_model::DriveId;
use redb::ReadableTable as _;

use super::Row;
use super::file::{Account, FOLDER, FRAMES_AT, FileKind, Header, NEW, NEW_KEYS, Scan, file_name, last_mark, names, parts};
use super::frame::{FrameKind, encode_commit, encode_mark, encode_row};
use crate::StoreError;
use crate::format::{FORMAT, io_error, random_u64};
use crate::index::{ENTRIES, Failure, Index, Snapshot, caught};
use crate::medium::{Medium, MediumFile};

/// Logs with fewer bytes than this need no new base.
const LOG_BYTES_MIN: u64 = 16 << 20;
/// How long to wait before a base that could not be written is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// Bytes of a base written at once.
const STEP_BYTES: usize = 1 << 20;

/// The journal of a store that is open for writing.
#[derive(Debug)]
pub(crate) struct Journal {
    medium: Arc<dyn Medium>,
    drive: DriveId,
    state: Mutex<JournalState>,
}

#[derive(Debug, Default)]
struct JournalState {
    /// Receives changes; none while the journal cannot be written.
    log: Option<Log>,
    /// No file has this number or a larger one.
    next: u64,
    /// The open log waits for a base with the number before its own.
    awaits_base: bool,
    base_bytes: u64,
    log_bytes: u64,
    /// The last mark, and whether anything was written since.
    marked: u64,
    dirty: bool,
    failed_at: Option<Instant>,
}

/// A log with its file of keys.
#[derive(Debug)]
struct Log {
    number: u64,
    records: Writer,
    keys: Writer,
}

/// A file of one account, at its end.
#[derive(Debug)]
struct Writer {
    account: Account,
    file: Arc<dyn MediumFile>,
    salt: u64,
    at: u64,
    /// Bytes to be written at `at`.
    bytes: Vec<u8>,
}

/// The end of the newest log of one account.
#[derive(Debug, Default)]
struct Tail {
    writer: Option<Writer>,
    /// The last commit in it.
    number: Option<u64>,
    /// The last commit that it marks as durable.
    marked: u64,
    whole: bool,
}

impl Journal {
    /// The journal beside an index whose last commit is `commit`. If the journal is not complete, or does not end with
    /// that commit, [`Journal::tend`] makes it anew. It is an error only if the index lacks a commit that the journal
    /// knows to have been durable.
    pub fn open(medium: Arc<dyn Medium>, drive: DriveId, commit: u64) -> Result<Self, StoreError> {
        let state = match JournalState::find(&*medium, drive, commit) {
            Ok(Ok(state)) => state,
            Ok(Err(marked)) => {
                let what = format!("it shows commit {commit}, and commit {marked} was durable");
                return Err(crate::index::corrupt_index(&*medium, &what));
            }
            Err(error) => {
                tracing::warn!(%error, "the journal cannot be read");
                JournalState { next: u64::MAX, ..JournalState::default() }
            }
        };
        let journal = Self { medium, drive, state: Mutex::new(state) };
        {
            let mut state = journal.state.lock();
            if state.log.is_none() && state.next != u64::MAX {
                journal.start(&mut state);
            }
        }
        Ok(journal)
    }

    /// Adds the changes of a commit that is about to be made.
    pub fn append(&self, number: u64, rows: &[Row]) {
        let mut state = self.state.lock();
        let Some(log) = &mut state.log else { return };
        match log.append(number, rows) {
            Ok(bytes) => {
                state.log_bytes += bytes;
                state.dirty = true;
            }
            Err(error) => state.fail("written", &error),
        }
    }

    /// Flushes the journal, and records that the index's commit `number` is durable. Flushes nothing if nothing is new.
    pub fn mark(&self, number: u64) {
        let mut state = self.state.lock();
        if !state.dirty && state.marked == number {
            return;
        }
        let Some(log) = &mut state.log else { return };
        match log.mark(number) {
            Ok(()) => (state.marked, state.dirty) = (number, false),
            Err(error) => state.fail("flushed", &error),
        }
    }

    /// Flushes the records alone, as a commit would have to that is durable by the journal.
    #[cfg(test)]
    pub fn flush_records(&self) -> io::Result<()> {
        self.state.lock().log.as_ref().map_or(Ok(()), |log| log.records.file.flush())
    }

    /// Flushes the journal for the last time, because the store is being closed.
    pub fn close(&self, number: u64) {
        self.mark(number);
        let mut state = self.state.lock();
        let flushed = state.log.as_ref().map_or(Ok(()), Log::flush);
        if let Err(error) = flushed {
            state.fail("flushed", &error);
        }
        // After a flush that failed, the kernel may show data that is not on the medium. An empty log that stands apart
        // records this.
        if state.log.is_none() && state.next != u64::MAX {
            self.start(&mut state);
        }
    }

    /// Whether a new base is needed now.
    pub fn wants_base(&self) -> bool {
        let state = self.state.lock();
        let waits = state.failed_at.is_some_and(|at| at.elapsed() < RETRY_AFTER);
        !waits
            && state.next != u64::MAX
            && (state.log.is_none() || state.awaits_base || state.log_bytes > state.base_bytes.max(LOG_BYTES_MIN))
    }

    /// Writes a base of everything in the index, and unlinks the files that it replaces. The index commits durably
    /// meanwhile.
    pub fn tend(&self, index: &Index) -> Result<(), StoreError> {
        let done = self.write_base(index);
        let mut state = self.state.lock();
        state.failed_at = done.is_err().then(Instant::now);
        done
    }

    fn write_base(&self, index: &Index) -> Result<(), StoreError> {
        let failed = |error| io_error(&self.medium.path().join(FOLDER), 0, error);
        // While a transaction is open, there is no commit between the logs.
        let snapshot = index.snapshot(|| self.rotate())?;
        let Some(upto) = self.state.lock().log.as_ref().map(|log| log.number - 1) else {
            return Err(failed(io::Error::other("no log can be written")));
        };
        let bytes = self.copy(&snapshot).map_err(|failure| failure.on(self.medium.path()))?;
        // The account of keys comes first, since the base replaces logs of both.
        self.medium.rename(NEW_KEYS, &file_name(upto, FileKind::BaseKeys)).map_err(failed)?;
        self.medium.rename(NEW, &file_name(upto, FileKind::Base)).map_err(failed)?;
        self.medium.flush_names(FOLDER).map_err(failed)?;
        {
            let mut state = self.state.lock();
            state.awaits_base = false;
            state.base_bytes = bytes;
            state.log_bytes = state.log.as_ref().map_or(0, |log| log.records.at);
        }
        for (number, kind) in names(&*self.medium).map_err(failed)? {
            if number < upto || (number == upto && matches!(kind, FileKind::Log | FileKind::LogKeys)) {
                self.medium.remove(&file_name(number, kind)).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn copy(&self, snapshot: &Snapshot) -> Result<u64, Failure> {
        let failed = |error| Failure::Store(io_error(&self.medium.path().join(NEW), STEP_BYTES as u64, error));
        let begun = [(Account::Records, NEW), (Account::Keys, NEW_KEYS)]
            .map(|(account, name)| Writer::begin(&*self.medium, name, self.drive, account).map_err(failed));
        let [records, keys] = begun;
        let mut files = [records?, keys?];
        caught(|| {
            for row in snapshot.read.open_table(ENTRIES)?.iter()? {
                let (key, record) = row?;
                for file in &mut files {
                    file.put(snapshot.commit, key.value(), record.value()).map_err(failed)?;
                }
            }
            Ok(())
        })?;
        for file in &mut files {
            file.write().and_then(|()| file.mark(snapshot.commit)).and_then(|()| file.file.flush()).map_err(failed)?;
        }
        Ok(files[0].at)
    }

    /// Begins a new log, for which a base is to be written, unless the open log waits for its base already.
    fn rotate(&self) {
        let mut state = self.state.lock();
        if state.log.is_none() || !state.awaits_base {
            self.start(&mut state);
        }
    }

    /// Begins a log. If no log precedes it, it skips a number.
    fn start(&self, state: &mut JournalState) {
        let fresh = state.next == 1;
        let number = if state.log.is_some() || fresh { state.next } else { state.next.saturating_add(1) };
        let make = || {
            let begin = |account: Account| {
                let writer = Writer::begin(&*self.medium, &file_name(number, account.log()), self.drive, account)?;
                writer.file.flush()?;
                Ok::<_, io::Error>(writer)
            };
            let log = Log { number, records: begin(Account::Records)?, keys: begin(Account::Keys)? };
            self.medium.flush_names(FOLDER)?;
            self.medium.flush_names("")?;
            Ok::<_, io::Error>(log)
        };
        match make() {
            Ok(log) => {
                (state.log, state.dirty) = (Some(log), true);
                state.awaits_base = !fresh;
            }
            Err(error) => state.fail("begun", &error),
        }
        state.next = number.saturating_add(1);
    }
}

impl JournalState {
    /// The content of the files; or the commit that was durable and that the index lacks.
    fn find(medium: &dyn Medium, drive: DriveId, commit: u64) -> io::Result<Result<Self, u64>> {
        let files = names(medium)?;
        let Some((last, _)) = files.last().copied() else {
            return Ok(Ok(Self { next: if commit == 0 { 1 } else { 2 }, ..Self::default() }));
        };
        let (base, logs) = parts(&files, Account::Records);
        let mut state = Self { next: last.saturating_add(1), ..Self::default() };
        let newest_keys = parts(&files, Account::Keys).1.last().copied();
        let Some(newest) = logs.last().copied().max(newest_keys) else { return Ok(Ok(state)) };
        let [records, keys] = Account::BOTH.map(|account| Tail::read(medium, &files, (newest, account), drive, commit));
        let (records, keys) = (records?, keys?);
        let marked = records.marked.max(keys.marked);
        if marked > commit {
            return Ok(Err(marked));
        }
        let ends = |tail: &Tail| tail.whole && tail.number.unwrap_or(0) == commit;
        if ends(&records)
            && ends(&keys)
            && let (Some(records), Some(keys)) = (records.writer, keys.writer)
        {
            let is_there = |number: u64, kind: FileKind| files.contains(&(number, kind));
            state.log_bytes = records.at;
            state.log = Some(Log { number: newest, records, keys });
            state.marked = marked;
            let follow = logs.iter().copied().eq(base + 1..=newest);
            let named = logs.iter().all(|log| is_there(*log, FileKind::LogKeys));
            state.awaits_base = !(follow && named && (base == 0 || is_there(base, FileKind::BaseKeys)));
            if base > 0 {
                state.base_bytes = medium.open(&file_name(base, FileKind::Base), false)?.len()?;
            }
        }
        Ok(Ok(state))
    }

    fn fail(&mut self, what: &str, error: &io::Error) {
        tracing::warn!(%error, "the journal could not be {what}; it is made anew");
        self.log = None;
    }
}

impl Log {
    /// Adds the changes of a commit. Returns how many bytes the records take.
    fn append(&mut self, number: u64, rows: &[Row]) -> io::Result<u64> {
        let before = self.records.at;
        for writer in [&mut self.records, &mut self.keys] {
            writer.bytes = encode_commit(writer.salt, writer.at, number, rows, writer.account);
            writer.write()?;
        }
        Ok(self.records.at - before)
    }

    fn flush(&self) -> io::Result<()> {
        self.records.file.flush().and_then(|()| self.keys.file.flush())
    }

    fn mark(&mut self, number: u64) -> io::Result<()> {
        self.flush()?;
        self.records.mark(number)?;
        self.keys.mark(number)
    }
}

impl Writer {
    /// Makes a file, or empties one.
    fn begin(medium: &dyn Medium, name: &str, drive: DriveId, account: Account) -> io::Result<Self> {
        let salt = random_u64().map_err(io::Error::other)?;
        let file = medium.open(name, true)?;
        file.set_len(0)?;
        Header { format: FORMAT, drive, salt }.write(&*file)?;
        Ok(Self { account, file, salt, at: FRAMES_AT, bytes: Vec::new() })
    }

    /// Adds a row of a base, which is written with others.
    fn put(&mut self, number: u64, key: &[u8], record: &[u8]) -> io::Result<()> {
        encode_row(&mut self.bytes, self.salt, self.at, number, key, self.account.part(record));
        if self.bytes.len() >= STEP_BYTES { self.write() } else { Ok(()) }
    }

    fn mark(&mut self, number: u64) -> io::Result<()> {
        self.bytes = encode_mark(self.salt, self.at, number);
        self.write()
    }

    fn write(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.bytes);
        self.file.write(self.at, &bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

impl Tail {
    fn read(
        medium: &dyn Medium,
        files: &[(u64, FileKind)],
        (number, account): (u64, Account),
        drive: DriveId,
        commit: u64,
    ) -> io::Result<Self> {
        if !files.contains(&(number, account.log())) {
            return Ok(Self::default());
        }
        let file = medium.open(&file_name(number, account.log()), false)?;
        let Some(header) = Header::read(&*file)?.filter(|header| header.drive == drive) else { return Ok(Self::default()) };
        let writer = |at| Some(Writer { account, file: file.clone(), salt: header.salt, at, bytes: Vec::new() });
        if last_mark(&*file, header.salt)? == Some(commit) {
            return Ok(Self { writer: writer(file.len()?), number: Some(commit), marked: commit, whole: true });
        }
        let mut tail = Self::default();
        let mut scan = Scan::new(file.clone(), header.salt)?;
        let mut rows = 0;
        while let Some((_, frame)) = scan.next()? {
            match frame.kind {
                FrameKind::Mark => tail.marked = frame.number.max(tail.marked),
                FrameKind::Put | FrameKind::Deleted => rows = frame.rows - (frame.row + 1).min(frame.rows),
            }
            tail.number = Some(frame.number);
        }
        // A commit that lacks rows at the end does not count.
        tail.whole = scan.gaps.is_empty() && rows == 0;
        tail.writer = writer(scan.end());
        Ok(tail)
    }
}
