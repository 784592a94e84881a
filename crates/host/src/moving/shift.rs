//! One group's way to another drive.

use std::collections::{BTreeMap, BTreeSet};

use pithead_model::{Blame, DriveId, Fault, LoadId, Manifest, SliceKey};
use pithead_wire::{Discard, Loads};

use super::Teller;
use super::group::{Group, Member};
use crate::commit::{Edit, NotCommitted, commit};
use crate::discard::discard_at;
use crate::drives::{ConnectedDrive, Drives};
use crate::host::Host;
use crate::relay::relay;

/// Times that runs which are appended meanwhile are copied after the others.
const ROUNDS_MAX: usize = 10;

/// Puts a group onto a drive: in the place of `from`, or as one copy more. Other hosts see it in the old place or in the new
/// one, never between. Returns the bytes that were copied.
pub(super) async fn shift(
    host: &Host,
    group: &Group,
    from: Option<DriveId>,
    to: DriveId,
    teller: &mut Teller,
) -> Result<u64, Fault> {
    let Some(domain) = group.members.first().map(|member| member.name.domain.clone()) else { return Ok(0) };
    let _writing = host.writers().begin().await;
    let mut there: BTreeMap<SliceKey, u64> = BTreeMap::new();
    let mut round = 0;
    let outcome = loop {
        round += 1;
        let copied = copy_missing(host, &domain, group, to, &mut there, teller).await;
        let runs = there.keys().cloned().collect();
        let swap = Swap { domain: &domain, members: &group.members, from, to: Some(to), there: runs };
        let committed = match copied {
            Ok(()) => commit(host.catalog(), &host.connected(), &swap).await,
            Err(fault) => Err(fault.into()),
        };
        match committed {
            Err(NotCommitted { fault, certain: true }) if fault.blame == Blame::Conflict && round < ROUNDS_MAX => {}
            outcome => break outcome,
        }
    };
    let drives = host.connected();
    match outcome {
        Ok(()) => {
            // A lost drive deletes nothing.
            if let Some(from) = from.filter(|from| drives.find(*from).is_some()) {
                discard_members(&drives, from, group, &there).await;
            }
            Ok(there.values().sum())
        }
        Err(NotCommitted { fault, certain }) => {
            if certain {
                discard_members(&drives, to, group, &there).await;
            }
            Err(fault.at(format_args!("moving {}", group.label())))
        }
    }
}

/// Takes a drive that is lost out of a group's copies. There must be another one.
pub(super) async fn forget_copy(host: &Host, group: &Group, lost: DriveId) -> Result<(), Fault> {
    let Some(first) = group.members.first() else { return Ok(()) };
    let domain = &first.name.domain;
    let swap = Swap { domain, members: &group.members, from: Some(lost), to: None, there: BTreeSet::new() };
    commit(host.catalog(), &host.connected(), &swap).await.map_err(|not| not.fault)
}

/// Copies the runs of a group that the manifest names and that are not there yet, each from the first copy that gives it.
async fn copy_missing(
    host: &Host,
    domain: &str,
    group: &Group,
    to: DriveId,
    there: &mut BTreeMap<SliceKey, u64>,
    teller: &mut Teller,
) -> Result<(), Fault> {
    let drives = host.refreshed().await;
    let to = drives.get(to)?;
    let (manifest, _) = host.catalog().manifest(domain, &drives).await?;
    for member in &group.members {
        let Some(partition) = member.find(&manifest) else { continue };
        for run in &partition.runs {
            let key = member.run(run.load);
            if there.contains_key(&key) {
                continue;
            }
            teller.begin(format!("partition {} of {} to {}", member.partition, member.name, to.label()));
            let bytes = relay_from_any(&key, &partition.copies, to, &drives).await?;
            teller.add(bytes);
            there.insert(key, bytes);
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

/// Deletes what was copied: each partition's own runs, and none of a load that is still on its way.
async fn discard_members(drives: &Drives, drive: DriveId, group: &Group, there: &BTreeMap<SliceKey, u64>) {
    for member in &group.members {
        let loads: Vec<LoadId> = there.keys().filter(|run| **run == member.run(run.load)).map(|run| run.load).collect();
        if loads.is_empty() {
            continue;
        }
        let (name, dataset, partition) = (member.name.clone(), member.dataset, Some(member.partition));
        discard_at(drives, [drive], &Discard { name, dataset, loads: Loads::Only(loads), partition }).await;
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
    type Made = ();

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

    fn is_in(&self, manifest: &Manifest) -> bool {
        let mut present = self.members.iter().filter_map(|member| member.find(manifest));
        present.all(|partition| {
            self.to.is_none_or(|to| partition.copies.contains(&to))
                && self.from.is_none_or(|from| !partition.copies.contains(&from))
        })
    }
}
