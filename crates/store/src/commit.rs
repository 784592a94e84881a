//! Commits of several writers at the same time are made together.
//!
//! A writer puts its batch into the queue. The first writer in the queue becomes the leader: it takes the batches that
//! are there, commits them in one transaction of the index, tells each writer the outcome of its batch, and hands the
//! lead on. Meanwhile other writers write their large values and queue up.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::StoreError;
use crate::core::Core;
use crate::index::{Batch, Committed, Depth};
use crate::segments::{Extent, Pinned};

/// The most batches in one commit.
const GROUP_BATCHES_MAX: usize = 1_024;
/// A group takes no more batches once it has this many bytes for the index.
const GROUP_BYTES_MAX: u64 = 16 << 20;
/// The longest wait for a commit.
const COMMIT_WAIT: Duration = Duration::from_secs(300);
/// The most bytes that are not durable in the index. When there are more, a write makes everything durable there,
/// whatever durability it asks for. It bounds how long an open takes after an unclean end.
const UNFLUSHED_BYTES_MAX: u64 = 64 << 20;

/// A batch on its way into the index.
#[derive(Debug)]
pub(crate) struct Request {
    pub batch: Batch,
    /// Its large values.
    pub pinned: Pinned,
    pub depth: Depth,
}

/// Batches that wait for their commit.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    inner: Mutex<Waiting>,
    /// Held while a group is committed, and by whoever needs that none is.
    making: Mutex<()>,
    /// Large values that commits without a flush have named.
    written_back: Mutex<Vec<Extent>>,
}

#[derive(Debug, Default)]
struct Waiting {
    requests: VecDeque<(Request, Arc<Ticket>)>,
    led: bool,
}

#[derive(Debug, Default)]
struct Ticket {
    state: Mutex<CommitState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
enum CommitState {
    #[default]
    Waits,
    Leads,
    Done(Result<(), StoreError>),
}

impl Queue {
    /// Commits the request together with others.
    pub fn commit(&self, core: &Core, request: Request) -> Result<(), StoreError> {
        let ticket = Arc::new(Ticket::default());
        let leads = {
            let mut waiting = self.inner.lock();
            waiting.requests.push_back((request, ticket.clone()));
            !std::mem::replace(&mut waiting.led, true)
        };
        if !leads && !self.wait(core, &ticket)? {
            return ticket.take();
        }
        let _lead = Lead { queue: self };
        // The leader's own request may be behind others: it leads until its request is done.
        while ticket.is_open() {
            let group = self.take();
            self.commit_group(core, group);
        }
        ticket.take()
    }

    /// Waits for an answer; true if the caller is to lead instead.
    fn wait(&self, core: &Core, ticket: &Arc<Ticket>) -> Result<bool, StoreError> {
        if let Some(leads) = ticket.wait() {
            return Ok(leads);
        }
        let mut waiting = self.inner.lock();
        match waiting.requests.iter().position(|(_, other)| Arc::ptr_eq(other, ticket)) {
            Some(at) if !ticket.leads() => {
                waiting.requests.remove(at);
                Err(core.index_error("commits take too long; nothing was written"))
            }
            Some(_) => Ok(true),
            None if !ticket.is_open() => Ok(false),
            None => Err(core.index_error("a commit takes too long; whether it was made is not known")),
        }
    }

    fn take(&self) -> Vec<(Request, Arc<Ticket>)> {
        let mut waiting = self.inner.lock();
        let mut bytes = 0;
        let mut count = 0;
        for (request, _) in waiting.requests.iter().take(GROUP_BATCHES_MAX) {
            if bytes >= GROUP_BYTES_MAX {
                break;
            }
            count += 1;
            bytes += request.batch.iter().map(crate::index::Change::index_bytes).sum::<u64>();
        }
        waiting.requests.drain(..count).collect()
    }

    /// Runs a piece of work while no commit is made.
    pub fn alone<T>(&self, work: impl FnOnce() -> T) -> T {
        let _making = self.making.lock();
        work()
    }

    /// Runs a piece of work that makes all commits durable, while none is made. What the index shows may become durable
    /// only after the large values that it names, so these are flushed first.
    pub fn alone_and_flushed<T>(&self, core: &Core, work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.alone(|| self.flush_written_back(core).and_then(|()| work()))
    }

    /// Flushes large values that commits without a flush have named, so that less is left for [`Queue::alone_and_flushed`]. A flush
    /// that fails will fail there again.
    pub fn flush_ahead(&self, core: &Core) {
        let extents = self.written_back.lock().clone();
        if let Err(error) = core.segments.flush(&extents) {
            tracing::debug!(%error, "large values cannot be flushed");
        }
    }

