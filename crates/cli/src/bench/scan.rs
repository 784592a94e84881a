//! `pithead bench scan`: its flags.

use std::path::PathBuf;

use clap::Args;
use pithead_bench::ScanOptions;

use super::values::parse_scale;

/// Flags of the scans' benchmark.
#[derive(Debug, Args)]
pub(crate) struct ScanArgs {
    /// TPC-H's scale, in gigabytes of text, of the table that texts and days are looked for in
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = parse_scale)]
    scale: f64,
    /// Rows of the table of numbers, each 24 bytes
    #[arg(long, value_name = "N", default_value_t = 16_000_000, value_parser = clap::value_parser!(u32).range(1_000..=1_000_000_000))]
    rows: u32,
    /// Threads of the drive, of the loops and of DuckDB
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Where tables and drives are kept
    #[arg(long, visible_alias = "dir", value_name = "DIR", default_value = "demo-data")]
    directory: PathBuf,
    /// Runs of each query; their median counts
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Write everything that was measured to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What to measure.
pub(super) fn options(args: ScanArgs) -> ScanOptions {
    let ScanArgs { scale, rows, threads, directory, runs, json } = args;
    let (threads, runs) = (usize::from(threads), usize::from(runs));
    ScanOptions { scale, rows: rows as usize, threads, runs, directory, json }
}
