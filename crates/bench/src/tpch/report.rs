//! What was measured of TPC-H, for people and for programs.

use pithead_host::LoadReport;
use serde::Serialize;

use super::peers::Peers;
use super::{DRIVES, Linked, Local, THREADS, TpchOptions};
use crate::machine::Machine;
use crate::report::{megabytes, ratio, seconds, table};
use crate::timing::{Spread, geometric_mean};

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    machine: Machine,
    scale: f64,
    runs: usize,
    drives: usize,
    threads: usize,
    /// Sends of the drives are paced by the drives themselves to this rate: an emulated link.
    paced_link: String,
    duckdb: Option<String>,
    polars: Option<String>,
    /// Largest memory of this process, drives and host, over all queries; the same of DuckDB on its own tables.
    peak_bytes: Option<u64>,
    duckdb_peak_bytes: Option<u64>,
    queries: Vec<QueryReport>,
    summary: TpchSummary,
}

#[derive(Debug, Serialize)]
struct QueryReport {
    name: &'static str,
    rows: usize,
    link_bytes_on: u64,
    link_bytes_off: u64,
    paced_seconds_on: Spread,
    paced_seconds_off: Spread,
    in_process_seconds: Spread,
    default_layout_seconds: Spread,
    duckdb_native_seconds: Option<Spread>,
    duckdb_parquet_seconds: Option<Spread>,
    /// Polars' streaming engine on the Parquet files, where its answer is the same.
    polars_seconds: Option<Spread>,
    /// Why there are no seconds of it.
    polars_note: Option<String>,
    answers_equal: bool,
}

/// The figures that later versions are compared by.
#[derive(Debug, Serialize)]
struct TpchSummary {
    link_bytes_ratio: f64,
    worst_link_bytes_ratio: f64,
    /// Seconds on the paced link, push-down off against on, total.
    total_vs_off: f64,
    geomean_vs_duckdb_native: Option<f64>,
    worst_vs_duckdb_native: Option<f64>,
    /// Largest memory over all queries, in-process beside DuckDB native.
    peak_memory_vs_duckdb: Option<f64>,
    geomean_vs_duckdb_parquet: Option<f64>,
    /// Seconds in-process against Polars' on the Parquet files, over those queries that it answers; how many these are; the worst.
    geomean_vs_polars: Option<f64>,
    polars_queries: Option<usize>,
    worst_vs_polars: Option<f64>,
    /// Seconds in-process of tables that were loaded without any layout option, against DuckDB native.
    geomean_default_layout: Option<f64>,
    /// OPEN to CLOSE of the smallest session, over loopback.
    session_ms: f64,
    /// The same, in-process.
    session_in_process_ms: f64,
    /// Megabytes of Parquet a second.
    load_mb_s: f64,
    stored_vs_parquet_zstd: f64,
}

impl Report {
    /// Puts together what was measured.
    pub(super) fn of(
        options: &TpchOptions,
        linked: Vec<Linked>,
        local: Local,
        default_layout: Local,
        peers: &Peers,
        session_ms: f64,
    ) -> Report {
        let duck = peers.duckdb.as_ref();
        let each = linked.into_iter().zip(local.seconds).zip(default_layout.seconds);
        let queries: Vec<QueryReport> =
            each.map(|((linked, local), default_layout)| query(linked, local, default_layout, peers)).collect();
        let peaks = (local.peak_bytes, duck.map(|duck| duck.native_peak_bytes));
        let summary = summary(&queries, &local.stored, peaks, (session_ms, local.session_ms));
        Report {
            machine: Machine::here(),
            scale: options.scale,
            runs: options.runs,
            drives: DRIVES,
            threads: THREADS,
            paced_link: options.link.clone(),
            duckdb: duck.map(|duck| duck.version.clone()),
            polars: peers.polars.as_ref().map(|polars| polars.version.clone()),
            peak_bytes: peaks.0,
            duckdb_peak_bytes: peaks.1,
            queries,
            summary,
        }
    }

    /// Prints a table and the summary.
    pub(super) fn print(&self) {
        println!("{}", table(&HEADER, &self.queries.iter().map(row).collect::<Vec<_>>()));
        println!(
            "links paced to {} by the drives; {} threads in-process and in others, warm; median (min–max) of {}",
            self.paced_link, self.threads, self.runs
        );
        println!("{}", serde_json::to_string_pretty(&self.summary).unwrap_or_default());
    }
}

fn query(linked: Linked, local: Spread, default_layout: Spread, peers: &Peers) -> QueryReport {
    let name = linked.query.name;
    let beside = |seconds: &std::collections::BTreeMap<String, Vec<f64>>| Some(Spread::of(seconds.get(name)?.clone()));
    QueryReport {
        name,
        rows: linked.rows,
        link_bytes_on: linked.bytes_on,
        link_bytes_off: linked.bytes_off,
        paced_seconds_on: linked.on,
        paced_seconds_off: linked.off,
        in_process_seconds: local,
        default_layout_seconds: default_layout,
        duckdb_native_seconds: peers.duckdb.as_ref().and_then(|duck| beside(&duck.native)),
        duckdb_parquet_seconds: peers.duckdb.as_ref().and_then(|duck| beside(&duck.parquet)),
        polars_seconds: peers.polars_seconds(name),
        polars_note: peers.polars_note(name),
        answers_equal: linked.equal,
    }
}

