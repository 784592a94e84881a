//! [`measured`]: a task whose waits for its reactor, and whose time on it, are counted.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use crate::Class;
use crate::load::Load;

/// How long a task that gives way waits at most each time: some foreground tasks have no end.
const PATIENCE: Duration = Duration::from_millis(20);

/// The future, counted from now on as a task of the reactor that polls it. If it `gives_way`, foreground tasks that could
/// run go first.
pub(crate) fn measured<F: Future>(
    future: F,
    load: &Arc<Load>,
    class: Class,
    gives_way: bool,
) -> impl Future<Output = F::Output> + use<F> {
    let live = load.enter(class);
    let wakes = Arc::new(Wakes {
        load: Arc::clone(load),
        class,
        gives_way,
        gave_way_ns: AtomicU64::new(0),
        woken_ns: AtomicU64::new(0),
        outer: Mutex::new(None),
    });
    wakes.note();
    let what = name_of::<F>();
    async move {
        let _live = live;
        let waker = Waker::from(Arc::clone(&wakes));
        let mut future = pin!(future);
        poll_fn(|context| wakes.poll(future.as_mut(), context, &waker, what)).await
    }
}

/// Where in the source a future is from.
fn name_of<F>() -> &'static str {
    let name = std::any::type_name::<F>();
    let name = name.strip_prefix("tracing::instrument::Instrumented<").unwrap_or(name);
    // What its types are made of is of no use to a person.
    name.split_once('<').map_or(name, |(place, _)| place).trim_end_matches("::")
}

/// Notes when a task is woken, and wakes it.
struct Wakes {
    load: Arc<Load>,
    class: Class,
    gives_way: bool,
    /// Since when it has given way; 0: it does not.
    gave_way_ns: AtomicU64,
    /// Since when the task waits for its reactor; 0: it does not.
    woken_ns: AtomicU64,
    /// The reactor's own waker.
    outer: Mutex<Option<Waker>>,
}

impl Wakes {
    fn note(&self) {
        let now = self.load.now_ns();
        if self.woken_ns.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.load.woken(self.class);
        }
    }

    /// Whether foreground tasks go first this time.
    fn goes_later(&self) -> bool {
        if !self.gives_way {
            return false;
        }
        let now = self.load.now_ns();
        let since = self.gave_way_ns.load(Ordering::Relaxed);
        let is_patient = since == 0 || Duration::from_nanos(now.saturating_sub(since)) < PATIENCE;
        let goes_later = is_patient && self.load.waiting() > 0;
        match (goes_later, since) {
            (false, _) => self.gave_way_ns.store(0, Ordering::Relaxed),
            (true, 0) => self.gave_way_ns.store(now, Ordering::Relaxed),
            (true, _) => {}
        }
        goes_later
    }

    fn poll<F: Future>(
        &self,
        future: Pin<&mut F>,
        context: &mut Context<'_>,
        waker: &Waker,
        what: &'static str,
    ) -> Poll<F::Output> {
        {
            let mut outer = self.outer.lock();
            if !outer.as_ref().is_some_and(|outer| outer.will_wake(context.waker())) {
                *outer = Some(context.waker().clone());
            }
        }
        if self.goes_later() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let woken = self.woken_ns.swap(0, Ordering::Relaxed);
        if woken != 0 {
            self.load.awaited(self.class, Some(woken));
        }
        let _polled = self.load.poll(self.class, what);
        future.poll(&mut Context::from_waker(waker))
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.note();
        // Not under the lock: the reactor may drop the task.
        let outer = self.outer.lock().clone();
        if let Some(outer) = outer {
            outer.wake();
        }
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        if *self.woken_ns.get_mut() != 0 {
            self.load.awaited(self.class, None);
        }
    }
}
