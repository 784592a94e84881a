//! [`Flow`]: how far an application's host is with one of its outputs.

use parking_lot::Mutex;
use tokio::sync::Notify;

use std::pin::pin;

/// Bytes of an output that were sent and not taken yet, and the window that they may fill.
#[derive(Debug)]
pub(super) struct Flow {
    window: u64,
    state: Mutex<FlowState>,
    moved: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct FlowState {
    waiting: u64,
    /// All that was ever sent.
    sent: u64,
    is_unread: bool,
}

impl Flow {
    pub(super) fn new(window: u64) -> Self {
        Self { window, state: Mutex::default(), moved: Notify::new() }
    }

    pub(super) fn sent(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.waiting += bytes;
        state.sent += bytes;
    }

    /// The host has taken so much; a host that says too much has taken all.
    pub(super) fn taken(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.waiting = state.waiting.saturating_sub(bytes);
        drop(state);
        self.moved.notify_waiters();
    }

    /// The host wants no more of it.
    pub(super) fn unread(&self) {
        self.state.lock().is_unread = true;
        self.moved.notify_waiters();
    }

    /// Waits for room. False once nobody reads.
    pub(super) async fn room(&self) -> bool {
        let state = self.until(|state| state.is_unread || state.waiting < self.window).await;
        !state.is_unread
    }

    /// Whether nothing can be sent before the host takes something, and what was sent until now.
    pub(super) fn look(&self) -> (bool, u64) {
        let state = self.state.lock();
        (!state.is_unread && state.waiting >= self.window, state.sent)
    }

    /// Waits until nobody reads.
    pub(super) async fn closed(&self) {
        self.until(|state| state.is_unread).await;
    }

    async fn until(&self, is_there: impl Fn(&FlowState) -> bool) -> FlowState {
        loop {
            let mut moved = pin!(self.moved.notified());
            moved.as_mut().enable();
            let state = *self.state.lock();
            if is_there(&state) {
                return state;
            }
            moved.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_window_is_full_until_the_host_takes() {
        let flow = Flow::new(10);
        assert_eq!(flow.room().now_or_never(), Some(true));
        flow.sent(25);
        assert_eq!(flow.room().now_or_never(), None);
        flow.taken(15);
        assert_eq!(flow.room().now_or_never(), None, "as much waits as fits");
        assert_eq!(flow.look(), (true, 25));
        flow.taken(1);
        assert_eq!(flow.room().now_or_never(), Some(true));
        flow.taken(u64::MAX);
        flow.sent(9);
        assert_eq!((flow.room().now_or_never(), flow.closed().now_or_never()), (Some(true), None));
        flow.unread();
        assert_eq!((flow.room().now_or_never(), flow.closed().now_or_never()), (Some(false), Some(())));
    }
}
