//! [`Join`]: one connection that goes through the host, with all who write to it and read from it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use pithead_door::{PortAt, PortInput};
use pithead_model::Fault;
use tokio::sync::mpsc::UnboundedSender;

/// Bytes that may be on their way to each reader, and from each writer.
pub(crate) const WINDOW_BYTES: u64 = 256 << 10;

/// Sends to a drive, and counts. The stream ends with the last of its clones.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    to: UnboundedSender<Result<PortInput, Fault>>,
    sent: Arc<AtomicU64>,
}

impl Sender {
    pub fn new(to: UnboundedSender<Result<PortInput, Fault>>) -> Self {
        Self { to, sent: Arc::default() }
    }

    /// A drive that takes no more has its reasons, which its events tell.
    pub fn send(&self, input: PortInput) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let _ = self.to.send(Ok(input));
    }

    /// Ends the stream as one that was broken off.
    pub fn fail(&self, fault: Fault) {
        let _ = self.to.send(Err(fault));
    }

    /// What was sent until now.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

/// Outputs and inputs that are connected. While the application is built, only they and the host's ends are there.
#[derive(Debug, Default)]
pub(crate) struct Join {
    pub signature: String,
    /// By the numbers of SSDlets in the application.
    pub outputs: Vec<PortAt>,
    pub inputs: Vec<PortAt>,
    /// The pairs of them that were connected.
    pub links: Vec<(PortAt, PortAt)>,
    /// The ends of the host program that read, and those that write.
    pub host_reads: Vec<HostEnd>,
    pub host_writes: Vec<HostEnd>,
    pub queue: VecDeque<Waiting>,
    pub sources: Vec<Source>,
    pub sinks: Vec<Sink>,
    /// Readers of the host program that are there.
    pub readers: usize,
    /// Nobody reads any more.
    pub is_closed: bool,
}

/// An end of the host program, or of another application that it passes batches from or to.
#[derive(Debug)]
pub(crate) struct HostEnd {
    /// How messages name it.
    pub name: String,
    /// The ports that it was connected with.
    pub ports: Vec<PortAt>,
}

/// A batch that nobody had room for.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub source: usize,
    pub bytes: Bytes,
}

/// Who writes.
#[derive(Debug)]
pub(crate) struct Source {
    /// The drive's output; none: the host program.
    pub drive: Option<(Sender, u32)>,
    /// Bytes in the queue.
    pub waiting: u64,
    pub has_ended: bool,
}

/// An input at a drive.
#[derive(Debug)]
pub(crate) struct Sink {
    pub sender: Sender,
    pub port: u32,
    /// Bytes that are on their way there.
    pub waiting: u64,
    /// Whether it may get more.
    pub is_open: bool,
}

impl Join {
    pub fn new(signature: String) -> Self {
        Self { signature, ..Self::default() }
    }

    /// Whether the host program has one of its ends.
    pub fn is_hosts(&self) -> bool {
        !self.host_reads.is_empty() || !self.host_writes.is_empty()
    }

    /// Adds ports, each once.
    pub fn add(&mut self, output: Option<PortAt>, input: Option<PortAt>) {
        if let Some(output) = output.filter(|output| !self.outputs.contains(output)) {
            self.outputs.push(output);
        }
        if let Some(input) = input.filter(|input| !self.inputs.contains(input)) {
            self.inputs.push(input);
        }
    }

    /// All who read and write are there: what was put before goes on.
    pub fn open(&mut self) {
        self.is_closed = false;
        self.close_if_unread();
        self.advance();
    }

    /// Takes a batch of a writer, and passes on what can be. False: nobody reads it.
    pub fn put(&mut self, source: usize, bytes: Bytes) -> bool {
        if self.is_closed {
            return false;
        }
        self.sources[source].waiting += bytes.len() as u64;
        self.queue.push_back(Waiting { source, bytes });
        self.advance();
        true
    }

    /// A writer has ended.
    pub fn end(&mut self, source: usize) {
        self.sources[source].has_ended = true;
        self.advance();
    }

    /// An input at a drive has taken so much.
    pub fn taken(&mut self, sink: usize, bytes: u64) {
        let sink = &mut self.sinks[sink];
        sink.waiting = sink.waiting.saturating_sub(bytes);
        self.advance();
    }

    /// An input at a drive takes no more.
    pub fn unread(&mut self, sink: usize) {
        self.sinks[sink].is_open = false;
        self.close_if_unread();
    }

    /// A reader of the host program is gone.
    pub fn leave(&mut self) {
        self.readers -= 1;
        self.close_if_unread();
    }

    /// The next batch for the host program. The inner None: nothing is there yet.
    pub fn get(&mut self) -> Option<Option<Bytes>> {
        match self.pop() {
            Some(bytes) => Some(Some(bytes)),
            None if self.has_ended() => None,
            None => Some(None),
        }
    }

    /// Whether a writer may put another batch.
    pub fn has_room(&self, source: usize) -> bool {
        self.is_closed || self.sources[source].waiting < WINDOW_BYTES
    }

