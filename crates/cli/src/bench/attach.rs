//! `pithead bench attach`: its flags.

use std::path::PathBuf;

use clap::Args;
use pithead_bench::AttachOptions;
use pithead_model::{Rate, parse_rate};

use super::values::parse_scale;

/// Flags of the benchmark of files that are attached in place.
#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// TPC-H's scale, in gigabytes of text
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = parse_scale)]
    scale: f64,
    /// Runs of each query; their median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// What the link is shaped to across which DuckDB reads the files over HTTP (needs root)
    #[arg(long, value_name = "RATE", default_value = "1gbit", value_parser = parse_rate)]
    rate: Rate,
    /// Where tables, drives and DuckDB's Python are kept
    #[arg(long, visible_alias = "dir", value_name = "DIR", default_value = "demo-data")]
    directory: PathBuf,
    /// Write everything that was measured to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What to measure.
pub(super) fn options(args: AttachArgs) -> AttachOptions {
    let AttachArgs { scale, runs, rate, directory, json } = args;
    AttachOptions { scale, runs: usize::from(runs), rate, directory, json }
}
