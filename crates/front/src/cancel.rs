//! [`Running`]: the connections that there are, by number, so that one of them can cancel what runs over another one, or end it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pithead_entry::{Identity, Right};
use subtle::ConstantTimeEq;
use tokio::sync::Notify;

/// Ends the statement that runs over a connection, or the connection.
#[derive(Debug, Default)]
pub(crate) struct Cancel {
    running: AtomicBool,
    asked: AtomicBool,
    is_last: AtomicBool,
    notify: Notify,
}

impl Cancel {
    /// A statement begins: what came before is not meant for it.
    pub(crate) fn begin(&self) {
        self.asked.store(false, Ordering::SeqCst);
        self.running.store(true, Ordering::SeqCst);
    }

    /// No statement runs any more.
    pub(crate) fn end(&self) {
        self.running.store(false, Ordering::SeqCst);
    }

    /// Ends once the statement is to be cancelled.
    pub(crate) async fn asked(&self) {
        self.is_set(&self.asked).await;
    }

    /// Ends once the connection is to end.
    pub(crate) async fn last_asked(&self) {
        self.is_set(&self.is_last).await;
    }

    /// Whether the connection is to end.
    pub(crate) fn is_last(&self) -> bool {
        self.is_last.load(Ordering::SeqCst)
    }

    async fn is_set(&self, flag: &AtomicBool) {
        loop {
            let came = self.notify.notified();
            if flag.load(Ordering::SeqCst) {
                return;
            }
            came.await;
        }
    }

    fn ask(&self) {
        if self.running.load(Ordering::SeqCst) {
            self.asked.store(true, Ordering::SeqCst);
            self.notify.notify_waiters();
        }
    }

    fn ask_last(&self) {
        self.is_last.store(true, Ordering::SeqCst);
        self.ask();
        self.notify.notify_waiters();
    }
}

/// All connections of a server.
#[derive(Debug, Default)]
pub(crate) struct Running {
    connections: Mutex<HashMap<i32, Known>>,
}

/// A connection, as others find it.
#[derive(Debug)]
struct Known {
    secret: i32,
    cancel: Arc<Cancel>,
    holder: Holder,
}

/// Who has a connection, as far as that says which others it may end.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    name: String,
    administers: bool,
}

impl From<&Identity> for Holder {
    fn from(caller: &Identity) -> Holder {
        Holder { name: caller.name.clone(), administers: caller.may_all(Right::Administer) }
    }
}

/// A connection's place. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPlace {
    running: Arc<Running>,
    pub(crate) process: i32,
    pub(crate) secret: i32,
    pub(crate) cancel: Arc<Cancel>,
}

impl Running {
    /// A number and a secret for a new connection.
    pub(crate) fn enter(self: &Arc<Running>, holder: Holder) -> ConnectionPlace {
        let (secret, cancel) = (rand::random(), Arc::<Cancel>::default());
        let mut connections = self.connections.lock();
        let mut process = (rand::random::<u32>() >> 2) as i32 + 1;
        while connections.contains_key(&process) {
            process = process % i32::MAX + 1;
        }
        connections.insert(process, Known { secret, cancel: Arc::clone(&cancel), holder });
        ConnectionPlace { running: Arc::clone(self), process, secret, cancel }
    }

    /// Cancels what runs over a connection, for who knows its secret. Whether it was known.
    pub(crate) fn cancel(&self, process: i32, secret: i32) -> bool {
        let found = self.connections.lock().get(&process).map(|known| (known.secret, Arc::clone(&known.cancel)));
        match found {
            Some((known, cancel)) if bool::from(known.to_be_bytes().ct_eq(&secret.to_be_bytes())) => {
                cancel.ask();
                true
            }
            _ => false,
        }
    }

    /// Cancels what runs over a connection, or ends the connection, for another one. That has to be of the same caller, or of
    /// one that administers everything. Whether there is one of this number, or why it may not be ended.
    pub(crate) fn end(&self, asking: i32, process: i64, with_connection: bool) -> Result<bool, String> {
        let connections = self.connections.lock();
        let found = i32::try_from(process).ok().and_then(|process| connections.get(&process));
        let (Some(own), Some(other)) = (connections.get(&asking), found) else { return Ok(false) };
        if own.holder.name != other.holder.name && !own.holder.administers {
            return Err("must be a member of the role whose process is to end, or administer everything".to_owned());
        }
        if with_connection {
            other.cancel.ask_last()
        } else {
            other.cancel.ask()
        }
        Ok(true)
    }
}

impl ConnectionPlace {
    /// All connections, to which this one belongs.
    pub(crate) fn running(&self) -> Arc<Running> {
        Arc::clone(&self.running)
    }

    /// Takes what its caller may do, once that has changed.
    pub(crate) fn set_holder(&self, holder: Holder) {
        if let Some(known) = self.running.connections.lock().get_mut(&self.process) {
            known.holder = holder;
        }
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.running.connections.lock().remove(&self.process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_who_knows_the_secret_cancels_what_runs() {
        let running = Arc::<Running>::default();
        let place = running.enter(Holder::from(&Identity::anyone()));
        assert!(!running.cancel(place.process, place.secret.wrapping_add(1)));
        assert!(running.cancel(place.process, place.secret));
        place.cancel.begin();
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(20), place.cancel.asked());
        assert!(waiting.await.is_err(), "what came before the statement is not meant for it");
        assert!(running.cancel(place.process, place.secret));
        place.cancel.asked().await;
        let (process, secret) = (place.process, place.secret);
        drop(place);
        assert!(!running.cancel(process, secret));
    }

    #[tokio::test]
    async fn connections_are_ended_by_number_for_those_who_may() {
        let running = Arc::<Running>::default();
        let enter = |name: &str, administers| running.enter(Holder { name: name.to_owned(), administers });
        let (own, same, other) = (enter("reader", false), enter("reader", false), enter("other", true));
        let end = |asking: &ConnectionPlace, process: i32, last: bool| running.end(asking.process, i64::from(process), last);
        same.cancel.begin();
        assert_eq!(end(&own, same.process, false), Ok(true));
        same.cancel.asked().await;
        assert!(!same.cancel.is_last());
        let refused = [end(&own, other.process, false), end(&own, other.process, true)];
        assert!(refused.iter().all(Result::is_err) && !other.cancel.is_last(), "{refused:?}");
        assert_eq!(end(&other, own.process, true), Ok(true), "who administers everything ends any");
        own.cancel.last_asked().await;
        own.set_holder(Holder { name: "reader".to_owned(), administers: true });
        assert_eq!(end(&own, other.process, true), Ok(true));
        assert_eq!([i64::MAX, 0].map(|nobody| running.end(own.process, nobody, true)), [Ok(false), Ok(false)]);
    }
}
