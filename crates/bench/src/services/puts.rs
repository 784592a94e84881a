//! Host threads that put values at random moments, whether or not they have been answered before.

use std::time::{Duration, Instant};

use pithead_model::Fault;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;

use super::VALUE_BYTES;
use crate::kv::clients::{Caller, Server, value_of};

/// Keys of each thread, which it puts again and again.
pub(super) const KEYS: usize = 64;

/// What is put, by whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Puts {
    pub(super) port: u16,
    pub(super) threads: usize,
    /// Values a second of each thread; none: one as soon as the one before is answered.
    pub(super) rate: Option<f64>,
    pub(super) seed: u64,
}

/// Seconds that puts took, summed up, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Latencies {
    pub(crate) count: u64,
    pub(crate) mean_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
}

impl Latencies {
    /// Of seconds, in any order.
    pub(super) fn of(seconds: &mut [f64]) -> Latencies {
        seconds.sort_by(f64::total_cmp);
        let last = seconds.len().saturating_sub(1);
        let at = |share: f64| seconds.get((share * last as f64) as usize).copied().unwrap_or(f64::NAN) * 1e6;
        let mean = seconds.iter().sum::<f64>() / seconds.len().max(1) as f64;
        Latencies { count: seconds.len() as u64, mean_us: mean * 1e6, p50_us: at(0.5), p99_us: at(0.99), p999_us: at(0.999) }
    }
}

/// Lets all threads put for so long. Seconds from the moment that a put was due to its answer. It blocks.
pub(super) fn put_all(puts: Puts, seconds: f64) -> Result<Vec<f64>, Fault> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..puts.threads).map(|number| scope.spawn(move || put(puts, number, seconds))).collect();
        let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| Fault::bug("a host thread panicked"))?);
        Ok(joined.collect::<Result<Vec<_>, Fault>>()?.concat())
    })
}

fn put(puts: Puts, number: usize, seconds: f64) -> Result<Vec<f64>, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Fault::bug(error.to_string()))?;
    let mut caller = runtime.block_on(Caller::connect(Server::Kinetic { port: puts.port, process: 0 }))?;
    let value = value_of(VALUE_BYTES);
    let keys: Vec<String> = (0..KEYS).map(|index| format!("bench/put/{number:02}/{index:04}")).collect();
    let mut random = StdRng::seed_from_u64(puts.seed * 1_000 + number as u64);
    let mut after = || match puts.rate {
        Some(rate) => Duration::from_secs_f64(-(1.0 - random.random::<f64>()).ln() / rate),
        None => Duration::ZERO,
    };
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let mut due = Instant::now() + after();
    let mut latencies = Vec::new();
    for key in keys.iter().cycle() {
        if due >= until || Instant::now() >= until {
            break;
        }
        // A thread that is asleep when a put is due wakes up a little later, which is none of the drive's doing.
        if let Some(left) = due.checked_duration_since(Instant::now()) {
            std::thread::sleep(left);
            due = due.max(Instant::now());
        }
        let from = if puts.rate.is_some() { due } else { Instant::now() };
        runtime.block_on(caller.put(key, &value, false))?;
        latencies.push(from.elapsed().as_secs_f64());
        due += after();
    }
    Ok(latencies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_summed_up() {
        let mut seconds: Vec<f64> = (0..=1_000).rev().map(|number| f64::from(number) / 1e6).collect();
        let latencies = Latencies::of(&mut seconds);
        assert_eq!((latencies.count, latencies.p50_us.round(), latencies.p99_us.round()), (1_001, 500.0, 990.0));
        assert_eq!((latencies.mean_us.round(), latencies.p999_us.round()), (500.0, 999.0));
        assert!(Latencies::of(&mut []).p50_us.is_nan());
    }
}
