//! `pithead check`: finds out whether a store is undamaged, and repairs what can be repaired.
//!
//! A check reads every block of the index, every record and every value. A repair makes a new index from the records
//! that can be read, with everything that follows from them, and unlinks files that nothing names. It never invents a
//! value: a damaged value stays, and the report names it.

mod lost;
mod marker;
mod records;
mod repair;
mod sweep;
mod unindexed;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::sync::Arc;

use pithead_model::DriveId;
use serde::Serialize;

use self::lost::Lost;
use self::repair::Sources;
use crate::format::{MARKER, io_error, read_marker};
use crate::index::{COMMIT, DRIVE, INDEX, Index, LAST_FILE, SegmentRow, Totals, VALUE_BYTES, damaged};
use crate::journal::{self, Replayed, replay};
use crate::medium::Medium;
use crate::recover::recover;
use crate::segments::{FOLDER, Segments, file_name, file_number};
use crate::{FolderMedium, Key, StoreError, upgrade};

/// The memory for pages of the index during a check.
const CACHE_BYTES: usize = 64 << 20;

/// How to check a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckOptions {
    /// Whether to repair what can be repaired.
    pub repair: bool,
}

/// The progress of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CheckProgress {
    /// The part of the store that is being read.
    pub step: CheckStep,
    /// The part of `total` that is done: blocks of the index, or bytes of values.
    pub done: u64,
    /// 0 if it is not known.
    pub total: u64,
}

/// The parts of a store, in the order in which a check reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckStep {
    /// Blocks of the index.
    Index,
    /// Records and values.
    Values,
    /// Segment files and their contents.
    Segments,
    /// None: the check writes a new index.
    Repair,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// The drive's identity; none if the index does not have it.
    pub drive: Option<DriveId>,
    /// Keys that can be read.
    pub keys: u64,
    /// Bytes of their values.
    pub value_bytes: u64,
    /// Keys that a new index has from the journal.
    pub restored_keys: u64,
    /// The defects that were found.
    pub findings: Vec<Finding>,
}

/// A defect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The kind of defect.
    pub kind: FindingKind,
    /// The key that it concerns, for people.
    pub key: Option<String>,
    /// The file that it concerns, relative to the store.
    pub file: Option<String>,
    /// What was found to be wrong.
    pub what: String,
    /// Whether it was repaired.
    pub repaired: bool,
}

/// The kinds of defects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// Blocks of the index are damaged.
    Index,
    /// Keys whose records were lost with a page of the index: one key by its name, or the keys between two others. A
    /// repair brings back those that the journal has.
    LostKey,
    /// A record is damaged.
    Record,
    /// A value is damaged or missing.
    Value,
    /// The account of segments does not agree with the records.
    Account,
    /// There is a file that no key names.
    Leftover,
    /// A part of the journal is damaged.
    Journal,
    /// The file with the store's format and its drive is missing or damaged.
    Format,
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
            Self::Journal => "damaged journal",
            Self::Format => "damaged format",
        })
    }
}

/// Checks the store in `dir`, which must not be open. Without a repair nothing is changed, so the folder may be on a
/// medium that refuses writes. `progress` is called often. Fails if there is no store, if the store is in use or of
/// another format, or if the medium fails.
pub fn check(dir: &Path, options: &CheckOptions, progress: &mut dyn FnMut(CheckProgress)) -> Result<CheckReport, StoreError> {
    check_on(open_medium(dir, options.repair)?, options, progress)
}

