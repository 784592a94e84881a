//! `pithead bench load`: TPC-H's Parquet files into a new store in this process, beside DuckDB's `CREATE TABLE AS` from the same files.
//!
//! Each run loads every table in every way and then in DuckDB, so that the machine's moods meet all of them. Every load starts with an
//! empty folder; the files are in memory already, since they were read once before. At the end, small changes by SQL.

mod changes;
mod report;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use pithead_embed::{EmbedOptions, Target, connect};
use pithead_host::LoadSpec;
use pithead_model::{Blame, Fault, boxed};
use pithead_observe::ProcessUse;

use crate::TABLES;
use crate::demo::Layout;
use crate::duckdb::{DuckDbChanges, create_tables, missing};
use crate::machine::Machine;
use crate::tables::{generate, io};
use changes::{Changes, DELETED, INSERTS, TABLE};
use report::{LoadSummary, Report, Table, Way};

/// Threads of DuckDB and of Pithead, and drives of Pithead.
const THREADS: usize = 2;
/// Ways to load, by layout and encoding: the one whose figures count first.
const WAYS: [(Layout, &str); 3] = [(Layout::Keyed, "vortex"), (Layout::Default, "vortex"), (Layout::Keyed, "arrow")];

/// What to measure.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// TPC-H's scale, in gigabytes of text.
    pub scale: f64,
    /// Runs of each way; their median counts.
    pub runs: usize,
    /// Where tables and drives are kept.
    pub directory: PathBuf,
    /// Where to write everything as JSON.
    pub json: Option<PathBuf>,
}

/// Measures, prints tables and writes the JSON.
#[boxed]
pub async fn load(options: &LoadOptions) -> Result<(), Fault> {
    let machine = Machine::here();
    println!("{}", machine.line());
    let files = options.directory.join(format!("tpch-{}", options.scale));
    generate(&files, options.scale)?;
    let parquet = read_once(&files)?;
    let mut ways: Vec<Way> = WAYS.iter().map(|(layout, encoding)| Way::new(layout_name(*layout), encoding, &parquet)).collect();
    let mut duckdb = Duck::default();
    for run in 1..=options.runs.max(1) {
        for ((layout, encoding), way) in WAYS.iter().zip(&mut ways) {
            into_new_store(&files, &options.directory.join("load"), *layout, encoding, way).await?;
        }
        duckdb.load(&files, &options.directory.join("load-duckdb"), &parquet)?;
        println!("  run {run} of {}", options.runs.max(1));
    }
    if duckdb.way.is_none() {
        println!("{}", missing());
    }
    same_rows(&ways, duckdb.way.as_ref())?;
    let changes = Changes::measure(&files, &options.directory.join("load"), duckdb.changes).await?;
    let (Duck { version, way: duckdb, .. }, scale, runs) = (duckdb, options.scale, options.runs.max(1));
    let summary = LoadSummary::of(&ways, duckdb.as_ref(), Some(&changes));
    let (threads, drives) = (THREADS, THREADS);
    let report = Report { machine, scale, runs, threads, drives, duckdb_version: version, ways, duckdb, changes, summary };
    println!("{}", report.text());
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report).unwrap_or_default();
        std::fs::write(path, text + "\n").map_err(|error| io(path, &error))?;
    }
    Ok(())
}

fn layout_name(layout: Layout) -> &'static str {
    match layout {
        Layout::Keyed => "by key, sorted",
        Layout::Default => "as the files",
    }
}

/// Reads every file, so that all who load find them in the kernel's cache. The bytes of each, in the tables' order.
fn read_once(files: &Path) -> Result<Vec<u64>, Fault> {
    let read = |path: PathBuf| {
        let copied = std::fs::File::open(&path).and_then(|mut file| std::io::copy(&mut file, &mut std::io::sink()));
        copied.map_err(|error| io(&path, &error))
    };
    TABLES.iter().map(|table| read(table.parquet(files))).collect()
}

