//! Repair after a drive was lost: its copies are made anew from the others, and what is gone is named.

use std::sync::Arc;

use pithead_model::{DriveId, Fault, Manifest};

use super::balance::loads;
use super::group::Group;
use super::home::replace_home;
use super::membership::{Membership, knows};
use super::shift::{forget_copy, put_copy};
use super::{LostPartition, RepairReport, TellMove, Teller, groups};
use crate::Fleet;
use crate::homes::asked;

impl Fleet {
    pub(super) async fn repair_lost(&self, lost: DriveId, drop_lost: bool, tell: TellMove) -> Result<RepairReport, Fault> {
        // It may be back at its address, where another one was in its place.
        let drives = self.connections().looked_at_again().await;
        if let Some(drive) = drives.find(lost)
            && asked(&drives, drive, drive.door.status()).await.is_ok()
        {
            let fault = Fault::invalid(format!("drive {lost} is not lost: it answers as {}", drive.label()));
            return Err(fault.hint(format!("to take it out of use: `pithead drive drain {lost}`")));
        }
        let mut report = RepairReport::default();
        let mut found = false;
        for domain in self.catalog().domains(&drives).await? {
            let Some(newest) = self.catalog().newest(&domain, &drives).await? else { continue };
            if knows(&newest.manifest, lost) {
                found = true;
                self.repair_domain(&newest.manifest, lost, drop_lost, &tell, &mut report).await?;
            }
        }
        match found {
            true => Ok(report),
            false => {
                Err(Fault::invalid(format!("drive {lost} belongs to no domain")).hint("`pithead status` shows the drives"))
            }
        }
    }

    async fn repair_domain(
        &self,
        newest: &Manifest,
        lost: DriveId,
        drop_lost: bool,
        tell: &TellMove,
        report: &mut RepairReport,
    ) -> Result<(), Fault> {
        let drives = self.connected();
        let domain = newest.domain.as_str();
        if replace_home(self, domain, lost).await?.is_some() {
            report.homes.push(domain.to_owned());
        }
        let manifest = self.manifest(domain, &drives).await?;
        let gone = without_copy(&manifest, lost);
        if drop_lost {
            let mut names: Vec<_> = gone.iter().map(|partition| partition.name.clone()).collect();
            names.dedup();
            for name in names {
                self.drop_dataset(&name).await?;
                report.dropped.push(name.to_string());
            }
        }
        let failed = report.failed.len();
        self.rebuild(domain, lost, tell, report).await?;
        let is_rebuilt = report.failed.len() == failed;
        let attached: Vec<String> = manifest.attached_by(lost).map(|name| manifest.name(name).to_string()).collect();
        report.notes.extend(attached.iter().map(|name| match drop_lost {
            true => format!("{name} is without the files that drive {lost} attached"),
            false => {
                format!("{name} cannot be read without the files that drive {lost} attached, unless what is lost is dropped")
            }
        }));
        if is_rebuilt && (drop_lost || (gone.is_empty() && attached.is_empty())) {
            let leave = Membership { domain, drive: lost, joins: false };
            self.commit(&leave).await.map_err(|not| not.fault)?;
        }
        report.lost.extend(gone);
        Ok(())
    }

    /// Makes the lost drive's copies anew, wherever there is another copy and a drive that has none. What cannot be made is reported,
    /// and does not keep others from being made.
    async fn rebuild(&self, domain: &str, lost: DriveId, tell: &TellMove, report: &mut RepairReport) -> Result<(), Fault> {
        let drives = self.connected();
        let manifest = self.manifest(domain, &drives).await?;
        let all = groups(&manifest);
        let mut loads = loads(&all, &manifest.drives);
        let to_do: Vec<Group> = all.into_iter().filter_map(|group| without_lost_rows(group, lost)).collect();
        let mut teller = Teller::new(Arc::clone(tell), to_do.iter().map(Group::bytes).sum());
        for group in to_do {
            let may = |id: DriveId| id != lost && manifest.drives.contains(&id) && drives.find(id).is_some();
            match put_copy(self, &group, Some(lost), &mut loads, may, &mut teller).await {
                Ok(Some((_, shifted))) => report.count_copies(shifted),
                Err(fault) => report.failed.push(fault.message),
                Ok(None) if group.copies.len() > 1 => {
                    forget_copy(self, &group, lost).await?;
                    report.notes.push(format!(
                        "{} has {} of {} copies: there is no further drive for one; add one and run `pithead repair`",
                        group.label(),
                        group.copies.len() - 1,
                        group.copies_wanted
                    ));
                }
                Ok(None) => report.notes.push(format!("{} is empty, and stays on the lost drive", group.label())),
            }
        }
        Ok(())
    }
}

/// Partitions with rows of which the lost drive had the only copy.
pub(super) fn without_copy(manifest: &Manifest, lost: DriveId) -> Vec<LostPartition> {
    let only = groups(manifest).into_iter().filter(|group| group.copies == [lost]).flat_map(|group| group.members);
    let gone = only.filter(|member| member.rows > 0);
    let mut gone: Vec<LostPartition> =
        gone.map(|member| LostPartition { name: member.name, partition: member.partition, rows: member.rows }).collect();
    gone.sort_by(|a, b| (&a.name, a.partition).cmp(&(&b.name, b.partition)));
    gone
}

/// What of a group on the lost drive can be had elsewhere: all if there is another copy, else partitions without rows.
fn without_lost_rows(mut group: Group, lost: DriveId) -> Option<Group> {
    if group.copies == [lost] {
        group.members.retain(|member| member.rows == 0);
    }
    (group.copies.contains(&lost) && !group.members.is_empty()).then_some(group)
}
