//! Repair of all copies: each run is read where it is, compared, and written anew where it is missing or damaged.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use pithead_model::{Blame, DriveId, Fault, LoadId, Manifest, SliceKey, boxed};
use xxhash_rust::xxh3::Xxh3;

use super::balance::loads;
use super::group::Member;
use super::shift::{put_copy, relay_from_any};
use super::{AwayDrive, RepairReport, RepairSpec, TellMove, Teller, groups};
use crate::Fleet;
use crate::commit::{claim_at, spread};
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
        let drives = self.connections().looked_at_again().await;
        let mut report = RepairReport::default();
        for domain in self.catalog().domains(&drives).await? {
            let found = match self.catalog().newest(&domain, &drives).await {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(fault) => {
                    report.failed.push(format!("domain {domain} was not checked: {}", fault.message));
                    continue;
                }
            };
            let is_here = matches!(found.home, HomeState::Here);
            if is_here {
                // Drives delete runs that no manifest of theirs names, so they have the newest one before anything is written.
                spread(&drives, &found.manifest).await;
            }
            let all = groups(&found.manifest);
            let copied = all.iter().map(|group| group.bytes() * group.copies.len() as u64).sum();
            let mut teller = Teller::new(Arc::clone(&tell), copied);
            report.away.extend(away(&found.manifest, &drives));
            let (report, teller) = (&mut report, &mut teller);
            let mut checking = Checking {
                fleet: self,
                drives: &drives,
                manifest: &found.manifest,
                report: &mut *report,
                teller: &mut *teller,
                rewritten: vec![],
            };
            for member in all.iter().flat_map(|group| &group.members) {
                checking.check_member(member).await;
            }
            match is_here {
                true => self.fill_up(&found.manifest, report, teller).await,
                false => report.notes.push(format!("domain {domain}: its home is not reached, so no copies were added")),
            }
        }
        for said in [&mut report.notes, &mut report.failed] {
            said.sort();
            said.dedup();
        }
        report.away.sort();
        report.away.dedup();
        Ok(report)
    }

    /// Makes copies that datasets lack. What cannot be made is reported, and does not keep others from being made.
    pub(super) async fn fill_up(&self, manifest: &Manifest, report: &mut RepairReport, teller: &mut Teller) {
        let drives = self.connected();
        let all = groups(manifest);
        let mut loads = loads(&all, &manifest.drives);
        for mut group in all {
            while group.copies.len() < group.copies_wanted {
                let may = |id: DriveId| manifest.drives.contains(&id) && drives.find(id).is_some();
                let (has, wanted) = (group.copies.len(), group.copies_wanted);
                match put_copy(self, &group, None, &mut loads, may, teller).await {
                    Ok(Some((to, shifted))) => {
                        report.count_copies(shifted);
                        group.copies.push(to);
                    }
                    Ok(None) => {
                        let what = format!("{} has {has} of {wanted} copies: there is no drive for more", group.label());
                        report.notes.push(what);
                        break;
                    }
                    Err(fault) => {
                        report.failed.push(format!("{} has {has} of {wanted} copies: {}", group.label(), fault.message));
                        break;
                    }
                }
            }
        }
    }
}

/// Runs that one manifest names, while they are checked and mended.
pub(super) struct Checking<'a> {
    pub(super) fleet: &'a Fleet,
    pub(super) drives: &'a Drives,
    pub(super) manifest: &'a Manifest,
    pub(super) report: &'a mut RepairReport,
    pub(super) teller: &'a mut Teller,
    /// Runs that were written anew, and where.
    pub(super) rewritten: Vec<(DriveId, SliceKey)>,
}

impl Checking<'_> {
    /// Checks one partition's runs on all its drives.
    async fn check_member(&mut self, member: &Member) {
        let Some(partition) = member.find(self.manifest) else { return };
        let reached: Vec<&ConnectedDrive> = partition.copies.iter().filter_map(|id| self.drives.find(*id)).collect();
        for run in &partition.runs {
            self.check_run(member, run.load, &reached).await;
        }
    }

    /// Reads one run wherever it is to be, and mends it from a copy that is whole.
    pub(super) async fn check_run(&mut self, member: &Member, load: LoadId, reached: &[&ConnectedDrive]) {
        let run = member.run(load);
        let mut whole: BTreeMap<u128, Vec<DriveId>> = BTreeMap::new();
        let mut bad = Vec::new();
        for drive in reached {
            self.teller.begin(format!("partition {} of {} at {}", run.partition, run.name, drive.label()));
            match digest(&run, drive).await {
                Ok((digest, bytes)) => {
                    whole.entry(digest).or_default().push(drive.id());
                    self.report.runs_checked += 1;
                    self.report.bytes_checked += bytes;
                    self.teller.add(bytes);
                }
                Err(fault) if matches!(fault.blame, Blame::Corrupt | Blame::Conflict) => {
                    match self.is_changed(member, load, drive.id()).await {
                        true => {
                            let what = "was changed while it was checked: run it again to check what is new";
                            self.report.notes.push(format!("{} {what}", run.name));
                        }
                        false => bad.push((*drive, fault)),
                    }
                }
                Err(fault) => self.report.failed.push(format!("not checked: {}", fault.message)),
            }
        }
        if whole.len() > 1 {
            self.report.damaged.push(format!("{run}: the copies differ, and each is whole by its checksums"));
            return;
        }
        let sources = whole.into_values().next().unwrap_or_default();
        for (drive, fault) in bad {
            match sources.is_empty() {
                true => self.report.damaged.push(fault.message),
                false => self.write_anew(&run, &sources, drive).await,
            }
        }
    }

    /// Whether a drive is not to have a run any more, by the manifest as it is now: it was merged, moved or dropped. Where nobody
    /// can say so, it still is.
    async fn is_changed(&self, member: &Member, load: LoadId, drive: DriveId) -> bool {
        match self.fleet.catalog().newest(&member.name.domain, self.drives).await {
            Ok(Some(found)) => !member.is_to_be_on(drive, load, &found.manifest),
            Ok(None) | Err(_) => false,
        }
    }

    async fn write_anew(&mut self, run: &SliceKey, sources: &[DriveId], drive: &ConnectedDrive) {
        match relay_from_any(run, sources, drive, self.drives).await {
            Ok(bytes) => {
                self.report.runs_rewritten += 1;
                self.report.bytes += bytes;
                self.rewritten.push((drive.id(), run.clone()));
                // As the commit that named it did, so that a drive without this manifest does not take it for left behind.
                if let Err(fault) = claim_at(drive, vec![run.clone()], self.manifest.version.saturating_sub(1)).await {
                    self.report
                        .notes
                        .push(format!("{} was written anew, and may be deleted again: {}", run.name, fault.message));
                }
            }
            Err(fault) if fault.blame == Blame::Corrupt => self.report.damaged.push(fault.message),
            Err(fault) => self.report.failed.push(format!("{run} was not written anew: {}", fault.message)),
        }
    }
}

/// The drives of a domain that are not reached.
fn away<'a>(manifest: &'a Manifest, drives: &'a Drives) -> impl Iterator<Item = AwayDrive> + 'a {
    let missing = manifest.drives.iter().filter(|id| drives.find(**id).is_none());
    missing.map(|id| AwayDrive { drive: *id, why: drives.why_away(*id) })
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
