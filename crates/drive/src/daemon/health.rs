//! Whether a drive can serve.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use pithead_model::{Blame, Bytes, Fault, SLICE_BYTES_MAX, boxed};
use pithead_observe::{Health, Observed};

use crate::daemon::Drive;
use crate::metrics::Metrics;

/// Free room below which no load can be counted on: one slice.
const ROOM_BYTES_MIN: u64 = SLICE_BYTES_MAX as u64;

/// Whether the last change of what is stored failed by the medium's doing.
#[derive(Debug, Default)]
pub(crate) struct Writing {
    failed: AtomicBool,
}

impl Writing {
    /// A change was made or was not. Faults of the request say nothing of the medium, and no more does damage of what came from
    /// another one (`theirs`).
    pub(crate) fn ended<T>(&self, result: &Result<T, Fault>, theirs: bool) {
        match result {
            Ok(_) => self.failed.store(false, Ordering::Relaxed),
            Err(fault) if fault.blame == Blame::Device || (fault.blame == Blame::Corrupt && !theirs) => {
                self.failed.store(true, Ordering::Relaxed);
            }
            Err(_) => {}
        }
    }
}

impl Drive {
    /// Whether it can serve: it is not stopping, its store answers, the last change was stored, and there is room for a slice.
    #[boxed]
    pub async fn health(&self) -> Health {
        let free_bytes = self.store_use().await.map(|used| used.free_bytes);
        let (status, reason) = match free_bytes {
            _ if self.sessions().shutdown().has_begun() => {
                ("stopping", Some("the drive is stopping: it opens no new sessions".to_owned()))
            }
            None => ("failed", Some("the store does not answer; the drive's log says more".to_owned())),
            _ if self.writing.failed.load(Ordering::Relaxed) => {
                ("failed", Some("the last change could not be stored; the drive's log says more".to_owned()))
            }
            Some(free) if free < ROOM_BYTES_MIN => {
                ("full", Some(format!("{} are free, too little for loads; queries are answered", Bytes(free))))
            }
            Some(_) => ("ok", None),
        };
        Health {
            status,
            reason,
            id: Some(self.storage.id.to_string()),
            version: env!("CARGO_PKG_VERSION"),
            uptime_s: self.resources.device.clock().now().since(self.started).as_secs(),
            free_bytes,
            sessions: Some(self.sessions().count() as u64),
            drives: None,
        }
    }

    /// Counts a change of what is stored, and whether the medium failed at it.
    pub(crate) fn stored<T>(
        &self,
        counters: &pithead_observe::Labelled<pithead_observe::Counter>,
        result: Result<T, Fault>,
    ) -> Result<T, Fault> {
        Metrics::outcome(counters, &result);
        self.writing.ended(&result, false);
        result
    }

    /// The same of a copy of what another drive has: where that is damaged, it is refused, and this one's medium is as sound as before.
    pub(crate) fn copied<T>(&self, result: Result<T, Fault>) -> Result<T, Fault> {
        Metrics::outcome(&self.metrics.copies, &result);
        self.writing.ended(&result, true);
        result
    }
}

impl Observed for Drive {
    fn metrics(&self) -> BoxFuture<'_, String> {
        Box::pin(self.metrics_text())
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        Box::pin(Drive::health(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_medium_makes_a_drive_unfit() {
        let writing = Writing::default();
        let end = |blame| writing.ended(&Err::<(), _>(Fault::new(blame, "x")), false);
        end(Blame::User);
        end(Blame::Conflict);
        writing.ended(&Err::<(), _>(Fault::new(Blame::Corrupt, "what was sent")), true);
        assert!(!writing.failed.load(Ordering::Relaxed));
        end(Blame::Device);
        end(Blame::Limit);
        assert!(writing.failed.load(Ordering::Relaxed));
        writing.ended(&Ok(()), false);
        assert!(!writing.failed.load(Ordering::Relaxed));
        end(Blame::Corrupt);
        assert!(writing.failed.load(Ordering::Relaxed));
    }
}
