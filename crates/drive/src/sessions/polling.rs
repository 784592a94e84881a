//! [`Polling`]: a host that polls, as that of Do et al. 2013 does: what a session has for it waits for its next GET.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use pithead_device::{Device, Instant};

/// When the host of one session asks.
pub(crate) struct Polling {
    device: Arc<dyn Device>,
    interval: Duration,
    /// When the last GET came.
    asked_at: Instant,
    /// Until the next one, once the last one has taken all there was.
    until_next: Option<BoxFuture<'static, ()>>,
}

impl Polling {
    /// None: events go to their host as they come.
    pub(crate) fn of(device: &Arc<dyn Device>) -> Option<Polling> {
        let (interval, asked_at) = (device.polled_every()?, device.clock().now());
        Some(Polling { device: Arc::clone(device), interval, asked_at, until_next: None })
    }

    /// What `next` has, at a GET.
    pub(crate) fn poll<T>(&mut self, context: &mut Context<'_>, next: impl Fn(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        loop {
            if let Some(wait) = &mut self.until_next {
                ready!(wait.as_mut().poll(context));
                self.until_next = None;
                self.asked_at = self.device.clock().now();
            }
            if let Poll::Ready(found) = next(context) {
                return Poll::Ready(found);
            }
            let since = self.device.clock().now().since(self.asked_at);
            self.until_next = Some(self.device.clock().sleep(self.interval.saturating_sub(since)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicU64, Ordering};

    use pithead_device::Paced;

    use super::*;

    /// Without an interval, nothing waits.
    #[test]
    fn a_device_that_speaks_first_has_no_host_that_polls() {
        let device: Arc<dyn Device> = Arc::new(Paced::default().with_polling(Duration::ZERO));
        assert!(Polling::of(&device).is_none());
    }

    /// What comes between two GETs is there at the second one, all at once, and no earlier.
    #[tokio::test]
    async fn what_comes_between_waits_for_the_next_get() {
        let device: Arc<dyn Device> = Arc::new(Paced::default().with_polling(Duration::from_millis(10)));
        let mut polling = Polling::of(&device).unwrap();
        let began = std::time::Instant::now();
        let there = AtomicU64::new(1);
        let take = |_: &mut Context<'_>| match there.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)) {
            Ok(_) => Poll::Ready(()),
            Err(_) => Poll::Pending,
        };
        poll_fn(|context| polling.poll(context, take)).await;
        assert!(polling.until_next.is_none(), "the first GET finds what is there");
        let tell = async {
            tokio::time::sleep(Duration::from_millis(3)).await;
            there.store(2, Ordering::SeqCst);
        };
        let ((), ()) = tokio::join!(tell, poll_fn(|context| polling.poll(context, take)));
        let second = began.elapsed();
        assert!(second >= Duration::from_millis(10), "{second:?}");
        poll_fn(|context| polling.poll(context, take)).await;
        assert!(polling.until_next.is_none() && there.load(Ordering::SeqCst) == 0, "the same GET takes the other one");
        // Nothing for three intervals.
        let tell = async {
            tokio::time::sleep(Duration::from_millis(35)).await;
            there.store(1, Ordering::SeqCst);
        };
        let ((), ()) = tokio::join!(tell, poll_fn(|context| polling.poll(context, take)));
        assert!(began.elapsed() - second >= Duration::from_millis(35));
    }
}
