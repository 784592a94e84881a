//! Mending unasked: what drives' scrubs have found damaged is written anew from a whole copy, copies that datasets lack are made,
//! and a drive that has been away for long is done without. Any number of hosts may do so at the same time: what is written is the same
//! bytes, and every change of a manifest is one compare-and-set.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use pithead_door::BackgroundOrder;
use pithead_model::{Blame, DriveId, Fault, Manifest, SliceKey, boxed};

use super::lost::without_copy;
use super::verify::Checking;
use super::{RepairReport, RepairSpec, TellMove, Teller, groups};
use crate::Fleet;
use crate::drives::{ConnectedDrive, Drives};
use crate::homes::{HomeState, asked};

/// What mending remembers from one time to the next.
#[derive(Debug, Default)]
pub struct Mending {
    /// How long a drive may be away before it is done without; none: for ever.
    lost_after: Option<Duration>,
    /// Damaged values that were mended. A drive names them until its next scrub has come past them. What could not be mended is tried
    /// again: a whole copy may only have been away.
    seen: BTreeMap<DriveId, BTreeSet<String>>,
    /// Drives of domains that do not answer, and since when.
    away: BTreeMap<DriveId, Instant>,
    /// Drives that this host was connected to.
    met: BTreeSet<DriveId>,
}

impl Mending {
    /// Nothing was seen yet. A drive that is away for longer than `lost_after` is taken for lost, where all that it has is elsewhere,
    /// too.
    pub fn new(lost_after: Option<Duration>) -> Mending {
        Mending { lost_after, ..Mending::default() }
    }

    /// Damaged values that were not seen to, by the drives that have them.
    async fn news(&mut self, drives: &Drives) -> BTreeMap<DriveId, BTreeSet<String>> {
        let mut news = BTreeMap::new();
        let looked = drives.all().iter().map(|drive| asked(drives, drive, drive.door.background(BackgroundOrder::Look)));
        for (drive, looked) in drives.all().iter().zip(join_all(looked).await) {
            // An array has no scrub, and one may not be allowed to ask.
            let Ok(status) = looked else { continue };
            let damaged: BTreeSet<String> = status.services.into_iter().flat_map(|service| service.damaged).collect();
            let seen = self.seen.entry(drive.id()).or_default();
            seen.retain(|key| damaged.contains(key));
            let new: BTreeSet<String> = damaged.difference(seen).cloned().collect();
            if !new.is_empty() {
                news.insert(drive.id(), new);
            }
        }
        news
    }

    /// Those of a domain's drives that have been away for too long. `silent`: at how many of this host's addresses no drive has
    /// answered yet. A drive that this host never met may be at one of these; else it is one that only others were told of, by
    /// `pithead drive add`, and nothing says that it is away.
    fn lost(&mut self, manifest: &Manifest, answering: &BTreeSet<DriveId>, silent: usize) -> Vec<DriveId> {
        let now = Instant::now();
        let Some(lost_after) = self.lost_after else { return Vec::new() };
        let unknown = manifest.drives.iter().filter(|id| !self.met.contains(id)).count();
        let may_be_ours = |id: &DriveId| self.met.contains(id) || unknown <= silent;
        let away: BTreeSet<DriveId> =
            manifest.drives.iter().filter(|id| !answering.contains(id) && may_be_ours(id)).copied().collect();
        self.away.retain(|id, _| away.contains(id) || !manifest.drives.contains(id) && !answering.contains(id));
        away.into_iter().filter(|id| now.duration_since(*self.away.entry(*id).or_insert(now)) >= lost_after).collect()
    }
}

impl Fleet {
    /// Mends what is there to mend, and tells what it did.
    #[boxed]
    pub async fn mend(&self, mending: &mut Mending) -> Result<RepairReport, Fault> {
        let drives = self.refreshed().await;
        let tell: TellMove = Arc::new(|_| {});
        let mut report = RepairReport::default();
        let news = mending.news(&drives).await;
        let answering = answering(&drives).await;
        mending.met.extend(drives.ids());
        let (mut lost, mut is_mended) = (BTreeSet::new(), true);
        for domain in self.catalog().domains(&drives).await? {
            let found = match self.catalog().newest(&domain, &drives).await {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(fault) => {
                    report.failed.push(format!("domain {domain} was not mended: {}", fault.message));
                    is_mended = false;
                    continue;
                }
            };
            let mut teller = Teller::new(Arc::clone(&tell), 0);
            let failures = |report: &RepairReport| report.damaged.len() + report.failed.len() + report.notes.len();
            let before = failures(&report);
            let (manifest, report_now, teller_now) = (&found.manifest, &mut report, &mut teller);
            let checking = Checking { fleet: self, drives: &drives, manifest, report: report_now, teller: teller_now };
            check_damaged(&news, checking).await;
            is_mended &= failures(&report) == before;
            let is_here = matches!(found.home, HomeState::Here);
            if is_here {
                self.catalog().former_homes().tell(&drives, &found.manifest).await;
            }
            if is_here && groups(&found.manifest).iter().any(|g| g.copies.len() < g.copies_wanted) {
                self.fill_up(&found.manifest, &mut report, &mut teller).await;
            }
            lost.extend(mending.lost(&found.manifest, &answering, drives.absent().len()));
        }
        if is_mended {
            for (id, keys) in news {
                mending.seen.entry(id).or_default().extend(keys);
            }
        }
        for drive in lost {
            if let Err(fault) = self.do_without(drive, &tell, &mut report).await {
                report.failed.push(format!("drive {drive} is away, and cannot be done without yet: {}", fault.message));
            }
        }
        Ok(report)
    }

