//! How busy the machine's cores are, whoever uses them, from `/proc/stat`; and what a thread has taken of them.

use std::fs;
use std::time::Duration;

/// Busy and all time of a core since the machine started, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    all: u64,
}

/// The machine's cores, or one of them for each reactor where reactors are pinned.
#[derive(Debug)]
pub(crate) struct Usage {
    cores: Option<Vec<usize>>,
    last: Vec<Ticks>,
    shares: Vec<f64>,
}

/// Ticks of all cores between two readings; with fewer, a share of them says little.
const TICKS_MIN: u64 = 5;

impl Usage {
    pub fn new(cores: Option<Vec<usize>>) -> Usage {
        Usage { cores, last: Vec::new(), shares: Vec::new() }
    }

    /// The busy share of each of so many reactors' cores lately; where they are not pinned, of all cores. Empty where the system
    /// does not tell.
    pub fn shares(&mut self, reactors: usize) -> &[f64] {
        let Some(all) = fs::read_to_string("/proc/stat").ok().map(|text| ticks(&text)) else { return &[] };
        let now: Vec<Ticks> = match &self.cores {
            Some(cores) => {
                (0..reactors).map(|index| all[1..].get(cores[index % cores.len()]).copied().unwrap_or_default()).collect()
            }
            None => vec![all[0]; reactors],
        };
        if self.last.len() != now.len() {
            self.shares = vec![0.0; now.len()];
            self.last = now;
            return &self.shares;
        }
        for ((last, now), share) in self.last.iter_mut().zip(now).zip(&mut self.shares) {
            let since = now.all.saturating_sub(last.all);
            if since >= TICKS_MIN {
                *share = now.busy.saturating_sub(last.busy) as f64 / since as f64;
                *last = now;
            }
        }
        &self.shares
    }
}

/// CPU time of this thread since it started.
pub(crate) fn thread_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time` alone, which outlives it.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    match status {
        0 => Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32),
        _ => Duration::ZERO,
    }
}

/// This thread's number.
pub(crate) fn this_thread() -> i32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::gettid() }
}

/// How long a thread of this process was ready to run while others had the cores; nothing where the system does not tell.
pub(crate) fn waited_for_a_core(thread: i32) -> Duration {
    let told = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap_or_default();
    // Nanoseconds on a core, nanoseconds of waiting for one, turns.
    let waited = told.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok());
    Duration::from_nanos(waited.unwrap_or_default())
}

/// All cores together, and each core by its number.
fn ticks(text: &str) -> Vec<Ticks> {
    let mut ticks = vec![Ticks::default()];
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(name) = words.next().and_then(|name| name.strip_prefix("cpu")) else { break };
        // user nice system idle iowait irq softirq steal
        let counts: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
        let all: u64 = counts.iter().sum();
        let idle: u64 = counts.iter().skip(3).take(2).sum();
        let core = Ticks { busy: all - idle, all };
        match name.parse::<usize>() {
            Ok(number) => {
                ticks.resize((number + 2).max(ticks.len()), Ticks::default());
                ticks[number + 1] = core;
            }
            Err(_) => ticks[0] = core,
        }
    }
    ticks
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn ticks_are_of_each_core_and_of_all() {
        let text = "cpu  10 1 4 80 5 0 0 0 7 0\ncpu0 6 0 2 40 2 0 0 0 0 0\ncpu2 4 1 2 40 3 0 0 0 0 0\nintr 5\ncpu9 1 1 1 1 1\n";
        let busy = |busy, all| Ticks { busy, all };
        assert_eq!(ticks(text), [busy(15, 100), busy(8, 50), Ticks::default(), busy(7, 50)]);
    }

    #[test]
    fn threads_that_share_a_core_wait_for_it() {
        let core = core_affinity::get_core_ids().unwrap()[0];
        let is_over = AtomicBool::new(false);
        let (waited, of_none) = std::thread::scope(|scope| {
            scope.spawn(|| {
                core_affinity::set_for_current(core);
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let pinned = scope.spawn(|| {
                core_affinity::set_for_current(core);
                let begun = thread_cpu();
                while thread_cpu() - begun < Duration::from_millis(50) {}
                let waited = waited_for_a_core(this_thread());
                is_over.store(true, Ordering::Relaxed);
                waited
            });
            (pinned.join().unwrap(), waited_for_a_core(0))
        });
        assert_eq!(of_none, Duration::ZERO, "no thread has this number");
        let tells = fs::exists("/proc/self/schedstat").unwrap();
        assert!(!tells || waited > Duration::from_millis(1), "{waited:?}");
    }

    #[test]
    fn a_core_that_does_not_exist_is_idle() {
        let mut usage = Usage::new(Some(vec![100_000]));
        usage.shares(2);
        assert!(usage.shares(2).iter().all(|share| *share == 0.0));
    }
}
