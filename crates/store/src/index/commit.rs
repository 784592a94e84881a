//! A commit, and how far it is durable.
//!
//! A durable commit writes its changes to the journal's log and flushes that. This is the commit point: from then on
//! the index shows the commit, or nothing. The index itself is made durable later, for many commits at once. It names
//! the log, and from where on it may have more than the index, so that an open after an unclean end knows what to apply.
//! Where there is no log that the index names, a commit is durable by the index.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use redb::WriteTransaction;

use super::apply::{self, Batch, Committed};
use super::index_file::set_durability;
use super::{COMMIT, FACTS, Failure, Index, LOG, LOG_AT, LOG_KEYS_AT, caught};
use crate::StoreError;
use crate::journal::{LogPlace, Row, Sealed, Unindexed, unindexed};

/// How far a commit is to be durable when it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    /// Not yet.
    Back,
    /// By the log, or by the index if there is no log.
    Logged,
    /// By the index.
    Indexed,
}

/// What the journal did with a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The commit is to be made without a flush, or by a flush of the index.
    Index { durable: bool },
    /// The commit is durable.
    Log,
    /// The log failed and may have the commit. It must be made durable by the index, since it may come back.
    Unclear,
}

/// What was committed since the last commit that is durable in the index; it is repeated if the file must be opened
/// again.
#[derive(Debug, Default)]
pub(super) struct Unflushed {
    pub commits: Vec<Made>,
    /// Of all of them.
    bytes: u64,
    /// The last of them that is durable by the log, or may be.
    logged: u64,
    /// Why commits without a flush had to be given up, until a caller was told.
    lost: Option<String>,
}

/// A commit that was made.
#[derive(Debug)]
pub(super) struct Made {
    pub number: u64,
    pub batches: Vec<Batch>,
    bytes: u64,
}

/// An error, and the batches if they were not committed.
type Refused = (StoreError, Vec<Batch>);

impl Index {
    /// Applies each batch whole or not at all, in one commit. A batch in conflict fails alone. After an error nothing
    /// was applied, unless the error says that this is not known; it has no batches then.
    pub fn commit(&self, batches: Vec<Batch>, depth: Depth) -> Result<Committed, Refused> {
        let (way, number) = (Cell::new(Way::Index { durable: false }), Cell::new(0));
        let tried = self.run_write(|opened| {
            let mut transaction = opened.database.begin_write()?;
            let mut committed = apply::apply(&transaction, &batches)?;
            let rows = std::mem::take(&mut committed.rows);
            number.set(committed.number);
            way.set(self.log(committed.number, &rows, depth));
            let durable = !matches!(way.get(), Way::Log | Way::Index { durable: false });
            let log = if durable { self.name_log(&transaction)? } else { 0 };
            set_durability(&mut transaction, durable)?;
            // After this point an error does not show whether the commit is on the medium.
            let done = caught(|| Ok(transaction.commit()?));
            Ok((committed, log, done))
        });
        match (tried, way.get()) {
            (Ok((committed, log, Ok(()))), way) => Ok(self.committed(committed, batches, way, log)),
            (Ok((committed, _, Err(failure))), Way::Index { durable }) => self.resolve(committed, failure, batches, durable),
            (Err(error), Way::Index { .. }) => Err((error, batches)),
            (Ok((committed, _, Err(failure))), way) => {
                let error = self.broken(failure);
                self.insist(Some(committed), number.get(), error, batches, way)
            }
            (Err(error), way) => self.insist(None, number.get(), error, batches, way),
        }
    }

    /// Writes the changes to the journal.
    fn log(&self, number: u64, rows: &[Row], depth: Depth) -> Way {
        let in_index = Way::Index { durable: depth != Depth::Back };
        let Some(journal) = self.journal.get() else { return in_index };
        let log = self.logging.load(Ordering::Acquire);
        if depth == Depth::Logged && log != 0 {
            match journal.seal(log, number, rows) {
                Sealed::Yes => return Way::Log,
                Sealed::Perhaps => return Way::Unclear,
                Sealed::No => {}
            }
        }
        journal.append(number, rows);
        in_index
    }

    /// Names the log that receives the next changes, as a part of a durable commit. Returns its number, 0 if there is
    /// none.
    pub(super) fn name_log(&self, transaction: &WriteTransaction) -> Result<u64, Failure> {
        let Some(journal) = self.journal.get() else { return Ok(0) };
        let place = journal.place().unwrap_or(LogPlace { number: 0, records_at: 0, keys_at: 0 });
        let mut facts = transaction.open_table(FACTS)?;
        for (name, value) in [(LOG, place.number), (LOG_AT, place.records_at), (LOG_KEYS_AT, place.keys_at)] {
            facts.insert(name, value)?;
        }
        Ok(place.number)
    }

    /// Notes a commit that was made.
    fn committed(&self, mut committed: Committed, batches: Vec<Batch>, way: Way, log: u64) -> Committed {
        let mut unflushed = self.unflushed.lock();
        committed.indexed = !matches!(way, Way::Log | Way::Index { durable: false });
        if committed.indexed {
            (unflushed.commits, unflushed.bytes) = (Vec::new(), 0);
            self.durable.fetch_max(committed.number, Ordering::AcqRel);
            self.logging.store(log, Ordering::Release);
        } else {
            unflushed.add(committed.number, committed.bytes, won(batches, &committed), way == Way::Log);
        }
        committed
    }

