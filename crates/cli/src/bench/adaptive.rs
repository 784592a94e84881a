//! `pithead bench adaptive`: its flags.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use pithead_bench::{AdaptiveOptions, AdaptivePart};

/// Flags of the benchmark of push-back.
#[derive(Debug, Args)]
pub(crate) struct AdaptiveArgs {
    /// Slices of the table
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=4096))]
    slices: u16,
    /// Rows of a slice
    #[arg(long, value_name = "N", default_value_t = 32_768, value_parser = clap::value_parser!(u32).range(1_024..=1_048_576))]
    slice_rows: u32,
    /// Runs of each query; their median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Where the table and the drive are kept
    #[arg(long, visible_alias = "dir", value_name = "DIR", default_value = "demo-data")]
    directory: PathBuf,
    /// Run only these parts
    #[arg(long, value_enum, value_name = "PART,…", value_delimiter = ',')]
    only: Vec<AdaptivePartArg>,
    /// Measure only cells whose name has this in it, such as 'join 0.3'
    #[arg(long, value_name = "TEXT")]
    cells: Option<String>,
    /// The core of the drives, once this process is pinned to another one
    #[arg(long, hide = true)]
    drive_core: Option<usize>,
    /// Write everything that was measured to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Parts of the benchmark of push-back.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum AdaptivePartArg {
    /// The policy in virtual time, over its whole grid
    Simulated,
    /// 36 cells, for real
    Cells,
    /// 1, 4 and 16 streams at one time
    Streams,
}

/// What to measure.
pub(super) fn options(args: AdaptiveArgs) -> AdaptiveOptions {
    let part = |part| match part {
        AdaptivePartArg::Simulated => AdaptivePart::Simulated,
        AdaptivePartArg::Cells => AdaptivePart::Cells,
        AdaptivePartArg::Streams => AdaptivePart::Streams,
    };
    AdaptiveOptions {
        slices: usize::from(args.slices),
        slice_rows: args.slice_rows as usize,
        runs: usize::from(args.runs),
        directory: args.directory,
        only: args.only.into_iter().map(part).collect(),
        cells: args.cells,
        drive_core: args.drive_core,
        json: args.json,
    }
}
