//! [`Running`]: the answers that are on their way, so that each can be cancelled by its ticket.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::handle_store::Owner;

/// All answers of a server that are on their way.
#[derive(Debug, Default)]
pub(crate) struct Running(Mutex<HashMap<(Owner, Bytes), watch::Sender<bool>>>);

/// One of them. It is on its way until this is dropped.
#[derive(Debug)]
pub(crate) struct RunningAnswer {
    running: Arc<Running>,
    key: (Owner, Bytes),
    asked: watch::Receiver<bool>,
}

impl Running {
    /// An answer to a ticket begins.
    pub(crate) fn begin(self: &Arc<Running>, owner: Owner, handle: Bytes) -> RunningAnswer {
        let (ask, asked) = watch::channel(false);
        let key = (owner, handle);
        self.0.lock().insert(key.clone(), ask);
        RunningAnswer { running: Arc::clone(self), key, asked }
    }

    /// Ends the answer to a ticket. Whether it was on its way.
    pub(crate) fn cancel(&self, owner: Owner, handle: &Bytes) -> bool {
        let running = self.0.lock();
        running.get(&(owner, handle.clone())).is_some_and(|ask| ask.send(true).is_ok())
    }
}

impl RunningAnswer {
    /// Ends once the answer is to be cancelled.
    pub(crate) fn asked(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let mut asked = self.asked.clone();
        async move {
            // The sender is there for as long as the place is.
            if asked.wait_for(|asked| *asked).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Drop for RunningAnswer {
    fn drop(&mut self) {
        self.running.0.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_owner_cancels_and_only_what_runs() {
        let running = Arc::<Running>::default();
        let handle = Bytes::from_static(b"handle");
        let place = running.begin(Some(1), handle.clone());
        assert!(!running.cancel(Some(2), &handle) && !running.cancel(Some(1), &Bytes::new()));
        assert!(running.cancel(Some(1), &handle));
        place.asked().await;
        drop(place);
        assert!(!running.cancel(Some(1), &handle));
    }
}
