//! Changes of a domain: each is one compare-and-set of the domain's manifest (`ARCHITECTURE.md`, "Loads and commits"),
//! followed by copies of the manifest to the other drives.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::future::{join_all, try_join_all};
use pithead_door::{CLAIMED_MAX, Claim};
use pithead_model::{Blame, DatasetName, DriveId, Fault, Manifest, SliceKey, boxed};

use crate::catalog::Catalog;
use crate::change::{Change, DatasetChange};
use crate::discard::discard;
use crate::drives::{ConnectedDrive, Drives};
use crate::history::now_ms;
use crate::homes::asked;

/// How long a change is tried against other hosts' changes.
const ATTEMPTS_WAIT: Duration = Duration::from_secs(30);
/// Longest wait before the second attempt; later ones wait longer.
const WAIT_MS_MAX: u64 = 8;
/// Longest wait before any.
const LONGEST_WAIT_MS: u64 = 250;

/// A change of a manifest.
pub trait Edit: Sync {
    /// What the edit yields, such as the incarnation that it superseded.
    type Output: Send;

    /// The domain.
    fn domain(&self) -> &str;

    /// The subject of the change, for people.
    fn subject(&self) -> String;

    /// Makes the change. A fault if it cannot be made to this manifest.
    fn apply(&self, manifest: &mut Manifest) -> Result<Self::Output, Fault>;

    /// Runs that it names where no manifest named them before.
    fn runs(&self) -> Vec<(DriveId, SliceKey)> {
        Vec::new()
    }

    /// Whether a manifest shows the change.
    fn is_in(&self, manifest: &Manifest) -> bool;

    /// Whether a manifest that does not show the change may contain it all the same, if it was made in `version`.
    fn may_be_hidden(&self, _manifest: &Manifest, _version: u64) -> bool {
        false
    }

    /// Whether a manifest that does not show the change may come after one that did, which was made in `version`: others may have
    /// changed the same thing since.
    fn may_be_undone(&self, manifest: &Manifest, version: u64) -> bool {
        manifest.version > version
    }
}

/// A change that was made.
#[derive(Debug)]
pub struct Committed<T> {
    /// What the edit yielded.
    pub made: T,
    /// The manifest that shows it.
    pub manifest: Manifest,
}

