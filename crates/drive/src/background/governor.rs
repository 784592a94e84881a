//! [`PolicyGovernor`]: the policies of crate `policy` as the reactors ask them.

use std::time::Duration;

use pithead_policy::background::{BackgroundPolicy, CoreSample, Selection};
use pithead_sched::{CoreLoad, Governor, Grant};

/// A policy with what it remembers of the cores.
pub(super) struct PolicyGovernor(Selection);

impl PolicyGovernor {
    pub(super) fn new(policy: BackgroundPolicy) -> PolicyGovernor {
        PolicyGovernor(Selection::new(policy))
    }
}

impl Governor for PolicyGovernor {
    fn decide(&mut self, cores: &[CoreLoad], interval: Duration) -> Vec<Grant> {
        let sample = |load: &CoreLoad| CoreSample {
            foreground: load.foreground,
            background: load.background,
            queue_delay: load.queue_delay.as_secs_f64(),
            arrivals: load.arrivals,
        };
        let samples: Vec<CoreSample> = cores.iter().map(sample).collect();
        let grants = self.0.decide(&samples, interval.as_secs_f64());
        grants.into_iter().map(|grant| Grant { share: grant.share, strict: grant.strict, equal: grant.equal }).collect()
    }

    fn name(&self) -> String {
        self.0.policy().to_string()
    }
}
