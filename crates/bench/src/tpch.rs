//! `pithead bench tpch`: bytes over the link, seconds on a paced link, seconds beside DuckDB, sessions and loads.

use std::path::{Path, PathBuf};

use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_host::{LoadReport, Session};
use pithead_model::{Fault, SessionId};
use serde::Serialize;

use crate::answers::difference;
use crate::demo::{Layout, load};
use crate::drives::DriveProcesses;
use crate::duckdb::{DuckDb, duckdb};
use crate::machine::{Machine, forget_peak, peak_bytes};
use crate::report::{megabytes, ratio, seconds, table};
use crate::tables::{generate, io};
use crate::timing::{Spread, geometric_mean, run, unhelped};
use crate::{QUERIES, TpchQuery};

/// Drive processes.
const DRIVES: usize = 4;
/// Threads of DuckDB and of Pithead in-process.
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
    /// Where to write everything as JSON.
    pub json: Option<PathBuf>,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    scale: f64,
    runs: usize,
    drives: usize,
    threads: usize,
    /// Sends of the drives are paced by the drives themselves to this rate: an emulated link.
    paced_link: String,
    duckdb: Option<String>,
    /// Largest memory of this process, drives and host, over all queries; the same of DuckDB on its own tables.
    peak_bytes: Option<u64>,
    duckdb_peak_bytes: Option<u64>,
    queries: Vec<QueryReport>,
    summary: Summary,
}

#[derive(Debug, Serialize)]
struct QueryReport {
    name: &'static str,
    rows: usize,
    link_bytes_on: u64,
    link_bytes_off: u64,
    paced_seconds_on: Spread,
    paced_seconds_off: Spread,
    in_process_seconds: Spread,
    default_layout_seconds: Spread,
    duckdb_native_seconds: Option<Spread>,
    duckdb_parquet_seconds: Option<Spread>,
    answers_equal: bool,
}

/// The figures that later versions are compared by.
#[derive(Debug, Serialize)]
struct Summary {
    link_bytes_ratio: f64,
    worst_link_bytes_ratio: f64,
    /// Seconds on the paced link, push-down off against on, total.
    total_vs_off: f64,
    geomean_vs_duckdb_native: Option<f64>,
    worst_vs_duckdb_native: Option<f64>,
    /// Largest memory over all queries, in-process beside DuckDB native.
    peak_memory_vs_duckdb: Option<f64>,
    geomean_vs_duckdb_parquet: Option<f64>,
    /// Seconds in-process of tables that were loaded without any layout option, against DuckDB native.
    geomean_default_layout: Option<f64>,
    /// OPEN to CLOSE of the smallest session, over loopback.
    session_ms: f64,
    /// The same, in-process.
    session_in_process_ms: f64,
    /// Megabytes of Parquet a second.
    load_mb_s: f64,
    stored_vs_parquet_zstd: f64,
}

/// What the queries took in this process.
struct Local {
    stored: LoadReport,
    seconds: Vec<Spread>,
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
    let own = options.directory.join(format!("duckdb-{}", options.scale));
    let queries: Vec<(&str, &str)> = QUERIES.iter().map(|query| (query.name, query.statement())).collect();
    let duck = duckdb(&tables, &own, THREADS, options.runs, &queries)?;
    if duck.is_none() {
        println!("no Python with DuckDB was found: skipping the comparison (tools/setup.sh installs it)");
    }
    let report = report(options, linked, local, default_layout, duck.as_ref(), session_ms);
    print(&report);
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report).unwrap_or_default();
        std::fs::write(path, text + "\n").map_err(|error| io(path, &error))?;
    }
    Ok(())
}

fn fresh(directory: &Path) -> Result<PathBuf, Fault> {
    if directory.exists() {
        std::fs::remove_dir_all(directory).map_err(|error| io(directory, &error))?;
    }
    Ok(directory.to_owned())
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
        // Closing a session that is gone takes the same way.
        door.close(SessionId(0)).await?;
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

/// All queries in this process, warm: the load, and each query's seconds.
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
    let engine = connect(&Target::Data(directory), &embed).await?;
    let session = unhelped(&engine).await?;
    session.run("SET pithead.drive_threads = 1").await?;
    let told = forget_peak();
    let mut taken = Vec::new();
    for query in QUERIES {
        run(&session, query.statement()).await.map_err(|fault| fault.at(query.name))?;
        let mut seconds = Vec::new();
        for _ in 0..options.runs.max(1) {
            seconds.push(run(&session, query.statement()).await?.seconds);
        }
        taken.push(Spread::of(seconds));
    }
    let peak_bytes = if told { peak_bytes() } else { None };
    let session_ms = smallest_session(&engine).await?;
    engine.shutdown().await;
    Ok(Local { stored, seconds: taken, peak_bytes, session_ms })
}

