//! `pithead check`: whether all of a store is what was written, and what can be put right.
//!
//! Every block of the index, every record and every value is read. A repair makes a new index from the records that can be
//! read, with all that follows from them, and unlinks what nothing names. It never invents a value: a damaged one stays, and
//! is named.

mod records;
mod repair;
mod sweep;

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::sync::Arc;

use pithead_model::DriveId;
use serde::Serialize;

use crate::format::{FORMAT, io_error, read_marker};
use crate::index::{COMMIT, DRIVE, INDEX, Index, LAST_FILE, SegmentRow, VALUE_BYTES};
use crate::medium::Medium;
use crate::segments::{FOLDER, Segments, file_name, file_number};
use crate::{FolderMedium, StoreError, upgrade};

/// Memory for pages of the index during a check.
const CACHE_BYTES: usize = 64 << 20;

/// How to check a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckOptions {
    /// Put right what can be.
    pub repair: bool,
}

/// How far a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CheckProgress {
    /// What is read.
    pub step: CheckStep,
    /// Of `total`: blocks of the index, or bytes of values.
    pub done: u64,
    /// 0 where it is not known.
    pub total: u64,
}

/// What a check reads, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckStep {
    /// Blocks of the index.
    Index,
    /// Records and values.
    Values,
    /// Segment files and what lies in them.
    Segments,
    /// Nothing: a new index is written.
    Repair,
}

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// The drive's identity; none where the index cannot say.
    pub drive: Option<DriveId>,
    /// Keys that can be read.
    pub keys: u64,
    /// Bytes of their values.
    pub value_bytes: u64,
    /// What is not as it should be.
    pub findings: Vec<Finding>,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What kind of thing.
    pub kind: FindingKind,
    /// The key that it concerns, for people.
    pub key: Option<String>,
    /// The file that it concerns, relative to the store.
    pub file: Option<String>,
    /// What does not hold.
    pub what: String,
    /// Whether it was put right.
    pub repaired: bool,
}

/// Kinds of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// Blocks of the index are not what was written.
    Index,
    /// Keys whose records were lost with a page of the index: one by its name, or those between two others. A repair cannot
    /// bring them back.
    LostKey,
    /// A record that is not what was written.
    Record,
    /// A value that is not what was written, or is missing.
    Value,
    /// The account of segments does not fit the records.
    Account,
    /// A file that nothing names.
    Leftover,
}

impl Display for CheckStep {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Index => "index",
            Self::Values => "values",
            Self::Segments => "segments",
            Self::Repair => "repair",
        })
    }
}

impl Display for FindingKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Index => "damaged index",
            Self::LostKey => "lost key",
            Self::Record => "damaged record",
            Self::Value => "damaged value",
            Self::Account => "wrong account",
            Self::Leftover => "leftover file",
        })
    }
}

/// Checks the store in `dir`, which must not be open. Without a repair nothing changes, but that a store that was not closed
/// is recovered as an open does. `progress` is called often.
pub fn check(dir: &Path, options: &CheckOptions, progress: &mut dyn FnMut(CheckProgress)) -> Result<CheckReport, StoreError> {
    check_on(open_medium(dir)?, options, progress)
}

/// As [`check`], on a medium that this process alone uses.
pub fn check_on(
    medium: Arc<dyn Medium>,
    options: &CheckOptions,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport, StoreError> {
    let index = open_index(&medium, options.repair)?;
    let mut check = Check { medium: &medium, index: &index, report: CheckReport::default(), progress, rebuild: false };
    let bad = check.blocks(options.repair)?;
    let copy = read_marker(&*medium)?.and_then(|marker| marker.drive);
    check.report.drive = check.facts()?.or(copy);
    let segments = Segments::to_read(medium.clone());
    let found = check.records(&segments)?;
    check.places(&found)?;
    check.pages()?;
    check.files(&found, options.repair)?;
    if bad && !options.repair {
        check.commits()?;
    }
    let Check { mut report, rebuild, progress, .. } = check;
    if options.repair && rebuild {
        progress(CheckProgress { step: CheckStep::Repair, done: 0, total: 0 });
        match report.drive {
            None => {}
            Some(drive) => {
                repair::rebuild(&medium, index, drive)?;
                let put_right = |finding: &&mut Finding| matches!(finding.kind, FindingKind::Index | FindingKind::Account);
                report.findings.iter_mut().filter(put_right).for_each(|finding| finding.repaired = true);
            }
        }
    }
    Ok(report)
}

/// The medium in a folder that holds a store.
pub(crate) fn open_medium(dir: &Path) -> Result<Arc<dyn Medium>, StoreError> {
    let marker = dir.join("FORMAT");
    std::fs::metadata(&marker).map_err(|error| io_error(&marker, 0, error))?;
    Ok(FolderMedium::open(dir)?)
}

/// The index of a store that is there.
pub(crate) fn open_index(medium: &Arc<dyn Medium>, upgrade: bool) -> Result<Index, StoreError> {
    let failed = |what: &str| StoreError::Index { path: medium.path().to_path_buf(), what: what.to_string() };
    match read_marker(&**medium)? {
        None => return Err(failed("there is no store: it has no FORMAT file")),
        Some(marker) if marker.format < FORMAT && !upgrade => {
            return Err(failed(&format!(
                "the store has format {}; open it once with this release, or check it with a repair, to upgrade it",
                marker.format
            )));
        }
        Some(marker) => upgrade::finish(medium, marker.format)?,
    }
    Index::open(medium.clone(), INDEX, false, CACHE_BYTES)
}

/// A check under way.
struct Check<'a> {
    medium: &'a Arc<dyn Medium>,
    index: &'a Index,
    report: CheckReport,
    progress: &'a mut dyn FnMut(CheckProgress),
    /// The index must be made anew.
    rebuild: bool,
}

