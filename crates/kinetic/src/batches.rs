//! [`Batches`]: the open batches of one connection. They end with it.

use std::collections::HashMap;
use std::sync::Arc;

use pithead_store::{Durability, Expected, Key, Store, StoreError, Version, Write};

use crate::batch_room::HeldBytes;
use crate::code::{Code, Failure, OTHER_VERSION, RequestKind};
use crate::execute::{Answer, Call};
use crate::identity::Identity;
use crate::limits::Limits;
use crate::proto::{Batch, Body};
use crate::service::Service;
use crate::values::{delete_of, put_of};

/// The open batches of one connection.
#[derive(Debug)]
pub(crate) struct Batches {
    service: Arc<Service>,
    open: HashMap<u32, Open>,
}

/// A batch to which commands are added. They are checked as they come, and done at its end.
#[derive(Debug, Default)]
struct Open {
    writes: Vec<Write>,
    /// One more than a batch may have at most, so that the first that is over the limit is named, too.
    sequences: Vec<i64>,
    /// Of each write.
    held: Vec<HeldBytes>,
    failed: Option<Failed>,
    /// The count of [`Erasures`](crate::erasures::Erasures) when it was opened.
    opened: u64,
}

/// The first command of a batch that cannot be done, one of those that came, and why. None: none came.
type Failed = (Option<i64>, Failure);

/// A batch that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    writes: Vec<Write>,
    sequences: Vec<i64>,
    /// Until the writes are done.
    held: Vec<HeldBytes>,
    failed: Option<Failed>,
    opened: u64,
}

impl Batches {
    pub fn new(service: Arc<Service>) -> Batches {
        Batches { service, open: HashMap::new() }
    }

    pub fn has(&self, id: u32) -> bool {
        self.open.contains_key(&id)
    }

    pub fn start(&mut self, id: Option<u32>) -> Result<Answer, Failure> {
        let id = id.ok_or_else(|| Failure::invalid("START_BATCH names a batch"))?;
        let most = self.service.options.limits.batches;
        if self.has(id) {
            return Err(Failure::invalid(format!("batch {id} is open already")));
        }
        if self.open.len() >= most {
            return Err(Failure::invalid(format!("{most} batches are open, which is the limit")));
        }
        self.open.insert(id, Open { opened: self.service.erasures.count(), ..Open::default() });
        Ok(Answer::success())
    }

    /// Adds a command to an open batch. Whatever is wrong with it is told at the end of the batch.
    pub fn add(&mut self, id: u32, call: &Call, checked: Result<(), Failure>) {
        let limits = self.service.options.limits;
        let Some(open) = self.open.get_mut(&id) else { return };
        let sequence = call.header.sequence.unwrap_or(0);
        let over = open.sequences.len() >= limits.batch_commands;
        open.note(sequence, &limits);
        if over {
            let what = format!("a batch has at most {} commands", limits.batch_commands);
            open.fail(sequence, Failure::invalid(what));
            return;
        }
        let write = checked.and_then(|()| match call.kind {
            RequestKind::Put => put_of(call, &limits),
            _ => delete_of(call, &limits),
        });
        match write {
            Err(failure) => open.fail(sequence, Failure::new(Code::InvalidBatch, failure.to_string())),
            Ok(_) if open.failed.is_some() => {}
            Ok((write, _)) => {
                let holder = (call.identity.number, call.link.peer);
                match self.service.batch_room.take(holder, call.value.len() as u64) {
                    Some(held) => {
                        open.held.push(held);
                        open.writes.push(write);
                    }
                    None => open.fail(sequence, no_room()),
                }
            }
        }
    }

    /// Notes that something else than a PUT or DELETE was sent in a batch.
    pub fn spoil(&mut self, id: u32, sequence: i64) {
        if let Some(open) = self.open.get_mut(&id) {
            open.note(sequence, &self.service.options.limits);
            open.fail(sequence, Failure::new(Code::InvalidBatch, "a batch has PUT and DELETE only"));
        }
    }