fn report(
    options: &TpchOptions,
    linked: Vec<Linked>,
    local: Local,
    default_layout: Local,
    duck: Option<&DuckDb>,
    session_ms: f64,
) -> Report {
    let beside = |seconds: Option<&std::collections::BTreeMap<String, Vec<f64>>>, name: &str| {
        seconds.and_then(|seconds| seconds.get(name)).map(|seconds| Spread::of(seconds.clone()))
    };
    let query = |((linked, local), default_layout): ((Linked, Spread), Spread)| QueryReport {
        name: linked.query.name,
        rows: linked.rows,
        link_bytes_on: linked.bytes_on,
        link_bytes_off: linked.bytes_off,
        paced_seconds_on: linked.on,
        paced_seconds_off: linked.off,
        in_process_seconds: local,
        default_layout_seconds: default_layout,
        duckdb_native_seconds: beside(duck.map(|duck| &duck.native), linked.query.name),
        duckdb_parquet_seconds: beside(duck.map(|duck| &duck.parquet), linked.query.name),
        answers_equal: linked.equal,
    };
    let queries: Vec<QueryReport> = linked.into_iter().zip(local.seconds).zip(default_layout.seconds).map(query).collect();
    let peaks = (local.peak_bytes, duck.map(|duck| duck.native_peak_bytes));
    let summary = summary(&queries, &local.stored, peaks, (session_ms, local.session_ms));
    Report {
        machine: Machine::here(),
        scale: options.scale,
        runs: options.runs,
        drives: DRIVES,
        threads: THREADS,
        paced_link: options.link.clone(),
        duckdb: duck.map(|duck| duck.version.clone()),
        peak_bytes: peaks.0,
        duckdb_peak_bytes: peaks.1,
        queries,
        summary,
    }
}

fn summary(
    queries: &[QueryReport],
    stored: &LoadReport,
    peaks: (Option<u64>, Option<u64>),
    sessions_ms: (f64, f64),
) -> Summary {
    let total = |figure: fn(&QueryReport) -> f64| queries.iter().map(figure).sum::<f64>();
    let bytes_ratio = |query: &QueryReport| query.link_bytes_off as f64 / query.link_bytes_on.max(1) as f64;
    let ratios = |other: fn(&QueryReport) -> Option<Spread>| -> Option<Vec<f64>> {
        queries.iter().map(|query| Some(query.in_process_seconds.median / other(query)?.median)).collect()
    };
    let native = ratios(|query| query.duckdb_native_seconds);
    let default_layout: Option<Vec<f64>> =
        queries.iter().map(|query| Some(query.default_layout_seconds.median / query.duckdb_native_seconds?.median)).collect();
    Summary {
        link_bytes_ratio: total(|query| query.link_bytes_off as f64) / total(|query| query.link_bytes_on as f64).max(1.0),
        worst_link_bytes_ratio: queries.iter().map(bytes_ratio).fold(f64::INFINITY, f64::min),
        total_vs_off: total(|query| query.paced_seconds_off.median) / total(|query| query.paced_seconds_on.median),
        worst_vs_duckdb_native: native.as_ref().map(|ratios| ratios.iter().copied().fold(0.0, f64::max)),
        peak_memory_vs_duckdb: peaks.0.zip(peaks.1).map(|(own, other)| own as f64 / other.max(1) as f64),
        geomean_vs_duckdb_native: native.map(geometric_mean),
        geomean_vs_duckdb_parquet: ratios(|query| query.duckdb_parquet_seconds).map(geometric_mean),
        geomean_default_layout: default_layout.map(geometric_mean),
        session_ms: sessions_ms.0,
        session_in_process_ms: sessions_ms.1,
        load_mb_s: stored.source_bytes as f64 / 1e6 / stored.seconds,
        stored_vs_parquet_zstd: stored.stored_bytes as f64 / stored.source_bytes as f64,
    }
}

fn print(report: &Report) {
    let spread = |spread: &Spread| format!("{} ({}–{})", seconds(spread.median), seconds(spread.min), seconds(spread.max));
    let beside = |query: &QueryReport, other: &Option<Spread>| match other {
        Some(other) => format!("{} {}", seconds(other.median), ratio(query.in_process_seconds.median / other.median)),
        None => "-".to_owned(),
    };
    let row = |query: &QueryReport| {
        vec![
            query.name.to_owned(),
            if query.answers_equal { query.rows.to_string() } else { "DIFFER".to_owned() },
            megabytes(query.link_bytes_on),
            megabytes(query.link_bytes_off),
            spread(&query.paced_seconds_on),
            spread(&query.paced_seconds_off),
            spread(&query.in_process_seconds),
            seconds(query.default_layout_seconds.median),
            beside(query, &query.duckdb_native_seconds),
            beside(query, &query.duckdb_parquet_seconds),
        ]
    };
    let header = [
        "query",
        "rows",
        "MB on",
        "MB off",
        "paced s on",
        "paced s off",
        "in-process s",
        "default layout s",
        "DuckDB native s",
        "DuckDB Parquet s",
    ];
    println!("{}", table(&header, &report.queries.iter().map(row).collect::<Vec<_>>()));
    println!(
        "links paced to {} by the drives; {} threads in-process and in DuckDB, warm; median (min–max) of {}",
        report.paced_link, report.threads, report.runs
    );
    println!("{}", serde_json::to_string_pretty(&report.summary).unwrap_or_default());
}
