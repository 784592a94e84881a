//! What a drive tells a collector of metrics.

use pithead_model::boxed;
use std::sync::Arc;
use std::time::Duration;

use pithead_sched::Class;
use pithead_store::StoreUse;

use crate::daemon::Drive;
use crate::metrics::{BackgroundSample, Sample};

impl Drive {
    /// All metrics as OpenMetrics text. Figures of the store are those of the last time that it answered.
    #[boxed]
    pub async fn metrics_text(&self) -> String {
        let workers = &self.resources.workers;
        let now = self.resources.device.clock().now();
        let sample = Sample {
            store: self.store_use().await,
            sessions: self.sessions().count(),
            hosts: self.sessions().hosts(now),
            memory_reserved: self.resources.budget.reserved(),
            readers: self.storage.slices.kept(),
            tasks: [Class::Foreground, Class::Background].map(|class| workers.live(class)),
            uptime: now.since(self.started),
            busy: Duration::from_nanos(workers.busy_ns()),
            background: BackgroundSample { status: self.background.status().await, reactors: workers.counts() },
        };
        self.metrics.text(&sample)
    }

    /// How full the store is; none: it does not say.
    pub(crate) async fn store_use(&self) -> Option<StoreUse> {
        let store = Arc::clone(&self.storage.store);
        let why = match self.resources.workers.blocking(move || store.usage()).await {
            Ok(Ok(used)) => return Some(used),
            Ok(Err(error)) => error.to_string(),
            Err(fault) => fault.to_string(),
        };
        tracing::warn!(why, "the store does not say how full it is");
        None
    }
}
