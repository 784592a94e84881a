//! [`Running`]: the connections that there are, by number, so that a statement can be cancelled over another connection.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use subtle::ConstantTimeEq;
use tokio::sync::Notify;

/// Ends the statement that runs over a connection.
#[derive(Debug, Default)]
pub(crate) struct Cancel {
    running: AtomicBool,
    asked: AtomicBool,
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
        loop {
            let came = self.notify.notified();
            if self.asked.load(Ordering::SeqCst) {
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
}

/// All connections of a server.
#[derive(Debug, Default)]
pub(crate) struct Running {
    connections: Mutex<HashMap<i32, (i32, Arc<Cancel>)>>,
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
    pub(crate) fn enter(self: &Arc<Running>) -> ConnectionPlace {
        let (secret, cancel) = (rand::random(), Arc::<Cancel>::default());
        let mut connections = self.connections.lock();
        let mut process = (rand::random::<u32>() >> 2) as i32 + 1;
        while connections.contains_key(&process) {
            process = process % i32::MAX + 1;
        }
        connections.insert(process, (secret, Arc::clone(&cancel)));
        ConnectionPlace { running: Arc::clone(self), process, secret, cancel }
    }

    /// Cancels what runs over a connection, for who knows its secret. Whether it was known.
    pub(crate) fn cancel(&self, process: i32, secret: i32) -> bool {
        let found = self.connections.lock().get(&process).map(|(known, cancel)| (*known, Arc::clone(cancel)));
        match found {
            Some((known, cancel)) if bool::from(known.to_be_bytes().ct_eq(&secret.to_be_bytes())) => {
                cancel.ask();
                true
            }
            _ => false,
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
        let place = running.enter();
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
}
