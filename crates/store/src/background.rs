//! The store's own thread. It makes durable what was written back and what only the log has, and gives back dead room.

use std::cell::Cell;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::core::Core;

/// Written-back data is durable after about this time, and all commits in the index and in the journal.
const FLUSH_AFTER: Duration = Duration::from_secs(1);
/// The pause after each step of compaction, so that the medium has time for other requests.
const STEP_PAUSE: Duration = Duration::from_millis(1);

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Background {
    core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    pub fn start(core: Arc<Core>, compacts: bool) -> std::io::Result<Self> {
        let shared = core.clone();
        let thread = thread::Builder::new().name("pithead-store".to_string()).spawn(move || work(&shared, compacts))?;
        Ok(Self { core, thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.core.work.state.lock().stop = true;
        self.core.work.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the store's thread has panicked");
        }
    }
}

fn work(core: &Core, compacts: bool) {
    // After an error the thread waits longer, so that it does not call a broken medium all the time.
    let mut pause = FLUSH_AFTER;
    let mut kept: Option<Instant> = None;
    while !wait(core, pause) {
        // One step of compaction at least, also where all the time something has to be made durable.
        let is_first = Cell::new(true);
        let goes_on = || compacts && (is_first.take() || pace(core));
        let done = core.make_durable().and_then(|()| core.compact(&goes_on));
        // While much is written, rounds follow one another at once, and a flush of the log keeps commits waiting.
        if kept.is_none_or(|at| at.elapsed() >= FLUSH_AFTER) {
            core.keep_journal();
            kept = Some(Instant::now());
        }
        match done {
            Ok(_) => pause = FLUSH_AFTER,
            Err(error) => {
                tracing::warn!(%error, "background work on the store has failed");
                pause = (pause * 2).min(Duration::from_secs(60));
            }
        }
    }
}

/// Waits until there may be work; true when the store is closed.
fn wait(core: &Core, pause: Duration) -> bool {
    let mut state = core.work.state.lock();
    if !state.stop && !state.flush {
        core.work.changed.wait_for(&mut state, pause);
    }
    state.flush = false;
    state.began = Some(Instant::now());
    state.stop
}

/// Between two steps of compaction; false when it must stop.
fn pace(core: &Core) -> bool {
    let mut state = core.work.state.lock();
    if !state.stop {
        core.work.changed.wait_for(&mut state, STEP_PAUSE);
    }
    // Written-back data must not wait until all of compaction is done.
    !state.stop && !state.flush
}
