//! What the simulator is told of the machine, its medium and the store, each measured by itself.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use pithead_model::Fault;
use pithead_store::{DiskStore, Durability, FolderMedium, Key, Medium, MediumFile, Store, StoreOptions, Write};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use super::VALUE_BYTES;
use super::puts::KEYS;
use crate::kv::clients::value_of;
use crate::tables::io;

/// The bytes that the medium is measured with, in parts as the store writes them, and the bytes of a step's read.
const MEDIUM_BYTES: u64 = 64 << 20;
const PART_BYTES: u64 = 1 << 20;
pub(super) const READ_BYTES: u64 = 64 << 10;
/// How often each is measured; the median counts.
const TIMES: usize = 5;
/// Commits of each size, of one put and of many.
const COMMITS: usize = 400;
const GROUP: usize = 16;
/// Puts from one round to the next: a mebibyte.
const ROUND_PUTS: u64 = (1 << 20) / VALUE_BYTES as u64;
const ROUNDS: usize = 24;

/// What things take by themselves.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Costs {
    /// The speed of a core while all others work, against its speed alone.
    pub(super) beside_speed: f64,
    /// The medium, in megabytes a second, and the time of a read of 64 KiB besides.
    pub(super) read_mb_s: f64,
    pub(super) write_mb_s: f64,
    pub(super) read_latency_us: f64,
    /// A commit of the store by itself, and for each put in it.
    pub(super) commit_us: f64,
    pub(super) commit_put_us: f64,
    /// How long commits wait for a round of the index, for each megabyte that was put, and its time on a core besides.
    pub(super) prepare_us_mb: f64,
    pub(super) round_us_mb: f64,
}

impl Costs {
    /// Measures them in a directory. It blocks, and nothing else should run meanwhile.
    pub(super) fn measure(directory: &Path, cores: usize) -> Result<Costs, Fault> {
        let folder = tempfile::tempdir_in(directory).map_err(|error| io(directory, &error))?;
        let folder = folder.path();
        let mut costs = Costs::default();
        costs.measure_medium(&folder.join("medium"))?;
        costs.measure_commits(&folder.join("commits"), cores)?;
        costs.measure_rounds(&folder.join("rounds"))?;
        Ok(costs)
    }

    fn measure_medium(&mut self, folder: &Path) -> Result<(), Fault> {
        let medium = FolderMedium::open(folder)?;
        let failed = |error| io(folder, &error);
        let file = medium.open("probe", true).map_err(failed)?;
        let (write_s, read_s, part_s) = medium_seconds(&*file).map_err(failed)?;
        let read_bytes_s = MEDIUM_BYTES as f64 / read_s;
        self.write_mb_s = MEDIUM_BYTES as f64 / write_s / 1e6;
        self.read_mb_s = read_bytes_s / 1e6;
        self.read_latency_us = (part_s - READ_BYTES as f64 / read_bytes_s).max(0.0) * 1e6;
        Ok(())
    }

    fn measure_commits(&mut self, folder: &Path, cores: usize) -> Result<(), Fault> {
        let mut puts = Putting::begin(folder)?;
        let one = puts.median_commit(1)?;
        let many = puts.median_commit(GROUP)?;
        self.commit_put_us = ((many - one) / (GROUP - 1) as f64).max(0.0) * 1e6;
        self.commit_us = (one * 1e6 - self.commit_put_us).max(0.0);
        let beside = beside_others(cores - 1, || puts.median_commit(1))?;
        self.beside_speed = if cores > 1 { (one / beside).clamp(0.1, 1.0) } else { 1.0 };
        Ok(())
    }