/// Like [`check`], on a medium that this process alone uses. Without a repair, redb may recover an index that was not
/// closed.
pub fn check_on(
    medium: Arc<dyn Medium>,
    options: &CheckOptions,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport, StoreError> {
    let mut report = CheckReport::default();
    let replayed = replay(&*medium).map_err(|error| io_error(&medium.path().join(journal::FOLDER), 0, error))?;
    let header = replayed.as_ref().and_then(|replayed| replayed.header);
    let marker = marker::check(&*medium, header, &mut report)?;
    report.drive = marker.drive.or(header.map(|header| header.drive));
    let opened = lost::open(&medium, &marker, replayed.as_ref(), options.repair);
    let mut index = match opened {
        Ok(index) => index,
        Err(error) => {
            let lost = Lost { medium: &medium, replayed: replayed.as_ref(), repair: options.repair };
            match lost.replace(error, &mut report, progress)? {
                Some(index) => index,
                None => return Ok(report),
            }
        }
    };
    if report.findings.iter().all(|finding| finding.kind != FindingKind::Index) {
        unindexed::tell_short(&index, marker.format, replayed.as_ref(), &mut report)?;
    }
    let newer = unindexed::take(&*medium, &index, replayed.as_ref(), &mut report, options.repair)?;
    let rebuild = {
        let replayed = replayed.as_ref();
        let complete = newer.0.is_empty();
        let mut check = Check { medium: &medium, index: &index, report, progress, rebuild: false, complete, replayed };
        check.all(options.repair)?;
        report = check.report;
        check.rebuild || !newer.0.is_empty()
    };
    if options.repair
        && rebuild
        && let Some(drive) = report.drive
    {
        progress(CheckProgress { step: CheckStep::Repair, done: 0, total: 0 });
        let shown = index.fact(COMMIT).ok().flatten();
        let knows_all = replayed.as_ref().is_some_and(|replayed| replayed.is_whole(shown));
        let sources = Sources { old: Some(index), replayed: replayed.as_ref(), newer: newer.0, keep: damages(&report) };
        let (new, restored) = repair::rebuild(&medium, sources, drive)?;
        repair::tell(&mut report, &restored, knows_all);
        index = new;
    }
    if options.repair
        && let Some(drive) = report.drive
    {
        drop(replayed);
        repair::finish(&medium, index, drive, &mut report)?;
    }
    Ok(report)
}

/// Whether the old index still has something that can be read.
fn damages(report: &CheckReport) -> bool {
    use FindingKind::{Index, LostKey, Record};
    report.findings.iter().any(|finding| matches!(finding.kind, Index | LostKey | Record))
}

/// The medium in a folder that has a store, or the remains of one.
pub(crate) fn open_medium(dir: &Path, write: bool) -> Result<Arc<dyn Medium>, StoreError> {
    if !dir.join(INDEX).exists() && !dir.join(journal::FOLDER).is_dir() {
        let marker = dir.join(MARKER);
        std::fs::metadata(&marker).map_err(|error| io_error(&marker, 0, error))?;
    }
    Ok(if write { FolderMedium::open(dir)? } else { FolderMedium::open_read_only(dir)? })
}

/// The index of an existing store, and the store's format.
pub(crate) fn open_index(medium: &Arc<dyn Medium>) -> Result<(Index, u32), StoreError> {
    let failed = |what: &str| StoreError::Index { path: medium.path().to_path_buf(), what: what.to_string() };
    let marker = read_marker(&**medium)?.ok_or_else(|| failed("there is no store: it has no FORMAT file"))?;
    upgrade::finish(medium, marker.format)?;
    let opened = Index::open(medium.clone(), INDEX, false, CACHE_BYTES);
    let recovered = opened.and_then(|index| recover(&**medium, &index).map(|()| index));
    Ok((recovered.map_err(|error| damaged(medium.path(), error))?, marker.format))
}

/// A check in progress.
struct Check<'a> {
    medium: &'a Arc<dyn Medium>,
    index: &'a Index,
    report: CheckReport,
    progress: &'a mut dyn FnMut(CheckProgress),
    /// Whether the index must be made anew.
    rebuild: bool,
    /// Whether the index has all that is newer than it.
    complete: bool,
    replayed: Option<&'a Replayed>,
}

/// What the records say about the segments.
#[derive(Default)]
struct Named {
    /// For each file: the end of what is written, and how many of its bytes are alive.
    rows: BTreeMap<u64, SegmentRow>,
    /// Large values.
    values: u64,
    /// The packs that there are, those that recipes name with their keys, and the totals of both.
    packs: BTreeSet<u64>,
    uses: BTreeSet<(u64, Key)>,
    totals: Totals,
    /// Pairs of keys between which records cannot be read.
    holes: Vec<sweep::Hole>,
}

impl Check<'_> {
    fn all(&mut self, repair: bool) -> Result<(), StoreError> {
        let bad = self.blocks(repair)?;
        self.report.drive = self.facts()?.or(self.report.drive);
        let segments = Segments::to_read(self.medium.clone());
        let found = self.records(&segments)?;
        self.places(&found)?;
        self.pages()?;
        self.journal();
        self.files(&found, repair)?;
        if bad && !repair {
            self.commits()?;
        }
        Ok(())
    }

    /// Damage to the journal. It costs no key while the index has all keys.
    fn journal(&mut self) {
        let Some(replayed) = self.replayed else { return };
        for (file, what) in &replayed.damage {
            self.find(FindingKind::Journal, None, Some(file.clone()), what.clone());
        }
    }

    /// Reads the index from end to end, and finds damaged blocks. A damaged block counts only when a table reaches it:
    /// after an unclean end, some blocks have data that was never committed. A repair makes the index anew in any case.
    fn blocks(&mut self, repair: bool) -> Result<bool, StoreError> {
        let progress = &mut *self.progress;
        let on = &mut |done, total| progress(CheckProgress { step: CheckStep::Index, done, total });
        let bad = !self.index.verify_blocks(on)?.is_empty();
        self.rebuild = bad && repair;
        Ok(bad)
    }

    /// Commits nothing. None of the store's tables reaches redb's account of its own pages, but a commit does. This is
    /// the last step, since redb may have to recover its file afterwards.
    fn commits(&mut self) -> Result<(), StoreError> {
        match self.index.settle() {
            Err(StoreError::Corrupt { .. }) => {
                self.account("redb's own pages are damaged: the index can be read, but not be written".to_string());
                Ok(())
            }
            done => done,
        }
    }

    /// The drive's identity, from the index.
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

    /// The blocks that were found damaged while all tables were read.
    fn pages(&mut self) -> Result<(), StoreError> {
        let blocks: Vec<String> = self.index.damaged_blocks()?.iter().map(u64::to_string).collect();
        if !blocks.is_empty() {
            let what = format!("blocks {} are not what was written", blocks.join(", "));
            self.find(FindingKind::Index, None, Some(INDEX.to_string()), what);
            self.rebuild = true;
        }
        Ok(())
    }

    /// Checks that each place has its key, and each file its bytes.
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
        // While keys are missing, their values must not be taken for leftovers.
        let whole = self.complete && named.holes.is_empty() && !damages(&self.report);
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
