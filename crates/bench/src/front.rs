//! `pithead bench front`: what clients get through `pithead serve`, beside what they are used to.
//!
//! All rows of a table by Flight SQL, beside a bare stream of Flight of the same batches; all rows of another by PostgreSQL's protocol,
//! and lookups of single rows by many clients, beside PostgreSQL itself with the same rows and an index; TPC-H by a DuckDB that is a
//! client, beside DuckDB's own protocol Quack; and TPC-H among workers, beside a host alone. Whatever is compared runs in turns, so
//! that the machine's moods meet all of it.

mod attached;
mod flight;
mod half;
mod points;
mod postgres;
mod report;
mod serving;
mod workers;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_model::{Blame, Fault, boxed};
use serde::Serialize;

use crate::demo::{Layout, load};
use crate::kv::free_port;
use crate::machine::Machine;
use crate::python::Script;
use crate::tables::{generate, io};
use crate::timing::run;
use points::{CLIENTS, Points, by_flight, by_pgbench};
use postgres::{Postgres, Programs};
use report::{Fetch, FetchAnswer, FrontSummary, Report, WorkersReport, WorkersSummary};
use serving::Serving;
use workers::Divided;

/// Bytes of a row of both tables as Arrow.
const ROW_BYTES: f64 = 68.0;
/// Which rows they have: numbers of several kinds, a moment and a short text that compresses badly.
const ROWS: &str = "SELECT value AS id, \
     arrow_cast(1767225600000000 + value * 1000000, 'Timestamp(Microsecond, None)') AS moment, \
     arrow_cast(value * 7919 % 1000, 'Int32') AS device, value * 2654435761 % 1000003 / 997.0 AS reading, \
     arrow_cast(value * 40503 % 1000000 * 0.01, 'Decimal128(12, 2)') AS amount, substr(md5(CAST(value AS TEXT)), 1, 20) AS note";
/// The table that is fetched by Flight SQL.
const LARGE: &str = "front_large";
/// The one that PostgreSQL has, too.
const SMALL: &str = "front_small";
/// Servers and protocols, as reports name them.
const PITHEAD: &str = "pithead";
const POSTGRESQL: &str = "postgresql";
const POSTGRES: &str = "postgres";
const FLIGHT: &str = "flight";
const STOP_LIMIT: Duration = Duration::from_secs(20);
const SCRIPT: Script =
    Script { library: "psycopg and asyncpg", module: "psycopg, asyncpg", text: include_str!("beside_postgres.py") };

/// What to measure.
#[derive(Clone, Debug)]
pub struct FrontOptions {
    /// Gigabytes of Arrow to fetch by Flight SQL.
    pub gigabytes: f64,
    /// Rows to fetch by PostgreSQL's protocol, and to look up; at least 1.
    pub rows: u64,
    /// Seconds of each run of lookups; at least 1.
    pub seconds: u64,
    /// Runs of everything; their median counts.
    pub runs: usize,
    /// TPC-H's scale, in gigabytes of text, for DuckDB as a client. None: that part is left out.
    pub scale: Option<f64>,
    /// TPC-H's scale for hosts with workers. None: that part is left out.
    pub workers_scale: Option<f64>,
    /// Whether the part of hosts with workers is the only one.
    pub only_workers: bool,
    /// Where everything is made. It is removed at the end, but for TPC-H's tables and the DuckDB that is installed there.
    pub directory: PathBuf,
    /// Where to write everything as JSON.
    pub json: Option<PathBuf>,
}

/// Measures, prints tables and writes the JSON.
#[boxed]
pub async fn front(options: &FrontOptions) -> Result<(), Fault> {
    let machine = Machine::here();
    println!("{}", machine.line());
    std::fs::create_dir_all(&options.directory).map_err(|error| io(&options.directory, &error))?;
    let scratch = tempfile::tempdir_in(&options.directory).map_err(|error| io(&options.directory, &error))?;
    let place = std::path::absolute(scratch.path()).map_err(|error| io(scratch.path(), &error))?;
    let workers = match options.workers_scale {
        Some(scale) => {
            let tables = options.directory.join(format!("tpch-{scale}"));
            workers::divided(&place.join("workers"), &tables, (scale, options.runs)).await?
        }
        None => None,
    };
    if options.only_workers {
        let summary = WorkersSummary::of(workers.as_ref());
        let report = WorkersReport { machine, runs: options.runs, workers, summary };
        return told(&report.text(), &report, options);
    }
    let report = measure(options, machine, &place, workers).await?;
    told(&report.text(), &report, options)
}

/// Prints, and writes the JSON.
fn told(text: &str, report: &impl Serialize, options: &FrontOptions) -> Result<(), Fault> {
    println!("{text}");
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(report).unwrap_or_default();
        std::fs::write(path, text + "\n").map_err(|error| io(path, &error))?;
    }
    Ok(())
}

