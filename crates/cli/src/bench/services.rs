//! `pithead bench services`: its flags.

use std::path::PathBuf;

use clap::Args;
use pithead_bench::ServicesOptions;

use super::values::{parse_scale, parse_seconds};

/// Flags of the benchmark of background services.
#[derive(Debug, Args)]
pub(crate) struct ServicesBenchArgs {
    /// Folder for the drive, which is removed at the end
    #[arg(long, visible_alias = "dir", value_name = "DIR", default_value = "demo-data")]
    directory: PathBuf,
    /// How long each measurement takes
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Measurements of each; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Numbers of host threads that put
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16],
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,
    /// Values of 16 KiB that each thread puts in a second, at random moments
    #[arg(long, value_name = "N", default_value_t = 300.0, value_parser = parse_scale)]
    rate: f64,
    /// Cores of the drive, such as 0-3 [default: all]
    #[arg(long, value_name = "CORES")]
    cores: Option<String>,
    /// Folder whose files are stored and deduplicated, the first 400 MB of them
    #[arg(long, value_name = "DIR", default_value = "/usr")]
    files: PathBuf,
    /// Write everything that was measured to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What to measure.
pub(super) fn options(args: ServicesBenchArgs) -> ServicesOptions {
    let ServicesBenchArgs { directory, seconds, runs, threads, rate, cores, files, json } = args;
    let threads = threads.into_iter().map(usize::from).collect();
    ServicesOptions { directory, seconds, runs: usize::from(runs), threads, rate, cores, files, json }
}
