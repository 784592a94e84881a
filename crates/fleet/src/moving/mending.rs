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
    /// Damaged values that were mended: those of runs that were written anew. A drive may name them until its next scrub has
    /// come past them. All others are tried again: a whole copy may only have been away.
    seen: BTreeMap<DriveId, BTreeSet<String>>,
    /// Drives of domains that do not answer, and since when.
    away: BTreeMap<DriveId, Instant>,
    /// Drives that this host was connected to.
    met: BTreeSet<DriveId>,
    /// Drives that are nowhere, of which that was said.
    named: BTreeSet<DriveId>,
}

/// Which drives answer.
#[derive(Debug, Default)]
struct Roll {
    answering: BTreeSet<DriveId>,
    /// At how many of this host's addresses a drive may have been that it never met: no drive has answered there yet, or one
    /// that keeps no manifest, as an empty one does that was put in the place of another before this host began.
    open: usize,
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

    /// Those of a domain's drives that are away. A drive that this host never met may be at one of its open addresses; else it
    /// is one that only others were told of, by `pithead drive add`, and nothing says that it is away.
    fn away(&self, manifest: &Manifest, roll: &Roll) -> BTreeSet<DriveId> {
        let unknown = manifest.drives.iter().filter(|id| !self.met.contains(id)).count();
        let may_be_ours = |id: &DriveId| self.met.contains(id) || unknown <= roll.open;
        manifest.drives.iter().filter(|id| !roll.answering.contains(id) && may_be_ours(id)).copied().collect()
    }

    /// Those of them that have been away for too long.
    fn lost(&mut self, manifest: &Manifest, roll: &Roll) -> Vec<DriveId> {
        let now = Instant::now();
        let Some(lost_after) = self.lost_after else { return Vec::new() };
        let away = self.away(manifest, roll);
        self.away.retain(|id, _| away.contains(id) || !manifest.drives.contains(id) && !roll.answering.contains(id));
        away.into_iter().filter(|id| now.duration_since(*self.away.entry(*id).or_insert(now)) >= lost_after).collect()
    }

    /// Says once of each of a domain's drives that is nowhere that nothing will be done about it unless somebody says so.
    fn name_nowhere(&mut self, manifest: &Manifest, roll: &Roll, drives: &Drives) -> Vec<String> {
        self.named.retain(|id| drives.is_nowhere(*id));
        let handled = if self.lost_after.is_some() { self.away(manifest, roll) } else { BTreeSet::new() };
        let nowhere = manifest.drives.iter().filter(|id| drives.is_nowhere(**id) && !handled.contains(id));
        let new: Vec<DriveId> = nowhere.filter(|id| !self.named.contains(id)).copied().collect();
        self.named.extend(&new);
        let say = |id: DriveId| {
            let (domain, why) = (&manifest.domain, drives.why_away(id));
            let what = format!("`pithead repair --lost {id}` if it is gone for good, else name its address, too");
            format!("drive {id} of domain {domain} is not reached, and {why}: {what}")
        };
        new.into_iter().map(say).collect()
    }

    /// Takes note of runs that were written anew: what was damaged of them is mended.
    fn note_mended(&mut self, news: &BTreeMap<DriveId, BTreeSet<String>>, rewritten: &[(DriveId, SliceKey)]) {
        for (drive, run) in rewritten {
            let Some(keys) = news.get(drive) else { continue };
            self.seen.entry(*drive).or_default().extend(keys_of(keys, run).cloned());
        }
    }
}

