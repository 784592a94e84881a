//! `pithead bench tpch`: bytes over the link, seconds on a paced link, seconds beside DuckDB and Polars, sessions and loads.

mod peers;
mod report;

use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_host::{LoadReport, Session};
use pithead_model::{Fault, SessionId, boxed};

use crate::answers::difference;
use crate::demo::{Layout, load};
use crate::drives::DriveProcesses;
use crate::machine::{Machine, forget_peak, peak_bytes};
use crate::tables::{fresh, generate, io};
use crate::timing::{Spread, run, unhelped};
use crate::{QUERIES, TpchQuery};
use peers::Peers;
use report::Report;

/// Drive processes.
const DRIVES: usize = 4;
/// Threads of DuckDB, of Polars and of Pithead in-process.
const THREADS: usize = 2;
/// Sessions measured for the smallest one.
const SESSIONS: usize = 200;

/// What to measure.
#[derive(Clone, Debug)]
pub struct TpchOptions {
    /// TPC-H's scale, in gigabytes of text.
    pub scale: f64,
    /// Runs of each query; their median counts.
    pub runs: usize,
    /// Where tables and drives are kept.
    pub directory: PathBuf,
    /// The rate that links are paced to, as `--link` takes it.
    pub link: String,
    /// Whether Polars runs the queries, too.
    pub polars: bool,
    /// Gives memory that is free back to the kernel, now.
    pub give_back: fn(),
    /// Where to write everything as JSON.
    pub json: Option<PathBuf>,
}

/// What the queries took in this process.
struct Local {
    stored: LoadReport,
    seconds: Vec<Spread>,
    answers: Vec<Vec<RecordBatch>>,
    peak_bytes: Option<u64>,
    session_ms: f64,
}

/// One query on the paced drives.
struct Linked {
    query: &'static TpchQuery,
    rows: usize,
    bytes_on: u64,
    bytes_off: u64,
    on: Spread,
    off: Spread,
    equal: bool,
}

/// Measures, prints a table and writes the JSON.
#[boxed]
pub async fn tpch(options: &TpchOptions) -> Result<(), Fault> {
    let tables = options.directory.join(format!("tpch-{}", options.scale));
    println!("{}", Machine::here().line());
    generate(&tables, options.scale)?;
    let drives = fresh(&options.directory.join("drives"))?;
    let processes = DriveProcesses::start(&drives, DRIVES, &[])?;
    let engine = connect(&Target::Drives(processes.addresses()), &EmbedOptions::default()).await?;
    load(&engine, &tables, Layout::Keyed).await?;
    let session_ms = smallest_session(&engine).await?;
    println!("smallest session: {session_ms:.2} ms from OPEN to CLOSE");
    engine.shutdown().await;
    processes.stop()?;

    let processes = DriveProcesses::start(&drives, DRIVES, &["--link", &options.link])?;
    let engine = connect(&Target::Drives(processes.addresses()), &EmbedOptions::default()).await?;
    let linked = linked(&engine, options).await?;
    engine.shutdown().await;
    processes.stop()?;

    let local = in_process(options, &tables, Layout::Keyed).await?;
    let default_layout = in_process(options, &tables, Layout::Default).await?;
    let peers = Peers::measure(options, &tables, &local.answers)?;
    let report = Report::of(options, linked, local, default_layout, &peers, session_ms);
    report.print();
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report).unwrap_or_default();
        std::fs::write(path, text + "\n").map_err(|error| io(path, &error))?;
    }
    Ok(())
}

/// The smallest session: one small slice, one column. The median, in milliseconds.
async fn smallest_session(engine: &Engine) -> Result<f64, Fault> {
    let session = unhelped(engine).await?;
    let drives = engine.host.fleet().drives();
    let door = &drives[0].door;
    let mut taken = Vec::new();
    for _ in 0..SESSIONS {
        let answer = session.run("SELECT r_regionkey FROM region").await?;
        let profile = std::sync::Arc::clone(&answer.profile);
        let _rows: Vec<_> = futures::TryStreamExt::try_collect(answer.rows).await?;
        let open_to_last = profile.sub_plans().iter().flat_map(|plan| plan.sessions()).map(|session| session.wall_us).max();
        let closing = std::time::Instant::now();
        if door.is_in_process() {
            // Closing a session that is gone takes the same way. Over a link a session ends with its last event.
            door.close(SessionId(0)).await?;
        }
        taken.push(open_to_last.unwrap_or(0) as f64 / 1e3 + closing.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Spread::of(taken).median)
}

async fn linked(engine: &Engine, options: &TpchOptions) -> Result<Vec<Linked>, Fault> {
    let session = unhelped(engine).await?;
    session.run("SET pithead.drive_threads = 1").await?;
    let mut linked = Vec::new();
    for query in QUERIES {
        linked.push(both(&session, query, options.runs).await?);
    }
    Ok(linked)
}

/// A query in turns with push-down and without, so that the machine's moods meet both.
async fn both(session: &Session, query: &'static TpchQuery, runs: usize) -> Result<Linked, Fault> {
    let (mut on, mut off) = (Vec::new(), Vec::new());
    for _ in 0..runs.max(1) {
        session.run("SET pithead.pushdown = on").await?;
        on.push(run(session, query.statement()).await.map_err(|fault| fault.at(query.name))?);
        session.run("SET pithead.pushdown = off").await?;
        off.push(run(session, query.statement()).await.map_err(|fault| fault.at(query.name))?);
    }
    let seconds = |runs: &[crate::timing::QueryRun]| Spread::of(runs.iter().map(|run| run.seconds).collect());
    Ok(Linked {
        query,
        rows: on[0].rows(),
        bytes_on: on[0].profile.link_bytes,
        bytes_off: off[0].profile.link_bytes,
        on: seconds(&on),
        off: seconds(&off),
        equal: difference(&on[0].batches, &off[0].batches)?.is_none(),
    })
}

/// All queries in this process, warm: the load, each query's answer, and its seconds.
async fn in_process(options: &TpchOptions, tables: &Path, layout: Layout) -> Result<Local, Fault> {
    let folder = match layout {
        Layout::Keyed => "local",
        Layout::Default => "local-default",
    };
    let directory = fresh(&options.directory.join(folder))?;
    let embed = EmbedOptions { threads: Some(THREADS), drives: Some(THREADS), ..EmbedOptions::default() };
    let engine = connect(&Target::Data(directory.clone()), &embed).await?;
    let stored = load(&engine, tables, layout).await?;
    engine.shutdown().await;
    // Anew, so that what loading took is given back.
    (options.give_back)();
    let engine = connect(&Target::Data(directory), &embed).await?;
    let session = unhelped(&engine).await?;
    session.run("SET pithead.drive_threads = 1").await?;
    let told = forget_peak();
    let (mut taken, mut answers) = (Vec::new(), Vec::new());
    for query in QUERIES {
        answers.push(run(&session, query.statement()).await.map_err(|fault| fault.at(query.name))?.batches);
        let mut seconds = Vec::new();
        for _ in 0..options.runs.max(1) {
            seconds.push(run(&session, query.statement()).await?.seconds);
        }
        taken.push(Spread::of(seconds));
    }
    let peak_bytes = if told { peak_bytes() } else { None };
    let session_ms = smallest_session(&engine).await?;
    engine.shutdown().await;
    Ok(Local { stored, seconds: taken, answers, peak_bytes, session_ms })
}