    /// Takes a batch away, to be done. None: there is no such batch.
    pub fn end(&mut self, id: u32, count: Option<i32>) -> Option<Ended> {
        let mut open = self.open.remove(&id)?;
        let expected = count.and_then(|count| usize::try_from(count).ok());
        if open.failed.is_none() && count.is_some() && expected != Some(open.sequences.len()) {
            let what = format!("the client sent {} commands, and {} came", count.unwrap_or(0), open.sequences.len());
            let last = open.sequences.last().copied();
            open.failed = Some((last, Failure::new(Code::InvalidBatch, what)));
        }
        let Open { writes, sequences, held, failed, opened } = open;
        Some(Ended { writes, sequences, held, failed, opened })
    }

    /// Forgets a batch. False: there is no such batch.
    pub fn abort(&mut self, id: u32) -> bool {
        self.open.remove(&id).is_some()
    }
}

impl Open {
    /// Notes a command that came. The list does not grow with what is over the limit.
    fn note(&mut self, sequence: i64, limits: &Limits) {
        if self.sequences.len() <= limits.batch_commands {
            self.sequences.push(sequence);
        }
    }

    /// The first failure counts. What was held is not needed any more.
    fn fail(&mut self, sequence: i64, failure: Failure) {
        self.failed.get_or_insert((Some(sequence), failure));
        self.writes.clear();
        self.held.clear();
    }
}

fn no_room() -> Failure {
    Failure::new(Code::ServiceBusy, "this client's open batches have as many bytes as there is room for now; try again later")
}

impl Ended {
    /// Does all commands, durably, or none.
    pub fn commit(self, service: &Service, identity: &Arc<Identity>) -> Answer {
        let Ended { writes, sequences, held: _held, failed, opened } = self;
        if let Some((sequence, failure)) = failed {
            return answer(sequences, sequence, failure.into());
        }
        let store = &*service.store;
        let write = || service.check_known(identity).map(|()| store.write(writes.clone(), Durability::Through));
        let Some(written) = service.erasures.commit(opened, write) else {
            let failure = Failure::new(Code::InvalidBatch, "all keys were erased since the batch was opened");
            let first = sequences.first().copied();
            return answer(sequences, first, failure.into());
        };
        let written = match written {
            Ok(written) => written,
            Err(refused) => return answer(sequences, None, refused.into()),
        };
        match written {
            Ok(()) => answer(sequences, None, Answer::success()),
            Err(StoreError::Conflict { .. }) => {
                let first = first_conflict(store, &writes).and_then(|index| sequences.get(index).copied());
                let failed = first.or_else(|| sequences.first().copied());
                answer(sequences, failed, Failure::new(Code::InvalidBatch, OTHER_VERSION).into())
            }
            Err(error) => answer(sequences, None, Failure::from(error).into()),
        }
    }
}

fn answer(sequence: Vec<i64>, failed_sequence: Option<i64>, answer: Answer) -> Answer {
    let batch = Batch { count: None, sequence, failed_sequence };
    Answer { body: Some(Body { batch: Some(batch), ..Body::default() }), ..answer }
}

/// The first write whose condition does not hold, each write seeing those before it. None if somebody else has changed the keys
/// meanwhile, so that all would hold now.
fn first_conflict(store: &dyn Store, writes: &[Write]) -> Option<usize> {
    let mut seen: HashMap<&Key, Option<Version>> = HashMap::new();
    writes.iter().position(|write| {
        let stored = || store.entry(write.key()).ok().flatten().map(|entry| entry.version);
        let before = seen.get(write.key()).cloned().unwrap_or_else(stored);
        let (expected, after) = match write {
            Write::Put(put) => (&put.expected, Some(put.version.clone())),
            Write::Delete { expected, .. } => (expected, None),
            // No client's batch has one.
            Write::Copy { .. } => (&Expected::Any, Some(Version::new())),
        };
        seen.insert(write.key(), after);
        match expected {
            Expected::Any => false,
            Expected::Absent => before.is_some(),
            Expected::Version(version) => before.as_ref() != Some(version),
            Expected::Unversioned => before.is_some_and(|version| !version.is_empty()),
        }
    })
}
