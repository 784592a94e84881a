//! `pithead inspect segment`: what lies in one segment file.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use pithead_model::{Blame, Bytes, Fault};
use pithead_store::{SegmentFacts, segment_facts};
use serde_json::json;

use crate::error::CliError;
use crate::output::{Align, Grid, Sink};
use crate::store_keys::{key_words, store_folders};
use crate::terminal::grouped;

const EXAMPLES: &str = "\
Examples:
  pithead inspect segment /disk1/segments/000000000000000a.seg
  pithead inspect segment /disk1 10";

/// Show what lies in a segment file: each value in order, and the room between them that is dead.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SegmentArgs {
    /// A segment file; or a drive's folder, and then its number
    #[arg(value_name = "FILE|DIR")]
    place: PathBuf,
    /// The segment's number, as `inspect store` shows it
    #[arg(value_name = "NUMBER")]
    number: Option<u64>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &SegmentArgs) -> Result<(), CliError> {
    let (folder, number) = segment(&args.place, args.number)?;
    if !folder.join(format!("segments/{number:016x}.seg")).is_file() {
        let fault = Fault::new(Blame::User, format!("{} has no segment {number}", folder.display()));
        return Err(fault.hint("`pithead inspect store DIR` lists them").into());
    }
    let facts = segment_facts(&folder, number).map_err(Fault::from)?;
    let mut sink = Sink::stdout();
    match args.json {
        true => writeln!(sink, "{}", json!(facts))?,
        false => write(&facts, &mut sink)?,
    }
    sink.finish()
}

/// The store's folder, and the segment's number in it.
fn segment(place: &Path, number: Option<u64>) -> Result<(PathBuf, u64), CliError> {
    if let Some(number) = number {
        let folders = store_folders(place)?;
        return match folders.as_slice() {
            [folder] => Ok((folder.clone(), number)),
            _ => Err(CliError::user(format!("{} has several drives: name one of their folders", place.display()))),
        };
    }
    let named = || {
        let hex = place.file_name()?.to_str()?.strip_suffix(".seg").filter(|hex| hex.len() == 16)?;
        let number = u64::from_str_radix(hex, 16).ok()?;
        let segments = place.parent().filter(|parent| parent.file_name().is_some_and(|name| name == "segments"))?;
        // A file named from within its folder has a parent without a name.
        let folder = segments.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some((folder.to_owned(), number))
    };
    let (folder, number) = named().ok_or_else(|| {
        let what = format!("{} is no segment file: expected DIR/segments/ and 16 hex digits with .seg", place.display());
        Fault::new(Blame::User, what)
            .hint("`pithead inspect store DIR` lists them; `pithead inspect segment DIR NUMBER` works, too")
    })?;
    store_folders(&folder)?;
    Ok((folder, number))
}

fn write(facts: &SegmentFacts, out: &mut dyn Write) -> Result<(), CliError> {
    let live = facts.extents.iter().filter(|extent| extent.key.is_some()).count();
    writeln!(
        out,
        "segment {} ({}): {}, {} of it live in {live} values",
        facts.file,
        facts.name,
        Bytes(facts.bytes),
        Bytes(facts.live_bytes)
    )?;
    use Align::{Left, Right};
    let mut grid = Grid::of(&[("offset", Right), ("bytes", Right), ("key", Left), ("what", Left)]);
    for extent in &facts.extents {
        let (key, what) = match &extent.key {
            Some(key) => (key.clone(), key_words(key).unwrap_or_default()),
            None => (String::new(), "dead".to_owned()),
        };
        grid.push(vec![grouped(extent.offset), grouped(extent.bytes), key, what]);
    }
    Ok(grid.write(out)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_named_by_its_file_or_by_its_number() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("FORMAT"), "").unwrap();
        let file = folder.path().join("segments/000000000000000a.seg");
        assert_eq!(segment(&file, None).unwrap(), (folder.path().to_owned(), 10));
        assert_eq!(segment(folder.path(), Some(10)).unwrap(), (folder.path().to_owned(), 10));
        for bad in ["000000000000000a.seg", "segments/a.seg", "segments/000000000000000g.seg", "FORMAT", ".."] {
            assert!(segment(&folder.path().join(bad), None).is_err(), "{bad}");
        }
    }
}
