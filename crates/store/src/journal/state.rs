//! [`Journal`]: the journal of an open store.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pithead_model::DriveId;

use super::file::{Account, FOLDER, FileKind, NEW, NEW_KEYS, file_name, names, parts};
use super::log::{Log, Tail, Writer};
use super::{LogPlace, Row, base};
use crate::StoreError;
use crate::format::io_error;
use crate::index::Snapshot;
use crate::medium::Medium;

/// Logs with fewer bytes than this need no new base.
const LOG_BYTES_MIN: u64 = 16 << 20;
/// How long to wait before a base that could not be written is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// The journal of a store that is open for writing.
#[derive(Debug)]
pub(crate) struct Journal {
    medium: Arc<dyn Medium>,
    drive: DriveId,
    state: Mutex<JournalState>,
    /// Held while a base is written: there is one place for those that have no name yet.
    tending: Mutex<()>,
    /// Held while the log is flushed: of a flush that fails, the medium tells only once, and the next one must know.
    flushes: Mutex<()>,
}

/// Whether a commit is durable by the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sealed {
    Yes,
    /// For certain not: no log can have it.
    No,
    /// It may be, after a flush that failed. This log is not written to any more.
    Perhaps,
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

impl Journal {
    /// The journal beside an index whose last commit is `commit`. If the journal is not complete, or does not end with
    /// that commit, [`Journal::tend`] makes it anew. It is an error only if the index lacks a commit that the journal
    /// knows to have been durable.
    pub fn open(medium: Arc<dyn Medium>, drive: DriveId, commit: u64) -> Result<Self, StoreError> {
        if !medium.is_read_only() {
            // A process that was killed in the midst of a base has left it.
            base::discard(&*medium);
        }
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
        let journal = Self { medium, drive, state: Mutex::new(state), tending: Mutex::default(), flushes: Mutex::default() };
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
        self.flush_ahead();
        self.mark_as(number, false);
    }

    /// Flushes what the log has by now, while changes can be added to it, so that less is left for those that wait.
    fn flush_ahead(&self) {
        let _flushes = self.flushes.lock();
        let state = self.state.lock();
        let Some(log) = state.log.as_ref().filter(|_| state.dirty) else { return };
        let files = [log.records.file.clone(), log.keys.file.clone()];
        drop(state);
        if let Err(error) = files.iter().try_for_each(|file| file.flush()) {
            self.state.lock().fail("flushed", &error);
        }
    }

    fn mark_as(&self, number: u64, closing: bool) {
        let _flushes = self.flushes.lock();
        let mut state = self.state.lock();
        let is_marked = !state.dirty && state.marked == number;
        let Some(log) = &mut state.log else { return };
        // The last mark may have left later changes good, which are void once the store is closed.
        if is_marked && (!closing || log.last <= number) {
            return;
        }
        match log.mark(number, closing) {
            Ok(()) => (state.marked, state.dirty) = (number, false),
            Err(error) => state.fail("flushed", &error),
        }
    }

    /// Adds the changes of a commit to the log with this number, and makes them durable. `number` is the commit's.
    pub fn seal(&self, log_number: u64, number: u64, rows: &[Row]) -> Sealed {
        let _flushes = self.flushes.lock();
        let mut state = self.state.lock();
        let Some(log) = state.log.as_mut().filter(|log| log.number == log_number) else { return Sealed::No };
        let before = log.records.at;
        if let Err(error) = log.records.append(number, rows, true) {
            let cut = log.records.cut();
            state.fail("written", &error);
            return if cut.is_ok() { Sealed::No } else { Sealed::Perhaps };
        }
        if let Err(error) = log.records.flush() {
            state.fail("flushed", &error);
            return Sealed::Perhaps;
        }
        // The account of keys has a commit's end only after the flush, and so it knows what the records must have.
        let (bytes, with_keys) = (log.records.at - before, log.keys.append(number, rows, true));
        (log.last, log.sealed) = (number, number);
        state.log_bytes += bytes;
        state.dirty = true;
        if let Err(error) = with_keys {
            state.fail("written", &error);
        }
        Sealed::Yes
    }

    /// Where the next changes will be; none while the journal cannot be written.
    pub fn place(&self) -> Option<LogPlace> {
        let state = self.state.lock();
        let place = |log: &Log| LogPlace { number: log.number, records_at: log.records.at, keys_at: log.keys.at };
        state.log.as_ref().map(place)
    }

    /// Flushes the journal for the last time, because the store is being closed.
    pub fn close(&self, number: u64) {
        self.mark_as(number, true);
        let mut state = self.state.lock();
        let flushed = state.log.as_mut().map_or(Ok(()), Log::flush);
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

    /// Writes a base of everything in the index, and unlinks the files that it replaces. `take` takes the snapshot of the
    /// index for it ([`crate::index::Index::snapshot`]), and is given what is to be done between two commits. A base that
    /// fails leaves nothing, and one that would leave fewer than `kept` bytes free on the medium is not begun.
    pub fn tend(&self, kept: u64, take: impl FnOnce(&dyn Fn()) -> Result<Snapshot, StoreError>) -> Result<(), StoreError> {
        let _tending = self.tending.lock();
        let done = self.write_base(kept, take);
        if done.is_err() {
            base::discard(&*self.medium);
        }
        let mut state = self.state.lock();
        state.failed_at = done.is_err().then(Instant::now);
        done
    }

    fn write_base(&self, kept: u64, take: impl FnOnce(&dyn Fn()) -> Result<Snapshot, StoreError>) -> Result<(), StoreError> {
        let failed = |error| io_error(&self.medium.path().join(FOLDER), 0, error);
        // While a transaction is open, there is no commit between the logs.
        let snapshot = take(&|| self.rotate())?;
        let Some(upto) = self.state.lock().log.as_ref().map(|log| log.number - 1) else {
            return Err(failed(io::Error::other("no log can be written")));
        };
        let copied =
            base::check_room(&*self.medium, &snapshot, kept).and_then(|()| base::copy(&*self.medium, &snapshot, self.drive));
        let bytes = copied.map_err(|failure| failure.on(self.medium.path()))?;
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
                let mut writer = Writer::begin(&*self.medium, &file_name(number, account.log()), self.drive, account)?;
                writer.flush()?;
                Ok::<_, io::Error>(writer)
            };
            let log = Log { number, records: begin(Account::Records)?, keys: begin(Account::Keys)?, last: 0, sealed: 0 };
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
        let known = [records.flushed, keys.flushed];
        let ends = |tail: &Tail| tail.whole && tail.number.unwrap_or(0) == commit;
        if ends(&records)
            && ends(&keys)
            && let (Some(records), Some(keys)) = (records.writer, keys.writer)
        {
            let mut writers = [(records, known[0]), (keys, known[1])];
            let secured = writers.iter_mut().try_for_each(|(writer, known)| writer.secure(*known));
            if let Err(error) = secured.and_then(|()| medium.flush_names(FOLDER)).and_then(|()| medium.flush_names("")) {
                tracing::warn!(%error, "the newest log cannot be written; another one is begun");
                return Ok(Ok(state));
            }
            let [(records, _), (keys, _)] = writers;
            let is_there = |number: u64, kind: FileKind| files.contains(&(number, kind));
            state.log_bytes = records.at;
            state.log = Some(Log { number: newest, records, keys, last: commit, sealed: 0 });
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
