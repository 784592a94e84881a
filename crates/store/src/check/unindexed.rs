//! Commits that the journal's log has and the index lacks, after an unclean end.

use super::{CheckReport, Finding, FindingKind};
use crate::StoreError;
use crate::api::show_key;
use crate::format::{CHECKSUM_SINCE, io_error};
use crate::index::{COMMIT, Index, LOG};
use crate::journal::{FOLDER, Replayed, Row};
use crate::medium::Medium;

/// Changes that are newer than the index and could not be applied to it. They go into a new one.
#[derive(Debug, Default)]
pub(super) struct Newer(pub Vec<Row>);

/// Tells of accounts that end before what was durable. A store that was closed has all commits in both; one that was not may have lost
/// what was never flushed.
pub(super) fn tell_short(
    index: &Index,
    format: u32,
    replayed: Option<&Replayed>,
    report: &mut CheckReport,
) -> Result<(), StoreError> {
    let fact = |name: &str| match index.fact(name) {
        Ok(number) => Ok(Some(number.unwrap_or(0))),
        Err(StoreError::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error),
    };
    let (Some(log), Some(commit)) = (fact(LOG)?, fact(COMMIT)?) else { return Ok(()) };
    let Some(replayed) = replayed else {
        if format >= CHECKSUM_SINCE {
            report.findings.push(finding(FindingKind::Journal, None, "it is missing".to_string()));
        }
        return Ok(());
    };
    let durable = if log == 0 { commit } else { replayed.marked };
    let is_told = |file: &String| replayed.damage.iter().any(|(damaged, _)| damaged == file);
    for (file, end) in replayed.ends.iter().filter(|(file, end)| *end < durable && !is_told(file)) {
        let what = format!("it ends with commit {end}, and commit {durable} was durable");
        report.findings.push(Finding { file: Some(file.clone()), ..finding(FindingKind::Journal, None, what) });
    }
    Ok(())
}

/// Applies to the index what the log has. Where the log is damaged, only a repair does that, with what both accounts of
/// the journal know; the report names the keys that are lost.
pub(super) fn take(
    medium: &dyn Medium,
    index: &Index,
    replayed: Option<&Replayed>,
    report: &mut CheckReport,
    repair: bool,
) -> Result<Newer, StoreError> {
    let failed = |error| io_error(&medium.path().join(FOLDER), 0, error);
    let log = match index.unindexed() {
        Ok(None) => return Ok(Newer::default()),
        Ok(Some(log)) => log,
        // The index cannot say what it lacks. What is older than the last mark is in it.
        Err(StoreError::Corrupt { .. }) => {
            let newer = replayed.map(|replayed| replayed.after(replayed.marked)).transpose().map_err(failed)?;
            return Ok(Newer(newer.unwrap_or_default()));
        }
        Err(error) => return Err(error),
    };
    let commit = index.fact(COMMIT)?.unwrap_or(0);
    let (mut rows, mut upto) = (log.rows, log.upto);
    if let Some(what) = log.damage {
        report.findings.push(finding(FindingKind::Journal, None, what));
        let Some(replayed) = replayed else {
            let what = format!("the journal is missing, and commits after {commit} may have been in it alone");
            report.findings.push(finding(FindingKind::LostKey, None, what));
            return settle(index, Vec::new(), commit, repair);
        };
        rows = replayed.after(commit).map_err(failed)?;
        upto = replayed.commit.max(commit);
        tell_lost(replayed, commit, report);
        rows.extend(replayed.outdated.iter().filter(|(_, number)| *number > commit).map(|(key, _)| (key.clone(), None)));
        return settle(index, rows, upto, repair);
    }
    settle(index, rows, upto, true)
}

/// Applies the changes if this is a repair, or if nothing is wrong.
fn settle(index: &Index, rows: Vec<Row>, upto: u64, apply: bool) -> Result<Newer, StoreError> {
    if !apply {
        return Ok(Newer::default());
    }
    match index.take_rows(&rows, upto) {
        Ok(()) => Ok(Newer::default()),
        Err(StoreError::Corrupt { .. }) => Ok(Newer(rows)),
        Err(error) => Err(error),
    }
}

/// Names the keys whose last value is lost. An older value does not take its place.
fn tell_lost(replayed: &Replayed, commit: u64, report: &mut CheckReport) {
    for (key, _) in replayed.outdated.iter().filter(|(_, number)| *number > commit) {
        let what = "its last value was in the log alone, where it is damaged; an older one does not take its place";
        report.findings.push(finding(FindingKind::LostKey, Some(show_key(key)), what.to_string()));
    }
    if replayed.gaps {
        let what =
            format!("parts of the log after commit {commit} are missing: keys in them are lost, or older than they were");
        report.findings.push(finding(FindingKind::LostKey, None, what));
    }
}

fn finding(kind: FindingKind, key: Option<String>, what: String) -> Finding {
    Finding { kind, key, file: Some(FOLDER.to_string()), what, repaired: false }
}
