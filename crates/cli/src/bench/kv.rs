//! `pithead bench kv`: its flags.

use std::path::PathBuf;

use clap::Args;
use pithead_bench::KvOptions;

use super::values::{parse_scale, parse_seconds};

/// Flags of the benchmark of the Kinetic protocol.
#[derive(Debug, Args)]
pub(crate) struct KvBenchArgs {
    /// Folder on the medium to measure; what is made there is removed at the end, but for TPC-H's tables
    #[arg(long, visible_alias = "dir", value_name = "DIR", default_value = "demo-data")]
    directory: PathBuf,
    /// How long each measurement takes
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = parse_seconds)]
    seconds: f64,
    /// TPC-H's scale, in gigabytes of text, of the table that is queried while values are read
    #[arg(long, value_name = "N", default_value_t = 0.1, value_parser = parse_scale)]
    scale: f64,
    /// Write everything that was measured to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What to measure.
pub(super) fn options(args: KvBenchArgs) -> KvOptions {
    let KvBenchArgs { directory, seconds, scale, json } = args;
    KvOptions { directory, seconds, scale, json }
}
