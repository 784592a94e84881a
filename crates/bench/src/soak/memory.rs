//! Resident memory over time, and whether it grows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pithead_observe::ProcessUse;
use serde::Serialize;

const SAMPLE_STEP: Duration = Duration::from_millis(500);

/// Processes whose memory is looked at every half second.
pub(super) struct Watched {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Samples>,
}

/// Resident memory at one moment, megabytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Sample {
    pub(super) seconds: f64,
    /// Of all drives.
    pub(super) drives_mb: f64,
    /// Of all host processes.
    pub(super) hosts_mb: f64,
}

/// Samples, oldest first.
pub(super) type Samples = Vec<Sample>;

impl Watched {
    pub(super) fn start(drives: Vec<u32>, hosts: Vec<u32>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let started = Instant::now();
            let mut samples = Samples::new();
            while !told.load(Ordering::Relaxed) {
                let megabytes = |ids: &[u32]| {
                    let all = ids.iter().map(|id| ProcessUse::of_process(*id).resident_bytes);
                    // One that has ended has none: then the sum means nothing.
                    all.map(|bytes| (bytes > 0).then_some(bytes as f64 / 1e6)).sum::<Option<f64>>()
                };
                if let (Some(drives_mb), Some(hosts_mb)) = (megabytes(&drives), megabytes(&hosts)) {
                    samples.push(Sample { seconds: started.elapsed().as_secs_f64(), drives_mb, hosts_mb });
                }
                std::thread::sleep(SAMPLE_STEP);
            }
            samples
        });
        Self { over, thread }
    }

    pub(super) fn stop(self) -> Samples {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// Growth in megabytes a minute over the last two thirds: the slope of the line through them by least squares. The first third is
/// for caches to fill. None with fewer than three samples.
pub(super) fn growth_mb_per_min(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> Option<f64> {
    let last = samples.get(samples.len() / 3..).filter(|last| last.len() >= 3)?;
    let count = last.len() as f64;
    let (mean_x, mean_y) =
        (last.iter().map(|sample| sample.seconds).sum::<f64>() / count, last.iter().map(&of).sum::<f64>() / count);
    let covariance: f64 = last.iter().map(|sample| (sample.seconds - mean_x) * (of(sample) - mean_y)).sum();
    let variance: f64 = last.iter().map(|sample| (sample.seconds - mean_x).powi(2)).sum();
    (variance > 0.0).then(|| covariance / variance * 60.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_that_of_the_last_two_thirds() {
        let sample = |second: u32, drives_mb: f64| Sample { seconds: f64::from(second), drives_mb, hosts_mb: 7.0 };
        // It fills for 20 s, then grows by 1 MB in 10 s.
        let samples: Vec<Sample> = (0..60)
            .map(|second| sample(second, if second < 20 { f64::from(second) } else { 20.0 + f64::from(second) / 10.0 }))
            .collect();
        assert!((growth_mb_per_min(&samples, |sample| sample.drives_mb).unwrap() - 6.0).abs() < 1e-6);
        assert_eq!(growth_mb_per_min(&samples, |sample| sample.hosts_mb), Some(0.0));
        assert_eq!(growth_mb_per_min(&samples[..3], |sample| sample.drives_mb), None);
    }
}
