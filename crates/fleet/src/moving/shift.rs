//! One group's way to another drive.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use pithead_door::{Discard, Loads};
use pithead_model::{Blame, DriveId, Fault, LoadId, Manifest, Partition, SliceKey};

use super::balance::target;
use super::group::{Group, Member};
use super::{Shifted, Teller};
use crate::Fleet;
use crate::attended::attended;
use crate::commit::{Committed, Edit, NotCommitted, claim_at};
use crate::discard::discard_at;
use crate::drives::{ConnectedDrive, Drives};
use crate::relay::relay;

/// Times that runs which are appended meanwhile are copied after the others.
const ROUNDS_MAX: usize = 10;

/// Puts a group onto the drive that has least of those that may have it: in the place of `from`, or as one copy more. A drive that
/// is full is passed over for the next one. Returns the drive, and none if there is none for it.
pub(super) async fn put_copy(
    fleet: &Fleet,
    group: &Group,
    from: Option<DriveId>,
    loads: &mut BTreeMap<DriveId, u64>,
    may: impl Fn(DriveId) -> bool,
    teller: &mut Teller,
) -> Result<Option<(DriveId, Shifted)>, Fault> {
    let mut refused: BTreeMap<DriveId, Fault> = BTreeMap::new();
    while let Some(to) = target(group, loads, |id| may(id) && !refused.contains_key(&id)) {
        match shift(fleet, group, from, to, teller).await {
            Ok(shifted) => {
                *loads.entry(to).or_insert(0) += group.bytes();
                return Ok(Some((to, shifted)));
            }
            Err(fault) if fault.blame == Blame::Limit => {
                refused.insert(to, fault);
            }
            Err(fault) => return Err(fault),
        }
    }
    refused.into_values().next().map_or(Ok(None), Err)
}

/// Puts a group onto a drive: in the place of `from`, or as one copy more. Other hosts see it in the old place or in the new
/// one, never between. Where another host came first, it stays as that one made it.
pub(super) async fn shift(
    fleet: &Fleet,
    group: &Group,
    from: Option<DriveId>,
    to: DriveId,
    teller: &mut Teller,
) -> Result<Shifted, Fault> {
    let Some(domain) = group.members.first().map(|member| member.name.domain.clone()) else { return Ok(Shifted::default()) };
    let _writing = fleet.writing().await;
    let mut there: Mutex<BTreeMap<SliceKey, u64>> = Mutex::default();
    let mut round = 0;
    let outcome = loop {
        round += 1;
        let held = || there.lock().keys().map(|run| (to, run.clone())).collect();
        let copied = attended(fleet, held, copy_missing(fleet, &domain, group, to, &there, teller)).await;
        let runs = there.lock().keys().cloned().collect();
        let swap = Swap { domain: &domain, members: &group.members, from, to: Some(to), there: runs };
        let committed = match copied {
            Ok(()) => fleet.commit(&swap).await,
            Err(fault) => Err(fault.into()),
        };
        match committed {
            Err(NotCommitted { fault, certain: true }) if fault.blame == Blame::Conflict && round < ROUNDS_MAX => {
                if is_overtaken(fleet, &domain, group, from, to).await? {
                    break Ok(None);
                }
                forget_missing(fleet, to, there.get_mut()).await?;
            }
            outcome => break outcome.map(Some),
        }
    };
    let (drives, there) = (fleet.connected(), there.into_inner());
    match outcome {
        Ok(Some(Committed { manifest, .. })) => {
            // A lost drive deletes nothing.
            if let Some(from) = from.filter(|from| drives.find(*from).is_some()) {
                discard_members(&drives, from, group, there.keys(), manifest.version).await;
            }
            Ok(Shifted { bytes: there.values().sum(), partitions: group.members.len() as u64 })
        }
        Ok(None) => {
            tracing::info!("another host has moved {} first", group.label());
            discard_unnamed(fleet, &domain, group, to, &there).await;
            Ok(Shifted::default())
        }
        Err(NotCommitted { fault, certain }) => {
            if certain {
                discard_unnamed(fleet, &domain, group, to, &there).await;
            }
            Err(fault.at(format_args!("moving {}", group.label())))
        }
    }
}