    /// Passes batches to the inputs that wait for them, each to the one with the least on its way; then the end.
    pub fn advance(&mut self) {
        loop {
            let room = self.sinks.iter().enumerate().filter(|(_, sink)| sink.is_open && sink.waiting < WINDOW_BYTES);
            let Some((chosen, _)) = room.min_by_key(|(_, sink)| sink.waiting) else { break };
            let Some(bytes) = self.pop() else { break };
            let sink = &mut self.sinks[chosen];
            sink.waiting += bytes.len() as u64;
            sink.sender.send(PortInput::Batch { port: sink.port, bytes });
        }
        if self.has_ended() {
            for sink in self.sinks.iter_mut().filter(|sink| sink.is_open) {
                sink.is_open = false;
                sink.sender.send(PortInput::End { port: sink.port });
            }
        }
    }

    /// The first batch of the queue, whose writer gets room for another one.
    fn pop(&mut self) -> Option<Bytes> {
        let Waiting { source, bytes } = self.queue.pop_front()?;
        let (source, length) = (&mut self.sources[source], bytes.len() as u64);
        source.waiting -= length;
        if let Some((sender, port)) = &source.drive {
            sender.send(PortInput::Taken { port: *port, bytes: length });
        }
        Some(bytes)
    }

    fn has_ended(&self) -> bool {
        self.queue.is_empty() && self.sources.iter().all(|source| source.has_ended)
    }

    /// Whether the host program can change something: put more, or take what waits for it.
    pub fn waits_for_host(&self) -> bool {
        let puts = self.sources.iter().any(|source| source.drive.is_none() && !source.has_ended);
        puts || (self.readers > 0 && !self.queue.is_empty())
    }

    fn close_if_unread(&mut self) {
        if self.is_closed || self.readers > 0 || self.sinks.iter().any(|sink| sink.is_open) {
            return;
        }
        self.is_closed = true;
        self.queue.clear();
        for source in self.sources.iter_mut().filter(|source| !source.has_ended) {
            source.waiting = 0;
            if let Some((sender, port)) = &source.drive {
                sender.send(PortInput::Unread { port: *port });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;

    type Receiver = UnboundedReceiver<Result<PortInput, Fault>>;

    /// A connection from a drive's output 7 to inputs 0 and 1 of another one.
    fn joined() -> (Join, Receiver, Receiver) {
        let (from, from_receiver) = unbounded_channel();
        let (to, to_receiver) = unbounded_channel();
        let (from, to) = (Sender::new(from), Sender::new(to));
        let mut join = Join::new("i64".into());
        join.sources = vec![Source { drive: Some((from, 7)), waiting: 0, has_ended: false }];
        join.sinks = (0..2).map(|port| Sink { sender: to.clone(), port, waiting: 0, is_open: true }).collect();
        (join, from_receiver, to_receiver)
    }

    fn all(receiver: &mut Receiver) -> Vec<PortInput> {
        std::iter::from_fn(|| receiver.try_recv().ok()).map(|input| input.unwrap()).collect()
    }

    fn bytes(length: u64) -> Bytes {
        vec![1; length as usize].into()
    }

    #[test]
    fn batches_are_dealt_out_within_windows_and_the_end_follows_them() {
        let (mut join, mut from, mut to) = joined();
        (0..3).for_each(|_| assert!(join.put(0, bytes(WINDOW_BYTES))));
        let batch = |port| PortInput::Batch { port, bytes: bytes(WINDOW_BYTES) };
        assert_eq!(all(&mut to), [batch(0), batch(1)], "both windows are full");
        let taken = PortInput::Taken { port: 7, bytes: WINDOW_BYTES };
        assert_eq!(all(&mut from), [taken.clone(), taken.clone()]);
        assert!(!join.has_room(0));
        join.end(0);
        assert_eq!(all(&mut to), [], "the end waits for the last batch");
        join.taken(1, WINDOW_BYTES);
        assert_eq!(all(&mut to), [batch(1), PortInput::End { port: 0 }, PortInput::End { port: 1 }]);
        assert_eq!(all(&mut from), [taken]);
    }

    #[test]
    fn who_writes_is_told_when_nobody_reads_and_not_before() {
        let (mut join, mut from, mut to) = joined();
        join.unread(0);
        assert!(join.put(0, bytes(1)), "the other input reads");
        assert_eq!(all(&mut to), [PortInput::Batch { port: 1, bytes: bytes(1) }]);
        assert_eq!(all(&mut from), [PortInput::Taken { port: 7, bytes: 1 }]);
        join.unread(1);
        assert_eq!(all(&mut from), [PortInput::Unread { port: 7 }]);
        assert!(!join.put(0, bytes(1)) && join.has_room(0), "what comes is dropped");
        join.end(0);
        assert_eq!(all(&mut to), []);
    }

    #[test]
    fn the_host_program_takes_what_waits_and_then_the_end() {
        let (mut join, mut from, _to) = joined();
        join.sinks.clear();
        join.readers = 1;
        assert!(join.put(0, bytes(3)));
        assert_eq!(join.get(), Some(Some(bytes(3))));
        assert_eq!(all(&mut from), [PortInput::Taken { port: 7, bytes: 3 }]);
        assert_eq!(join.get(), Some(None));
        join.end(0);
        assert_eq!(join.get(), None);
    }
}
