//! `pithead bench front`: its flags.

use std::path::PathBuf;

use clap::Args;
use pithead_bench::FrontOptions;

use super::values::parse_scale;

/// Flags of the benchmark of what clients get.
#[derive(Debug, Args)]
pub(crate) struct FrontBenchArgs {
    /// Gigabytes of Arrow to fetch by Flight SQL
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = parse_scale)]
    gb: f64,
    /// Rows to fetch by PostgreSQL's protocol, and to look up one by one
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
    /// How long each run of lookups takes
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Runs of everything; their median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// TPC-H's scale, in gigabytes of text, for DuckDB as a client
    #[arg(long, value_name = "N", default_value_t = 0.3, value_parser = parse_scale)]
    scale: f64,
    /// Leave DuckDB as a client out
    #[arg(long, conflicts_with = "scale")]
    without_duckdb: bool,
    /// TPC-H's scale for hosts with workers
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = parse_scale)]
    workers_scale: f64,
    /// Leave hosts with workers out
    #[arg(long, conflicts_with_all = ["workers_scale", "only_workers"])]
    without_workers: bool,
    /// Measure hosts with workers, and nothing else
    #[arg(long)]
    only_workers: bool,
    /// Where tables and servers are made; what is made is removed at the end, but for TPC-H's tables and DuckDB
    #[arg(long, visible_alias = "dir", value_name = "DIR", default_value = "demo-data")]
    directory: PathBuf,
    /// Write everything that was measured to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What to measure.
pub(super) fn options(args: FrontBenchArgs) -> FrontOptions {
    let scale = (!args.without_duckdb).then_some(args.scale);
    let workers_scale = (!args.without_workers).then_some(args.workers_scale);
    FrontOptions {
        gigabytes: args.gb,
        rows: args.rows,
        seconds: args.seconds,
        runs: usize::from(args.runs),
        scale,
        workers_scale,
        only_workers: args.only_workers,
        directory: args.directory,
        json: args.json,
    }
}
