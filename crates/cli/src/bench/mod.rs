//! `pithead bench`: the demo and the benchmarks. Each file beside this one holds the flags of one.

mod adaptive;
mod attach;
mod cell;
mod front;
mod kv;
mod load;
mod neardata;
mod program;
mod scan;
mod services;
mod soak;
mod store;
mod throttled;
mod tpch;
mod values;
mod yoursql;

use clap::Subcommand;
use pithead_model::{Blame, Fault};

use crate::error::CliError;
use adaptive::AdaptiveArgs;
use attach::AttachArgs;
use cell::CellArgs;
use front::FrontBenchArgs;
use kv::KvBenchArgs;
use load::LoadArgs;
use neardata::{NeardataArgs, NeardataHostArgs};
use program::{ProgramBenchArgs, ProgramFarArgs};
use scan::ScanArgs;
use services::ServicesBenchArgs;
use soak::{SoakArgs, SoakClientsArgs};
use store::{StoreArgs, StoreWriterArgs};
use throttled::ThrottledArgs;
use tpch::{DemoArgs, TpchArgs};
use yoursql::YoursqlArgs;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// TPC-H on four drive processes, with push-down and without: what stays at the drives
    Demo(DemoArgs),
    /// TPC-H measured: bytes and seconds on a paced link, beside DuckDB and Polars, sessions, loads
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
    /// What clients get through `pithead serve` measured: fetches and lookups, beside PostgreSQL, bare Flight and DuckDB's Quack
    Front(FrontBenchArgs),
    /// Loads of TPC-H's Parquet files measured, beside DuckDB's CREATE TABLE AS from the same files
    Load(LoadArgs),
    /// TPC-H over Parquet files where they lie, beside DuckDB and Polars over the same files
    Attach(AttachArgs),
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
    /// One end of the link of `program`
    #[command(hide = true)]
    ProgramFar(ProgramFarArgs),
    /// Puts and queries beside a drive's background services, under each policy that places them, and simulated
    Services(ServicesBenchArgs),
    /// Drives that are slowed to profiles of devices, in real time, beside the model of the same profiles
    Throttled(ThrottledArgs),
    /// The process that `store` kills
    #[command(hide = true)]
    StoreWriter(StoreWriterArgs),
}

/// Runs the command.
pub(crate) async fn run(command: BenchCommand) -> Result<(), CliError> {
    match command {
        BenchCommand::Demo(args) => pithead_bench::demo(&tpch::demo_options(args)).await?,
        BenchCommand::Tpch(args) => pithead_bench::tpch(&tpch::options(args)).await?,
        BenchCommand::Neardata(args) => pithead_bench::near_data(&neardata::options(args)).await?,
        BenchCommand::NeardataHost(args) => pithead_bench::near_data_host(&neardata::host_options(args)).await?,
        BenchCommand::Soak(args) => pithead_bench::soak(&soak::options(args)).await?,
        BenchCommand::SoakClients(args) => pithead_bench::soak_clients(&soak::clients_options(args)).await?,
        BenchCommand::Load(args) => pithead_bench::load(&load::options(args)).await?,
        BenchCommand::Attach(args) => pithead_bench::attach(&attach::options(args)).await?,
        BenchCommand::Scan(args) => pithead_bench::scan(&scan::options(args)).await?,
        BenchCommand::Yoursql(args) => pithead_bench::yoursql(&yoursql::options(args)).await?,
        BenchCommand::Program(args) => pithead_bench::program(&program::options(args)).await?,
        BenchCommand::Services(args) => pithead_bench::services(&services::options(args)).await?,
        BenchCommand::Throttled(args) => pithead_bench::throttled(&throttled::options(args)).await?,
        BenchCommand::Kv(args) => pithead_bench::kv(&kv::options(args)).await?,
        BenchCommand::Front(args) => pithead_bench::front(&front::options(args)).await?,
        BenchCommand::Adaptive(args) => pithead_bench::adaptive(&adaptive::options(args)).await?,
        BenchCommand::Cell(args) => {
            let options = cell::options(args);
            blocking(move || pithead_bench::cell(&options)).await?;
        }
        BenchCommand::Store(args) => {
            let options = store::options(args);
            blocking(move || pithead_bench::store(&options)).await?;
        }
        BenchCommand::ProgramFar(args) => {
            let options = program::far_options(args);
            blocking(move || pithead_bench::program_far(&options)).await?;
        }
        BenchCommand::StoreWriter(args) => {
            let options = store::writer_options(args);
            blocking(move || pithead_bench::store_writer(&options)).await?;
        }
    }
    Ok(())
}

/// Work that blocks, on a thread where it may.
async fn blocking(work: impl FnOnce() -> Result<(), Fault> + Send + 'static) -> Result<(), CliError> {
    let ended = tokio::task::spawn_blocking(work).await;
    Ok(ended.unwrap_or_else(|lost| Err(Fault::new(Blame::Bug, format!("the benchmark ended early: {lost}"))))?)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::Parser;
    use pithead_bench::StorePart;

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
        let options = store::options(args);
        assert_eq!((options.only, options.runs), (vec![StorePart::Puts, StorePart::Cold], 5));
        assert_eq!((options.directory, options.recovery_gb), (PathBuf::from("d"), 2.0));
        for line in [
            "bench load --runs 0",
            "bench load --scale 0",
            "bench soak --seconds 0",
            "bench soak --clients 0",
            "bench neardata --rates 1gbit,fast",
            "bench neardata --runs 0",
            "bench store --only all",
            "bench store --gb 0",
            "bench store --runs 0",
            "bench front --gb 0",
            "bench front --rows 0",
        ] {
            assert!(parsed(&format!("pithead {line}")).is_err(), "{line}");
        }
    }
}
