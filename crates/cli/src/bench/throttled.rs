//! `pithead bench throttled`: its flags.

use std::path::PathBuf;

use clap::Args;
use pithead_bench::ThrottledOptions;

/// Flags of the benchmark of drives that are slowed to profiles.
#[derive(Debug, Args)]
pub(crate) struct ThrottledArgs {
    /// Rows of the table
    #[arg(long, value_name = "N", default_value_t = 4_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rows: u64,
    /// Runs of each query; their median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Where the drive is kept while it runs
    #[arg(long, visible_alias = "dir", value_name = "DIR", default_value = "demo-data")]
    directory: PathBuf,
    /// Write everything that was measured to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What to measure.
pub(super) fn options(args: ThrottledArgs) -> ThrottledOptions {
    let ThrottledArgs { rows, runs, directory, json } = args;
    ThrottledOptions { rows, runs: usize::from(runs), directory, json }
}