/// What the records say of the segments.
#[derive(Default)]
struct Named {
    /// Of each file: up to where it is written, and what of it lives.
    rows: BTreeMap<u64, SegmentRow>,
    /// Large values.
    values: u64,
    /// Keys between which records cannot be read.
    holes: Vec<sweep::Hole>,
}

impl Check<'_> {
    /// Reads the index from end to end: whether a block is not what was written. That counts only when something reaches it:
    /// after an unclean end some hold what was never committed. A repair makes the index anew in any case.
    fn blocks(&mut self, repair: bool) -> Result<bool, StoreError> {
        let progress = &mut *self.progress;
        let on = &mut |done, total| progress(CheckProgress { step: CheckStep::Index, done, total });
        let bad = !self.index.verify_blocks(on)?.is_empty();
        self.rebuild = bad && repair;
        Ok(bad)
    }

    /// Commits nothing: no table of ours reaches redb's account of its own pages, but a commit does. Last of all, since redb
    /// may have to recover its file after it.
    fn commits(&mut self) -> Result<(), StoreError> {
        match self.index.settle() {
            Err(StoreError::Corrupt { .. }) => {
                self.account("redb's own pages are damaged: the index can be read, but not be written".to_string());
                Ok(())
            }
            done => done,
        }
    }

    /// The drive's identity, as the index says.
    fn facts(&mut self) -> Result<Option<DriveId>, StoreError> {
        let mut facts = [DRIVE, VALUE_BYTES, COMMIT, LAST_FILE].into_iter().map(|name| self.index.fact(name));
        match facts.find_map(Result::err) {
            None => self.index.drive_id(),
            Some(StoreError::Corrupt { what, .. }) => {
                self.account(format!("the facts cannot be read: {what}"));
                Ok(None)
            }
            Some(error) => Err(error),
        }
    }

    /// Blocks that were found bad while all tables were read.
    fn pages(&mut self) -> Result<(), StoreError> {
        let blocks: Vec<String> = self.index.damaged_blocks()?.iter().map(u64::to_string).collect();
        if !blocks.is_empty() {
            let what = format!("blocks {} are not what was written", blocks.join(", "));
            self.find(FindingKind::Index, None, Some(INDEX.to_string()), what);
            self.rebuild = true;
        }
        Ok(())
    }

    /// Each place must have its key, and each file its bytes.
    fn places(&mut self, named: &Named) -> Result<(), StoreError> {
        let rows = match self.index.segments() {
            Ok(rows) => rows,
            Err(StoreError::Corrupt { what, .. }) => {
                self.account(format!("the account of segments cannot be read: {what}"));
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        let total = named.rows.len() as u64;
        for (done, (file, row)) in named.rows.iter().enumerate() {
            (self.progress)(CheckProgress { step: CheckStep::Segments, done: done as u64, total });
            let kept = rows.iter().find(|(other, _)| other == file).map(|(_, row)| *row).unwrap_or_default();
            if kept.live != row.live || kept.written < row.written {
                let what = format!(
                    "{}: {} bytes live up to byte {}; the index says {} up to {}",
                    file_name(*file),
                    row.live,
                    row.written,
                    kept.live,
                    kept.written
                );
                self.account(what);
            }
        }
        for (file, _) in rows.iter().filter(|(file, _)| !named.rows.contains_key(file)) {
            self.account(format!("the index accounts for {}, which no readable record names", file_name(*file)));
        }
        self.lost_keys(named)
    }

    fn files(&mut self, named: &Named, repair: bool) -> Result<(), StoreError> {
        let failed = |error| io_error(&self.medium.path().join(FOLDER), 0, error);
        let unnamed = |name: &String| file_number(name).is_some_and(|file| !named.rows.contains_key(&file));
        // While keys are missing, their values are not leftovers.
        let whole = named.holes.is_empty();
        let leftovers: Vec<String> = self.medium.list(FOLDER).map_err(failed)?.into_iter().filter(unnamed).collect();
        for name in leftovers {
            let name = format!("{FOLDER}/{name}");
            let removed = repair && whole && self.medium.remove(&name).is_ok();
            self.find(FindingKind::Leftover, None, Some(name), "no key names it".to_string());
            if let Some(last) = self.report.findings.last_mut() {
                last.repaired = removed;
            }
        }
        Ok(())
    }

    fn account(&mut self, what: String) {
        self.find(FindingKind::Account, None, Some(INDEX.to_string()), what);
        self.rebuild = true;
    }

    fn find(&mut self, kind: FindingKind, key: Option<String>, file: Option<String>, what: String) {
        self.report.findings.push(Finding { kind, key, file, what, repaired: false });
    }
}

#[cfg(test)]
mod tests;