/// Loads all tables into a new store and adds what each took. The store is removed again.
async fn into_new_store(files: &Path, store: &Path, layout: Layout, encoding: &str, way: &mut Way) -> Result<(), Fault> {
    remove(store)?;
    let embed = EmbedOptions { threads: Some(THREADS), drives: Some(THREADS), ..EmbedOptions::default() };
    let engine = connect(&Target::Data(store.to_owned()), &embed).await?;
    for (table, taken) in TABLES.iter().zip(&mut way.tables) {
        let spec = layout.of(LoadSpec { encoding: Some(encoding.to_owned()), ..table.load_spec(files)? });
        let (started, cpu) = (Instant::now(), ProcessUse::of_self().cpu_seconds);
        let loaded = engine.host.load(spec, Arc::new(|_| {})).await.map_err(|fault| fault.at(table.name))?;
        taken.seconds.push(started.elapsed().as_secs_f64());
        taken.cpu_seconds.push(ProcessUse::of_self().cpu_seconds - cpu);
        (taken.rows, taken.stored_bytes) = (loaded.rows, Some(loaded.stored_bytes));
    }
    engine.shutdown().await;
    way.stored_bytes = way.tables.iter().filter_map(|table| table.stored_bytes).sum();
    remove(store)
}

fn remove(directory: &Path) -> Result<(), Fault> {
    match directory.exists() {
        true => std::fs::remove_dir_all(directory).map_err(|error| io(directory, &error)),
        false => Ok(()),
    }
}

/// DuckDB's runs, where there is one.
#[derive(Default)]
struct Duck {
    version: Option<String>,
    way: Option<Way>,
    /// Of the last run.
    changes: Option<DuckDbChanges>,
}

impl Duck {
    /// One more run: a new process with a new database.
    fn load(&mut self, files: &Path, own: &Path, parquet: &[u64]) -> Result<(), Fault> {
        let names: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
        let Some(loaded) = create_tables(files, own, THREADS, &names, &[TABLE, DELETED, &INSERTS.to_string()])? else {
            return Ok(());
        };
        let way = self.way.get_or_insert_with(|| Way::new("as the files", "duckdb", parquet));
        for taken in &mut way.tables {
            let made = loaded.tables.get(taken.name).ok_or_else(|| lost(taken.name))?;
            taken.seconds.push(made.seconds);
            taken.cpu_seconds.push(made.cpu_seconds);
            taken.rows = made.rows;
        }
        way.stored_bytes = loaded.stored_bytes;
        (self.version, self.changes) = (Some(loaded.version), Some(loaded.changes));
        Ok(())
    }
}

fn lost(table: &str) -> Fault {
    Fault::new(Blame::Bug, format!("DuckDB's script says nothing of {table}"))
}

/// A fault unless every way has as many rows of each table as the first.
fn same_rows(ways: &[Way], duckdb: Option<&Way>) -> Result<(), Fault> {
    let rows = |way: &Way| way.tables.iter().map(|table: &Table| table.rows).collect::<Vec<_>>();
    let Some(first) = ways.first() else { return Ok(()) };
    match ways.iter().chain(duckdb).find(|way| rows(way) != rows(first)) {
        Some(other) => Err(Fault::new(
            Blame::Bug,
            format!("{} has other rows than {}: {:?} and {:?}", other.name(), first.name(), rows(other), rows(first)),
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_with_other_rows_is_found() {
        let parquet = vec![1; TABLES.len()];
        let ways = [Way::new("as the files", "vortex", &parquet), Way::new("as the files", "arrow", &parquet)];
        let mut duckdb = Way::new("as the files", "duckdb", &parquet);
        assert!(same_rows(&ways, Some(&duckdb)).is_ok());
        duckdb.tables[3].rows += 1;
        let fault = same_rows(&ways, Some(&duckdb)).unwrap_err();
        assert!(fault.message.starts_with("duckdb, as the files has other rows than vortex"), "{}", fault.message);
        assert!(same_rows(&ways, None).is_ok());
    }
}
