//! `pithead bench yoursql`: its flags.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use pithead_bench::{YourSqlOptions, YourSqlPart};

use super::values::{check_rate, parse_scale};

/// Flags of the benchmark of plans under uncertainty.
#[derive(Debug, Args)]
pub(crate) struct YoursqlArgs {
    /// Scale: 1 for 2.5 million rows in the largest table
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = parse_scale)]
    scale: f64,
    /// Where tables and drives are kept
    #[arg(long, visible_alias = "dir", value_name = "DIR", default_value = "demo-data")]
    directory: PathBuf,
    /// Runs of each query; their median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// TPC-H's scale, in gigabytes of text, of the part that takes early filters away
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = parse_scale)]
    tpch_scale: f64,
    /// Rate that the drives' sends are paced to in that part
    #[arg(long, value_name = "RATE", default_value = "1gbit", value_parser = check_rate)]
    link: String,
    /// Measure only these parts
    #[arg(long, value_enum, value_name = "PART,…", value_delimiter = ',')]
    only: Vec<OnlyPart>,
    /// Write everything that was measured to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Parts of the benchmark.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnlyPart {
    /// Plans under uncertainty, over generated films
    Plans,
    /// TPC-H on a paced link, with early filters and without
    Ablation,
    /// Match hints: selective queries over wide rows on a weak drive, at each level
    Pages,
}

/// What to measure.
pub(super) fn options(args: YoursqlArgs) -> YourSqlOptions {
    let YoursqlArgs { scale, directory, runs, tpch_scale, link, only, json } = args;
    let part = |part| match part {
        OnlyPart::Plans => YourSqlPart::Plans,
        OnlyPart::Ablation => YourSqlPart::Ablation,
        OnlyPart::Pages => YourSqlPart::Pages,
    };
    let only = only.into_iter().map(part).collect();
    YourSqlOptions { scale, runs: usize::from(runs), directory, tpch_scale, link, only, json }
}
