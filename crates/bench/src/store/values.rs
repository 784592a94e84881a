//! Values that no medium can compress, and the order of work over threads.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use bytes::Bytes;
use pithead_model::{Blame, Fault};
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};

/// One mebibyte.
pub(super) const MIB: u64 = 1 << 20;
/// Random bytes that values are cut from.
const POOL_BYTES: usize = 48 << 20;
const PAGE: usize = 4_096;

/// Values by number: the same number gives the same bytes.
#[derive(Debug)]
pub(super) struct Values(Bytes);

impl Values {
    /// A pool of random bytes.
    pub(super) fn new(seed: u64) -> Self {
        let mut bytes = vec![0; POOL_BYTES];
        StdRng::seed_from_u64(seed).fill_bytes(&mut bytes);
        Self(Bytes::from(bytes))
    }

    /// Value `number`, of `bytes` bytes, at most 16 MiB. Not copied.
    pub(super) fn cut(&self, number: u64, bytes: u64) -> Bytes {
        let bytes = (bytes as usize).min(16 << 20);
        // Whole pages, so that all values have the alignment of the pool, as values that were just encoded do.
        let starts = ((POOL_BYTES - bytes) / PAGE) as u64;
        let start = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % starts * PAGE as u64;
        self.0.slice(start as usize..start as usize + bytes)
    }
}

/// Sizes of values, from 1 to `largest` bytes times a mebibyte, that add up to about `total`.
pub(super) fn sizes(seed: u64, total: u64, largest_mib: u64) -> Vec<u64> {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut sizes, mut sum) = (Vec::new(), 0);
    while sum < total {
        let bytes = random.random_range(MIB..=largest_mib * MIB);
        sizes.push(bytes);
        sum += bytes;
    }
    sizes
}

/// Does `work` for all numbers in `from..to`, each once, on so many threads. Returns the seconds that all of it took.
pub(super) fn on_threads(
    threads: usize,
    from: u64,
    to: u64,
    work: impl Fn(u64) -> Result<(), Fault> + Sync,
) -> Result<f64, Fault> {
    let (next, start) = (AtomicU64::new(from), Barrier::new(threads + 1));
    let run = || -> Result<(), Fault> {
        start.wait();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= to {
                return Ok(());
            }
            work(number)?;
        }
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        start.wait();
        let started = Instant::now();
        for thread in running {
            thread.join().map_err(|_| Fault::new(Blame::Bug, "a thread of the benchmark ended early"))??;
        }
        Ok(started.elapsed().as_secs_f64())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_worked_on_once_and_the_first_failure_is_told() {
        let sum = AtomicU64::new(0);
        let add = |number| {
            sum.fetch_add(number, Ordering::Relaxed);
            Ok(())
        };
        assert!(on_threads(4, 10, 100, add).unwrap() >= 0.0);
        assert_eq!(sum.into_inner(), (10..100).sum::<u64>());
        let fails = |number| if number == 50 { Err(Fault::new(Blame::Device, "50")) } else { Ok(()) };
        assert_eq!(on_threads(3, 0, 100, fails).unwrap_err().message, "50");
    }

    #[test]
    fn values_are_the_same_by_number_and_differ_between_numbers() {
        let values = Values::new(1);
        assert_eq!(values.cut(3, MIB), Values::new(1).cut(3, MIB));
        assert_ne!(values.cut(3, MIB), values.cut(4, MIB));
        assert_eq!(values.cut(u64::MAX, 16 * MIB).len() as u64, 16 * MIB);
        let sizes = sizes(1, 100 * MIB, 16);
        assert!(sizes.iter().all(|bytes| (MIB..=16 * MIB).contains(bytes)));
        assert!((100 * MIB..116 * MIB).contains(&sizes.iter().sum::<u64>()));
    }
}