impl Fleet {
    /// Mends what is there to mend, and tells what it did.
    #[boxed]
    pub async fn mend(&self, mending: &mut Mending) -> Result<RepairReport, Fault> {
        let drives = self.connections().looked_at_again().await;
        let tell: TellMove = Arc::new(|_| {});
        let mut report = RepairReport::default();
        let news = mending.news(&drives).await;
        let roll = call_roll(&drives).await;
        mending.met.extend(drives.met());
        let mut lost = BTreeSet::new();
        for domain in self.catalog().domains(&drives).await? {
            let found = match self.catalog().newest(&domain, &drives).await {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(fault) => {
                    report.failed.push(format!("domain {domain} was not mended: {}", fault.message));
                    continue;
                }
            };
            let mut teller = Teller::new(Arc::clone(&tell), 0);
            let (manifest, report_now, teller_now) = (&found.manifest, &mut report, &mut teller);
            let checking =
                Checking { fleet: self, drives: &drives, manifest, report: report_now, teller: teller_now, rewritten: vec![] };
            mending.note_mended(&news, &check_damaged(&news, checking).await);
            let is_here = matches!(found.home, HomeState::Here);
            if is_here {
                self.catalog().former_homes().tell(&drives, &found.manifest).await;
            }
            if is_here && groups(&found.manifest).iter().any(|g| g.copies.len() < g.copies_wanted) {
                self.fill_up(&found.manifest, &mut report, &mut teller).await;
            }
            lost.extend(mending.lost(&found.manifest, &roll));
            report.notes.extend(mending.name_nowhere(&found.manifest, &roll, &drives));
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

/// Asks the drives how they are.
async fn call_roll(drives: &Drives) -> Roll {
    let answers = join_all(drives.all().iter().map(|drive| asked(drives, drive, drive.door.status()))).await;
    let mut roll = Roll { open: drives.absent().len(), ..Roll::default() };
    for (drive, answer) in drives.all().iter().zip(answers) {
        match answer {
            Err(fault) if fault.blame == Blame::Device => continue,
            Ok(status) if status.domains.is_empty() && !drives.is_in_place(drive) => roll.open += 1,
            Ok(_) | Err(_) => {}
        }
        roll.answering.insert(drive.id());
    }
    roll
}

/// Reads the runs that have damaged values wherever they are to be, and writes them anew from a copy that is whole. Returns
/// those that were written anew, and where.
async fn check_damaged(news: &BTreeMap<DriveId, BTreeSet<String>>, mut checking: Checking<'_>) -> Vec<(DriveId, SliceKey)> {
    if news.is_empty() {
        return vec![];
    }
    let (manifest, drives) = (checking.manifest, checking.drives);
    for member in groups(manifest).iter().flat_map(|group| &group.members) {
        let Some(partition) = member.find(manifest) else { continue };
        let reached: Vec<&ConnectedDrive> = partition.copies.iter().filter_map(|id| drives.find(*id)).collect();
        for load in partition.runs.iter().map(|run| run.load) {
            let run = member.run(load);
            let has_key = |keys: &BTreeSet<String>| keys_of(keys, &run).next().is_some();
            let is_damaged = |drive: &&ConnectedDrive| news.get(&drive.id()).is_some_and(has_key);
            if reached.iter().any(is_damaged) {
                checking.check_run(member, load, &reached).await;
            }
        }
    }
    checking.rewritten
}

/// Those of the keys that are of a run: of its metadata slice or of a slice.
fn keys_of<'a>(keys: &'a BTreeSet<String>, run: &SliceKey) -> impl Iterator<Item = &'a String> + use<'a> {
    let prefix = run.to_string().strip_suffix("meta").map(str::to_owned);
    let from = prefix.clone().map(|prefix| keys.range(prefix..));
    from.into_iter().flatten().take_while(move |key| prefix.as_ref().is_some_and(|prefix| key.starts_with(prefix.as_str())))
}

#[cfg(test)]
mod tests {
    use pithead_model::{DatasetId, DatasetName, LoadId};

    use super::*;

    fn run(load: u64, partition: u32) -> SliceKey {
        let name = DatasetName::new("lab", "cells").unwrap();
        SliceKey { name, dataset: DatasetId(7), load: LoadId(load), partition, number: None }
    }

    fn roll(answering: &[DriveId], open: usize) -> Roll {
        Roll { answering: answering.iter().copied().collect(), open }
    }

    #[test]
    fn a_drive_that_was_never_met_is_lost_only_where_an_address_is_open() {
        let [one, two, added] = [1, 2, 3].map(DriveId);
        let manifest = |drives: &[DriveId]| Manifest::empty("lab", drives.to_vec());
        let mut mending = Mending { met: [one, two].into(), ..Mending::new(Some(Duration::ZERO)) };
        assert!(mending.lost(&manifest(&[one, two]), &roll(&[one, two], 0)).is_empty());
        // Another host has added a drive.
        assert!(mending.lost(&manifest(&[one, two, added]), &roll(&[one, two], 0)).is_empty());
        assert_eq!(mending.lost(&manifest(&[one, two, added]), &roll(&[one], 0)), [two]);
        // A host that was started while a drive was away, or after another one was put in its place.
        let mut mending = Mending { met: [one].into(), ..Mending::new(Some(Duration::ZERO)) };
        assert_eq!(mending.lost(&manifest(&[one, two]), &roll(&[one], 1)), [two]);
        assert!(mending.lost(&manifest(&[one, two, added]), &roll(&[one], 1)).is_empty(), "one of them is not");
        assert!(Mending::new(None).lost(&manifest(&[one, two]), &roll(&[one], 1)).is_empty());
    }

    #[test]
    fn a_drive_that_answers_now_and_then_is_not_away() {
        let [one, two] = [1, 2].map(DriveId);
        let manifest = Manifest::empty("lab", vec![one, two]);
        let mut mending = Mending { met: [one, two].into(), ..Mending::new(Some(Duration::from_secs(30))) };
        let long_ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        assert!(mending.lost(&manifest, &roll(&[one], 0)).is_empty());
        mending.away.insert(two, long_ago);
        assert!(mending.lost(&manifest, &roll(&[one, two], 0)).is_empty());
        assert!(mending.lost(&manifest, &roll(&[one], 0)).is_empty(), "its time begins anew");
        mending.away.insert(two, long_ago);
        assert_eq!(mending.lost(&manifest, &roll(&[one], 0)), [two]);
    }

    #[test]
    fn keys_belong_to_their_own_run() {
        let keys: BTreeSet<String> = [run(1, 1).slice(3), run(1, 1), run(2, 11)].map(|key| key.to_string()).into();
        assert_eq!([run(1, 1), run(2, 11)].map(|run| keys_of(&keys, &run).count()), [2, 1]);
        for other in [run(1, 11), run(1, 2), run(2, 1), run(3, 1)] {
            assert_eq!(keys_of(&keys, &other).count(), 0, "{other}");
        }
        assert_eq!(keys_of(&BTreeSet::new(), &run(1, 1)).count(), 0);
    }

    #[test]
    fn only_what_was_written_anew_was_seen_to() {
        let [one, two] = [1, 2].map(DriveId);
        let keys: BTreeSet<String> = [run(1, 1).slice(3), run(2, 1).slice(0)].map(|key| key.to_string()).into();
        let news = BTreeMap::from([(one, keys.clone()), (two, keys)]);
        let mut mending = Mending::default();
        mending.note_mended(&news, &[(one, run(1, 1)), (DriveId(3), run(2, 1))]);
        assert_eq!(mending.seen, BTreeMap::from([(one, [run(1, 1).slice(3).to_string()].into())]));
    }
}
