//! `pithead bench soak`: its flags, and those of its clients.

use std::path::PathBuf;

use clap::Args;
use pithead_bench::{SoakClientsOptions, SoakOptions};

use super::values::{parse_scale, parse_seconds};

/// Flags of the soak.
#[derive(Debug, Args)]
pub(crate) struct SoakArgs {
    /// Clients at one time, each with a host of its own
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    clients: u16,
    /// Processes that the clients are spread over
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    processes: u16,
    /// How long they work
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Drive processes
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    drives: u16,
    /// Drives that each partition is on
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    copies: u16,
    /// Sessions that each drive allows
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    sessions: u32,
    /// TPC-H's scale, in gigabytes of text
    #[arg(long, value_name = "N", default_value_t = 0.01, value_parser = parse_scale)]
    scale: f64,
    /// Decides what each client does when
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where tables and drives are kept
    #[arg(long, value_name = "DIR", default_value = "demo-data")]
    directory: PathBuf,
    /// Write everything that was measured to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What one process of clients does.
#[derive(Debug, Args)]
pub(crate) struct SoakClientsArgs {
    /// Where drives listen
    #[arg(long, value_delimiter = ',')]
    drives: Vec<String>,
    /// Number of the first client
    #[arg(long)]
    first: usize,
    /// How many clients
    #[arg(long)]
    clients: usize,
    /// How long they work
    #[arg(long)]
    seconds: f64,
    /// Drives that each partition of what they load is on
    #[arg(long)]
    copies: usize,
    /// Decides what each client does when
    #[arg(long)]
    seed: u64,
    /// Where the right answers are
    #[arg(long)]
    answers: PathBuf,
}

/// What to measure.
pub(super) fn options(args: SoakArgs) -> SoakOptions {
    SoakOptions {
        clients: usize::from(args.clients),
        processes: usize::from(args.processes),
        seconds: args.seconds,
        drives: usize::from(args.drives),
        copies: usize::from(args.copies),
        sessions: args.sessions,
        scale: args.scale,
        seed: args.seed,
        directory: args.directory,
        json: args.json,
    }
}

/// What its clients do.
pub(super) fn clients_options(args: SoakClientsArgs) -> SoakClientsOptions {
    let SoakClientsArgs { drives, first, clients, seconds, copies, seed, answers } = args;
    SoakClientsOptions { drives, first, clients, seconds, copies, seed, answers }
}
