//! `pithead bench neardata`: its flags, and those of its host.

use std::path::PathBuf;

use clap::Args;
use pithead_bench::{NearDataHostOptions, NearDataOptions};
use pithead_model::{Rate, parse_rate};

use super::values::parse_scale;

/// Flags of the benchmark across a shaped link.
#[derive(Debug, Args)]
pub(crate) struct NeardataArgs {
    /// TPC-H's scale, in gigabytes of text
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = parse_scale)]
    scale: f64,
    /// Runs of each query, of which the median counts. Below 500 Mbit/s only those with push-down run more than once
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// What the link is shaped to, one after the other
    #[arg(long, value_name = "RATE,…", value_delimiter = ',', default_value = "1gbit,100mbit", value_parser = parse_rate)]
    rates: Vec<Rate>,
    /// Put the host's side on core 0, drives and nginx on core 1
    #[arg(long)]
    split_cores: bool,
    /// Where tables, drives and DuckDB's Python are kept
    #[arg(long, visible_alias = "dir", value_name = "DIR", default_value = "demo-data")]
    directory: PathBuf,
    /// Write everything that was measured to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What the host of `neardata` does.
#[derive(Debug, Args)]
pub(crate) struct NeardataHostArgs {
    /// Where drives listen
    #[arg(long, value_delimiter = ',')]
    drives: Vec<String>,
    /// Threads of the host
    #[arg(long)]
    threads: usize,
    /// Drive threads that a query may use
    #[arg(long)]
    drive_threads: usize,
}

/// What to measure.
pub(super) fn options(args: NeardataArgs) -> NearDataOptions {
    let NeardataArgs { scale, runs, rates, split_cores, directory, json } = args;
    NearDataOptions { scale, runs: usize::from(runs), rates, split_cores, directory, json }
}

/// Where drives are and how many threads there are.
pub(super) fn host_options(args: NeardataHostArgs) -> NearDataHostOptions {
    let NeardataHostArgs { drives, threads, drive_threads } = args;
    NearDataHostOptions { drives, threads, drive_threads }
}