/// A change that was not made.
#[derive(Debug)]
pub struct NotCommitted {
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
pub(crate) async fn commit<E: Edit>(
    catalog: &Catalog,
    drives: &Drives,
    edit: &E,
) -> Result<Committed<E::Output>, NotCommitted> {
    let started = Instant::now();
    let mut attempt = 0;
    loop {
        attempt += 1;
        let (mut manifest, home) = catalog.manifest(edit.domain(), drives).await?;
        let expected = manifest.version;
        let made = edit.apply(&mut manifest)?;
        claim(drives, edit.runs(), expected).await?;
        manifest.succeed(now_ms());
        let fault = match home.door.commit(expected, manifest.clone()).await {
            Ok(()) => {
                catalog.note_home(edit.domain(), home.id());
                match confirm(catalog, drives, edit, &manifest, &home).await {
                    Ok(()) => {
                        catalog.changed(manifest.clone());
                        return Ok(Committed { made, manifest });
                    }
                    Err(fault) => fault,
                }
            }
            // It was home that said so, of this change: it may not be made, or home has no room for it.
            Err(fault) if matches!(fault.blame, Blame::Access | Blame::Limit) => {
                return Err(fault.at_drive(home.label()).into());
            }
            Err(fault) => fault.at_drive(home.label()),
        };
        if fault.blame != Blame::Conflict {
            return match settle(catalog, drives, edit, manifest.version).await {
                Settled::Made(found) => match confirm(catalog, drives, edit, &found, &home).await {
                    Ok(()) => {
                        catalog.changed(*found);
                        Ok(Committed { made, manifest })
                    }
                    Err(fault) => Err(NotCommitted { fault, certain: false }),
                },
                Settled::NotMade => Err(NotCommitted { fault, certain: true }),
                Settled::Unknown => Err(NotCommitted { fault: unsettled(fault, &edit.subject()), certain: false }),
            };
        }
        if started.elapsed() > ATTEMPTS_WAIT {
            let what =
                format!("other hosts keep changing domain {}, so that {} could not be changed", edit.domain(), edit.subject());
            let fault = Fault::new(Blame::Conflict, format!("{what}: {}", fault.message));
            return Err(fault.hint("wait until they are done, and try again").into());
        }
        let wait_ms = rand::random_range(1..=(WAIT_MS_MAX * attempt).min(LONGEST_WAIT_MS));
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
    }
}

/// Claims runs for the version after `expected`, so that nobody deletes them who has not seen that one.
async fn claim(drives: &Drives, runs: Vec<(DriveId, SliceKey)>, expected: u64) -> Result<(), Fault> {
    let mut by_drive: BTreeMap<DriveId, Vec<SliceKey>> = BTreeMap::new();
    for (drive, run) in runs {
        by_drive.entry(drive).or_default().push(run);
    }
    let claims = by_drive.into_iter().map(|(drive, runs)| async move { claim_at(drives.get(drive)?, runs, expected).await });
    let missing = try_join_all(claims).await?;
    match missing.into_iter().flatten().next() {
        None => Ok(()),
        Some(run) => {
            let what =
                format!("load {} of {}, partition {}, is not where it was written any more", run.load, run.name, run.partition);
            Err(Fault::new(Blame::Conflict, what)
                .hint("it was taken for left behind, as nothing named it for long: load again"))
        }
    }
}

/// Claims runs at one drive. Returns those that are not there.
#[boxed]
pub async fn claim_at(drive: &ConnectedDrive, runs: Vec<SliceKey>, version: u64) -> Result<Vec<SliceKey>, Fault> {
    let mut missing = Vec::new();
    for runs in runs.chunks(CLAIMED_MAX) {
        let claimed = drive.door.claim(Claim { runs: runs.to_vec(), version }).await;
        missing.extend(claimed.map_err(|fault| fault.at_drive(drive.label()))?);
    }
    Ok(missing)
}

/// Gives copies of a manifest that its home has taken to the other drives. A fault if one of them knows that this home was declared
/// lost, and the change is not in what the next home has: then nobody will see it. Former homes learn of the new one.
async fn confirm<E: Edit>(
    catalog: &Catalog,
    drives: &Drives,
    edit: &E,
    manifest: &Manifest,
    home: &ConnectedDrive,
) -> Result<(), Fault> {
    if spread(drives, manifest).await {
        catalog.former_homes().tell(drives, manifest).await;
        return Ok(());
    }
    catalog.domains(drives).await?;
    let Some(found) = catalog.newest(edit.domain(), drives).await? else { return Ok(()) };
    tracing::warn!(domain = edit.domain(), home = home.label(), "this home was declared lost, and another drive is home now");
    if let Err(fault) = asked(drives, home, home.door.keep_manifest(found.manifest.clone())).await {
        tracing::warn!(domain = edit.domain(), "it does not know of the new home: {}", fault.message);
    }
    if edit.is_in(&found.manifest) {
        return Ok(());
    }
    // What the old home did after the next one was made of its manifest is nowhere else, so nobody can have undone it there.
    let is_lacking = found.manifest.lost_home(home.id()).is_some_and(|known| known < manifest.version);
    if edit.may_be_hidden(&found.manifest, manifest.version)
        || (!is_lacking && edit.may_be_undone(&found.manifest, manifest.version))
    {
        // It may be among what another host has merged there, so it must not be made once more.
        return Err(Fault::new(Blame::Device, format!("drive {} was declared lost", home.label())));
    }
    let what = format!("drive {} is not the home of domain {} any more: it was declared lost", home.label(), edit.domain());
    Err(Fault::new(Blame::Conflict, what).hint("try again"))
}

enum Settled {
    Made(Box<Manifest>),
    NotMade,
    Unknown,
}

/// After a swap to `version` whose answer was lost: was it made? If not, swaps in the same manifest under a new version, so that
/// a swap which is still on its way can no longer succeed.
async fn settle<E: Edit>(catalog: &Catalog, drives: &Drives, edit: &E, version: u64) -> Settled {
    let Ok((mut manifest, home)) = catalog.manifest(edit.domain(), drives).await else {
        return Settled::Unknown;
    };
    if edit.is_in(&manifest) {
        return Settled::Made(Box::new(manifest));
    }
    if edit.may_be_hidden(&manifest, version) || edit.may_be_undone(&manifest, version) {
        return match shown_in(version, edit, drives, &home).await {
            Some(true) => Settled::Made(Box::new(manifest)),
            Some(false) => Settled::NotMade,
            None => Settled::Unknown,
        };
    }
    let expected = manifest.version;
    manifest.succeed(now_ms());
    match home.door.commit(expected, manifest).await {
        Ok(()) => Settled::NotMade,
        Err(_) => Settled::Unknown,
    }
}

/// Whether the change is in the version that it was to be, where home still has that one. No version is made twice, so if it is not
/// there it never will be.
async fn shown_in<E: Edit>(version: u64, edit: &E, drives: &Drives, home: &ConnectedDrive) -> Option<bool> {
    let past = asked(drives, home, home.door.past_manifest(edit.domain().to_owned(), version)).await;
    past.ok().flatten().map(|past| edit.is_in(&past))
}

fn unsettled(fault: Fault, subject: &str) -> Fault {
    let message = format!("{}; the change of {subject} may have been made or not", fault.message);
    Fault::new(fault.blame, message).hint("pithead ls shows which, once the drive answers")
}

/// Gives copies of a manifest to the domain's other drives, before anyone is told of it. A drive that does not take it keeps an
/// older copy until the next change; only the home's own copy counts. False: a drive knows that the home was declared lost.
pub(crate) async fn spread(drives: &Drives, manifest: &Manifest) -> bool {
    let others = manifest.drives.iter().skip(1).filter_map(|id| drives.find(*id));
    let kept = others.map(|drive| async move {
        match asked(drives, drive, drive.door.keep_manifest(manifest.clone())).await {
            Ok(kept) => !kept.home_is_lost,
            Err(fault) => {
                let (domain, version) = (&manifest.domain, manifest.version);
                tracing::warn!(domain, version, "no copy of the manifest: {}", fault.message);
                true
            }
        }
    });
    join_all(kept).await.into_iter().all(|is_home| is_home)
}

/// Removes a dataset, then deletes its slices.
pub(crate) async fn drop_dataset(catalog: &Catalog, drives: &Drives, name: &DatasetName) -> Result<(), Fault> {
    let dropped = commit(catalog, drives, &DatasetChange { name, change: &Change::Drop }).await.map_err(|not| not.fault)?;
    if let Some(dataset) = dropped.made {
        discard(drives, name, &dataset, dropped.manifest.version).await;
    }
    Ok(())
}