/// Whether the group is not any more where it was to be moved from, or is where it was to be moved to.
async fn is_overtaken(fleet: &Fleet, domain: &str, group: &Group, from: Option<DriveId>, to: DriveId) -> Result<bool, Fault> {
    let manifest = fleet.manifest(domain, &*fleet.refreshed().await).await?;
    let mut present = group.members.iter().filter_map(|member| member.find(&manifest)).peekable();
    let none_is_left = present.peek().is_none();
    let is_done = |partition: &Partition| match from {
        _ if partition.copies.contains(&to) => true,
        Some(from) => !partition.copies.contains(&from),
        None => partition.copies.len() >= group.copies_wanted,
    };
    Ok(none_is_left || present.any(is_done))
}

/// Forgets of what was copied what is not there any more.
async fn forget_missing(fleet: &Fleet, to: DriveId, there: &mut BTreeMap<SliceKey, u64>) -> Result<(), Fault> {
    let drives = fleet.connected();
    // Version 0: it is only asked for.
    let missing = claim_at(drives.get(to)?, there.keys().cloned().collect(), 0).await?;
    there.retain(|run, _| !missing.contains(run));
    Ok(())
}

/// Deletes what was copied and is named by no manifest there, as it is now: another host may have named it.
async fn discard_unnamed(fleet: &Fleet, domain: &str, group: &Group, to: DriveId, there: &BTreeMap<SliceKey, u64>) {
    let drives = fleet.connected();
    let manifest = match fleet.manifest(domain, &drives).await {
        Ok(manifest) => manifest,
        Err(fault) => {
            tracing::warn!(domain, "copies that nothing names stay: {}", fault.message);
            return;
        }
    };
    let is_named = |run: &&SliceKey| {
        let member = group.members.iter().find(|member| member.run(run.load) == **run);
        member.is_some_and(|member| member.is_to_be_on(to, run.load, &manifest))
    };
    let unnamed: Vec<&SliceKey> = there.keys().filter(|run| !is_named(run)).collect();
    discard_members(&drives, to, group, unnamed, manifest.version).await;
}

/// Takes a drive that is lost out of a group's copies. There must be another one.
pub(super) async fn forget_copy(fleet: &Fleet, group: &Group, lost: DriveId) -> Result<(), Fault> {
    let Some(first) = group.members.first() else { return Ok(()) };
    let domain = &first.name.domain;
    let swap = Swap { domain, members: &group.members, from: Some(lost), to: None, there: BTreeSet::new() };
    fleet.commit(&swap).await.map(drop).map_err(|not| not.fault)
}

/// Copies the runs of a group that the manifest names and that are not there yet, each from the first copy that gives it.
async fn copy_missing(
    fleet: &Fleet,
    domain: &str,
    group: &Group,
    to: DriveId,
    there: &Mutex<BTreeMap<SliceKey, u64>>,
    teller: &mut Teller,
) -> Result<(), Fault> {
    let drives = fleet.refreshed().await;
    let to = drives.get(to)?;
    let manifest = fleet.manifest(domain, &drives).await?;
    for member in &group.members {
        let Some(partition) = member.find(&manifest) else { continue };
        for run in &partition.runs {
            let key = member.run(run.load);
            if there.lock().contains_key(&key) {
                continue;
            }
            teller.begin(format!("partition {} of {} to {}", member.partition, member.name, to.label()));
            let bytes = relay_from_any(&key, &partition.copies, to, &drives).await?;
            teller.add(bytes);
            there.lock().insert(key, bytes);
        }
    }
    Ok(())
}

