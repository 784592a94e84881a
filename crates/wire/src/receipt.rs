//! What of calls' messages has arrived and is not whole yet: counted, and bounded on each connection and in total.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body::{Body as HttpBody, Frame, SizeHint};
use pithead_entry::Peer;
use pithead_model::{Blame, Fault, FaultKind, RECEIVING_BYTES_MAX, RECEIVING_BYTES_PER_CONNECTION_MAX};
use tokio::time::Sleep;
use tonic::Status;
use tonic::body::Body;

use crate::error::to_status;
use crate::receiving::PUT_IDLE_MAX;

/// Bytes before each gRPC message: a flag, and the message's length.
const PREFIX_BYTES: usize = 5;

/// Bytes that all calls of a server hold.
#[derive(Debug, Default)]
pub(crate) struct Received(AtomicU64);

/// A call's body whose bytes are counted for as long as the message that they belong to is not whole.
pub(crate) struct CountedBody {
    body: Body,
    held: CallBytes,
    message: MessageEnds,
    /// How long the caller may pause between messages.
    pause_max: Duration,
    paused: Option<Pin<Box<Sleep>>>,
}

/// Bytes of one call. They are given back when this is dropped.
struct CallBytes {
    bytes: u64,
    received: Arc<Received>,
    peer: Arc<Peer>,
}

/// Follows gRPC's framing to the end of each message.
#[derive(Default)]
struct MessageEnds {
    prefix: [u8; PREFIX_BYTES],
    prefix_bytes: usize,
    missing: u64,
    /// Bytes of the message that is not whole yet.
    begun_bytes: u64,
}

