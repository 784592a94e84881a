//! `pithead bench`: the demo and the benchmarks.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use pithead_bench::{
    AdaptiveOptions, AdaptivePart, DemoOptions, KvOptions, NearDataHostOptions, NearDataOptions, ProgramOptions, ScanOptions,
    SoakClientsOptions, SoakOptions, StoreBenchOptions, StorePart, StoreWriterOptions, TpchOptions, YourSqlOptions,
};
use pithead_model::{Blame, Fault, Rate, parse_rate};

use crate::bench_cell::{self, CellArgs};
use crate::error::CliError;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// TPC-H on four drive processes, with push-down and without: what stays at the drives
    Demo(DemoArgs),
    /// TPC-H measured: bytes and seconds on a paced link, beside DuckDB, sessions, loads
    Tpch(TpchArgs),
    /// TPC-H across a link that the kernel shapes, beside DuckDB on Parquet over HTTP (needs root)
    Neardata(NeardataArgs),
    /// The host of `neardata`
    #[command(hide = true)]
    NeardataHost(NeardataHostArgs),
    /// Many clients at once for a while: every answer checked, memory watched
    Soak(SoakArgs),
    /// A process of clients of `soak`
    #[command(hide = true)]
    SoakClients(SoakClientsArgs),
    /// A drive's store measured: durable puts, reads, recovery, beside the bare medium and RocksDB
    Store(StoreArgs),
    /// A drive's Kinetic protocol measured: puts and gets, beside Redis, a bare socket and the bare medium
    Kv(KvBenchArgs),
    /// One drive's scans measured, beside plain loops over the same values in memory and beside DuckDB
    Scan(ScanArgs),
    /// Push-back measured: how far drives take slices, decided while queries run, beside the best level fixed beforehand
    Adaptive(AdaptiveArgs),
    /// Which genes differ between groups of cells, beside scanpy, TileDB-SOMA and DuckDB; fetches into data frames
    Cell(CellArgs),
    /// Plans under uncertainty: predicates that bounds mislead about, sampled and not, beside the best order of joins and DuckDB
    Yoursql(YoursqlArgs),
    /// SSDlets in their sandbox, beside the same code compiled natively; host calls, ports and starts
    Program(ProgramBenchArgs),
    /// The process that `store` kills
    #[command(hide = true)]
    StoreWriter(StoreWriterArgs),
}

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
    /// Write everything that was measured to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Flags of the benchmark across a shaped link.
#[derive(Debug, Args)]
pub(crate) struct NeardataArgs {
    /// TPC-H's scale, in gigabytes of text
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = parse_scale)]
    scale: f64,
    /// Runs of each query, of which the median counts. Below 500 Mbit/s only those with push-down run more than once
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// What the link is shaped to, one after the other
    #[arg(long, value_name = "RATE,…", value_delimiter = ',', default_value = "1gbit,100mbit", value_parser = parse_rate)]
    rates: Vec<Rate>,
    /// Put the host's side on core 0, drives and nginx on core 1
    #[arg(long)]
    split_cores: bool,
    /// Where tables, drives and DuckDB's Python are kept
    #[arg(long, visible_alias = "dir", value_name = "DIR", default_value = "demo-data")]
    directory: PathBuf,
    /// Write everything that was measured to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What the host of `neardata` does.
#[derive(Debug, Args)]
pub(crate) struct NeardataHostArgs {
    /// Where drives listen
    #[arg(long, value_delimiter = ',')]
    drives: Vec<String>,
    /// Threads of the host
    #[arg(long)]
    threads: usize,
}

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

/// Flags of the scans' benchmark.
#[derive(Debug, Args)]
pub(crate) struct ScanArgs {
    /// TPC-H's scale, in gigabytes of text, of the table that texts and days are looked for in
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = parse_scale)]
    scale: f64,
    /// Rows of the table of numbers, each 24 bytes
    #[arg(long, value_name = "N", default_value_t = 16_000_000, value_parser = clap::value_parser!(u32).range(1_000..=1_000_000_000))]
    rows: u32,
    /// Threads of the drive, of the loops and of DuckDB
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Where tables and drives are kept
    #[arg(long, visible_alias = "dir", value_name = "DIR", default_value = "demo-data")]
    directory: PathBuf,
    /// Runs of each query; their median counts
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Write everything that was measured to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

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
    /// Write everything that was measured to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

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
    only: Vec<Part>,
    /// Write everything that was measured to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

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

