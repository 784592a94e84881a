//! [`Watch`]: counts what sessions do, and tells of slow ones.

use std::sync::Arc;
use std::time::Duration;

use pithead_exec::Bound;
use pithead_model::Bytes;

use crate::metrics::Metrics;
use crate::sessions::session::Session;

/// What watches sessions.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) metrics: Arc<Metrics>,
    /// Sessions that take at least so long are told of.
    pub(crate) slow: Option<Duration>,
}

impl Watch {
    /// A session's work is over, however that came, and took `took` since OPEN.
    pub(crate) fn work_over(&self, session: &Session, bound: &Bound, took: Duration) {
        self.metrics.session_seconds.observe(took.as_secs_f64());
        let profile = session.profile();
        self.metrics.spilled_bytes.inc_by(profile.spilled_bytes);
        if self.slow.is_none_or(|slow| took < slow) {
            return;
        }
        let waits = session.waits.all();
        tracing::warn!(
            target: "pithead_drive::slow",
            session = %session.id,
            host = format_args!("{:016x}", session.host),
            seconds = took.as_secs_f64(),
            state = ?profile.state,
            rounds = profile.rounds,
            slices = format_args!("{} of {}", profile.slices_done, profile.slices_total),
            cpu_s = waits.cpu.as_secs_f64(),
            waited_for_get_s = waits.get.as_secs_f64(),
            waited_for_host_s = waits.host.as_secs_f64(),
            waited_for_turn_s = waits.turn.as_secs_f64(),
            memory_peak = %Bytes(profile.memory_peak),
            spilled = %Bytes(profile.spilled_bytes),
            "slow session\n{}\n   ",
            bound.plan_text()
        );
    }
}
