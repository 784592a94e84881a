//! `pithead bench adaptive`: how far drives take slices, decided while a query runs, beside the best level that is fixed beforehand.
//!
//! First in simulation, over the policy's whole grid. Then for real, with a host and a drive that have a core each: 36 cells of
//! selectivity, the drive's CPU, the link and background load, for a scan, an aggregate and a join. Each cell runs at levels 3, 2
//! and 0 and adaptively in turns, so that the machine's moods meet all of them, and all answers are compared.

mod answer;
mod background;
mod cell;
mod cores;
mod measure;
mod place;
mod report;
mod simulated;
mod streams;
mod table;

use std::path::PathBuf;

use pithead_model::{Fault, boxed};

use crate::machine::Machine;
use crate::tables::io;
use cell::cells;
use cores::Cores;
use place::TableDirectory;
use report::AdaptiveReport;
use simulated::Simulated;

/// What to measure.
#[derive(Clone, Debug)]
pub struct AdaptiveOptions {
    /// Slices of the table.
    pub slices: usize,
    /// Rows of a slice.
    pub slice_rows: usize,
    /// Runs of each query; their median counts.
    pub runs: usize,
    /// Where the table and the drive are kept while it runs.
    pub directory: PathBuf,
    /// Only these parts; none: all.
    pub only: Vec<AdaptivePart>,
    /// Only cells whose name has this in it.
    pub cells: Option<String>,
    /// The core of the drives. None: this process has yet to be pinned.
    pub drive_core: Option<usize>,
    /// Where to write everything as JSON.
    pub json: Option<PathBuf>,
}

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdaptivePart {
    /// The policy in virtual time.
    Simulated,
    /// The 36 cells.
    Cells,
    /// Several streams at one time.
    Streams,
}

/// Measures, prints tables and writes the JSON. Runs itself again on one core, with the drives on another one.
#[boxed]
pub async fn adaptive(options: &AdaptiveOptions) -> Result<(), Fault> {
    let wants = |part| options.only.is_empty() || options.only.contains(&part);
    let (wants_cells, wants_streams) = (wants(AdaptivePart::Cells), wants(AdaptivePart::Streams));
    let cores = match options.drive_core {
        Some(drive) => Some(Cores::pinned(drive)?),
        None if wants_cells || wants_streams => return Err(Cores::pin_and_run_again()),
        None => None,
    };
    // This process is pinned, and the machine still has all of its cores.
    let machine = Machine { cores: Cores::of_machine(), ..Machine::here() };
    println!("{}", machine.line());
    let simulated = wants(AdaptivePart::Simulated).then(Simulated::run);
    let (mut measured, mut streams) = (Vec::new(), Vec::new());
    if let Some(cores) = cores {
        let place = TableDirectory::make(options, cores).await?;
        if wants_cells {
            let wanted = |cell: &cell::Cell| options.cells.as_ref().is_none_or(|part| cell.name().contains(part));
            for cell in cells().into_iter().filter(wanted) {
                measured.push(measure::measure(&place, cell, options.runs).await?);
            }
        }
        if wants_streams {
            streams = streams::measure(&place).await?;
        }
        place.remove()?;
    }
    let report = AdaptiveReport::new(machine, options, simulated, measured, streams);
    println!("{}", report.text());
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report).unwrap_or_default();
        std::fs::write(path, text + "\n").map_err(|error| io(path, &error))?;
    }
    Ok(())
}
