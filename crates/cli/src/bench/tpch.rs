//! `pithead bench demo` and `pithead bench tpch`: their flags.

use std::path::PathBuf;

use clap::Args;
use pithead_bench::{DemoOptions, TpchOptions};

use crate::allocator::give_back_free_memory;

use super::values::{check_rate, parse_scale};

/// Flags of the benchmarks on TPC-H.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    /// TPC-H's scale, in gigabytes of text
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = parse_scale)]
    scale: f64,
    /// Where tables and drives are kept
    #[arg(long, value_name = "DIR", default_value = "demo-data")]
    directory: PathBuf,
    /// Rate that the drives' sends are paced to
    #[arg(long, value_name = "RATE", default_value = "1gbit", value_parser = check_rate)]
    link: String,
}

/// Flags of the demo.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    common: CommonArgs,
}

/// Flags of the benchmark.
#[derive(Debug, Args)]
pub(crate) struct TpchArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Runs of each query; their median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Leave Polars out
    #[arg(long)]
    without_polars: bool,
    /// Write everything that was measured to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What to show.
pub(super) fn demo_options(args: DemoArgs) -> DemoOptions {
    let CommonArgs { scale, directory, link } = args.common;
    DemoOptions { scale, directory, link }
}

/// What to measure.
pub(super) fn options(args: TpchArgs) -> TpchOptions {
    let TpchArgs { common: CommonArgs { scale, directory, link }, runs, without_polars, json } = args;
    TpchOptions {
        scale,
        runs: usize::from(runs),
        directory,
        link,
        polars: !without_polars,
        give_back: give_back_free_memory,
        json,
    }
}
