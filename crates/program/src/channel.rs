//! [`Channel`]: the bounded queue of a connection, with one or several writers and readers.

use std::collections::VecDeque;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::Signature;
use crate::budget::{Budget, Held, NoRoom};
use crate::limits::BATCH_BYTES;
use crate::links::Links;

/// A queue of batches. Small batches of rows that wait are joined, so that a value can be sent as soon as it is there.
pub(crate) struct Channel {
    pub signature: Signature,
    bytes_max: usize,
    state: Mutex<ChannelState>,
    moved: Notify,
    /// Whether one of its ends is outside of the application: at a host program, or in another application.
    outside: AtomicBool,
    /// Which of its ends were connected with which.
    pub links: Mutex<Links>,
    /// The connection that this one has become a part of, before anything went through either.
    part_of: OnceLock<Arc<Channel>>,
}

#[derive(Default)]
struct ChannelState {
    queue: VecDeque<Batch>,
    bytes: usize,
    writers: usize,
    readers: usize,
    cut: Option<Arc<str>>,
    schema: Option<SchemaRef>,
}

/// A batch that waits, and its share of the memory of the application that put it.
struct Batch {
    bytes: Vec<u8>,
    held: Held,
}

/// What a reader finds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Got {
    Batch(Vec<u8>),
    /// The next batch has more bytes than the reader has room for.
    Larger(usize),
    /// Nothing is there yet.
    Empty,
    /// All writers have ended.
    End,
    /// A writer was lost, so that what came is not all; a sentence says why.
    Cut(Arc<str>),
}

/// What becomes of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Put {
    Done,
    Full(Vec<u8>),
    /// Nobody reads any more.
    Closed,
}

impl Channel {
    pub fn new(signature: Signature, bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            signature,
            bytes_max,
            state: Mutex::default(),
            moved: Notify::new(),
            outside: AtomicBool::new(false),
            links: Mutex::default(),
            part_of: OnceLock::new(),
        })
    }

    /// The connection, or the one that it has become a part of.
    pub fn whole(self: &Arc<Self>) -> &Arc<Self> {
        let mut whole = self;
        while let Some(larger) = whole.part_of.get() {
            whole = larger;
        }
        whole
    }

    /// Makes another connection a part of this one; both are whole ones. False if one of them is to stay apart.
    pub fn unite(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        if Arc::ptr_eq(self, other) {
            return true;
        }
        if self.links.lock().is_fixed || other.links.lock().is_fixed {
            return false;
        }
        let links = std::mem::take(&mut *other.links.lock());
        self.links.lock().absorb(links);
        if !other.is_inside() {
            self.reach_outside();
        }
        // Those who write to the other one and read it count here from now on.
        let mut theirs = other.state.lock();
        let mut state = self.state.lock();
        state.writers += std::mem::take(&mut theirs.writers);
        state.readers += std::mem::take(&mut theirs.readers);
        state.cut = state.cut.take().or(theirs.cut.take());
        let _ = other.part_of.set(Arc::clone(self));
        true
    }

    /// Changes the state of the whole connection, and wakes who waits for it.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut ChannelState)) {
        loop {
            let whole = self.whole();
            let mut state = whole.state.lock();
            // It may have become a part of another one meanwhile.
            if whole.part_of.get().is_none() {
                change(&mut state);
                drop(state);
                whole.moved.notify_waiters();
                return;
            }
        }
    }

    pub fn reach_outside(&self) {
        self.outside.store(true, Ordering::Relaxed);
    }

    pub fn is_inside(&self) -> bool {
        !self.outside.load(Ordering::Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.state.lock().queue.is_empty()
    }

    /// Checks that a batch is of the connection's type, and returns what is wrong with it.
    pub fn check(&self, batch: &[u8]) -> Result<(), String> {
        match self.signature.checked(batch)? {
            Some(schema) => self.check_schema(&schema),
            None => Ok(()),
        }
    }

    fn check_schema(&self, schema: &SchemaRef) -> Result<(), String> {
        let mut state = self.state.lock();
        match state.schema.get_or_insert_with(|| SchemaRef::clone(schema)) {
            first if first == schema => Ok(()),
            first => Err(format!("its batches are of different schemas: first {first}, now {schema}")),
        }
    }

    /// Takes the next batch if it has at most `bytes_max` bytes.
    pub fn try_get(&self, bytes_max: usize) -> Got {
        let mut state = self.state.lock();
        if let Some(why) = &state.cut {
            return Got::Cut(Arc::clone(why));
        }
        let batch = match state.queue.pop_front() {
            Some(batch) if batch.bytes.len() > bytes_max => {
                let length = batch.bytes.len();
                state.queue.push_front(batch);
                return Got::Larger(length);
            }
            Some(batch) => batch.bytes,
            None if state.writers == 0 => return Got::End,
            None => return Got::Empty,
        };
        state.bytes -= batch.len();
        drop(state);
        self.moved.notify_waiters();
        Got::Batch(batch)
    }

    /// Appends a batch that was checked. While it waits it counts as memory of the application that puts it, whose `budget` this is.
    pub fn try_put(&self, bytes: Vec<u8>, budget: &Arc<Budget>) -> Result<Put, NoRoom> {
        let mut state = self.state.lock();
        if state.readers == 0 || state.cut.is_some() {
            return Ok(Put::Closed);
        }
        let length = bytes.len();
        if !state.has_room(self.bytes_max, length) {
            return Ok(Put::Full(bytes));
        }
        let held = budget.hold(length)?;
        state.bytes += length;
        let joins = self.signature != Signature::Arrow;
        match state.queue.back_mut() {
            Some(last) if joins && last.bytes.len() + length <= BATCH_BYTES && last.held.is_of(budget) => {
                last.bytes.extend_from_slice(&bytes);
                last.held.join(held);
            }
            _ => state.queue.push_back(Batch { bytes, held }),
        }
        drop(state);
        self.moved.notify_waiters();
        Ok(Put::Done)
    }

    /// Waits for a batch of any size, or for the end.
    pub async fn get(&self) -> Got {
        loop {
            let mut moved = pin!(self.moved.notified());
            moved.as_mut().enable();
            match self.try_get(usize::MAX) {
                Got::Empty => moved.await,
                got => return got,
            }
        }
    }

    /// Waits for room, and appends a batch as [`Channel::try_put`] does. False if nobody reads any more.
    pub async fn put(&self, mut batch: Vec<u8>, budget: &Arc<Budget>) -> Result<bool, NoRoom> {
        loop {
            let mut moved = pin!(self.moved.notified());
            moved.as_mut().enable();
            match self.try_put(batch, budget)? {
                Put::Full(back) => batch = back,
                Put::Done => return Ok(true),
                Put::Closed => return Ok(false),
            }
            moved.await;
        }
    }

    /// Waits until one side can go on: a reader because there is a batch or the end, a writer because there is room for
    /// `bytes` or nobody reads.
    pub async fn ready(&self, side: Side) {
        loop {
            let mut moved = pin!(self.moved.notified());
            moved.as_mut().enable();
            if self.is_ready(side) {
                return;
            }
            moved.await;
        }
    }

    pub fn is_ready(&self, side: Side) -> bool {
        let state = self.state.lock();
        state.cut.is_some()
            || match side {
                Side::Read => !state.queue.is_empty() || state.writers == 0,
                Side::Write { bytes } => state.readers == 0 || state.has_room(self.bytes_max, bytes),
            }
    }

    /// Ends the connection early: neither side gets anything more, and readers learn why.
    pub fn cut(&self, why: &Arc<str>) {
        let mut state = self.state.lock();
        // What has come to its end is complete.
        if state.writers > 0 || !state.queue.is_empty() {
            state.cut.get_or_insert_with(|| Arc::clone(why));
            state.clear();
        }
        drop(state);
        self.moved.notify_waiters();
    }
}

