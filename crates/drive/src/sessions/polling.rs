//! [`Polling`]: a host that polls, as that of Do et al. 2013 does: what a session has for it waits for its next GET.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use pithead_device::{Device, Instant};
use pithead_emulate::PollInterval;

use crate::sessions::queue::EVENTS_MAX;

/// When the host of one session asks. The interval follows the rule that the model of devices has, too.
pub(crate) struct Polling {
    device: Arc<dyn Device>,
    /// In nanoseconds.
    interval: PollInterval,
    opened_at: Instant,
    /// The last interval, in nanoseconds; 0 before there was one.
    last_ns: u64,
    /// When the last GET came.
    asked_at: Instant,
    /// Events that it has taken.
    taken: usize,
    /// Until the next one, once the last one has taken all there was.
    until_next: Option<BoxFuture<'static, ()>>,
}

impl Polling {
    /// None: events go to their host as they come.
    pub(crate) fn of(device: &Arc<dyn Device>) -> Option<Polling> {
        let (least, most) = device.polled_every()?.into_inner();
        let nanoseconds = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let interval = PollInterval { least: nanoseconds(least), most: nanoseconds(most) };
        let now = device.clock().now();
        let device = Arc::clone(device);
        Some(Polling { device, interval, opened_at: now, last_ns: 0, asked_at: now, taken: 0, until_next: None })
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
                self.taken += 1;
                return Poll::Ready(found);
            }
            let wait = self.until_next_get();
            self.until_next = Some(self.device.clock().sleep(wait));
        }
    }

    /// How long the host waits before it asks again.
    fn until_next_get(&mut self) -> Duration {
        let now = self.device.clock().now();
        let was_half_full = 2 * std::mem::take(&mut self.taken) >= EVENTS_MAX;
        self.last_ns = self.interval.after(self.last_ns, now.0.saturating_sub(self.opened_at.0), was_half_full);
        Duration::from_nanos(self.last_ns).saturating_sub(now.since(self.asked_at))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicU64, Ordering};

    use pithead_device::Paced;

    use super::*;

    fn ms(many: u64) -> Duration {
        Duration::from_millis(many)
    }

    /// Without an interval, nothing waits.
    #[test]
    fn a_device_that_speaks_first_has_no_host_that_polls() {
        let device: Arc<dyn Device> = Arc::new(Paced::default().with_polling(Duration::ZERO, Duration::ZERO));
        assert!(Polling::of(&device).is_none());
    }

    /// What comes between two GETs is there at the second one, all at once, and no earlier.
    #[tokio::test]
    async fn what_comes_between_waits_for_the_next_get() {
        let device: Arc<dyn Device> = Arc::new(Paced::default().with_polling(ms(10), ms(10)));
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
            tokio::time::sleep(ms(3)).await;
            there.store(2, Ordering::SeqCst);
        };
        let ((), ()) = tokio::join!(tell, poll_fn(|context| polling.poll(context, take)));
        let second = began.elapsed();
        assert!(second >= ms(10), "{second:?}");
        poll_fn(|context| polling.poll(context, take)).await;
        assert!(polling.until_next.is_none() && there.load(Ordering::SeqCst) == 0, "the same GET takes the other one");
        // Nothing for three intervals.
        let tell = async {
            tokio::time::sleep(ms(35)).await;
            there.store(1, Ordering::SeqCst);
        };
        let ((), ()) = tokio::join!(tell, poll_fn(|context| polling.poll(context, take)));
        assert!(began.elapsed() - second >= ms(35));
    }

    /// The intervals of a session that has nothing grow with its time; those of one whose queue is half full shrink.
    #[tokio::test]
    async fn intervals_follow_the_rule_of_the_model() {
        let device: Arc<dyn Device> = Arc::new(Paced::default().with_polling(ms(1), ms(40)));
        let mut polling = Polling::of(&device).unwrap();
        polling.until_next_get();
        assert_eq!(polling.last_ns, 1_000_000, "a young session is asked often");
        tokio::time::sleep(ms(20)).await;
        polling.until_next_get();
        assert_eq!(polling.last_ns, 2_000_000, "twice the last one, and less than an eighth of 20 ms");
        polling.until_next_get();
        let third = polling.last_ns;
        assert!((2_500_000..=4_000_000).contains(&third), "an eighth of the session's time: {third}");
        polling.taken = EVENTS_MAX / 2;
        polling.until_next_get();
        assert_eq!((polling.last_ns, polling.taken), (third / 2, 0));
        polling.taken = EVENTS_MAX / 2 - 1;
        polling.until_next_get();
        assert_eq!(polling.last_ns, third / 2 * 2, "less than half of the queue");
    }
}