    /// One thread puts all the time, and another one makes that durable again and again.
    fn measure_rounds(&mut self, folder: &Path) -> Result<(), Fault> {
        let puts = Putting::begin(folder)?;
        let (store, done, stops) = (puts.store.clone(), AtomicU64::new(0), AtomicBool::new(false));
        let (rounds, commits) = std::thread::scope(|scope| {
            let putting = scope.spawn(|| puts.put_until(&stops, &done));
            let mut from = 0;
            let one = |_| {
                let round = Round::run(&store, &done, from, || putting.is_finished())?;
                from += round.puts;
                Ok::<_, Fault>(round)
            };
            let rounds = (0..ROUNDS).map(one).collect::<Result<Vec<_>, _>>();
            stops.store(true, Ordering::Relaxed);
            let commits = putting.join().map_err(|_| Fault::bug("a thread that puts panicked"))?;
            Ok::<_, Fault>((rounds?, commits?))
        })?;
        let bytes = |round: &Round| round.puts as f64 * VALUE_BYTES as f64;
        let usual = median(commits.iter().map(|commit| commit.seconds).collect());
        let waits = |round: &Round| (round.longest(&commits) - usual).max(0.0) / bytes(round);
        let wait = median(rounds.iter().map(waits).collect());
        let all = median(rounds.iter().map(|round| round.cpu_seconds / bytes(round)).collect());
        self.prepare_us_mb = wait * 1e12;
        // What it does beside commits is slowed down by them, if both are threads of one core of the processor.
        self.round_us_mb = (all - wait).max(0.0) * self.beside_speed * 1e12;
        Ok(())
    }

    /// In lines.
    pub(super) fn text(&self) -> String {
        format!(
            "a core beside others that work: {:.2} of its speed alone\n\
             medium: writes {:.0} MB/s, reads {:.0} MB/s and {:.0} µs for each 64 KiB besides\n\
             commit: {:.0} µs and {:.0} µs for each put; \
             round of the index: commits wait {:.0} µs for a MB, and {:.0} µs of a core beside them",
            self.beside_speed,
            self.write_mb_s,
            self.read_mb_s,
            self.read_latency_us,
            self.commit_us,
            self.commit_put_us,
            self.prepare_us_mb,
            self.round_us_mb
        )
    }
}

/// Seconds to write all and flush it, to read it at once and to read a part.
fn medium_seconds(file: &dyn MediumFile) -> std::io::Result<(f64, f64, f64)> {
    let part = value_of(PART_BYTES as usize);
    let timed = |work: &dyn Fn() -> std::io::Result<()>| {
        let started = Instant::now();
        work().map(|()| started.elapsed().as_secs_f64())
    };
    let write = || (0..MEDIUM_BYTES).step_by(PART_BYTES as usize).try_for_each(|at| file.write(at, &part));
    let written = (0..TIMES).map(|_| timed(&|| write().and_then(|()| file.flush()))).collect::<Result<_, _>>()?;
    let read = (0..TIMES).map(|_| timed(&|| file.read_large(0..MEDIUM_BYTES).map(drop))).collect::<Result<_, _>>()?;
    let places = (0..MEDIUM_BYTES).step_by(READ_BYTES as usize);
    let parts = places.map(|at| timed(&|| file.read_large(at..at + READ_BYTES).map(drop))).collect::<Result<_, _>>()?;
    Ok((median(written), median(read), median(parts)))
}

/// Runs work while so many other threads copy and hash all the time.
fn beside_others<T>(others: usize, work: impl FnOnce() -> T) -> T {
    let stops = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..others {
            scope.spawn(|| {
                let source = value_of(READ_BYTES as usize);
                while !stops.load(Ordering::Relaxed) {
                    let copy = std::hint::black_box(source.to_vec());
                    std::hint::black_box(xxh3_64(&copy));
                }
            });
        }
        let done = work();
        stops.store(true, Ordering::Relaxed);
        done
    })
}

/// Puts as host threads send them, to a store of this process.
struct Putting {
    store: std::sync::Arc<DiskStore>,
    keys: Vec<Key>,
    value: Bytes,
}

/// When a commit began, and how long it took.
struct Commit {
    began: Instant,
    seconds: f64,
}

impl Putting {
    fn begin(folder: &Path) -> Result<Putting, Fault> {
        // Nothing is made durable but when it is asked for.
        let options = StoreOptions { background: false, ..StoreOptions::default() };
        let store = std::sync::Arc::new(DiskStore::open(folder, options)?);
        let keys = (0..KEYS * GROUP).map(|index| Key::from(format!("bench/put/{index:06}"))).collect();
        Ok(Putting { store, keys, value: value_of(VALUE_BYTES) })
    }

    fn commit(&self, keys: &[Key]) -> Result<Commit, Fault> {
        let batch = keys.iter().map(|key| Write::put(key.clone(), self.value.clone())).collect();
        let began = Instant::now();
        self.store.write(batch, Durability::Back)?;
        Ok(Commit { began, seconds: began.elapsed().as_secs_f64() })
    }

