//! What a soak came to.

use std::collections::BTreeMap;

use pithead_model::{Blame, Fault};
use serde::{Deserialize, Serialize};

use super::SoakOptions;
use super::memory::{Sample, growth_mb_per_min};
use super::work::{Latencies, Loaded};
use crate::machine::Machine;
use crate::report::table;

/// What one client says at its end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ClientReport {
    pub(super) client: usize,
    /// Pieces of work whose answer was right.
    pub(super) answers: u64,
    pub(super) wrong: u64,
    pub(super) errors: u64,
    /// Answers over datasets that were replaced meanwhile.
    pub(super) overtaken: u64,
    /// Times that a drive said busy, and the time waited for it.
    pub(super) busy: u64,
    pub(super) busy_ms: f64,
    pub(super) failovers: u64,
    /// The first errors and wrong answers, in words.
    pub(super) told: Vec<String>,
    pub(super) latencies: Latencies,
    pub(super) loaded: Loaded,
}

/// What is left once all clients are gone.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Settled {
    /// Datasets whose rows were counted.
    pub(super) datasets: usize,
    /// Datasets that do not have the rows that were acknowledged.
    pub(super) wrong: Vec<String>,
    pub(super) sessions_left: u64,
    pub(super) memory_left: u64,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    machine: Machine,
    clients: usize,
    processes: usize,
    seconds: f64,
    drives: usize,
    copies: usize,
    sessions: u32,
    scale: f64,
    seed: u64,
    work: BTreeMap<String, Work>,
    /// Answers of each client.
    answers_by_client: Vec<u64>,
    memory: Vec<Sample>,
    settled: Settled,
    told: Vec<String>,
    summary: SoakSummary,
}

/// One kind of work: how often, and how long it took, milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Work {
    count: usize,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

/// The figures that later versions are compared by.
#[derive(Clone, Debug, Serialize)]
struct SoakSummary {
    soak_answers: u64,
    soak_wrong: u64,
    soak_errors: u64,
    /// Of the drives, all together.
    soak_rss_growth_mb_per_min: Option<f64>,
    /// Of the host processes, all together.
    soak_hosts_rss_growth_mb_per_min: Option<f64>,
    /// Jain's index over the answers of the clients: 1 where all got as many.
    soak_fairness: f64,
    soak_busy: u64,
    soak_busy_wait_s: f64,
    soak_overtaken: u64,
    soak_answers_per_s: f64,
    soak_sessions_left: u64,
}

impl Report {
    pub(super) fn new(options: &SoakOptions, clients: &[ClientReport], memory: &[Sample], settled: Settled) -> Self {
        let mut latencies = Latencies::new();
        for (kind, taken) in clients.iter().flat_map(|client| &client.latencies) {
            latencies.entry(kind.clone()).or_default().extend(taken);
        }
        let sum = |of: fn(&ClientReport) -> u64| clients.iter().map(of).sum::<u64>();
        let answers_by_client: Vec<u64> = clients.iter().map(|client| client.answers).collect();
        let summary = SoakSummary {
            soak_answers: sum(|client| client.answers),
            soak_wrong: sum(|client| client.wrong) + settled.wrong.len() as u64,
            soak_errors: sum(|client| client.errors),
            soak_rss_growth_mb_per_min: growth_mb_per_min(memory, |sample| sample.drives_mb),
            soak_hosts_rss_growth_mb_per_min: growth_mb_per_min(memory, |sample| sample.hosts_mb),
            soak_fairness: jain(&answers_by_client),
            soak_busy: sum(|client| client.busy),
            soak_busy_wait_s: clients.iter().map(|client| client.busy_ms).sum::<f64>() / 1e3,
            soak_overtaken: sum(|client| client.overtaken),
            soak_answers_per_s: sum(|client| client.answers) as f64 / options.seconds,
            soak_sessions_left: settled.sessions_left,
        };
        Self {
            machine: Machine::here(),
            clients: options.clients,
            processes: options.processes,
            seconds: options.seconds,
            drives: options.drives,
            copies: options.copies,
            sessions: options.sessions,
            scale: options.scale,
            seed: options.seed,
            work: latencies.into_iter().map(|(kind, taken)| (kind, Work::of(taken))).collect(),
            answers_by_client,
            memory: memory.to_vec(),
            told: clients.iter().flat_map(|client| &client.told).chain(&settled.wrong).cloned().collect(),
            settled,
            summary,
        }
    }

    pub(super) fn print(&self) {
        let ms = |value: f64| format!("{value:.1}");
        let row = |(kind, work): (&String, &Work)| {
            vec![kind.clone(), work.count.to_string(), ms(work.p50_ms), ms(work.p95_ms), ms(work.p99_ms), ms(work.max_ms)]
        };
        let header = ["work", "count", "p50 ms", "p95 ms", "p99 ms", "max ms"];
        println!("{}", table(&header, &self.work.iter().map(row).collect::<Vec<_>>()));
        for told in self.told.iter().take(20) {
            println!("{told}");
        }
        let (first, last) = (self.memory.get(self.memory.len() / 3), self.memory.last());
        if let (Some(first), Some(last)) = (first, last) {
            println!(
                "memory after a third and at the end: drives {:.0} and {:.0} MB, hosts {:.0} and {:.0} MB",
                first.drives_mb, last.drives_mb, first.hosts_mb, last.hosts_mb
            );
        }
        println!("{}", serde_json::to_string_pretty(&self.summary).unwrap_or_default());
    }

    /// Wrong answers, and sessions that nobody has, are errors.
    pub(super) fn verdict(&self) -> Result<(), Fault> {
        if self.summary.soak_wrong > 0 {
            return Err(Fault::new(Blame::Bug, format!("{} answers were wrong", self.summary.soak_wrong)));
        }
        if self.settled.sessions_left > 0 || self.settled.memory_left > 0 {
            let what = format!(
                "{} sessions and {} bytes were still held when all clients were gone",
                self.settled.sessions_left, self.settled.memory_left
            );
            return Err(Fault::new(Blame::Bug, what));
        }
        Ok(())
    }
}

impl Work {
    fn of(mut taken: Vec<f32>) -> Self {
        taken.sort_by(f32::total_cmp);
        let at = |share: f64| {
            let index = (share * taken.len() as f64) as usize;
            taken.get(index.min(taken.len().saturating_sub(1))).map_or(f64::NAN, |ms| f64::from(*ms))
        };
        Self { count: taken.len(), p50_ms: at(0.5), p95_ms: at(0.95), p99_ms: at(0.99), max_ms: at(1.0) }
    }
}

/// Jain's fairness index (Jain et al. 1984; see `docs/bibliography.md`): 1 where all have as much, 1/n where one has
/// everything.
fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_for_equals() {
        assert!((jain(&[5, 5, 5, 5]) - 1.0).abs() < 1e-12);
        assert!((jain(&[9, 0, 0]) - 1.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn percentiles_are_those_of_sorted_times() {
        let work = Work::of((1..=100).rev().map(|ms| ms as f32).collect());
        assert_eq!((work.count, work.p50_ms, work.p99_ms, work.max_ms), (100, 51.0, 100.0, 100.0));
    }
}
