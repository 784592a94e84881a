//! `pithead bench store`: a drive's store beside the bare medium under it, and beside RocksDB.
//!
//! The bare medium is read and written through the same [`pithead_store::Medium`] that the store uses, in the same run and in
//! turns, so that a share says what the store itself costs.

mod cold;
mod files;
mod medium;
mod puts;
mod recovery;
mod report;
mod rocksdb;
mod values;
mod warm;
mod writer;

use std::path::{Path, PathBuf};

use pithead_model::Fault;

use crate::machine::Machine;
use crate::tables::io;
use medium::MediumNotes;
use report::StoreReport;

pub use writer::{StoreWriterOptions, store_writer};

/// What to measure.
#[derive(Clone, Debug)]
pub struct StoreBenchOptions {
    /// Where stores are made, on the medium that is measured. What this makes there is removed at the end.
    pub directory: PathBuf,
    /// Size of the store that is recovered, in units of 10^9 bytes.
    pub recovery_gb: f64,
    /// Runs of each measurement; their median counts.
    pub runs: usize,
    /// Parts to measure; empty: all.
    pub only: Vec<StorePart>,
    /// Where to write everything as JSON.
    pub json: Option<PathBuf>,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorePart {
    /// Durable puts of 1 MiB and 4 KiB.
    Puts,
    /// Slices read from the medium.
    Cold,
    /// Slices read from memory.
    Warm,
    /// Opening a store whose writer was killed.
    Recovery,
}

/// Measures, prints tables and writes the JSON. Blocks.
pub fn store(options: &StoreBenchOptions) -> Result<(), Fault> {
    let machine = Machine::here();
    println!("{}", machine.line());
    let place = BenchDirectory::make(&options.directory)?;
    let notes = MediumNotes::of(&place.0)?;
    println!("{}\n", notes.line());
    let mut report = StoreReport::new(machine, notes, options);
    let wanted = |part| options.only.is_empty() || options.only.contains(&part);
    if wanted(StorePart::Puts) {
        let measured = puts::measure(&place.0, options.runs)?;
        println!("{}", report::puts_text(&measured));
        report.puts = Some(measured);
    }
    if wanted(StorePart::Cold) {
        let measured = cold::measure(&place.0, options.runs)?;
        println!("{}", report::cold_text(&measured));
        report.cold = Some(measured);
    }
    if wanted(StorePart::Warm) {
        let measured = warm::measure(&place.0, options.runs)?;
        println!("{}", report::warm_text(&measured));
        report.warm = Some(measured);
    }
    if wanted(StorePart::Recovery) {
        let measured = recovery::measure(&place.0, options.recovery_gb, options.runs)?;
        println!("{}", report::recovery_text(&measured));
        report.recovery = Some(measured);
    }
    report.finish();
    println!("{}", report.summary_text());
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report).unwrap_or_default();
        std::fs::write(path, text + "\n").map_err(|error| io(path, &error))?;
    }
    Ok(())
}

/// The folder that all of it is made in. Dropping it removes it.
#[derive(Debug)]
struct BenchDirectory(PathBuf);

impl BenchDirectory {
    fn make(directory: &Path) -> Result<Self, Fault> {
        let path = directory.join("store-bench");
        fresh(&path)?;
        Ok(Self(path))
    }
}

impl Drop for BenchDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("note: {} is left behind: {error}", self.0.display());
        }
    }
}

/// An empty folder in place of whatever is there.
fn fresh(path: &Path) -> Result<(), Fault> {
    if path.exists() {
        std::fs::remove_dir_all(path).map_err(|error| io(path, &error))?;
    }
    std::fs::create_dir_all(path).map_err(|error| io(path, &error))
}
