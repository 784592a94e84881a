//! Which drive is home of each domain, and its manifest: from home, or while home is away the newest copy of it.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use pithead_door::DriveStatus;
use pithead_model::{Blame, DriveId, Fault, Manifest};

use crate::drives::{ConnectedDrive, Drives, HEDGE_WAIT, no_answer};
use crate::fault::first_of;

/// Longest wait for one drive's word on a domain.
const ANSWER_WAIT: Duration = Duration::from_secs(15);
/// The same for a drive that failed a moment ago.
const SUSPECT_WAIT: Duration = Duration::from_secs(2);
/// Times that a home's word on who is home now is followed.
const HOPS_MAX: usize = 4;

/// A domain's newest manifest that some drive has.
#[derive(Debug)]
pub(crate) struct LocatedManifest {
    /// The manifest.
    pub manifest: Manifest,
    /// What its home says.
    pub home: HomeState,
}

/// Whether a domain can be changed.
#[derive(Debug)]
pub(crate) enum HomeState {
    /// The manifest is home's own.
    Here,
    /// The drive is to be home, and has not taken note of it: a hand-over was cut off.
    Behind,
    /// Home does not answer; the manifest is a copy.
    Away(Fault),
}

impl LocatedManifest {
    /// Whether it is older than one that this host has read or made: a copy that was not brought up to date, or the word of a home that
    /// does not know of its successor. What the same home tells of itself counts, as it may have been put back from a backup.
    pub(crate) fn is_behind(&self, known: &Manifest) -> bool {
        let is_own_word = matches!(self.home, HomeState::Here) && self.manifest.home() == known.home();
        !is_own_word && is_older(&self.manifest, known)
    }
}

/// Whether a manifest comes before another one. Versions grow along one line, which leaps where a lost home gets a successor
/// ([`Manifest::lost_homes`]), so that the successor's are higher than any of the lost home. Only a domain that was made anew begins
/// with low ones again, and these are later.
pub(crate) fn is_older(manifest: &Manifest, than: &Manifest) -> bool {
    manifest.version < than.version && manifest.time_ms <= than.time_ms
}

/// A call to a drive with a limit, and with the drive named in its fault. A drive that does not answer is marked as suspect.
pub(crate) async fn asked<T>(
    drives: &Drives,
    drive: &ConnectedDrive,
    answer: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    let limit = if drives.suspects().has(drive.id()) { SUSPECT_WAIT } else { ANSWER_WAIT };
    let answer = tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| Err(no_answer(limit)));
    answer.map_err(|fault| {
        if fault.blame == Blame::Device {
            drives.suspects().add(drive.id());
        }
        fault.at_drive(drive.label())
    })
}

/// The home of each domain, by the newest manifest that any drive has.
pub(crate) async fn find_homes(drives: &Drives) -> Result<BTreeMap<String, DriveId>, Fault> {
    let mut told = Vec::new();
    let mut faults = Vec::new();
    let statuses = join_all(drives.all().iter().map(|drive| asked(drives, drive, drive.door.status()))).await;
    for (drive, status) in drives.all().iter().zip(statuses) {
        match status {
            Ok(status) => told.push((drive.clone(), status)),
            Err(fault) => faults.push((drive.label().to_owned(), fault)),
        }
    }
    if told.is_empty() || faults.iter().any(|(_, fault)| fault.blame != Blame::Device) {
        return first_of(faults).map_or_else(|| Ok(BTreeMap::new()), Err);
    }
    let mut newest: BTreeMap<&str, (u64, DriveId)> = BTreeMap::new();
    for domain in told.iter().flat_map(|(_, status)| &status.domains) {
        let best = newest.entry(&domain.name).or_insert((domain.version, domain.home));
        *best = (*best).max((domain.version, domain.home));
    }
    for (name, (_, home)) in &newest {
        refuse_two_homes(name, *home, &told, drives).await?;
        warn_of_older_home(name, *home, &told, drives).await;
    }
    Ok(newest.into_iter().map(|(name, (_, home))| (name.to_owned(), home)).collect())
}

/// A second drive that takes itself for home has missed that it is not any more, or it was loaded apart from the others:
/// then its domain is another one of the same name.
async fn refuse_two_homes(
    name: &str,
    home: DriveId,
    told: &[(ConnectedDrive, DriveStatus)],
    drives: &Drives,
) -> Result<(), Fault> {
    for (drive, status) in told {
        let claims = status.domains.iter().any(|domain| domain.name == name && domain.home == drive.id());
        if !claims || drive.id() == home {
            continue;
        }
        let Ok(manifest) = asked(drives, drive, drive.door.manifest(name.to_owned())).await else { continue };
        let together = manifest.is_some_and(|manifest| manifest.drives.contains(&home));
        if !together {
            let message = format!("domain {name} has its home on {} and on {}", drives.name(home), drive.label());
            return Err(Fault::invalid(message).hint("connect only to drives that were loaded together"));
        }
    }
    Ok(())
}

/// Says so where another drive has a later manifest of the same home. Home is the first that has one, so its folder was put back from an
/// older copy: what was acknowledged since is on other drives alone, and versions are given again.
async fn warn_of_older_home(name: &str, home: DriveId, told: &[(ConnectedDrive, DriveStatus)], drives: &Drives) {
    let version = |drive: DriveId, status: &DriveStatus| {
        let domain = status.domains.iter().find(|domain| domain.name == name && domain.home == home);
        domain.map(|domain| (domain.version, drive))
    };
    let Some((later, holder)) = told.iter().filter_map(|(drive, status)| version(drive.id(), status)).max() else { return };
    let own = told.iter().find(|(drive, _)| drive.id() == home);
    let Some((drive, Some((own, _)))) = own.map(|(drive, status)| (drive, version(home, status))) else { return };
    if own >= later {
        return;
    }
    // Others may have changed the domain after home answered, and before this one did.
    if let Ok(status) = asked(drives, drive, drive.door.status()).await
        && let Some((own, _)) = version(home, &status).filter(|(own, _)| *own < later)
    {
        let (label, other) = (drive.label(), drives.name(holder));
        tracing::warn!(
            "domain {name}: its home {label} has version {own}, and {other} has version {later}: the folder of {label} was put \
             back from an older copy; put all drives' folders back together, or stop it and run `pithead repair --lost {home}`"
        );
    }
}

