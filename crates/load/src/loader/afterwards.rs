//! [`Afterwards`]: work that no answer needs, such as deleting what was superseded. It goes on by itself.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long the answer waits for such work: mostly it is done by then, and whoever changes one thing after the other does not get ahead
/// of it.
const MOMENT: Duration = Duration::from_secs(1);
/// Where more than so many tasks have not ended, an answer waits for its own.
const TASKS_MAX: usize = 16;

/// Tasks whose end nobody has to wait for. Those that run are cut short when it is dropped.
#[derive(Default)]
pub(crate) struct Afterwards {
    tasks: Mutex<JoinSet<()>>,
}

impl Afterwards {
    /// Begins work, and waits for a moment.
    pub(crate) async fn begin(&self, work: impl Future<Output = ()> + Send + 'static) {
        let (ends, ended) = oneshot::channel::<()>();
        let is_full = {
            let mut tasks = self.tasks.lock();
            while tasks.try_join_next().is_some() {}
            tasks.spawn(async move {
                work.await;
                drop(ends);
            });
            tasks.len() > TASKS_MAX
        };
        // Either way the sender is gone: that is the end, and no error.
        if is_full {
            let _ = ended.await;
        } else {
            let _ = timeout(MOMENT, ended).await;
        }
    }

    /// Waits for all that runs, for so long at most. What has not ended by then is cut short, and holds nothing any more. Whether all
    /// has ended by itself.
    pub(crate) async fn settled(&self, limit: Duration) -> bool {
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        let all = async { while tasks.join_next().await.is_some() {} };
        let is_settled = timeout(limit, all).await.is_ok();
        tasks.shutdown().await;
        is_settled
    }
}

impl fmt::Debug for Afterwards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Afterwards").field("tasks", &self.tasks.lock().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Work that takes so long, and counts itself at its end.
    fn counted(ended: &Arc<AtomicUsize>, takes: Duration) -> impl Future<Output = ()> + Send + 'static {
        let ended = Arc::clone(ended);
        async move {
            tokio::time::sleep(takes).await;
            ended.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn an_answer_waits_for_what_is_quick_and_not_for_what_is_slow() {
        let (afterwards, ended) = (Afterwards::default(), Arc::default());
        afterwards.begin(counted(&ended, Duration::from_millis(20))).await;
        assert_eq!(ended.load(Ordering::SeqCst), 1);
        afterwards.begin(counted(&ended, MOMENT * 2)).await;
        assert_eq!(ended.load(Ordering::SeqCst), 1, "it goes on");
        assert!(afterwards.settled(MOMENT * 60).await);
        assert_eq!(ended.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn what_has_not_ended_in_time_holds_nothing_any_more() {
        let (afterwards, ended) = (Afterwards::default(), Arc::default());
        afterwards.begin(counted(&ended, MOMENT * 600)).await;
        assert!(!afterwards.settled(Duration::from_millis(10)).await);
        assert_eq!((Arc::strong_count(&ended), ended.load(Ordering::SeqCst)), (1, 0));
        assert!(afterwards.settled(Duration::ZERO).await, "nothing is left");
    }

    #[tokio::test]
    async fn who_has_begun_too_much_waits_for_the_end() {
        let (afterwards, ended) = (Afterwards::default(), Arc::default());
        for _ in 0..TASKS_MAX {
            let begun = afterwards.begin(counted(&ended, MOMENT * 2));
            assert!(timeout(Duration::from_millis(1), begun).await.is_err());
        }
        let own = Arc::default();
        afterwards.begin(counted(&own, MOMENT * 3 / 2)).await;
        assert_eq!(own.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn what_runs_is_cut_short_when_nobody_has_it_any_more() {
        let (afterwards, ended) = (Afterwards::default(), Arc::default());
        let begun = afterwards.begin(counted(&ended, Duration::from_millis(50)));
        assert!(timeout(Duration::from_millis(1), begun).await.is_err());
        drop(afterwards);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(ended.load(Ordering::SeqCst), 0);
    }
}
