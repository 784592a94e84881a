//! The file FORMAT, and the other places with the same content.

use pithead_model::DriveId;

use super::{CheckReport, Finding, FindingKind};
use crate::StoreError;
use crate::format::{MARKER, Marker, MarkerState, find_marker, format_of_index};
use crate::index::INDEX;
use crate::journal::Header;
use crate::medium::Medium;

/// The marker. If it cannot be read, its content comes from the journal and the index. A repair writes it anew as its
/// last step.
pub(super) fn check(medium: &dyn Medium, header: Option<Header>, report: &mut CheckReport) -> Result<Marker, StoreError> {
    let what = match find_marker(medium)? {
        MarkerState::Whole(marker) => return Ok(marker),
        MarkerState::Damaged(what) => what,
        MarkerState::Missing => "the file is missing".to_string(),
        MarkerState::Nothing => match medium.open(INDEX, false) {
            Ok(_) => "the file is missing".to_string(),
            Err(_) => {
                let what = "there is no store: it has no FORMAT file".to_string();
                return Err(StoreError::Index { path: medium.path().to_path_buf(), what });
            }
        },
    };
    let file = Some(MARKER.to_string());
    report.findings.push(Finding { kind: FindingKind::Format, key: None, file, what, repaired: false });
    let drive: Option<DriveId> = header.map(|header| header.drive);
    Ok(Marker { format: format_of_index(medium)?, drive })
}
