//! `pithead inspect store`: a store as a whole.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use pithead_model::{Bytes, Fault};
use pithead_store::{StoreFacts, store_facts};
use serde_json::json;

use crate::error::CliError;
use crate::output::{Align, Grid, Sink};
use crate::store_keys::store_folders;
use crate::terminal::{counted, grouped};

const EXAMPLES: &str = "\
Examples:
  pithead inspect store /disk1
  pithead inspect store pithead-data --json | jq .segments";

/// Show a store as a whole: identity, keys, room, and its segment files.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StoreArgs {
    /// A drive's folder, or a data directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// One JSON object a drive
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &StoreArgs) -> Result<(), CliError> {
    let mut sink = Sink::stdout();
    for folder in store_folders(&args.directory)? {
        let facts = store_facts(&folder).map_err(Fault::from)?;
        match args.json {
            true => {
                let mut object = json!(facts);
                object["store"] = json!(folder.display().to_string());
                writeln!(sink, "{object}")?;
            }
            false => write(&folder, &facts, &mut sink)?,
        }
    }
    sink.finish()
}

fn write(folder: &Path, facts: &StoreFacts, out: &mut dyn Write) -> Result<(), CliError> {
    writeln!(out, "{}: drive {}, format {}", folder.display(), facts.drive, facts.format)?;
    writeln!(
        out,
        "{}, {} of values, {} dead; index of {}; {} free on the medium",
        counted(facts.keys, "key"),
        Bytes(facts.value_bytes),
        Bytes(facts.dead_bytes),
        Bytes(facts.index_bytes),
        Bytes(facts.free_bytes),
    )?;
    if facts.packs > 0 {
        let (shared, packs) = (Bytes(facts.deduplicated_bytes), Bytes(facts.pack_bytes));
        writeln!(out, "{shared} of values share {} of {packs}", counted(facts.packs, "pack"))?;
    }
    if !facts.segments.is_empty() {
        grid(facts).write(out)?;
    }
    Ok(())
}

fn grid(facts: &StoreFacts) -> Grid {
    use Align::{Left, Right};
    let columns =
        [("segment", Right), ("file", Left), ("bytes", Right), ("values", Right), ("live", Right), ("live share", Right)];
    let mut grid = Grid::of(&columns);
    for segment in &facts.segments {
        let share = segment.live_bytes as f64 * 100.0 / segment.bytes.max(1) as f64;
        grid.push(vec![
            segment.file.to_string(),
            segment.name.clone(),
            grouped(segment.bytes),
            grouped(segment.values),
            grouped(segment.live_bytes),
            format!("{share:.0}%"),
        ]);
    }
    grid
}
