//! Measurements as lines: of the table, and while others are still to come.

use super::Measured;

pub(super) const HEADER: [&str; 12] = [
    "chunks",
    "policy",
    "threads",
    "mean µs",
    "p50 µs",
    "p99 µs",
    "p99.9 µs",
    "puts/s",
    "dedup MB/s",
    "client",
    "foreground",
    "background",
];

pub(super) fn number(number: f64) -> String {
    if number >= 100.0 { format!("{number:.0}") } else { format!("{number:.1}") }
}

pub(super) fn measured_row(it: &Measured) -> Vec<String> {
    let what = match it.rate {
        Some(_) => it.threads.to_string(),
        None => format!("{}, no pause", it.threads),
    };
    let latencies = [it.latencies.mean_us, it.latencies.p50_us, it.latencies.p99_us, it.latencies.p999_us];
    let figures = [latencies.to_vec(), vec![it.puts_s, it.dedup_mb_s]].concat().into_iter().map(number);
    let shares = |shares: &[f64]| shares.iter().map(|share| format!("{:.0}%", share * 100.0)).collect::<Vec<_>>().join(" ");
    let cores = [shares(&[it.client_cores]), shares(&it.foreground), shares(&it.background)];
    let names = vec![it.chunks.to_owned(), it.policy.unwrap_or("paused").to_owned(), what];
    [names, figures.collect(), cores.to_vec()].concat()
}

/// One measurement, while others are still to come.
pub(super) fn line(it: &Measured) -> String {
    let rate = it.rate.map_or_else(|| "no pause".to_owned(), |rate| format!("{rate} puts/s each"));
    let policy = it.policy.unwrap_or("paused");
    let latencies = &it.latencies;
    format!(
        "{}, {policy}, {} threads, {rate}: mean {:.0} µs, p99 {:.0} µs",
        it.chunks, it.threads, latencies.mean_us, latencies.p99_us
    )
}
