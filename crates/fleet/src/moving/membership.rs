//! Drives that join the domains, are emptied, and leave.

use std::sync::Arc;

use pithead_door::Door;
use pithead_model::{DriveId, Fault, Manifest, boxed};

use super::balance::{for_newcomer, loads, why_none};
use super::home::hand_over;
use super::shift::{put_copy, shift};
use super::{MoveReport, TellMove, Teller, groups};
use crate::Fleet;
use crate::commit::Edit;
use crate::drives::stands_beneath;

/// Times that a drain looks for partitions that were placed on the drive meanwhile.
const PASSES_MAX: usize = 4;

impl Fleet {
    /// Adds a drive to all domains, and moves partitions to it until bytes are balanced as well as whole partitions allow. A
    /// drive that belongs to them already only gets its share.
    #[boxed]
    pub async fn add_drive(&self, door: Arc<dyn Door>, tell: TellMove) -> Result<MoveReport, Fault> {
        let newcomer = self.connections().join(door).await?;
        let drive = newcomer.id();
        let drives = self.refreshed().await;
        let mut report = MoveReport::default();
        let domains = self.catalog().domains(&drives).await?;
        for domain in &domains {
            let members = self.manifest(domain, &drives).await?.drives;
            if let Some(member) = members.iter().find(|id| newcomer.welcome.beneath.contains(id)) {
                return Err(stands_beneath(&newcomer.welcome, *member, None));
            }
        }
        for domain in domains {
            let join = Membership { domain: &domain, drive, joins: true };
            self.commit(&join).await.map_err(|not| not.fault)?;
            let manifest = self.manifest(&domain, &drives).await?;
            let groups = groups(&manifest);
            let moves = for_newcomer(&groups, &manifest.drives, drive);
            if moves.is_empty() && !groups.is_empty() {
                report.notes.push(format!("domain {domain}: no partition moved; {}", why_none(&groups, drive)));
            }
            let bytes = moves.iter().filter_map(|(index, _)| groups.get(*index)).map(super::Group::bytes).sum();
            let mut teller = Teller::new(Arc::clone(&tell), bytes);
            for (index, from) in moves {
                let Some(group) = groups.get(index) else { continue };
                report.add(shift(self, group, Some(from), drive, &mut teller).await?);
            }
        }
        Ok(report)
    }

    /// Moves everything off a drive, homes too. It stays in its domains, and new datasets may still be placed there, until
    /// it is removed.
    #[boxed]
    pub async fn drain(&self, drive: DriveId, tell: TellMove) -> Result<MoveReport, Fault> {
        let drives = self.refreshed().await;
        let mut report = MoveReport::default();
        for domain in self.catalog().domains(&drives).await? {
            let manifest = self.manifest(&domain, &drives).await?;
            if !manifest.drives.contains(&drive) {
                continue;
            }
            self.drain_domain(&domain, drive, &tell, &mut report).await?;
            let (manifest, home) = self.catalog().manifest(&domain, &drives).await?;
            if home.id() == drive {
                let next = manifest.drives.iter().find(|id| **id != drive && drives.find(**id).is_some());
                let next = next.ok_or_else(|| only_drive(&domain, drive))?;
                hand_over(self, &domain, *next).await?;
                report.homes.push(domain);
            }
        }
        Ok(report)
    }

    /// Takes a drive out of all domains. The drive must hold nothing of them (see [`Fleet::drain`]), and need not be reached.
    #[boxed]
    pub async fn remove(&self, drive: DriveId) -> Result<(), Fault> {
        let drives = self.refreshed().await;
        let mut found = false;
        for domain in self.catalog().domains(&drives).await? {
            let manifest = self.manifest(&domain, &drives).await?;
            if knows(&manifest, drive) {
                found = true;
                refuse_attaching(&manifest, drive)?;
                let leave = Membership { domain: &domain, drive, joins: false };
                self.commit(&leave).await.map_err(|not| not.fault)?;
            }
        }
        if found { Ok(()) } else { Err(unknown_drive(drive)) }
    }