    /// Makes the copies of a drive that was away for long anew, if nothing is on that drive alone.
    async fn do_without(&self, lost: DriveId, tell: &TellMove, report: &mut RepairReport) -> Result<(), Fault> {
        let drives = self.connected();
        for domain in self.catalog().domains(&drives).await? {
            let Some(found) = self.catalog().newest(&domain, &drives).await? else { continue };
            if let Some(partition) = without_copy(&found.manifest, lost).first() {
                report.notes.push(format!(
                    "drive {lost} is away, and alone has partition {} of {}: `pithead repair --lost {lost}` says what else there is",
                    partition.partition, partition.name
                ));
                return Ok(());
            }
            if let Some(dataset) = found.manifest.attached_by(lost).next() {
                let name = found.manifest.name(dataset);
                report.notes.push(format!("drive {lost} is away, and alone has files that are a part of {name}"));
                return Ok(());
            }
        }
        let spec = RepairSpec { lost: Some(lost), drop_lost: false };
        let done = self.repair(&spec, Arc::clone(tell)).await?;
        report.copies_made += done.copies_made;
        report.bytes += done.bytes;
        report.homes.extend(done.homes);
        report.notes.extend(done.notes);
        if done.failed.is_empty() {
            report.notes.push(format!("drive {lost} was away for too long: it belongs to no domain any more"));
        }
        report.failed.extend(done.failed);
        Ok(())
    }
}

/// The drives that answer.
async fn answering(drives: &Drives) -> BTreeSet<DriveId> {
    let answers = join_all(drives.all().iter().map(|drive| asked(drives, drive, drive.door.status()))).await;
    let answers = drives.all().iter().zip(answers);
    answers
        .filter(|(_, answer)| !matches!(answer, Err(fault) if fault.blame == Blame::Device))
        .map(|(drive, _)| drive.id())
        .collect()
}

/// Reads the runs that have damaged values wherever they are to be, and writes them anew from a copy that is whole.
async fn check_damaged(news: &BTreeMap<DriveId, BTreeSet<String>>, mut checking: Checking<'_>) {
    if news.is_empty() {
        return;
    }
    let (manifest, drives) = (checking.manifest, checking.drives);
    for member in groups(manifest).iter().flat_map(|group| &group.members) {
        let Some(partition) = member.find(manifest) else { continue };
        let reached: Vec<&ConnectedDrive> = partition.copies.iter().filter_map(|id| drives.find(*id)).collect();
        for load in partition.runs.iter().map(|run| run.load) {
            let run = member.run(load);
            let is_damaged = |drive: &&ConnectedDrive| news.get(&drive.id()).is_some_and(|keys| has_value_of(keys, &run));
            if reached.iter().any(is_damaged) {
                checking.check_run(member, load, &reached).await;
            }
        }
    }
}

/// Whether one of the keys is of a run: of its metadata slice or of a slice.
fn has_value_of(keys: &BTreeSet<String>, run: &SliceKey) -> bool {
    let meta = run.to_string();
    let Some(prefix) = meta.strip_suffix("meta") else { return false };
    keys.range(prefix.to_owned()..).next().is_some_and(|key| key.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use pithead_model::{DatasetId, DatasetName, LoadId};

    use super::*;

    #[test]
    fn a_drive_that_was_never_met_is_lost_only_where_an_address_is_silent() {
        let [one, two, added] = [1, 2, 3].map(DriveId);
        let manifest = |drives: &[DriveId]| Manifest::empty("lab", drives.to_vec());
        let mut mending = Mending { met: [one, two].into(), ..Mending::new(Some(Duration::ZERO)) };
        assert!(mending.lost(&manifest(&[one, two]), &[one, two].into(), 0).is_empty());
        // Another host has added a drive.
        assert!(mending.lost(&manifest(&[one, two, added]), &[one, two].into(), 0).is_empty());
        assert_eq!(mending.lost(&manifest(&[one, two, added]), &[one].into(), 0), [two]);
        // A host that was started while a drive was away.
        let mut mending = Mending { met: [one].into(), ..Mending::new(Some(Duration::ZERO)) };
        assert_eq!(mending.lost(&manifest(&[one, two]), &[one].into(), 1), [two]);
        assert!(mending.lost(&manifest(&[one, two, added]), &[one].into(), 1).is_empty(), "one of them is not");
        assert!(Mending::new(None).lost(&manifest(&[one, two]), &[one].into(), 1).is_empty());
    }

    #[test]
    fn keys_belong_to_their_own_run() {
        let run = |load, partition| SliceKey {
            name: DatasetName::new("lab", "cells").unwrap(),
            dataset: DatasetId(7),
            load: LoadId(load),
            partition,
            number: None,
        };
        let keys: BTreeSet<String> = [run(1, 1).slice(3).to_string(), run(2, 11).to_string()].into();
        assert!(has_value_of(&keys, &run(1, 1)) && has_value_of(&keys, &run(2, 11)));
        for other in [run(1, 11), run(1, 2), run(2, 1), run(3, 1)] {
            assert!(!has_value_of(&keys, &other), "{other}");
        }
        assert!(!has_value_of(&BTreeSet::new(), &run(1, 1)));
    }
}
