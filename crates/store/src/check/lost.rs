//! An index that cannot be opened, or that has lost commits.

use std::sync::Arc;

use super::repair::{self, Sources};
use super::{CACHE_BYTES, CheckProgress, CheckReport, CheckStep, Finding, FindingKind};
use crate::StoreError;
use crate::format::Marker;
use crate::index::{COMMIT, INDEX, Index, corrupt_index, damaged};
use crate::journal::Replayed;
use crate::medium::Medium;
use crate::recover::lost_commits;
use crate::upgrade;

/// Opens the index. A repair upgrades an index of format 1; without a repair it is refused.
pub(super) fn open(
    medium: &Arc<dyn Medium>,
    marker: &Marker,
    replayed: Option<&Replayed>,
    repair: bool,
) -> Result<Index, StoreError> {
    if marker.format == 1 && !repair {
        let what = "the store has format 1; open it once with this release, or check it with a repair, to upgrade it";
        return Err(StoreError::Index { path: medium.path().to_path_buf(), what: what.to_string() });
    }
    if !medium.is_read_only() {
        upgrade::finish(medium, marker.format)?;
    }
    let index = Index::open(medium.clone(), INDEX, false, CACHE_BYTES).map_err(|error| damaged(medium.path(), error))?;
    let shown = index.fact(COMMIT);
    match (shown, replayed) {
        // Where the page of the identity is damaged, the records may still be good.
        (Ok(shown), Some(replayed)) if shown.unwrap_or(0) < replayed.marked => {
            let what = lost_commits(shown.unwrap_or(0), replayed.marked);
            drop(index);
            Err(damaged(medium.path(), corrupt_index(&**medium, &what)))
        }
        // A table is missing.
        (Err(error @ StoreError::Index { .. }), _) => Err(damaged(medium.path(), error)),
        (Err(error @ (StoreError::Io { .. } | StoreError::InUse { .. })), _) => Err(error),
        _ => Ok(index),
    }
}

/// What a new index can be made from.
pub(super) struct Lost<'a> {
    pub medium: &'a Arc<dyn Medium>,
    pub replayed: Option<&'a Replayed>,
    pub repair: bool,
}

impl Lost<'_> {
    /// Makes a new index from the journal alone. None if that is not possible or no repair was requested; the report
    /// then says so.
    pub fn replace(
        &self,
        error: StoreError,
        report: &mut CheckReport,
        progress: &mut dyn FnMut(CheckProgress),
    ) -> Result<Option<Index>, StoreError> {
        let StoreError::Damaged { what, .. } = error else { return Err(error) };
        let keys = self.replayed.map_or(0, |replayed| replayed.keys().count());
        let known = match self.replayed {
            Some(_) if self.repair => format!("a new one was made of the {keys} keys in the journal"),
            Some(_) => format!("a repair makes a new one of the {keys} keys in the journal"),
            None => "there is no journal to make a new one from".to_string(),
        };
        let what = format!("it cannot be used: {what}; {known}");
        let file = Some(INDEX.to_string());
        let mut finding = Finding { kind: FindingKind::Index, key: None, file, what, repaired: false };
        let (Some(replayed), Some(drive), true) = (self.replayed, report.drive, self.repair) else {
            report.findings.push(finding);
            return Ok(None);
        };
        progress(CheckProgress { step: CheckStep::Repair, done: 0, total: 0 });
        let sources = Sources { old: None, replayed: Some(replayed), newer: Vec::new(), keep: true };
        let (index, restored) = repair::rebuild(self.medium, sources, drive)?;
        finding.repaired = true;
        report.findings.push(finding);
        repair::tell_outdated(report, &restored);
        if replayed.gaps {
            let what = "parts of the journal are missing, too: keys in them are lost, and others may be older than they were";
            let file = Some(crate::journal::FOLDER.to_string());
            report.findings.push(Finding {
                kind: FindingKind::LostKey,
                key: None,
                file,
                what: what.to_string(),
                repaired: false,
            });
        }
        report.restored_keys = restored.keys;
        Ok(Some(index))
    }
}