/// Copies a run from whichever drive gives all of it.
pub(super) async fn relay_from_any(
    run: &SliceKey,
    copies: &[DriveId],
    to: &ConnectedDrive,
    drives: &Drives,
) -> Result<u64, Fault> {
    let sources: Vec<&ConnectedDrive> = copies.iter().filter(|id| **id != to.id()).filter_map(|id| drives.find(*id)).collect();
    let mut first = None;
    for from in sources {
        match relay(run, from, to).await {
            Ok(bytes) => return Ok(bytes),
            Err(fault) => first.get_or_insert(fault),
        };
    }
    Err(first.unwrap_or_else(|| drives.not_connected(copies)))
}

/// Deletes runs of a group that the manifest of version `seen` does not name on a drive.
async fn discard_members<'a>(
    drives: &Drives,
    drive: DriveId,
    group: &Group,
    runs: impl IntoIterator<Item = &'a SliceKey>,
    seen: u64,
) {
    let runs: Vec<&SliceKey> = runs.into_iter().collect();
    for member in &group.members {
        let loads: Vec<LoadId> = runs.iter().filter(|run| ***run == member.run(run.load)).map(|run| run.load).collect();
        if loads.is_empty() {
            continue;
        }
        let (name, dataset, partition) = (member.name.clone(), member.dataset, Some(member.partition));
        let wanted = Discard { name, dataset, loads: Loads::Only(loads), partition, seen: Some(seen) };
        discard_at(drives, [drive], &wanted).await;
    }
}

/// Names a group's copies anew.
struct Swap<'a> {
    domain: &'a str,
    members: &'a [Member],
    from: Option<DriveId>,
    to: Option<DriveId>,
    /// The runs that are on `to`.
    there: BTreeSet<SliceKey>,
}

impl Edit for Swap<'_> {
    type Output = ();

    fn domain(&self) -> &str {
        self.domain
    }

    fn subject(&self) -> String {
        format!("the drives of {}", self.domain)
    }

    fn apply(&self, manifest: &mut Manifest) -> Result<(), Fault> {
        let conflict = |what: String| Err(Fault::new(Blame::Conflict, what).hint("try again"));
        if let Some(stray) = self.to.filter(|to| !manifest.drives.contains(to)) {
            return conflict(format!("drive {stray} left domain {} meanwhile", self.domain));
        }
        for member in self.members {
            let wanted = member.copies_wanted(manifest);
            // Dropped or replaced: what was copied of it goes as garbage.
            let Some(partition) = member.find_mut(manifest) else { continue };
            let lacks = |load: LoadId| self.to.is_some() && !self.there.contains(&member.run(load));
            if partition.runs.iter().any(|run| lacks(run.load)) {
                return conflict(format!("{} was appended to meanwhile", member.name));
            }
            let at = self.from.map(|from| partition.copies.iter().position(|drive| *drive == from));
            let held = self.to.is_some_and(|to| partition.copies.contains(&to));
            match (at, self.to) {
                (_, Some(_)) if held => return conflict(format!("{} was moved meanwhile", member.name)),
                (Some(Some(at)), Some(to)) => partition.copies[at] = to,
                // Another host may have made the copy that was lacking.
                (None, Some(_)) if partition.copies.len() >= wanted => {
                    return conflict(format!("{} has all of its copies by now", member.name));
                }
                (None, Some(to)) => partition.copies.push(to),
                (Some(Some(at)), None) if partition.copies.len() > 1 => {
                    partition.copies.remove(at);
                }
                (Some(None), None) | (None, None) => {}
                _ => return conflict(format!("{} was moved meanwhile", member.name)),
            }
        }
        Ok(())
    }

    fn runs(&self) -> Vec<(DriveId, SliceKey)> {
        let to = self.to.into_iter();
        to.flat_map(|to| self.there.iter().map(move |run| (to, run.clone()))).collect()
    }

    fn is_in(&self, manifest: &Manifest) -> bool {
        let mut present = self.members.iter().filter_map(|member| member.find(manifest));
        present.all(|partition| {
            self.to.is_none_or(|to| partition.copies.contains(&to))
                && self.from.is_none_or(|from| !partition.copies.contains(&from))
        })
    }
}
