//! [`Compaction`]: dead room of the store is given back, step by step.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pithead_sched::{Progress, Service, Stepped};
use pithead_store::Store;

/// Bytes of a step.
const STEP_BYTES: u64 = 64 << 10;
/// How long to wait where nothing is worth it.
const IDLE: Duration = Duration::from_secs(1);
/// How long to wait after a medium failed, the first time, and at most.
const FAILED: Duration = Duration::from_secs(2);
const FAILED_MAX: Duration = Duration::from_secs(60);
/// How often the store is asked what is dead and what it has given back, while there is something to do and at rest.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_AT_REST: Duration = Duration::from_secs(3);

/// The store's own compaction, driven from outside of it. Nothing has to survive: the store chooses by what is dead.
pub(super) struct Compaction {
    store: Arc<dyn Store>,
    done_bytes: u64,
    dead_bytes: u64,
    given_back_bytes: u64,
    looked: Option<Instant>,
    pause: Duration,
}

impl Compaction {
    pub(super) fn new(store: Arc<dyn Store>) -> Compaction {
        Compaction { store, done_bytes: 0, dead_bytes: 0, given_back_bytes: 0, looked: None, pause: FAILED }
    }

    fn look(&mut self, after: Duration) {
        if self.looked.is_none_or(|looked| looked.elapsed() > after) {
            let used = self.store.usage().ok();
            self.dead_bytes = used.map_or(0, |used| used.dead_bytes);
            self.given_back_bytes = used.map_or(self.given_back_bytes, |used| used.given_back_bytes);
            self.looked = Some(Instant::now());
        }
    }
}

impl Service for Compaction {
    fn step(&mut self) -> Stepped {
        match self.store.compact_step(STEP_BYTES) {
            Ok(Some(bytes)) => {
                self.done_bytes += bytes;
                self.pause = FAILED;
                self.look(LOOK);
                Stepped::Did { bytes }
            }
            Ok(None) => {
                self.done_bytes = 0;
                // Segments that were emptied are unlinked a moment later.
                self.look(LOOK_AT_REST);
                Stepped::Idle { pause: IDLE }
            }
            Err(error) => {
                let pause = self.pause;
                self.pause = (pause * 2).min(FAILED_MAX);
                Stepped::Failed { why: error.to_string(), pause }
            }
        }
    }

    fn blocks(&self) -> bool {
        true
    }

    fn progress(&self) -> Progress {
        let total_bytes = if self.done_bytes == 0 { 0 } else { self.done_bytes + self.dead_bytes };
        Progress { done_bytes: self.done_bytes, total_bytes, found: self.given_back_bytes }
    }

    fn position(&self) -> Vec<u8> {
        Vec::new()
    }

    fn restart(&mut self) {
        self.done_bytes = 0;
    }
}
