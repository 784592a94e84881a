//! `pithead bench scan`: one drive's scans over tables that are in memory, beside plain loops over the same values and beside
//! DuckDB.
//!
//! Each query runs in turns with what it is compared to, so that the machine's moods meet both. The drive is in this process and
//! its table in its cache, encoded as it is stored; what it is compared to finds its values decoded in memory.

mod biscuit;
mod numbers;
mod report;
mod texts;

use std::path::{Path, PathBuf};
use std::time::Instant;

use arrow::array::RecordBatch;
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_host::Session;
use pithead_model::{Blame, Fault, boxed};
use serde::Serialize;

use crate::machine::Machine;
use crate::tables::{generate, io};
use crate::timing::{Spread, run, unhelped};
pub(crate) use biscuit::SQL as BISCUIT_SQL;
use report::ScanReport;

/// What to measure.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// TPC-H's scale, in gigabytes of text, of the table that texts and days are looked for in.
    pub scale: f64,
    /// Rows of the table of numbers.
    pub rows: usize,
    /// Threads of the drive, of the plain loops and of DuckDB.
    pub threads: usize,
    /// Runs of each query; their median counts.
    pub runs: usize,
    /// Where tables and drives are kept.
    pub directory: PathBuf,
    /// Where to write everything as JSON.
    pub json: Option<PathBuf>,
}

/// A query and what it is compared to.
#[derive(Debug, Serialize)]
struct Beside {
    sql: String,
    /// Share of the rows that satisfy the condition.
    selected: f64,
    /// Bytes of the columns that the query reads, decoded.
    bytes: u64,
    seconds: Spread,
    plain_seconds: Spread,
    /// The plain loop's seconds as a share of the query's, run by run.
    share: Spread,
}

/// Measures, prints tables and writes the JSON.
#[boxed]
pub async fn scan(options: &ScanOptions) -> Result<(), Fault> {
    let machine = Machine::here();
    println!("{}", machine.line());
    let tables = options.directory.join(format!("tpch-{}", options.scale));
    generate(&tables, options.scale)?;
    let place = options.directory.join("scan");
    if place.exists() {
        std::fs::remove_dir_all(&place).map_err(|error| io(&place, &error))?;
    }
    std::fs::create_dir_all(&place).map_err(|error| io(&place, &error))?;
    let (numbers, texts, biscuit) = measured(options, &tables, &place).await?;
    // Tables can be made again; only results are worth keeping.
    std::fs::remove_dir_all(&place).map_err(|error| io(&place, &error))?;
    let report = ScanReport::new(machine, options, numbers, texts, biscuit);
    println!("{}", report.text());
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report).unwrap_or_default();
        std::fs::write(path, text + "\n").map_err(|error| io(path, &error))?;
    }
    Ok(())
}

async fn measured(
    options: &ScanOptions,
    tables: &Path,
    place: &Path,
) -> Result<(Vec<Beside>, Vec<Beside>, biscuit::Biscuit), Fault> {
    let embed = EmbedOptions { threads: Some(options.threads), drives: Some(1), ..EmbedOptions::default() };
    let engine = connect(&Target::Data(place.join("drive")), &embed).await?;
    let session = unhelped(&engine).await?;
    session.run(&format!("SET pithead.drive_threads = {}", options.threads)).await?;
    let measured = all(options, &engine, &session, tables, place).await;
    engine.shutdown().await;
    measured
}

async fn all(
    options: &ScanOptions,
    engine: &Engine,
    session: &Session,
    tables: &Path,
    place: &Path,
) -> Result<(Vec<Beside>, Vec<Beside>, biscuit::Biscuit), Fault> {
    let numbers = numbers::measure(engine, session, options, place).await?;
    let lineitem = crate::TABLES.iter().find(|table| table.name == "lineitem");
    let lineitem = lineitem.ok_or_else(|| Fault::new(Blame::Bug, "TPC-H has no lineitem"))?;
    engine.host.load(lineitem.load_spec(tables)?, std::sync::Arc::new(|_| {})).await?;
    let texts = texts::measure(session, options, &lineitem.parquet(tables)).await?;
    let biscuit = biscuit::measure(session, options, tables).await?;
    Ok((numbers, texts, biscuit))
}

/// Runs a query and a loop in turns, once to warm up and then as often as is asked for. `check` compares their answers.
async fn beside<T>(
    session: &Session,
    sql: String,
    runs: usize,
    bytes: u64,
    plain: impl Fn() -> T,
    check: impl Fn(&[RecordBatch], &T) -> Option<f64>,
) -> Result<Beside, Fault> {
    let (mut seconds, mut plain_seconds, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    let mut selected = 0.0;
    for nth in 0..=runs.max(1) {
        let ours = run(session, &sql).await.map_err(|fault| fault.at(&sql))?;
        let started = Instant::now();
        let expected = plain();
        let taken = started.elapsed().as_secs_f64();
        let differs = || Fault::new(Blame::Bug, format!("another answer than a plain loop gives: {sql}"));
        selected = check(&ours.batches, &expected).ok_or_else(differs)?;
        if nth > 0 {
            shares.push(taken / ours.seconds);
            seconds.push(ours.seconds);
            plain_seconds.push(taken);
        }
    }
    let (seconds, plain_seconds, share) = (Spread::of(seconds), Spread::of(plain_seconds), Spread::of(shares));
    Ok(Beside { sql, selected, bytes, seconds, plain_seconds, share })
}
