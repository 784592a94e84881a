//! [`Queue`]: a session's events on their way to its host, bounded in number and in bytes.
//!
//! Tasks put events in and wait while it is full. Who ends the session empties it at once, also while nobody pulls: a host that has
//! stopped reading keeps no rows in the drive's memory.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use pithead_door::Event;
use pithead_model::{Blame, Fault};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Events that wait for the host at most.
pub(crate) const EVENTS_MAX: usize = 8;
/// Kibibytes of rows that wait for the host at most. A single batch may be larger; it waits alone.
const ROOM_KIB: u32 = 32 << 10;

/// An event, and the room that it takes until it is pulled.
type Queued = (Event, Option<OwnedSemaphorePermit>);

/// The side of the tasks. The host sees the queue's end when all of these are gone.
#[derive(Clone, Debug)]
pub(crate) struct EventSender {
    events: mpsc::Sender<Queued>,
    room: Arc<Semaphore>,
}

/// The side of the host.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    events: Mutex<Option<mpsc::Receiver<Queued>>>,
    /// Who pulls, for the end that [`Queue::end`] brings.
    waker: AtomicWaker,
}

impl Queue {
    /// Opens the queue for the tasks of its session.
    pub(crate) fn open(&self) -> EventSender {
        let (sender, receiver) = mpsc::channel(EVENTS_MAX);
        *self.events.lock() = Some(receiver);
        EventSender { events: sender, room: Arc::new(Semaphore::new(ROOM_KIB as usize)) }
    }

    /// The next event; none at the end.
    pub(crate) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.waker.register(context.waker());
        match &mut *self.events.lock() {
            Some(events) => events.poll_recv(context).map(|queued| queued.map(|(event, _room)| event)),
            None => Poll::Ready(None),
        }
    }

    /// Drops what waits. Nothing comes any more.
    pub(crate) fn end(&self) {
        drop(self.events.lock().take());
        self.waker.wake();
    }
}

impl EventSender {
    /// Waits while the queue is full: the host sets the pace. `bytes` of rows are in the event.
    pub(crate) async fn send(&self, event: Event, bytes: u64) -> Result<(), Fault> {
        let gone = || Fault::new(Blame::Cancelled, "the host dropped the session's rows");
        let room = match kibibytes(bytes) {
            0 => None,
            kibibytes => Some(Arc::clone(&self.room).acquire_many_owned(kibibytes).await.map_err(|_| gone())?),
        };
        self.events.send((event, room)).await.map_err(|_| gone())
    }

    /// Bytes of rows that wait for the host.
    pub(crate) fn queued_bytes(&self) -> u64 {
        (ROOM_KIB as usize).saturating_sub(self.room.available_permits()) as u64 * 1024
    }

    /// Whether there is room for an event of so many bytes at this moment.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.events.capacity() > 0 && self.room.available_permits() >= kibibytes(bytes) as usize
    }
}

fn kibibytes(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).min(ROOM_KIB)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use pithead_model::{SessionProfile, SessionState};

    use super::*;

    fn event() -> Event {
        let profile = SessionProfile {
            state: SessionState::Running,
            rounds: 0,
            slices_total: 0,
            slices_done: 0,
            memory_peak: 0,
            spilled_bytes: 0,
            other_rows_in: 0,
            other_medium_bytes: 0,
            predicted: None,
            link_bytes_per_s: None,
            settled: None,
            calls: vec![],
        };
        Event::Finished { profile, link_bytes: 0 }
    }

    async fn pull(queue: &Queue) -> Option<Event> {
        poll_fn(|context| queue.poll_next(context)).await
    }

    async fn waits(send: impl Future<Output = Result<(), Fault>>) -> bool {
        tokio::time::timeout(Duration::from_millis(20), send).await.is_err()
    }

    #[tokio::test]
    async fn bytes_are_bounded_and_a_large_batch_waits_alone() {
        let queue = Queue::default();
        let sender = queue.open();
        sender.send(event(), 30 << 20).await.unwrap();
        assert!(sender.has_room(1 << 20) && !sender.has_room(3 << 20));
        assert!(waits(sender.send(event(), 3 << 20)).await);
        sender.send(event(), 0).await.unwrap();
        assert!(pull(&queue).await.is_some());
        sender.send(event(), u64::MAX).await.unwrap();
        assert!(waits(sender.send(event(), 1)).await);
        assert!(pull(&queue).await.is_some() && pull(&queue).await.is_some());
        sender.send(event(), 1).await.unwrap();
    }

    #[tokio::test]
    async fn who_ends_it_empties_it_and_wakes_both_sides() {
        let queue = Arc::new(Queue::default());
        let sender = queue.open();
        for _ in 0..EVENTS_MAX {
            sender.send(event(), 1).await.unwrap();
        }
        let stuck = tokio::spawn({
            let sender = sender.clone();
            async move { sender.send(event(), 1).await }
        });
        tokio::time::sleep(Duration::from_millis(10)).await;
        queue.end();
        assert_eq!(stuck.await.unwrap().unwrap_err().blame, Blame::Cancelled);
        assert!(pull(&queue).await.is_none());
        // A reader that waits for an event hears of the end as well, though a sender is left.
        let queue = Arc::new(Queue::default());
        let _sender = queue.open();
        let pulling = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { pull(&queue).await }
        });
        tokio::time::sleep(Duration::from_millis(10)).await;
        queue.end();
        assert!(pulling.await.unwrap().is_none());
    }
}
