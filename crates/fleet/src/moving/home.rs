//! Another home for a domain.

use std::collections::BTreeMap;

use pithead_model::{Blame, DriveId, Fault, LostHome, Manifest};

use crate::Fleet;
use crate::commit::spread;
use crate::drives::{ConnectedDrive, Drives};
use crate::history::now_ms;
use crate::homes::asked;

/// Times that a hand-over is tried against other hosts' changes.
const ATTEMPTS_MAX: usize = 10;
/// Versions left free for changes that only a lost home knew of, so that none of these is ever taken for newer.
const VERSIONS_LOST: u64 = 1 << 20;

/// Makes another drive home. The old one takes note first and changes nothing from then on; the new one holds the manifest
/// before that, so that whatever is cut off here, the newest version names one home, and the next change ends the hand-over.
pub(super) async fn hand_over(fleet: &Fleet, domain: &str, to: DriveId) -> Result<(), Fault> {
    let drives = fleet.refreshed().await;
    let new = drives.get(to)?;
    for _ in 0..ATTEMPTS_MAX {
        let (manifest, old) = fleet.catalog().manifest(domain, &drives).await?;
        if old.id() == to || manifest.version == 0 {
            return Ok(());
        }
        let next = with_home(&manifest, to);
        new.door.keep_manifest(manifest.clone()).await.map_err(|fault| fault.at_drive(new.label()))?;
        old.door.keep_manifest(next.clone()).await.map_err(|fault| fault.at_drive(old.label()))?;
        let noted = old.door.manifest(domain.to_owned()).await.map_err(|fault| fault.at_drive(old.label()))?;
        if noted.is_none_or(|noted| noted != next) {
            // Another change came first, and is not in what was handed over.
            continue;
        }
        match take_over(fleet, new, manifest.version, &next).await {
            // Another host came first, perhaps with the same hand-over: what there is by now is looked at.
            Err(fault) if fault.blame == Blame::Conflict => {}
            taken => return taken,
        }
    }
    Err(overtaken(domain))
}

/// Makes another drive home of a domain whose home is lost. All the others take note first, so that the lost one, if it is there
/// after all, finds nobody who confirms its changes; and what it changed before that is in what the new one gets. Returns the new
/// home; none: there is one already.
pub(super) async fn replace_home(fleet: &Fleet, domain: &str, lost: DriveId) -> Result<Option<DriveId>, Fault> {
    for _ in 0..ATTEMPTS_MAX {
        let drives = fleet.refreshed().await;
        let (to, known) = match ground(fleet, domain, lost, &drives).await? {
            Some(ground) => ground,
            None => return Ok(None),
        };
        let new = drives.get(to)?;
        let floor = floor(&known, lost)?;
        let next = with_home(&floor, to);
        let mut agreed = true;
        for id in next.drives.iter().filter(|id| **id != to && **id != lost) {
            let other = drives.get(*id)?;
            let kept = other.door.keep_manifest(next.clone()).await.map_err(|fault| fault.at_drive(other.label()))?;
            agreed = agreed && kept.version == next.version;
        }
        let kept = new.door.keep_manifest(floor.clone()).await.map_err(|fault| fault.at_drive(new.label()))?;
        if agreed && kept.version == floor.version {
            match take_over(fleet, new, floor.version, &next).await {
                Ok(()) => return Ok(Some(to)),
                Err(fault) if fault.blame == Blame::Conflict => {}
                Err(fault) => return Err(fault),
            }
        }
    }
    Err(overtaken(domain))
}

/// Each time that a domain was to get another home, another host had changed it meanwhile.
fn overtaken(domain: &str) -> Fault {
    let what = format!("domain {domain} did not get another home: another host changed it meanwhile, each time");
    let hint = "let one host change the domain's drives at a time, and run the command again: what was moved stays moved";
    Fault::new(Blame::Conflict, what).hint(hint)
}