impl CountedBody {
    /// Counts a body. The caller may pause for `pause_max` at a time, and within a message never for longer than a put.
    pub(crate) fn new(body: Body, pause_max: Duration, received: Arc<Received>, peer: Arc<Peer>) -> Self {
        let held = CallBytes { bytes: 0, received, peer };
        Self { body, held, message: MessageEnds::default(), pause_max, paused: None }
    }
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        // More is asked for only once the messages that were whole have been taken.
        this.held.give_back(this.message.begun_bytes);
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) else {
            let is_within = this.message.begun_bytes > 0;
            let pause_max = if is_within { this.pause_max.min(PUT_IDLE_MAX) } else { this.pause_max };
            let paused = this.paused.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause_max)));
            ready!(paused.as_mut().poll(context));
            let message = format!("the caller paused for more than {} s", pause_max.as_secs());
            return Poll::Ready(Some(Err(to_status(&Fault::new(Blame::Limit, message)))));
        };
        this.paused = None;
        let frame = match frame {
            Some(Ok(frame)) => frame,
            other => return Poll::Ready(other),
        };
        if let Some(data) = frame.data_ref() {
            if let Err(fault) = this.held.take(data.len() as u64) {
                return Poll::Ready(Some(Err(to_status(&fault))));
            }
            this.message.pass(data);
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl CallBytes {
    fn take(&mut self, bytes: u64) -> Result<(), Fault> {
        self.bytes += bytes;
        let total = self.received.0.fetch_add(bytes, Ordering::AcqRel) + bytes;
        let here = self.peer.receiving.fetch_add(bytes, Ordering::AcqRel) + bytes;
        let over = |what: &str, max: u64| {
            let message = format!("{what} sends more than {max} bytes of messages at a time, which is the server's limit");
            Err(Fault::new(Blame::Limit, message).of_kind(FaultKind::Memory).hint("try again with fewer loads at a time"))
        };
        if here > RECEIVING_BYTES_PER_CONNECTION_MAX {
            return over("this connection", RECEIVING_BYTES_PER_CONNECTION_MAX);
        }
        if total > RECEIVING_BYTES_MAX {
            return over("all hosts together", RECEIVING_BYTES_MAX);
        }
        Ok(())
    }

    /// Gives back all but the last `keep` bytes.
    fn give_back(&mut self, keep: u64) {
        let bytes = self.bytes.saturating_sub(keep);
        self.bytes -= bytes;
        self.received.0.fetch_sub(bytes, Ordering::AcqRel);
        self.peer.receiving.fetch_sub(bytes, Ordering::AcqRel);
    }
}

impl Drop for CallBytes {
    fn drop(&mut self) {
        self.give_back(0);
    }
}

impl MessageEnds {
    fn pass(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            if self.missing > 0 {
                let some = data.len().min(usize::try_from(self.missing).unwrap_or(usize::MAX));
                data.advance(some);
                self.missing -= some as u64;
                self.begun_bytes += some as u64;
            } else if let (Some(place), Some((first, rest))) = (self.prefix.get_mut(self.prefix_bytes), data.split_first()) {
                *place = *first;
                data = rest;
                self.prefix_bytes += 1;
                self.begun_bytes += 1;
            }
            if self.prefix_bytes == PREFIX_BYTES {
                let [_, length @ ..] = self.prefix;
                self.missing = u64::from(u32::from_be_bytes(length));
                self.prefix_bytes = 0;
            }
            if self.prefix_bytes == 0 && self.missing == 0 {
                self.begun_bytes = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pithead_entry::{ConnectionLimits, Gate};

    use super::*;

    /// The bytes of messages with these lengths.
    fn framed(lengths: &[u32]) -> Vec<u8> {
        let message = |length: &u32| [&[0], &length.to_be_bytes()[..], &vec![7; *length as usize]].concat();
        lengths.iter().flat_map(message).collect()
    }

    #[test]
    fn ends_are_found_however_bytes_are_cut() {
        let bytes = framed(&[0, 3, 0, 70_000, 1]);
        let starts = [0, 5, 13, 18, 70_023, 70_029];
        for cut in [1, 2, 5, 7, 4_096, bytes.len()] {
            let mut message = MessageEnds::default();
            let mut passed = 0;
            for piece in bytes.chunks(cut) {
                message.pass(piece);
                passed += piece.len();
                let start = starts.iter().rev().find(|start| **start <= passed).unwrap();
                assert_eq!(message.begun_bytes, (passed - start) as u64, "after {passed} in pieces of {cut}");
            }
        }
    }

    /// A message that never ends, a MiB a frame.
    struct Endless(Bytes);

    impl HttpBody for Endless {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Ready(Some(Ok(Frame::data(self.0.clone()))))
        }
    }

    /// Says nothing.
    struct Silent;

    impl HttpBody for Silent {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn who_pauses_too_long_is_told_so() {
        let gate = Gate::new(ConnectionLimits::default());
        let peer = Arc::new(Peer::new(gate.enter([10, 0, 0, 1].into()), None, None));
        let mut body = CountedBody::new(Body::new(Silent), Duration::from_millis(20), Arc::default(), peer);
        let status = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await.unwrap().unwrap_err();
        assert!(status.message().contains("paused"), "{status}");
    }

    #[tokio::test]
    async fn what_a_connection_and_all_of_them_hold_is_bounded() {
        let frame = Bytes::from([&[0, 255, 255, 255, 255][..], &vec![0; (1 << 20) - 5]].concat());
        let gate = Gate::new(ConnectionLimits::default());
        let received = Arc::new(Received::default());
        let mut held = Vec::new();
        for connection in 0..5 {
            let peer = Arc::new(Peer::new(gate.enter([10, 0, 0, 1].into()), None, None));
            let mut body = CountedBody::new(Body::new(Endless(frame.clone())), Duration::MAX, Arc::clone(&received), peer);
            let mut frames = 0;
            let refused = loop {
                match std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await.unwrap() {
                    Ok(_) => frames += 1,
                    Err(status) => break status,
                }
            };
            // The frame that is refused is held as well until the body is dropped.
            let expected = if connection < 3 { (256, "this connection") } else { (1_024 - 3 * 257, "all hosts") };
            if connection < 4 {
                assert!(frames == expected.0 && refused.message().contains(expected.1), "{frames}: {}", refused.message());
                assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
            } else {
                assert_eq!(frames, 0);
            }
            held.push(body);
        }
        held.clear();
        assert_eq!(received.0.load(Ordering::Acquire), 0);
    }
}
