//! After an unclean end: the index gets what the journal's log has and it lacks.

use crate::StoreError;
use crate::index::{COMMIT, Index, corrupt_index};
use crate::medium::Medium;

/// Applies what the log has and the index lacks, before anything is served. A medium that is only read keeps it in
/// memory. Where the log is damaged in what was acknowledged, nothing is applied, and the error names it.
pub(crate) fn recover(medium: &dyn Medium, index: &Index) -> Result<(), StoreError> {
    let Some(log) = index.unindexed()? else { return Ok(()) };
    let commit = index.fact(COMMIT)?.unwrap_or(0);
    // The index may have lost commits. What the log has after those cannot be applied.
    if log.marked > commit {
        return Err(corrupt_index(medium, &lost_commits(commit, log.marked)));
    }
    if let Some(what) = log.damage {
        return Err(corrupt_index(medium, &format!("it lacks commits: {what}")));
    }
    if log.upto > commit {
        tracing::info!(path = %medium.path().display(), from = commit + 1, to = log.upto, "commits come from the log");
    }
    index.take_rows(&log.rows, log.upto)
}

/// What is wrong with an index that shows an older commit than one that was durable.
pub(crate) fn lost_commits(shown: u64, durable: u64) -> String {
    format!("it shows commit {shown}, and commit {durable} was durable")
}
