//! The monitoring module: what each core does, and what it may give until it is looked at again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{CoreLoad, Shared};
use crate::load::CoreCounts;
use crate::usage::Usage;

/// The seconds over which background work is smoothed before it is taken from what the system says of a core, whose clock is coarse.
const SMOOTH_SECONDS: f64 = 0.1;

/// Measures the cores, and asks the governor.
pub(super) async fn monitor(shared: Arc<Shared>) {
    let mut cores = Cores::new(&shared);
    loop {
        let loads = cores.measure(&shared);
        for (index, (core, load)) in shared.cores.iter().zip(&loads).enumerate() {
            *core.load.lock() = *load;
            tell_stall(&shared, index);
        }
        let grants = shared.governor.lock().decide(&loads, shared.interval);
        for (core, grant) in shared.cores.iter().zip(grants) {
            core.set(grant);
        }
        shared.wake();
        tokio::time::sleep(shared.interval).await;
    }
}

/// What was counted before, and what is known of others on the same cores.
struct Cores {
    usage: Usage,
    /// Whether each reactor has a core to itself. Where none has, what the system says is of all cores.
    are_pinned: bool,
    counts: Vec<CoreCounts>,
    /// Shares of background work lately.
    background: Vec<f64>,
    at: Instant,
}

impl Cores {
    fn new(shared: &Shared) -> Cores {
        let pinned = shared.pool.cores();
        let counts: Vec<CoreCounts> = (0..shared.cores.len()).map(|index| shared.pool.counts(index)).collect();
        let background = vec![0.0; counts.len()];
        Cores { are_pinned: pinned.is_some(), usage: Usage::new(pinned), counts, background, at: Instant::now() }
    }

    fn measure(&mut self, shared: &Shared) -> Vec<CoreLoad> {
        let seconds = self.at.elapsed().as_secs_f64().max(1e-9);
        self.at = Instant::now();
        let between = |(index, last): (usize, &mut CoreCounts)| {
            let now = shared.pool.counts(index);
            load_between(std::mem::replace(last, now), now, seconds)
        };
        let mut loads: Vec<CoreLoad> = self.counts.iter_mut().enumerate().map(between).collect();
        let weight = 1.0 - (-seconds / SMOOTH_SECONDS).exp();
        for (lately, load) in self.background.iter_mut().zip(&loads) {
            *lately += weight * (load.background - *lately);
        }
        let mean = self.background.iter().sum::<f64>() / self.background.len().max(1) as f64;
        let busy = self.usage.shares(loads.len());
        for ((load, busy), own) in loads.iter_mut().zip(busy).zip(&self.background) {
            load.foreground = load.foreground.max(busy - if self.are_pinned { *own } else { mean });
        }
        loads
    }
}

/// What a core's reactor did between two counts.
pub(super) fn load_between(last: CoreCounts, now: CoreCounts, seconds: f64) -> CoreLoad {
    let share = |last: u64, now: u64| (now.saturating_sub(last) as f64 / 1e9 / seconds).min(1.0);
    let arrivals = now.polls.saturating_sub(last.polls);
    CoreLoad {
        foreground: share(last.foreground_ns, now.foreground_ns),
        background: share(last.background_ns, now.background_ns),
        queue_delay: Duration::from_nanos(now.delay_ns.saturating_sub(last.delay_ns) / arrivals.max(1)),
        arrivals,
    }
}

fn tell_stall(shared: &Shared, core: usize) {
    if let Some((task, held)) = shared.pool.load(core).newly_stalled() {
        tracing::warn!(core, task, ?held, "a task holds a reactor");
        *shared.cores[core].stalled.lock() = Some((task, held));
    }
}
