//! `pithead bench program`: its flags.

use std::path::PathBuf;

use clap::Args;
use pithead_bench::{ProgramFarOptions, ProgramOptions};

/// Flags of the benchmark of programs for drives.
#[derive(Debug, Args)]
pub(crate) struct ProgramBenchArgs {
    /// Folder for module and data, which are removed at the end
    #[arg(long, visible_alias = "dir", value_name = "DIR", default_value = "demo-data")]
    directory: PathBuf,
    /// Megabytes of text, and of numbers
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=4096))]
    megabytes: u16,
    /// Runs of each; their median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Write everything that was measured to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What one end of the link does.
#[derive(Debug, Args)]
pub(crate) struct ProgramFarArgs {
    /// Serve this file
    #[arg(long, requires = "listen", conflicts_with = "ask")]
    serve: Option<PathBuf>,
    /// Where
    #[arg(long)]
    listen: Option<String>,
    /// Ask a server
    #[arg(long, requires = "work")]
    ask: Option<String>,
    /// What for
    #[arg(long)]
    work: Option<String>,
    /// What the path takes there and back at least, in microseconds
    #[arg(long, default_value_t = 0.0)]
    path_us: f64,
}

/// Which end it is.
pub(super) fn far_options(args: ProgramFarArgs) -> ProgramFarOptions {
    let ProgramFarArgs { serve, listen, ask, work, path_us } = args;
    ProgramFarOptions { serve: serve.zip(listen), ask: ask.zip(work), path_us }
}

/// What to measure.
pub(super) fn options(args: ProgramBenchArgs) -> ProgramOptions {
    let ProgramBenchArgs { directory, megabytes, runs, json } = args;
    ProgramOptions { directory, megabytes: usize::from(megabytes), runs: usize::from(runs), json }
}