    async fn drain_domain(&self, domain: &str, drive: DriveId, tell: &TellMove, report: &mut MoveReport) -> Result<(), Fault> {
        for _ in 0..PASSES_MAX {
            let drives = self.refreshed().await;
            let manifest = self.manifest(domain, &drives).await?;
            let all = groups(&manifest);
            let mut loads = loads(&all, &manifest.drives);
            let leaving: Vec<_> = all.iter().filter(|group| group.copies.contains(&drive)).collect();
            if leaving.is_empty() {
                return Ok(());
            }
            let mut teller = Teller::new(Arc::clone(tell), leaving.iter().map(|group| group.bytes()).sum());
            for group in leaving {
                let may = |id: DriveId| id != drive && manifest.drives.contains(&id) && drives.find(id).is_some();
                let put = put_copy(self, group, Some(drive), &mut loads, may, &mut teller).await?;
                let (_, shifted) = put.ok_or_else(|| no_place(&group.label(), group.copies.len()))?;
                report.add(shifted);
            }
        }
        Err(Fault::new(pithead_model::Blame::Conflict, "other hosts keep placing datasets on the drive")
            .hint("drain it again once they are done"))
    }
}

fn only_drive(domain: &str, drive: DriveId) -> Fault {
    Fault::invalid(format!("drive {drive} is the only one of domain {domain} that is reached")).hint("add another drive first")
}

fn no_place(what: &str, copies: usize) -> Fault {
    let message = format!("{what} has {copies} copies, and there is no other drive for this one that does not hold it already");
    Fault::invalid(message).hint("add a drive first, with `pithead drive add`")
}

/// Whether a domain has to do with a drive.
pub(super) fn knows(manifest: &Manifest, drive: DriveId) -> bool {
    manifest.drives.contains(&drive) || manifest.attached_by(drive).next().is_some()
}

/// A drive whose files are a part of a dataset does not go unasked: the rows would go with it.
fn refuse_attaching(manifest: &Manifest, drive: DriveId) -> Result<(), Fault> {
    let Some(dataset) = manifest.attached_by(drive).next() else { return Ok(()) };
    let message = format!("drive {drive} attaches files that are a part of {}", manifest.name(dataset));
    let hint = "serve it without attaching them and run any query; if it is lost for good";
    Err(Fault::invalid(message).hint(format!("{hint}: `pithead repair --drop-lost --lost {drive}`")))
}

fn unknown_drive(drive: DriveId) -> Fault {
    Fault::invalid(format!("drive {drive} belongs to no domain")).hint("`pithead status` shows the drives")
}

/// A drive joins or leaves.
pub(super) struct Membership<'a> {
    pub(super) domain: &'a str,
    pub(super) drive: DriveId,
    pub(super) joins: bool,
}

impl Edit for Membership<'_> {
    type Output = ();

    fn domain(&self) -> &str {
        self.domain
    }

    fn subject(&self) -> String {
        format!("the drives of {}", self.domain)
    }

    fn apply(&self, manifest: &mut Manifest) -> Result<(), Fault> {
        let (domain, drive) = (self.domain, self.drive);
        if self.joins {
            if !manifest.drives.contains(&drive) {
                manifest.drives.push(drive);
            }
            return Ok(());
        }
        let holds = manifest
            .datasets
            .iter()
            .find(|(_, dataset)| dataset.partitions.iter().any(|partition| partition.copies.contains(&drive)));
        let hint = format!("move all of it elsewhere first: `pithead drive drain {drive}`");
        if let Some((name, _)) = holds {
            return Err(Fault::invalid(format!("drive {drive} still holds partitions of {}", manifest.name(name))).hint(hint));
        }
        if manifest.home() == Some(drive) {
            return Err(Fault::invalid(format!("drive {drive} is still the home of domain {domain}")).hint(hint));
        }
        manifest.drives.retain(|id| *id != drive);
        let attached: Vec<String> = manifest.attached_by(drive).map(str::to_owned).collect();
        attached.iter().for_each(|name| manifest.remove_attaching(name, drive));
        Ok(())
    }

    fn is_in(&self, manifest: &Manifest) -> bool {
        match self.joins {
            true => manifest.drives.contains(&self.drive),
            false => !knows(manifest, self.drive),
        }
    }
}