async fn measure(options: &FrontOptions, machine: Machine, scratch: &Path, workers: Option<Divided>) -> Result<Report, Fault> {
    let tables = options.scale.map(|scale| (scale, options.directory.join(format!("tpch-{scale}"))));
    let data = scratch.join("data");
    let large = ((options.gigabytes * 1e9 / ROW_BYTES) as u64).max(1);
    let engine = connect(&Target::Data(data.clone()), &EmbedOptions::default()).await?;
    let filled = fill(&engine, [(LARGE, large), (SMALL, options.rows)], tables.as_ref()).await;
    engine.shutdown().await;
    filled?;
    let serving = Serving::start(&data)?;
    let flight_fetch = flight::fetches(&serving.flight, LARGE, large, options.runs).await?;
    let programs = Programs::find();
    if programs.is_none() {
        println!("{}", Programs::missing());
    }
    let postgres = programs.as_ref().map(|programs| Postgres::start(programs, &scratch.join("postgresql"), free_port()?));
    let postgres = postgres.transpose()?;
    let fetch = fetch(options, &serving, postgres.as_ref())?;
    let pgbench = programs.and_then(|programs| programs.pgbench());
    let beside = postgres.as_ref().filter(|_| fetch.is_some());
    let points = lookups(options, scratch, &serving, beside.zip(pgbench.as_deref()), pgbench.as_deref()).await?;
    let postgresql = postgres.map(|postgres| postgres.version.clone());
    let attached = match &tables {
        Some((scale, tables)) => {
            let folders = (options.directory.as_path(), scratch);
            Some(attached::attached(&serving, folders, tables, (*scale, options.runs)).await?)
        }
        None => None,
    };
    Ok(Report {
        machine,
        runs: options.runs,
        rows: options.rows,
        clients: CLIENTS,
        seconds: options.seconds,
        postgresql,
        summary: FrontSummary::of(
            &flight_fetch,
            fetch.as_ref(),
            &points,
            attached.as_ref(),
            WorkersSummary::of(workers.as_ref()),
        ),
        flight_fetch,
        fetch,
        points,
        attached,
        workers,
    })
}

/// Makes both tables, laid out as a user's are who says nothing, and loads TPC-H's.
async fn fill(engine: &Engine, made: [(&str, u64); 2], tables: Option<&(f64, PathBuf)>) -> Result<(), Fault> {
    let session = engine.host.session();
    for (name, rows) in made {
        run(&session, &format!("CREATE TABLE {name} AS {ROWS} FROM range({rows})")).await?;
    }
    if let Some((scale, folder)) = tables {
        generate(folder, *scale)?;
        load(engine, folder, Layout::Keyed).await?;
    }
    Ok(())
}

/// All rows of the small table, by clients of PostgreSQL in Python.
fn fetch(options: &FrontOptions, serving: &Serving, postgres: Option<&Postgres>) -> Result<Option<Fetch>, Fault> {
    let (own, runs) = (serving.name(), options.runs.to_string());
    let theirs = postgres.map(Postgres::name).unwrap_or_default();
    let answer: Option<FetchAnswer> = SCRIPT.run(&[own.as_str(), &theirs, SMALL, &runs].map(OsStr::new), &[])?;
    let Some(answer) = answer else {
        println!("{}", SCRIPT.missing());
        return Ok(None);
    };
    if !answer.different.is_empty() || answer.rows != options.rows {
        let what = format!("{} rows for {}; answers differ: {}", answer.rows, options.rows, answer.different.join(", "));
        return Err(Fault::new(Blame::Bug, what));
    }
    Ok(Some(Fetch::of(answer)))
}

/// Lookups in turns: of both servers by pgbench, and of ours by Flight SQL.
async fn lookups(
    options: &FrontOptions,
    scratch: &Path,
    serving: &Serving,
    beside: Option<(&Postgres, &Path)>,
    pgbench: Option<&Path>,
) -> Result<Vec<Points>, Fault> {
    let FrontOptions { rows, seconds, runs, .. } = *options;
    let (mut ours, mut theirs, mut flown) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..runs {
        if let Some(pgbench) = pgbench {
            ours.push(by_pgbench(pgbench, scratch, (&serving.name(), SMALL), rows, seconds)?);
        }
        if let Some((postgres, pgbench)) = beside {
            theirs.push(by_pgbench(pgbench, scratch, (&postgres.name(), SMALL), rows, seconds)?);
        }
        flown.push(by_flight(&serving.flight, SMALL, rows, seconds).await?);
    }
    let measured = [(PITHEAD, POSTGRES, ours), (POSTGRESQL, POSTGRES, theirs), (PITHEAD, FLIGHT, flown)];
    let points = measured.into_iter().filter(|(.., runs)| !runs.is_empty());
    Ok(points.map(|(server, protocol, runs)| Points::of(server, protocol, &runs)).collect())
}

/// Asks a process to end by a signal, and waits until it has; after a while it is killed.
fn stop(child: &mut Child, signal: &str) {
    let asked = Command::new("kill").args([signal, &child.id().to_string()]).status();
    let started = Instant::now();
    while asked.is_ok() && started.elapsed() < STOP_LIMIT {
        if matches!(child.try_wait(), Ok(Some(_))) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // It may be gone already; nothing is left to do about it either way.
    let _ = child.kill();
    let _ = child.wait();
}