    fn commit_group(&self, core: &Core, group: Vec<(Request, Arc<Ticket>)>) {
        let _making = self.making.lock();
        if let Err(error) = core.refresh() {
            tracing::error!(%error, "the account of segments cannot be read");
        }
        let over = core.index.unflushed_bytes().is_some_and(|bytes| bytes > UNFLUSHED_BYTES_MAX);
        let depth = group.iter().map(|(request, _)| request.depth).max().unwrap_or(Depth::Back);
        let depth = if over { Depth::Indexed } else { depth };
        let mut group: VecDeque<_> = group.into_iter().map(|(request, ticket)| Answered { core, request, ticket }).collect();
        if depth > Depth::Back {
            if let Err(error) = self.flush_written_back(core) {
                // Later batches must not be durable without the earlier ones.
                let error = copy_of(&error);
                group.into_iter().for_each(|answered| answered.fail(&error));
                return;
            }
            group.retain(|answered| {
                let flushed = core.segments.flush(answered.request.pinned.extents());
                flushed.is_ok() || answered.ticket.answer(flushed)
            });
        }
        let batches = group.iter_mut().map(|answered| std::mem::take(&mut answered.request.batch)).collect();
        let alone = group.len() == 1;
        match core.index.commit(batches, depth) {
            Ok(committed) => self.answer(core, group, committed, depth),
            Err((error, _)) if alone => {
                core.reload_or_later();
                group.into_iter().for_each(|answered| answered.fail(&error));
            }
            // One of the batches is to blame. The others must not fail with it. If whether they were made is not known,
            // they may not be there to be tried again.
            Err((_, batches)) => {
                core.reload_or_later();
                for (answered, batch) in group.into_iter().zip(batches) {
                    match core.index.commit(vec![batch], depth) {
                        Ok(committed) => self.answer(core, VecDeque::from([answered]), committed, depth),
                        Err((error, _)) => answered.fail(&error),
                    }
                }
            }
        }
    }

    fn answer(&self, core: &Core, group: VecDeque<Answered>, committed: Committed, depth: Depth) {
        core.segments.settle(&committed.placed, &committed.dead);
        for (answered, outcome) in group.into_iter().zip(committed.outcomes) {
            if depth == Depth::Back && outcome.is_ok() {
                self.written_back.lock().extend(answered.request.pinned.extents().iter().cloned());
            }
            answered.ticket.answer(outcome);
        }
        core.committed(&committed.dead, &committed.unshared, if committed.indexed { Depth::Indexed } else { depth });
    }

    /// Makes the large values durable that earlier commits have named. If that fails, those commits are given up.
    fn flush_written_back(&self, core: &Core) -> Result<(), StoreError> {
        let extents = std::mem::take(&mut *self.written_back.lock());
        let flushed = core.segments.flush(&extents);
        if let Err(error) = &flushed {
            tracing::error!(%error, "writes that were written back are lost");
            core.index.give_up_unflushed(&error.to_string());
            core.reload_or_later();
        }
        flushed
    }
}

/// Hands the lead on when it is dropped.
struct Lead<'a> {
    queue: &'a Queue,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut waiting = self.queue.inner.lock();
        match waiting.requests.front() {
            Some((_, ticket)) => ticket.set(CommitState::Leads),
            None => waiting.led = false,
        }
    }
}

/// A request that has been answered at the latest when this is dropped.
struct Answered<'a> {
    core: &'a Core,
    request: Request,
    ticket: Arc<Ticket>,
}

impl Answered<'_> {
    fn fail(self, error: &StoreError) {
        self.ticket.answer(Err(copy_of(error)));
    }
}

impl Drop for Answered<'_> {
    fn drop(&mut self) {
        if self.ticket.is_open() {
            self.ticket.answer(Err(self.core.index_error("the commit was broken off; whether it was made is not known")));
        }
    }
}

impl Ticket {
    /// Waits for an answer (false), or to lead (true); none after too long a time.
    fn wait(&self) -> Option<bool> {
        let mut state = self.state.lock();
        while matches!(*state, CommitState::Waits) {
            if self.changed.wait_for(&mut state, COMMIT_WAIT).timed_out() && matches!(*state, CommitState::Waits) {
                return None;
            }
        }
        Some(matches!(*state, CommitState::Leads))
    }

    fn leads(&self) -> bool {
        matches!(*self.state.lock(), CommitState::Leads)
    }

    fn is_open(&self) -> bool {
        !matches!(*self.state.lock(), CommitState::Done(_))
    }

    /// Always false, for use in conditions.
    fn answer(&self, outcome: Result<(), StoreError>) -> bool {
        self.set(CommitState::Done(outcome));
        false
    }

    fn set(&self, to: CommitState) {
        *self.state.lock() = to;
        self.changed.notify_all();
    }

    fn take(&self) -> Result<(), StoreError> {
        match std::mem::take(&mut *self.state.lock()) {
            CommitState::Done(outcome) => outcome,
            CommitState::Waits | CommitState::Leads => Ok(()),
        }
    }
}

/// An error that several callers receive.
fn copy_of(error: &StoreError) -> StoreError {
    match error {
        StoreError::Conflict { key } => StoreError::Conflict { key: key.clone() },
        StoreError::NoSpace { path, needed } => StoreError::NoSpace { path: path.clone(), needed: *needed },
        StoreError::Corrupt { key, what } => StoreError::Corrupt { key: key.clone(), what: what.clone() },
        StoreError::Damaged { path, what } => StoreError::Damaged { path: path.clone(), what: what.clone() },
        StoreError::InUse { path } => StoreError::InUse { path: path.clone() },
        StoreError::Format { path, found, newest } => {
            StoreError::Format { path: path.clone(), found: found.clone(), newest: *newest }
        }
        StoreError::TooLarge(what) => StoreError::TooLarge(what.clone()),
        StoreError::Io { path, source } => {
            let source = std::io::Error::new(source.kind(), source.to_string());
            StoreError::Io { path: path.clone(), source }
        }
        StoreError::Index { path, what } => StoreError::Index { path: path.clone(), what: what.clone() },
    }
}
