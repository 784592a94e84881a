//! Repair of all copies: each run is read where it is, compared, and written anew where it is missing or damaged.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use pithead_model::{Blame, DriveId, Fault, Manifest, SliceKey, boxed};
use xxhash_rust::xxh3::Xxh3;

use super::balance::{loads, target};
use super::group::Member;
use super::shift::{relay_from_any, shift};
use super::{RepairReport, RepairSpec, TellMove, Teller, groups};
use crate::Fleet;
use crate::commit::spread;
use crate::drives::{ConnectedDrive, Drives};
use crate::homes::HomeState;

impl Fleet {
    /// Without a lost drive: reads every copy of every run as it is stored, which verifies checksums, writes anew what is
    /// missing or damaged and whole elsewhere, and makes copies that a dataset lacks. With one: makes what it held anew from
    /// the other copies, makes another drive home where it was, and takes it out of its domains. The report names the rows that
    /// no copy has.
    #[boxed]
    pub async fn repair(&self, spec: &RepairSpec, tell: TellMove) -> Result<RepairReport, Fault> {
        match spec.lost {
            Some(lost) => self.repair_lost(lost, spec.drop_lost, tell).await,
            None => self.repair_all(tell).await,
        }
    }

    async fn repair_all(&self, tell: TellMove) -> Result<RepairReport, Fault> {
        let drives = self.refreshed().await;
        let mut report = RepairReport::default();
        for domain in self.catalog().domains(&drives).await? {
            let Some(found) = self.catalog().newest(&domain, &drives).await? else { continue };
            let all = groups(&found.manifest);
            let copied = all.iter().map(|group| group.bytes() * group.copies.len() as u64).sum();
            let mut teller = Teller::new(Arc::clone(&tell), copied);
            for group in &all {
                for member in &group.members {
                    check_member(member, &found.manifest, &drives, &mut report, &mut teller).await?;
                }
            }
            match found.home {
                HomeState::Here => {
                    spread(&drives, &found.manifest).await;
                    self.fill_up(&found.manifest, &mut report, &mut teller).await?;
                }
                _ => report.notes.push(format!("domain {domain}: its home is not reached, so no copies were added")),
            }
        }
        report.notes.sort();
        report.notes.dedup();
        Ok(report)
    }

    /// Makes copies that datasets lack.
    pub(super) async fn fill_up(
        &self,
        manifest: &Manifest,
        report: &mut RepairReport,
        teller: &mut Teller,
    ) -> Result<(), Fault> {
        let drives = self.connected();
        let all = groups(manifest);
        let mut loads = loads(&all, &manifest.drives);
        for mut group in all {
            while group.copies.len() < group.copies_wanted {
                let may = |id: DriveId| manifest.drives.contains(&id) && drives.find(id).is_some();
                let Some(to) = target(&group, &loads, may) else {
                    let (has, wanted) = (group.copies.len(), group.copies_wanted);
                    report.notes.push(format!("{} has {has} of {wanted} copies: there is no drive for more", group.label()));
                    break;
                };
                let shifted = shift(self, &group, None, to, teller).await?;
                report.bytes += shifted.bytes;
                report.copies_made += shifted.partitions;
                *loads.entry(to).or_insert(0) += group.bytes();
                group.copies.push(to);
            }
        }
        Ok(())
    }
}

/// Checks one partition's runs on all its drives.
async fn check_member(
    member: &Member,
    manifest: &Manifest,
    drives: &Drives,
    report: &mut RepairReport,
    teller: &mut Teller,
) -> Result<(), Fault> {
    let Some(partition) = member.find(manifest) else { return Ok(()) };
    for id in partition.copies.iter().filter(|id| drives.find(**id).is_none()) {
        report.notes.push(format!("drive {id} is not connected: its copies were not checked"));
    }
    let reached: Vec<&ConnectedDrive> = partition.copies.iter().filter_map(|id| drives.find(*id)).collect();
    for run in &partition.runs {
        check_run(&member.run(run.load), &reached, drives, report, teller).await?;
    }
    Ok(())
}

/// Reads one run wherever it is to be, and mends it from a copy that is whole.
pub(super) async fn check_run(
    run: &SliceKey,
    reached: &[&ConnectedDrive],
    drives: &Drives,
    report: &mut RepairReport,
    teller: &mut Teller,
) -> Result<(), Fault> {
    let mut whole: BTreeMap<u128, Vec<DriveId>> = BTreeMap::new();
    let mut bad = Vec::new();
    for drive in reached {
        teller.begin(format!("partition {} of {} at {}", run.partition, run.name, drive.label()));
        match digest(run, drive).await {
            Ok((digest, bytes)) => {
                whole.entry(digest).or_default().push(drive.id());
                report.runs_checked += 1;
                report.bytes_checked += bytes;
                teller.add(bytes);
            }
            Err(fault) if matches!(fault.blame, Blame::Corrupt | Blame::Conflict) => bad.push((*drive, fault)),
            Err(fault) => report.notes.push(format!("not checked: {}", fault.message)),
        }
    }
    if whole.len() > 1 {
        report.damaged.push(format!("{run}: the copies differ, and each is whole by its checksums"));
        return Ok(());
    }
    let sources = whole.into_values().next().unwrap_or_default();
    for (drive, fault) in bad {
        let message = match sources.is_empty() {
            true => Err(fault),
            false => relay_from_any(run, &sources, drive, drives).await,
        };
        match message {
            Ok(bytes) => {
                report.runs_rewritten += 1;
                report.bytes += bytes;
            }
            Err(fault) => report.damaged.push(fault.message),
        }
    }
    Ok(())
}

/// All bytes of a run in one number, and how many they are. The drive verifies checksums as it reads.
async fn digest(run: &SliceKey, drive: &ConnectedDrive) -> Result<(u128, u64), Fault> {
    let at = |fault: Fault| fault.at_drive(drive.label());
    let mut pieces = drive.door.read_run(run.clone()).await.map_err(at)?;
    let (mut hash, mut bytes, mut value) = (Xxh3::new(), 0, None);
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(at)?;
        if value != Some((piece.number, piece.total)) {
            value = Some((piece.number, piece.total));
            hash.update(&piece.number.map_or(u64::MAX, u64::from).to_le_bytes());
            hash.update(&piece.total.to_le_bytes());
        }
        hash.update(&piece.bytes);
        bytes += piece.bytes.len() as u64;
    }
    Ok((hash.digest128(), bytes))
}