    /// Finds out whether a commit was made that only the index can have.
    fn resolve(
        &self,
        committed: Committed,
        failure: Failure,
        batches: Vec<Batch>,
        durable: bool,
    ) -> Result<Committed, Refused> {
        let (number, error) = (committed.number, self.broken(failure));
        let settled = match self.fact(COMMIT) {
            Ok(Some(last)) if last >= number && durable => self.settle(),
            Ok(Some(last)) if last >= number => Ok(()),
            Ok(_) => return Err((error, batches)),
            Err(error) => Err(error),
        };
        match settled {
            Ok(()) => Ok(self.committed(committed, batches, Way::Index { durable }, 0)),
            Err(error) => Err((self.not_known(&error), Vec::new())),
        }
    }

    /// Makes a commit in the index that the log has, or may have: it may come back after a crash, so it must be shown.
    fn insist(
        &self,
        committed: Option<Committed>,
        number: u64,
        error: StoreError,
        batches: Vec<Batch>,
        way: Way,
    ) -> Result<Committed, Refused> {
        self.close();
        let (bytes, batches) = match &committed {
            Some(committed) => (committed.bytes, won(batches, committed)),
            None => (0, batches),
        };
        self.unflushed.lock().add(number, bytes, batches, true);
        let made = match self.fact(COMMIT) {
            Ok(Some(last)) if last >= number && way == Way::Unclear => self.settle().map(|()| true),
            Ok(last) => Ok(last >= Some(number)),
            Err(error) => Err(error),
        };
        match (made, committed) {
            (Ok(true), Some(committed)) => Ok(committed),
            (Ok(_), _) => Err((self.not_known(&error), Vec::new())),
            (Err(error), _) => Err((self.not_known(&error), Vec::new())),
        }
    }

    /// Whatever the cause is, the error must not be called a lack of space, which would mean that nothing has changed.
    fn not_known(&self, error: &StoreError) -> StoreError {
        let what = format!("whether a commit was made is not known: {error}");
        StoreError::Index { path: self.medium.path().to_path_buf(), what }
    }

    /// After a commit has failed. redb's memory may be half changed after a panic.
    fn broken(&self, failure: Failure) -> StoreError {
        if matches!(failure, Failure::Panicked) {
            self.close();
        }
        self.failed(failure)
    }

    /// The bytes that were committed and are not durable in the index; none if there is nothing to flush.
    pub fn unflushed_bytes(&self) -> Option<u64> {
        let unflushed = self.unflushed.lock();
        (!unflushed.commits.is_empty()).then_some(unflushed.bytes)
    }

    /// The number of batches that are kept to be repeated.
    #[cfg(test)]
    pub fn kept_for_test(&self) -> usize {
        self.unflushed.lock().commits.iter().map(|made| made.batches.len()).sum()
    }

    /// Gives up what was committed without a flush, because its large values are lost. What is durable by the log stays.
    pub fn give_up_unflushed(&self, why: &str) {
        let mut open = self.open.write();
        if let Some(opened) = open.take() {
            opened.shut();
        }
        self.unflushed.lock().give_up(why);
    }

    /// Why commits without a flush were given up. It is returned only once.
    pub fn take_lost(&self) -> Option<String> {
        self.unflushed.lock().lost.take()
    }

    /// Notes durably that no log has more than the index, which must be durable.
    pub fn end_log(&self) -> Result<(), StoreError> {
        self.logging.store(0, Ordering::Release);
        if self.fact(LOG)?.unwrap_or(0) != 0 { self.set_fact(LOG, 0) } else { Ok(()) }
    }

    /// What the log has and the index lacks, if the store was not closed.
    pub fn unindexed(&self) -> Result<Option<Unindexed>, StoreError> {
        let number = self.fact(LOG)?.unwrap_or(0);
        if number == 0 {
            return Ok(None);
        }
        let fact = |name| Ok::<_, StoreError>(self.fact(name)?.unwrap_or(0));
        let place = LogPlace { number, records_at: fact(LOG_AT)?, keys_at: fact(LOG_KEYS_AT)? };
        let read = unindexed(&*self.medium, place, fact(COMMIT)?);
        read.map(Some).map_err(|error| crate::format::io_error(&self.medium.path().join(crate::journal::FOLDER), 0, error))
    }

    /// Applies changes that the log has, up to a commit, durably. Then no log has more than the index.
    pub fn take_rows(&self, rows: &[Row], commit: u64) -> Result<(), StoreError> {
        self.change(|transaction| apply::take(transaction, rows, commit))
    }
}

/// The batches that were applied: what is kept to be repeated has no bytes that are not counted.
fn won(batches: Vec<Batch>, committed: &Committed) -> Vec<Batch> {
    batches.into_iter().zip(&committed.outcomes).filter(|(_, outcome)| outcome.is_ok()).map(|(batch, _)| batch).collect()
}

impl Unflushed {
    /// All commits up to this one are durable in the index.
    pub fn are_durable(&mut self, number: u64) {
        self.keep(|made| made.number > number);
    }

    fn keep(&mut self, which: impl FnMut(&Made) -> bool) {
        self.commits.retain(which);
        self.bytes = self.commits.iter().map(|made| made.bytes).sum();
    }

    fn add(&mut self, number: u64, bytes: u64, batches: Vec<Batch>, logged: bool) {
        self.bytes += bytes;
        self.commits.push(Made { number, batches, bytes });
        if logged {
            self.logged = number;
        }
    }

    /// Gives up what is not durable by the log. Returns whether there was any.
    pub fn give_up(&mut self, why: &str) -> bool {
        let before = self.commits.len();
        let logged = self.logged;
        self.keep(|made| made.number <= logged);
        if self.commits.len() == before {
            return false;
        }
        self.lost = Some(why.to_string());
        true
    }
}
