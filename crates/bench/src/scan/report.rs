//! What was measured, for people and for programs.

use serde::Serialize;

use super::biscuit::Biscuit;
use super::{Beside, ScanOptions};
use crate::machine::Machine;
use crate::report::{ratio, table};
use crate::timing::{Spread, geometric_mean};

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(super) struct ScanReport {
    machine: Machine,
    scale: f64,
    rows: usize,
    threads: usize,
    runs: usize,
    numbers: Vec<Beside>,
    texts: Vec<Beside>,
    biscuit: Biscuit,
    summary: ScanSummary,
}

/// The figures that later versions are compared by: geometric means of the queries' medians.
#[derive(Debug, Serialize)]
struct ScanSummary {
    scan_share_of_memory: f64,
    worst_scan_share_of_memory: f64,
    substring_share_of_memmem: f64,
    worst_substring_share_of_memmem: f64,
    biscuit_vs_duckdb_native: Option<f64>,
    biscuit_vs_duckdb_sorted: Option<f64>,
}

impl ScanReport {
    pub(super) fn new(
        machine: Machine,
        options: &ScanOptions,
        numbers: Vec<Beside>,
        texts: Vec<Beside>,
        biscuit: Biscuit,
    ) -> Self {
        let mean = |queries: &[Beside]| geometric_mean(queries.iter().map(|query| query.share.median));
        let worst = |queries: &[Beside]| queries.iter().map(|query| query.share.median).fold(f64::INFINITY, f64::min);
        let against = |other: Option<Spread>| other.map(|other| biscuit.seconds.median / other.median);
        let summary = ScanSummary {
            scan_share_of_memory: mean(&numbers),
            worst_scan_share_of_memory: worst(&numbers),
            substring_share_of_memmem: mean(&texts),
            worst_substring_share_of_memmem: worst(&texts),
            biscuit_vs_duckdb_native: against(biscuit.duckdb_seconds),
            biscuit_vs_duckdb_sorted: against(biscuit.duckdb_sorted_seconds),
        };
        let ScanOptions { scale, rows, threads, runs, .. } = *options;
        Self { machine, scale, rows, threads, runs, numbers, texts, biscuit, summary }
    }

    /// All of it as tables.
    pub(super) fn text(&self) -> String {
        let header = ["query", "rows that pass", "ms", "GB/s", "plain ms", "plain GB/s", "share"];
        let rows: Vec<_> = self.numbers.iter().chain(&self.texts).map(row).collect();
        let biscuit = |name: &str, seconds: &Spread| vec![name.to_owned(), milliseconds(seconds)];
        let mut ways = vec![biscuit("Pithead", &self.biscuit.seconds)];
        ways.extend(self.biscuit.duckdb_seconds.iter().map(|seconds| biscuit("DuckDB, its table as TPC-H makes it", seconds)));
        ways.extend(
            self.biscuit.duckdb_sorted_seconds.iter().map(|seconds| biscuit("DuckDB, its table sorted as ours", seconds)),
        );
        format!(
            "{}\n\n{}\n\n{} threads; medians (min–max) of {} runs; GB/s of the decoded columns that a query reads\n{}",
            table(&header, &rows),
            table(&["l_shipdate = '1995-01-17'", "ms"], &ways),
            self.threads,
            self.runs,
            serde_json::to_string_pretty(&self.summary).unwrap_or_default()
        )
    }
}

fn row(query: &Beside) -> Vec<String> {
    let rate = |seconds: &Spread| format!("{:.1}", query.bytes as f64 / 1e9 / seconds.median);
    vec![
        query.sql.clone(),
        format!("{:.3}%", query.selected * 100.0),
        milliseconds(&query.seconds),
        rate(&query.seconds),
        milliseconds(&query.plain_seconds),
        rate(&query.plain_seconds),
        ratio(query.share.median),
    ]
}

fn milliseconds(seconds: &Spread) -> String {
    let ms = |seconds: f64| seconds * 1e3;
    format!("{:.1} ({:.1}–{:.1})", ms(seconds.median), ms(seconds.min), ms(seconds.max))
}
