//! `pithead bench load`: its flags.

use std::path::PathBuf;

use clap::Args;
use pithead_bench::LoadOptions;

use super::values::parse_scale;

/// Flags of the loads' benchmark.
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// TPC-H's scale, in gigabytes of text
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = parse_scale)]
    scale: f64,
    /// Runs of each way; their median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Where tables and drives are kept
    #[arg(long, visible_alias = "dir", value_name = "DIR", default_value = "demo-data")]
    directory: PathBuf,
    /// Write everything that was measured to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What to measure.
pub(super) fn options(args: LoadArgs) -> LoadOptions {
    let LoadArgs { scale, runs, directory, json } = args;
    LoadOptions { scale, runs: usize::from(runs), directory, json }
}
