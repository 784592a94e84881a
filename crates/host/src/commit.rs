//! Changes of a domain: one compare-and-set of its manifest each (DESIGN's rule 10), then copies of it to the other drives.

use std::time::Duration;

use futures::future::join_all;
use pithead_model::{Blame, Dataset, DatasetName, Fault, Manifest};
use pithead_wire::Loads;

use crate::catalog::Catalog;
use crate::change::{Change, DatasetChange};
use crate::discard::discard;
use crate::drives::Drives;
use crate::fault::at_drive;
use crate::homes::asked;

/// Times that a change is tried against other hosts' changes.
const ATTEMPTS_MAX: u64 = 10;
/// Longest wait before the second attempt; later ones wait longer.
const WAIT_MS_MAX: u64 = 8;

/// A change of a manifest.
pub(crate) trait Edit: Sync {
    /// What comes of it, such as what was superseded.
    type Made: Send;

    /// The domain.
    fn domain(&self) -> &str;

    /// What is changed, for people.
    fn subject(&self) -> String;

    /// Makes the change. A fault if it cannot be made to this manifest.
    fn apply(&self, manifest: &mut Manifest) -> Result<Self::Made, Fault>;

    /// Whether a manifest shows the change.
    fn is_in(&self, manifest: &Manifest) -> bool;
}

/// A change that was not made.
#[derive(Debug)]
pub(crate) struct NotCommitted {
    /// Why.
    pub fault: Fault,
    /// Whether it is certain that the change was not made and never will be. Otherwise its slices must stay.
    pub certain: bool,
}

impl From<Fault> for NotCommitted {
    fn from(fault: Fault) -> Self {
        Self { fault, certain: true }
    }
}

/// Makes a change visible: reads the manifest, changes it, swaps it, again if another host came first. Then the other drives
/// get copies of it.
pub(crate) async fn commit<E: Edit>(catalog: &Catalog, drives: &Drives, edit: &E) -> Result<E::Made, NotCommitted> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let (mut manifest, home) = catalog.manifest(edit.domain(), drives).await?;
        let expected = manifest.version;
        let made = edit.apply(&mut manifest)?;
        manifest.version += 1;
        let fault = match home.door.commit(expected, manifest.clone()).await {
            Ok(()) => {
                catalog.note_home(edit.domain(), home.id());
                spread(drives, &manifest).await;
                return Ok(made);
            }
            Err(fault) => at_drive(fault, home.label()),
        };
        if fault.blame == Blame::Access {
            return Err(NotCommitted { fault, certain: true });
        }
        if fault.blame != Blame::Conflict {
            return match settle(catalog, drives, edit).await {
                Settled::Made(manifest) => {
                    spread(drives, &manifest).await;
                    Ok(made)
                }
                Settled::NotMade => Err(NotCommitted { fault, certain: true }),
                Settled::Unknown => Err(NotCommitted { fault: unsettled(fault, &edit.subject()), certain: false }),
            };
        }
        if attempt == ATTEMPTS_MAX {
            let hint = "other hosts keep changing the domain; try again";
            return Err(fault.hint(hint).into());
        }
        let wait_ms = rand::random_range(1..=WAIT_MS_MAX * attempt);
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
    }
}

enum Settled {
    Made(Box<Manifest>),
    NotMade,
    Unknown,
}

/// After a swap whose answer was lost: was it made? If not, swaps in the same manifest under a new version, so that a
/// swap which is still on its way can no longer succeed.
async fn settle<E: Edit>(catalog: &Catalog, drives: &Drives, edit: &E) -> Settled {
    let Ok((mut manifest, home)) = catalog.manifest(edit.domain(), drives).await else {
        return Settled::Unknown;
    };
    if edit.is_in(&manifest) {
        return Settled::Made(Box::new(manifest));
    }
    let expected = manifest.version;
    manifest.version += 1;
    match home.door.commit(expected, manifest).await {
        Ok(()) => Settled::NotMade,
        Err(_) => Settled::Unknown,
    }
}

fn unsettled(fault: Fault, subject: &str) -> Fault {
    let message = format!("{}; the change of {subject} may have been made or not", fault.message);
    Fault::new(fault.blame, message).hint("pithead ls shows which, once the drive answers")
}

/// Gives copies of a manifest to the domain's other drives, before anyone is told of it. One that does not take it has an
/// older copy until the next change; home's own one is what counts.
pub(crate) async fn spread(drives: &Drives, manifest: &Manifest) {
    let others = manifest.drives.iter().skip(1).filter_map(|id| drives.find(*id));
    let kept = others.map(|drive| async move {
        if let Err(fault) = asked(drives, drive, drive.door.keep_manifest(manifest.clone())).await {
            tracing::warn!(domain = manifest.domain, version = manifest.version, "no copy of the manifest: {}", fault.message);
        }
    });
    join_all(kept).await;
}

/// Makes a change of one dataset. Returns the incarnation that it supersedes.
pub(crate) async fn commit_dataset(
    catalog: &Catalog,
    drives: &Drives,
    name: &DatasetName,
    change: &Change,
) -> Result<Option<Dataset>, NotCommitted> {
    commit(catalog, drives, &DatasetChange { name, change }).await
}

/// Removes a dataset, then deletes its slices.
pub(crate) async fn drop_dataset(catalog: &Catalog, drives: &Drives, name: &DatasetName) -> Result<(), Fault> {
    let dropped = commit_dataset(catalog, drives, name, &Change::Drop).await.map_err(|not| not.fault)?;
    if let Some(dataset) = dropped {
        discard(drives, name, &dataset, Loads::All).await;
    }
    Ok(())
}
