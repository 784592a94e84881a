//! `pithead bench`: the demo and the benchmarks.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use pithead_bench::{DemoOptions, TpchOptions};
use pithead_model::parse_rate;

use crate::error::CliError;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// TPC-H on four drive processes, with push-down and without: what stays at the drives
    Demo(DemoArgs),
    /// TPC-H measured: bytes and seconds on a paced link, beside DuckDB, sessions, loads
    Tpch(TpchArgs),
}

/// Flags that all have.
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
    /// Write everything that was measured to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the command.
pub(crate) async fn run(command: BenchCommand) -> Result<(), CliError> {
    match command {
        BenchCommand::Demo(DemoArgs { common }) => {
            let options = DemoOptions { scale: common.scale, directory: common.directory, link: common.link };
            Ok(pithead_bench::demo(&options).await?)
        }
        BenchCommand::Tpch(TpchArgs { common, runs, json }) => {
            let CommonArgs { scale, directory, link } = common;
            let options = TpchOptions { scale, runs: usize::from(runs), directory, link, json };
            Ok(pithead_bench::tpch(&options).await?)
        }
    }
}

fn parse_scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if scale > 0.0 && scale <= 10_000.0 => Ok(scale),
        _ => Err("expected a number above 0, such as 0.1 or 1".to_owned()),
    }
}

fn check_rate(text: &str) -> Result<String, String> {
    parse_rate(text).map(|_| text.to_owned()).map_err(|fault| fault.message)
}
