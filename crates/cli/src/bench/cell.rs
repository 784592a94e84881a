//! `pithead bench cell`: its flags.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use pithead_bench::{CellEngine, CellOptions, CellPart};

use super::values::parse_scale;

/// Flags of the benchmark of cells.
#[derive(Debug, Args)]
pub(crate) struct CellArgs {
    /// Runs of each question, of which the median counts. From 100,000 cells on the others are asked once
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Measure only these parts
    #[arg(long, value_enum, value_name = "PART,…", value_delimiter = ',')]
    only: Vec<OnlyPart>,
    /// Ask only these
    #[arg(long, value_enum, value_name = "ENGINE,…", value_delimiter = ',')]
    engines: Vec<Engine>,
    /// TPC-H's scale, in gigabytes of text, of the table that goes into data frames
    #[arg(long, value_name = "N", default_value_t = 0.1, value_parser = parse_scale)]
    scale: f64,
    /// Where matrices are kept, and stores while they are measured: up to 10 GB
    #[arg(long, visible_alias = "dir", value_name = "DIR", default_value = "demo-data")]
    directory: PathBuf,
    /// A Python with the package pithead [default: that of .tools, or python3]
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Write everything that was measured to a file, and the figure cell-slices.svg beside it
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Parts of the benchmark of cells.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnlyPart {
    /// 2,000 cells × 12,000 genes
    Small,
    /// 100,000 cells × 20,000 genes
    Medium,
    /// 500,000 cells × 30,000 genes, in a quarter of the file's size of memory
    Large,
    /// CPU by the width and height of slices: the first experiment of Montana et al. 2023, section 6.2
    Slices,
    /// A table into polars and pandas
    Fetch,
}

/// Who is asked.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Engine {
    /// On two drives, and in one process
    Pithead,
    /// In memory
    Scanpy,
    /// Census-style sums; `tools/setup.sh peers` installs it
    Tiledbsoma,
    /// SQL over Parquet
    Duckdb,
}

/// What to measure.
pub(super) fn options(args: CellArgs) -> CellOptions {
    let CellArgs { runs, only, engines, scale, directory, python, json } = args;
    let part = |part| match part {
        OnlyPart::Small => CellPart::Small,
        OnlyPart::Medium => CellPart::Medium,
        OnlyPart::Large => CellPart::Large,
        OnlyPart::Slices => CellPart::Slices,
        OnlyPart::Fetch => CellPart::Fetch,
    };
    let engine = |engine| match engine {
        Engine::Pithead => CellEngine::Pithead,
        Engine::Scanpy => CellEngine::Scanpy,
        Engine::Tiledbsoma => CellEngine::Tiledbsoma,
        Engine::Duckdb => CellEngine::Duckdb,
    };
    CellOptions {
        runs: usize::from(runs),
        only: only.into_iter().map(part).collect(),
        engines: engines.into_iter().map(engine).collect(),
        scale,
        directory,
        python,
        json,
    }
}
