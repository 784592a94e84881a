//! [`Telling`]: what the host is to hear of an application's inputs. It is no queue: a host that does not listen makes it no longer.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use pithead_door::ApplicationEvent;
use tokio::sync::Notify;

/// What the host was not told yet.
#[derive(Debug, Default)]
pub(super) struct Telling {
    untold: Mutex<Untold>,
    moved: Notify,
}

#[derive(Debug, Default)]
struct Untold {
    /// What was taken of each input, in bytes.
    taken: BTreeMap<u32, u64>,
    unread: BTreeSet<u32>,
    /// The last time that no SSDlet could go on by itself: what had come until then, and who waits for what.
    idle: Option<(u64, String)>,
}

impl Telling {
    pub(super) fn taken(&self, port: u32, bytes: u64) {
        *self.untold.lock().taken.entry(port).or_default() += bytes;
        self.moved.notify_one();
    }

    pub(super) fn unread(&self, port: u32) {
        self.untold.lock().unread.insert(port);
        self.moved.notify_one();
    }

    pub(super) fn idle(&self, received: u64, waits: String) {
        self.untold.lock().idle = Some((received, waits));
        self.moved.notify_one();
    }

    /// Waits for something to tell. There is one who asks.
    pub(super) async fn next(&self) -> ApplicationEvent {
        loop {
            if let Some(event) = self.untold.lock().pop() {
                return event;
            }
            self.moved.notified().await;
        }
    }
}

impl Untold {
    fn pop(&mut self) -> Option<ApplicationEvent> {
        let taken = self.taken.pop_first().map(|(port, bytes)| ApplicationEvent::Taken { port, bytes });
        let unread = taken.or_else(|| self.unread.pop_first().map(|port| ApplicationEvent::Unread { port }));
        unread.or_else(|| self.idle.take().map(|(received, waits)| ApplicationEvent::Idle { received, waits }))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_host_that_listens_late_hears_all_of_it_at_once() {
        let telling = Telling::default();
        assert_eq!(telling.next().now_or_never(), None);
        for _ in 0..1000 {
            telling.taken(1, 7);
            telling.taken(0, 1);
            telling.idle(5, "old".into());
        }
        telling.unread(1);
        telling.idle(6, "new".into());
        let mut told = Vec::new();
        while let Some(event) = telling.next().now_or_never() {
            told.push(event);
        }
        let taken = |port, bytes| ApplicationEvent::Taken { port, bytes };
        let idle = ApplicationEvent::Idle { received: 6, waits: "new".into() };
        assert_eq!(told, [taken(0, 1000), taken(1, 7000), ApplicationEvent::Unread { port: 1 }, idle]);
    }
}