/// Parts of the store's benchmark.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Part {
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
        BenchCommand::Neardata(args) => Ok(pithead_bench::near_data(&near_data_options(args)).await?),
        BenchCommand::NeardataHost(NeardataHostArgs { drives, threads }) => {
            Ok(pithead_bench::near_data_host(&NearDataHostOptions { drives, threads }).await?)
        }
        BenchCommand::Soak(args) => Ok(pithead_bench::soak(&soak_options(args)).await?),
        BenchCommand::SoakClients(SoakClientsArgs { drives, first, clients, seconds, copies, seed, answers }) => {
            let options = SoakClientsOptions { drives, first, clients, seconds, copies, seed, answers };
            Ok(pithead_bench::soak_clients(&options).await?)
        }
        BenchCommand::Scan(ScanArgs { scale, rows, threads, directory, runs, json }) => {
            let (threads, runs) = (usize::from(threads), usize::from(runs));
            let options = ScanOptions { scale, rows: rows as usize, threads, runs, directory, json };
            Ok(pithead_bench::scan(&options).await?)
        }
        BenchCommand::Yoursql(YoursqlArgs { scale, directory, runs, json }) => {
            let options = YourSqlOptions { scale, runs: usize::from(runs), directory, json };
            Ok(pithead_bench::yoursql(&options).await?)
        }
        BenchCommand::Program(ProgramBenchArgs { directory, megabytes, runs, json }) => {
            let (megabytes, runs) = (usize::from(megabytes), usize::from(runs));
            Ok(pithead_bench::program(&ProgramOptions { directory, megabytes, runs, json }).await?)
        }
        BenchCommand::Kv(KvBenchArgs { directory, seconds, scale, json }) => {
            Ok(pithead_bench::kv(&KvOptions { directory, seconds, scale, json }).await?)
        }
        BenchCommand::Adaptive(args) => Ok(pithead_bench::adaptive(&adaptive_options(args)).await?),
        BenchCommand::Cell(args) => {
            let options = bench_cell::options(args);
            blocking(move || pithead_bench::cell(&options)).await
        }
        BenchCommand::Store(args) => {
            let options = store_options(args);
            blocking(move || pithead_bench::store(&options)).await
        }
        BenchCommand::StoreWriter(StoreWriterArgs { directory, bytes, seed }) => {
            let options = StoreWriterOptions { directory, bytes, seed };
            blocking(move || pithead_bench::store_writer(&options)).await
        }
    }
}

fn near_data_options(args: NeardataArgs) -> NearDataOptions {
    let NeardataArgs { scale, runs, rates, split_cores, directory, json } = args;
    NearDataOptions { scale, runs: usize::from(runs), rates, split_cores, directory, json }
}

fn soak_options(args: SoakArgs) -> SoakOptions {
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

fn adaptive_options(args: AdaptiveArgs) -> AdaptiveOptions {
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

fn store_options(args: StoreArgs) -> StoreBenchOptions {
    let part = |part| match part {
        Part::Puts => StorePart::Puts,
        Part::Cold => StorePart::Cold,
        Part::Warm => StorePart::Warm,
        Part::Recovery => StorePart::Recovery,
    };
    StoreBenchOptions {
        directory: args.directory,
        recovery_gb: args.gb,
        runs: usize::from(args.runs),
        only: args.only.into_iter().map(part).collect(),
        json: args.json,
    }
}

/// Work that blocks, on a thread where it may.
async fn blocking(work: impl FnOnce() -> Result<(), Fault> + Send + 'static) -> Result<(), CliError> {
    let ended = tokio::task::spawn_blocking(work).await;
    Ok(ended.unwrap_or_else(|lost| Err(Fault::new(Blame::Bug, format!("the benchmark ended early: {lost}"))))?)
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (1.0..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds from 1 to 1000000, such as 60".to_owned()),
    }
}

fn parse_gb(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(gb) if (0.2..=1_000.0).contains(&gb) => Ok(gb),
        _ => Err("expected a number from 0.2 to 1000, such as 10".to_owned()),
    }
}

pub(crate) fn parse_scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if scale > 0.0 && scale <= 10_000.0 => Ok(scale),
        _ => Err("expected a number above 0, such as 0.1 or 1".to_owned()),
    }
}

fn check_rate(text: &str) -> Result<String, String> {
    parse_rate(text).map(|_| text.to_owned()).map_err(|fault| fault.message)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn parsed(line: &str) -> Result<BenchCommand, clap::Error> {
        match Cli::try_parse_from(line.split(' '))?.command {
            Command::Bench(command) => Ok(command),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn parts_of_the_stores_benchmark_are_chosen_by_name() {
        let Ok(BenchCommand::Store(args)) = parsed("pithead bench store --dir d --only puts,cold --gb 2") else {
            panic!("it can be parsed");
        };
        let options = store_options(args);
        assert_eq!((options.only, options.runs), (vec![StorePart::Puts, StorePart::Cold], 5));
        assert_eq!((options.directory, options.recovery_gb), (PathBuf::from("d"), 2.0));
        for line in [
            "bench soak --seconds 0",
            "bench soak --clients 0",
            "bench neardata --rates 1gbit,fast",
            "bench neardata --runs 0",
            "bench store --only all",
            "bench store --gb 0",
            "bench store --runs 0",
        ] {
            assert!(parsed(&format!("pithead {line}")).is_err(), "{line}");
        }
    }
}