/// Whether home has the manifest that it told before, and says so at once.
pub(crate) async fn is_unchanged(name: &str, home: DriveId, version: u64, drives: &Drives) -> bool {
    let Ok(home) = drives.get(home) else { return false };
    if drives.suspects().has(home.id()) {
        return false;
    }
    let told = tokio::time::timeout(HEDGE_WAIT, home.door.has_manifest(name.to_owned(), version)).await;
    matches!(told, Ok(Ok(true)))
}

/// What a manifest is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// A copy does where home takes long.
    Read,
    /// Only home's own will do.
    Change,
}

/// Home's word on a domain. Where it takes long and a copy would do, and another drive has one, home counts as away.
async fn asked_home(name: &str, home: &ConnectedDrive, drives: &Drives, used: Use) -> Result<Option<Manifest>, Fault> {
    let own = asked(drives, home, home.door.manifest(name.to_owned()));
    tokio::pin!(own);
    if used == Use::Change {
        return own.await;
    }
    if let Ok(answer) = tokio::time::timeout(HEDGE_WAIT, &mut own).await {
        return answer;
    }
    tokio::select! {
        biased;
        answer = &mut own => return answer,
        copies = copies(name, home.id(), drives) => if !copies.is_empty() {
            drives.suspects().add(home.id());
            return Err(no_answer(HEDGE_WAIT).at_drive(home.label()));
        }
    }
    own.await
}

/// The copies of a manifest that can be had from others than its home.
async fn copies(name: &str, home: DriveId, drives: &Drives) -> Vec<Manifest> {
    let others = drives.all().iter().filter(|drive| drive.id() != home);
    join_all(others.map(|drive| copy(name, drive, drives))).await.into_iter().flatten().collect()
}

/// The manifest of a domain whose home is known, and who is home.
pub(crate) async fn find_manifest(name: &str, mut home: DriveId, drives: &Drives, used: Use) -> Result<LocatedManifest, Fault> {
    let mut newest: Option<Manifest> = None;
    for _ in 0..HOPS_MAX {
        let own = match drives.get(home) {
            Ok(drive) => asked_home(name, drive, drives, used).await,
            Err(fault) => Err(fault),
        };
        let fault = match own {
            Ok(Some(manifest)) if newest.as_ref().is_some_and(|newest| newest.version > manifest.version) => {
                let Some(manifest) = newest else { break };
                return Ok(LocatedManifest { manifest, home: HomeState::Behind });
            }
            Ok(Some(manifest)) if manifest.home() == Some(home) => {
                return Ok(LocatedManifest { manifest, home: HomeState::Here });
            }
            Ok(Some(manifest)) => {
                home = manifest.home().unwrap_or(home);
                newest = Some(manifest);
                continue;
            }
            Ok(None) => Fault::new(Blame::Device, format!("drive {} has lost the manifest of {name}", drives.name(home))),
            Err(fault) if fault.blame == Blame::Device || fault.blame == Blame::Corrupt => fault,
            Err(fault) => return Err(fault),
        };
        let copies = copies(name, home, drives).await;
        let best = copies.into_iter().chain(newest.take()).max_by_key(|manifest| manifest.version);
        match best {
            // Home was handed over while this host looked away.
            Some(manifest) if manifest.home().is_some_and(|now| now != home) => {
                home = manifest.home().unwrap_or(home);
                newest = Some(manifest);
            }
            Some(manifest) => return Ok(LocatedManifest { manifest, home: HomeState::Away(fault) }),
            None => return Err(fault),
        }
    }
    Err(Fault::new(Blame::Device, format!("the drives do not agree on the home of domain {name}")).hint("try again"))
}

async fn copy(name: &str, drive: &ConnectedDrive, drives: &Drives) -> Option<Manifest> {
    match asked(drives, drive, drive.door.manifest(name.to_owned())).await {
        Ok(manifest) => manifest,
        Err(fault) => {
            tracing::debug!(domain = name, "no copy of the manifest: {}", fault.message);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_and_former_homes_do_not_lead_back() {
        let of = |home, version, time_ms| Manifest { version, time_ms, ..Manifest::empty("main", vec![DriveId(home)]) };
        let away = || HomeState::Away(Fault::new(Blame::Device, "down"));
        let is_behind = |manifest, home, known: &Manifest| LocatedManifest { manifest, home }.is_behind(known);
        let known = of(1, 7, 70);
        assert!(is_behind(of(1, 6, 60), away(), &known), "a copy that was not brought up to date");
        assert!(!is_behind(of(1, 7, 70), away(), &known) && !is_behind(of(2, 8, 80), away(), &known));
        assert!(!is_behind(of(1, 6, 60), HomeState::Here, &known), "home itself says so");
        assert!(!is_behind(of(1, 2, 90), away(), &known), "a domain that was made anew");
        let next = of(2, 7 + (1 << 20), 80);
        assert!(is_behind(of(1, 9, 75), HomeState::Here, &next), "a former home");
        assert!(!is_behind(next, HomeState::Here, &known));
    }
}