/// The drive to become home, and the manifests that the drives have besides the lost one. None: another drive is home by now.
async fn ground(
    fleet: &Fleet,
    domain: &str,
    lost: DriveId,
    drives: &Drives,
) -> Result<Option<(DriveId, BTreeMap<DriveId, Manifest>)>, Fault> {
    let Some(found) = fleet.catalog().newest(domain, drives).await? else { return Ok(None) };
    let to = next_home(&found.manifest, lost, drives)?;
    let mut known = BTreeMap::new();
    for id in found.manifest.drives.iter().filter(|id| **id != lost) {
        let drive = drives.get(*id)?;
        let manifest = asked(drives, drive, drive.door.manifest(domain.to_owned())).await?;
        known.extend(manifest.map(|manifest| (*id, manifest)));
    }
    let newest = known.values().max_by_key(|manifest| manifest.version);
    let home = newest.and_then(Manifest::home).unwrap_or(lost);
    let is_done = home != lost && known.get(&home).is_some_and(|own| own.home() == Some(home));
    Ok((!is_done).then_some((to, known)))
}

/// The newest manifest of the lost home, past all versions that there are. Of a change of home that was cut off, nothing is kept.
fn floor(known: &BTreeMap<DriveId, Manifest>, lost: DriveId) -> Result<Manifest, Fault> {
    let top = known.values().map(|manifest| manifest.version).max().unwrap_or(0);
    let of_lost = known.values().filter(|manifest| manifest.home() == Some(lost)).max_by_key(|manifest| manifest.version);
    let newest = of_lost.ok_or_else(|| Fault::new(Blame::Conflict, "another drive is becoming home").hint("try again"))?;
    let mut lost_homes: Vec<LostHome> = newest.lost_homes.iter().copied().filter(|other| other.drive != lost).collect();
    lost_homes.push(LostHome { drive: lost, version: newest.version });
    let (version, time_ms) = (top.saturating_add(VERSIONS_LOST), newest.time_after(now_ms()));
    Ok(Manifest { version, time_ms, follows: Some(newest.version), lost_homes, ..newest.clone() })
}

/// The drive that becomes home. All the others must answer: one that does not may have a newer copy of the manifest.
fn next_home(manifest: &Manifest, lost: DriveId, drives: &Drives) -> Result<DriveId, Fault> {
    let others: Vec<DriveId> = manifest.drives.iter().copied().filter(|drive| *drive != lost).collect();
    let silent: Vec<DriveId> = others.iter().copied().filter(|id| drives.find(*id).is_none()).collect();
    if !silent.is_empty() {
        let fault = drives.not_connected(&silent);
        return Err(fault
            .at(format_args!("domain {} cannot get another home yet", manifest.domain))
            .hint("another home is made of the newest manifest: start these drives first"));
    }
    let first = others.first().copied();
    first.ok_or_else(|| Fault::invalid(format!("drive {lost} was the only one of domain {}", manifest.domain)))
}

async fn take_over(fleet: &Fleet, new: &ConnectedDrive, version: u64, next: &Manifest) -> Result<(), Fault> {
    new.door.commit(version, next.clone()).await.map_err(|fault| fault.at_drive(new.label()))?;
    fleet.catalog().note_home(&next.domain, new.id());
    spread(&fleet.connected(), next).await;
    fleet.catalog().changed(next.clone());
    Ok(())
}

/// The next version, with this home.
fn with_home(manifest: &Manifest, home: DriveId) -> Manifest {
    let others = manifest.drives.iter().copied().filter(|drive| *drive != home);
    let drives = std::iter::once(home).chain(others).collect();
    let lost_homes = manifest.lost_homes.iter().copied().filter(|lost| lost.drive != home).collect();
    let (version, time_ms) = (manifest.version.saturating_add(1), manifest.time_after(now_ms()));
    Manifest { version, time_ms, follows: None, drives, lost_homes, ..manifest.clone() }
}
