//! [`attended`]: work that takes long keeps what it has written so far. A drive deletes runs that no manifest has named for some time,
//! as it cannot tell those of a load, a move or a change on its way from those that a killed process has left.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, join_all, select};
use pithead_model::{DriveId, SliceKey};

use crate::Fleet;
use crate::commit::claim_at;
use crate::drives::Drives;

/// How often runs are claimed, unless the fleet says otherwise: several times within the 15 minutes that drives keep what nothing names.
pub(crate) const ATTEND_STEP: Duration = Duration::from_secs(60);
/// Longest that a drive is waited for.
const CLAIM_WAIT: Duration = Duration::from_secs(60);

/// Work that writes runs which no manifest names yet. Until it is done, those that `runs` gives are claimed now and then; it may give
/// runs that are not written yet.
pub async fn attended<T>(fleet: &Fleet, runs: impl Fn() -> Vec<(DriveId, SliceKey)>, work: impl Future<Output = T>) -> T {
    match select(pin!(work), pin!(attend(fleet, runs))).await {
        Either::Left((done, _)) => done,
        Either::Right((never, _)) => match never {},
    }
}

async fn attend(fleet: &Fleet, runs: impl Fn() -> Vec<(DriveId, SliceKey)>) -> Infallible {
    loop {
        tokio::time::sleep(fleet.attend_step()).await;
        let mut by_drive: BTreeMap<DriveId, Vec<SliceKey>> = BTreeMap::new();
        for (drive, run) in runs() {
            by_drive.entry(drive).or_default().push(run);
        }
        let drives = fleet.connected();
        let mut claims = Vec::with_capacity(by_drive.len());
        for (drive, runs) in by_drive {
            claims.push(spare(&drives, drive, runs));
        }
        join_all(claims).await;
    }
}

/// A drive that cannot be told is told the next time.
async fn spare(drives: &Drives, drive: DriveId, runs: Vec<SliceKey>) {
    let Some(drive) = drives.find(drive) else { return };
    // Version 0: no manifest names them yet.
    if let Ok(Err(fault)) = tokio::time::timeout(CLAIM_WAIT, claim_at(drive, runs, 0)).await {
        tracing::debug!("runs were not claimed: {}", fault.message);
    }
}