    /// The median of commits of so many puts each.
    fn median_commit(&mut self, puts: usize) -> Result<f64, Fault> {
        let mut seconds = Vec::with_capacity(COMMITS);
        let mut unflushed = 0;
        for keys in self.keys.chunks(puts).cycle().take(COMMITS) {
            seconds.push(self.commit(keys)?.seconds);
            unflushed += keys.len() as u64;
            if unflushed >= ROUND_PUTS {
                self.store.flush()?;
                unflushed = 0;
            }
        }
        Ok(median(seconds))
    }

    /// Puts until it is told to stop, and counts that.
    fn put_until(&self, stops: &AtomicBool, done: &AtomicU64) -> Result<Vec<Commit>, Fault> {
        let mut commits = Vec::new();
        for key in self.keys.iter().cycle() {
            if stops.load(Ordering::Relaxed) {
                break;
            }
            commits.push(self.commit(std::slice::from_ref(key))?);
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(commits)
    }
}

/// A round that makes durable what was put.
struct Round {
    began: Instant,
    ended: Instant,
    puts: u64,
    cpu_seconds: f64,
}

impl Round {
    /// Waits until there is enough for one. `from`: puts that earlier rounds have made durable.
    fn run(store: &DiskStore, done: &AtomicU64, from: u64, is_over: impl Fn() -> bool) -> Result<Round, Fault> {
        while done.load(Ordering::Relaxed) < from + ROUND_PUTS && !is_over() {
            std::thread::sleep(Duration::from_micros(100));
        }
        let (began, cpu) = (Instant::now(), thread_seconds());
        let puts = (done.load(Ordering::Relaxed) - from).max(1);
        store.flush()?;
        Ok(Round { began, ended: Instant::now(), puts, cpu_seconds: thread_seconds() - cpu })
    }

    /// The seconds of the longest commit that it kept waiting.
    fn longest(&self, commits: &[Commit]) -> f64 {
        let overlaps =
            |commit: &&Commit| commit.began < self.ended && commit.began + Duration::from_secs_f64(commit.seconds) > self.began;
        commits.iter().filter(overlaps).map(|commit| commit.seconds).fold(0.0, f64::max)
    }
}

/// The processor time of this thread.
fn thread_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Bytes that a process has had read from devices and given to them so far; zeros where the kernel does not say.
pub(super) fn device_bytes(process: u32) -> [f64; 2] {
    parse_io(&std::fs::read_to_string(format!("/proc/{process}/io")).unwrap_or_default())
}

fn parse_io(text: &str) -> [f64; 2] {
    ["read_bytes: ", "write_bytes: "].map(|name| {
        let count = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        count.unwrap_or(0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let costs = Costs::measure(folder.path(), 2).unwrap();
        let all = [costs.beside_speed, costs.read_mb_s, costs.write_mb_s, costs.commit_put_us];
        assert!(all.iter().all(|cost| cost.is_finite() && *cost > 0.0), "{costs:?}");
        assert!(costs.beside_speed <= 1.0 && costs.prepare_us_mb >= 0.0 && costs.round_us_mb >= 0.0, "{costs:?}");
        let named = ["medium: writes", "commit: ", "round of the index"];
        assert!(named.iter().all(|name| costs.text().contains(name)), "{}", costs.text());
    }

    #[test]
    fn the_longest_commit_of_a_round_is_one_that_it_overlaps() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let commit = |began: u64, ms: u64| Commit { began: at(began), seconds: ms as f64 / 1e3 };
        let round = Round { began: at(10), ended: at(20), puts: 1, cpu_seconds: 0.0 };
        let commits = [commit(0, 9), commit(9, 3), commit(12, 5), commit(21, 8)];
        assert_eq!(round.longest(&commits), 0.005);
        assert_eq!(round.longest(&commits[..1]), 0.0);
    }

    #[test]
    fn bytes_are_those_of_devices() {
        let text = "rchar: 1\nwchar: 2\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 3\n";
        assert_eq!(parse_io(text), [4_096.0, 8_192.0]);
        assert_eq!(parse_io(""), [0.0, 0.0]);
    }
}