fn summary(
    queries: &[QueryReport],
    stored: &LoadReport,
    peaks: (Option<u64>, Option<u64>),
    sessions_ms: (f64, f64),
) -> TpchSummary {
    let total = |figure: fn(&QueryReport) -> f64| queries.iter().map(figure).sum::<f64>();
    let bytes_ratio = |query: &QueryReport| query.link_bytes_off as f64 / query.link_bytes_on.max(1) as f64;
    let ratios = |other: fn(&QueryReport) -> Option<Spread>| -> Option<Vec<f64>> {
        queries.iter().map(|query| Some(query.in_process_seconds.median / other(query)?.median)).collect()
    };
    let native = ratios(|query| query.duckdb_native_seconds);
    let default_layout: Option<Vec<f64>> =
        queries.iter().map(|query| Some(query.default_layout_seconds.median / query.duckdb_native_seconds?.median)).collect();
    let polars = against_polars(queries);
    TpchSummary {
        link_bytes_ratio: total(|query| query.link_bytes_off as f64) / total(|query| query.link_bytes_on as f64).max(1.0),
        worst_link_bytes_ratio: queries.iter().map(bytes_ratio).fold(f64::INFINITY, f64::min),
        total_vs_off: total(|query| query.paced_seconds_off.median) / total(|query| query.paced_seconds_on.median),
        worst_vs_duckdb_native: native.as_ref().map(|ratios| ratios.iter().copied().fold(0.0, f64::max)),
        peak_memory_vs_duckdb: peaks.0.zip(peaks.1).map(|(own, other)| own as f64 / other.max(1) as f64),
        geomean_vs_duckdb_native: native.map(geometric_mean),
        geomean_vs_duckdb_parquet: ratios(|query| query.duckdb_parquet_seconds).map(geometric_mean),
        geomean_vs_polars: polars.as_ref().map(|ratios| geometric_mean(ratios.iter().copied())),
        polars_queries: polars.as_ref().map(Vec::len),
        worst_vs_polars: polars.map(|ratios| ratios.into_iter().fold(0.0, f64::max)),
        geomean_default_layout: default_layout.map(geometric_mean),
        session_ms: sessions_ms.0,
        session_in_process_ms: sessions_ms.1,
        load_mb_s: stored.source_bytes as f64 / 1e6 / stored.seconds,
        stored_vs_parquet_zstd: stored.stored_bytes as f64 / stored.source_bytes as f64,
    }
}

/// Seconds in-process over Polars', of each query that Polars answers. None: of no query.
fn against_polars(queries: &[QueryReport]) -> Option<Vec<f64>> {
    let against = |query: &QueryReport| Some(query.in_process_seconds.median / query.polars_seconds?.median);
    Some(queries.iter().filter_map(against).collect::<Vec<_>>()).filter(|ratios| !ratios.is_empty())
}

const HEADER: [&str; 11] = [
    "query",
    "rows",
    "MB on",
    "MB off",
    "paced s on",
    "paced s off",
    "in-process s",
    "default layout s",
    "DuckDB native s",
    "DuckDB Parquet s",
    "Polars Parquet s",
];

fn row(query: &QueryReport) -> Vec<String> {
    let spread = |spread: &Spread| format!("{} ({}–{})", seconds(spread.median), seconds(spread.min), seconds(spread.max));
    let beside = |other: &Option<Spread>| match other {
        Some(other) => format!("{} {}", seconds(other.median), ratio(query.in_process_seconds.median / other.median)),
        None => "-".to_owned(),
    };
    vec![
        query.name.to_owned(),
        if query.answers_equal { query.rows.to_string() } else { "DIFFER".to_owned() },
        megabytes(query.link_bytes_on),
        megabytes(query.link_bytes_off),
        spread(&query.paced_seconds_on),
        spread(&query.paced_seconds_off),
        spread(&query.in_process_seconds),
        seconds(query.default_layout_seconds.median),
        beside(&query.duckdb_native_seconds),
        beside(&query.duckdb_parquet_seconds),
        beside(&query.polars_seconds),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(in_process: f64, polars: Option<f64>) -> QueryReport {
        let spread = |seconds| Spread::of(vec![seconds]);
        QueryReport {
            name: "Q1",
            rows: 1,
            link_bytes_on: 1,
            link_bytes_off: 1,
            paced_seconds_on: spread(1.0),
            paced_seconds_off: spread(1.0),
            in_process_seconds: spread(in_process),
            default_layout_seconds: spread(1.0),
            duckdb_native_seconds: None,
            duckdb_parquet_seconds: None,
            polars_seconds: polars.map(spread),
            polars_note: None,
            answers_equal: true,
        }
    }

    #[test]
    fn queries_that_polars_does_not_answer_do_not_count() {
        let queries = [query(1.0, Some(2.0)), query(9.0, None), query(4.0, Some(2.0))];
        assert_eq!(against_polars(&queries), Some(vec![0.5, 2.0]));
        assert_eq!(against_polars(&queries[1..2]), None);
        assert_eq!(row(&queries[1]).len(), HEADER.len());
    }
}
