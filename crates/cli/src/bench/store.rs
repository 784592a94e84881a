//! `pithead bench store`: its flags, and those of the process that it kills.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use pithead_bench::{StoreBenchOptions, StorePart, StoreWriterOptions};

/// Flags of the store's benchmark.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// Folder on the medium to measure; what is made there is removed at the end
    #[arg(long, visible_alias = "dir", value_name = "DIR", default_value = "demo-data")]
    directory: PathBuf,
    /// Size of the store that is recovered, in GB. Only from 10 on it counts as `recovery_10g_s`
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = parse_gb)]
    gb: f64,
    /// Runs of each measurement; their median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Measure only these parts
    #[arg(long, value_enum, value_name = "PART,…", value_delimiter = ',')]
    only: Vec<OnlyPart>,
    /// Write everything that was measured to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Parts of the store's benchmark.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnlyPart {
    /// Durable puts of 1 MiB and 4 KiB
    Puts,
    /// Slices read from the medium
    Cold,
    /// Slices read from memory
    Warm,
    /// Opening a store whose writer was killed
    Recovery,
}

/// What the process writes that is killed.
#[derive(Debug, Args)]
pub(crate) struct StoreWriterArgs {
    /// The store
    directory: PathBuf,
    /// Bytes of large values
    bytes: u64,
    /// Seed of what is written over
    seed: u64,
}

/// What to measure.
pub(super) fn options(args: StoreArgs) -> StoreBenchOptions {
    let part = |part| match part {
        OnlyPart::Puts => StorePart::Puts,
        OnlyPart::Cold => StorePart::Cold,
        OnlyPart::Warm => StorePart::Warm,
        OnlyPart::Recovery => StorePart::Recovery,
    };
    StoreBenchOptions {
        directory: args.directory,
        recovery_gb: args.gb,
        runs: usize::from(args.runs),
        only: args.only.into_iter().map(part).collect(),
        json: args.json,
    }
}

/// What is written.
pub(super) fn writer_options(args: StoreWriterArgs) -> StoreWriterOptions {
    let StoreWriterArgs { directory, bytes, seed } = args;
    StoreWriterOptions { directory, bytes, seed }
}

fn parse_gb(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(gb) if (0.2..=1_000.0).contains(&gb) => Ok(gb),
        _ => Err("expected a number from 0.2 to 1000, such as 10".to_owned()),
    }
}