impl ChannelState {
    /// One batch of any size fits into an empty queue.
    fn has_room(&self, bytes_max: usize, bytes: usize) -> bool {
        self.queue.is_empty() || self.bytes + bytes <= bytes_max
    }

    /// Drops what nobody will take, and what it holds.
    fn clear(&mut self) {
        self.queue.clear();
        self.bytes = 0;
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("signature", &self.signature).finish_non_exhaustive()
    }
}

/// The side on which somebody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Read,
    Write { bytes: usize },
}

/// The right to read a channel; dropping it says that this reader takes no more.
#[derive(Debug)]
pub(crate) struct Reader(Arc<Channel>);

impl Reader {
    pub fn new(channel: Arc<Channel>) -> Self {
        channel.change(|state| state.readers += 1);
        Self(channel)
    }

    pub fn channel(&self) -> &Arc<Channel> {
        self.0.whole()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.change(|state| {
            state.readers -= 1;
            if state.readers == 0 {
                state.clear();
            }
        });
    }
}

/// The right to write to a channel. [`Writer::finish`] ends its part of the stream; dropping it before cuts the stream.
#[derive(Debug)]
pub(crate) struct Writer {
    channel: Arc<Channel>,
    finished: bool,
}

impl Writer {
    pub fn new(channel: Arc<Channel>) -> Self {
        channel.change(|state| state.writers += 1);
        Self { channel, finished: false }
    }

    pub fn channel(&self) -> &Arc<Channel> {
        self.channel.whole()
    }

    pub fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.finished {
            self.channel().cut(&Arc::from("the stream was cut off: an SSDlet that writes to it was lost"));
        }
        self.channel.change(|state| state.writers -= 1);
    }
}
