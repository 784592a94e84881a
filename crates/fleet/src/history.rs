//! Versions of a domain that are kept: which there are, and datasets as they were in one of them.
//!
//! The home keeps every version that its domain's setting lets it keep; the other drives keep those that they had a copy of. So all
//! of them are asked, and what one has lost or cannot read another one may have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures::future::join_all;
use pithead_door::{HistoryAsk, Pick, ToldVersion};
use pithead_model::{Blame, Dataset, DatasetName, Fault, Manifest, Partition, boxed};

use crate::Fleet;
use crate::drives::{ConnectedDrive, Drives};
use crate::fault::unknown_dataset;
use crate::homes::asked;
use crate::snapshot::{Snapshot, VersionedDataset};

/// A moment in a domain's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsOf {
    /// A version.
    Version(u64),
    /// What was there at a time, milliseconds since 1970 UTC.
    Time(u64),
}

impl Fleet {
    /// A dataset as it was. A fault if that version is not kept, or did not have the dataset.
    #[boxed]
    pub async fn as_of(&self, snapshot: &Snapshot, name: &DatasetName, at: AsOf) -> Result<Arc<VersionedDataset>, Fault> {
        let newest = snapshot.manifest(&name.domain)?;
        refuse_attached(snapshot, name)?;
        let manifest = past(snapshot.drives(), newest, at).await?;
        let Some(dataset) = manifest.datasets.get(&name.dataset) else { return Err(not_there(&manifest, name)) };
        if manifest.version == newest.version {
            return snapshot.readable(name);
        }
        let dataset = where_it_is(dataset, newest.datasets.get(&name.dataset));
        for (number, partition) in dataset.partitions.iter().enumerate() {
            let is_reached = partition.copies.iter().any(|id| snapshot.drives().find(*id).is_some());
            if !is_reached && !partition.runs.is_empty() {
                let fault = snapshot.drives().not_connected(&partition.copies);
                return Err(fault.at(format_args!("{name} as of version {} needs partition {number}", manifest.version)));
            }
        }
        let name = name.at_version(manifest.version);
        Ok(Arc::new(VersionedDataset::new(name, Arc::new(dataset), manifest.version)))
    }

    /// The versions of a domain that are kept, the oldest first; the last one is the one that there is.
    #[boxed]
    pub async fn history(&self, domain: &str) -> Result<Vec<ToldVersion>, Fault> {
        let drives = self.refreshed().await;
        let Some(found) = self.catalog().newest(domain, &drives).await? else {
            return Err(Fault::invalid(format!("there is no domain {domain}")).hint("pithead ls shows the domains"));
        };
        let newest = found.manifest;
        let mut versions = versions(&drives, &newest).await;
        versions.retain(|told| told.version < newest.version);
        versions.push(ToldVersion::of(&newest));
        Ok(versions)
    }

    /// Forgets all versions of a domain but the newest one, at all its drives, which then delete what these alone have named. Returns
    /// the most that a drive had.
    #[boxed]
    pub async fn forget_history(&self, domain: &str) -> Result<u64, Fault> {
        let drives = self.refreshed().await;
        let manifest = self.manifest(domain, &drives).await?;
        if let Some(away) = manifest.drives.iter().find(|id| drives.find(**id).is_none()) {
            let fault = drives.not_connected(&[*away]);
            return Err(fault.at(format_args!("versions of domain {domain} are kept there, too")));
        }
        let forgotten = drives.all().iter().map(|drive| asked(&drives, drive, drive.door.forget_history(domain.to_owned())));
        let forgotten = join_all(forgotten).await.into_iter().collect::<Result<Vec<u64>, Fault>>()?;
        Ok(forgotten.into_iter().max().unwrap_or(0))
    }
}

/// The manifest of a domain as it was: that of `newest`, or one that is kept.
pub(crate) async fn past(drives: &Drives, newest: &Manifest, at: AsOf) -> Result<Manifest, Fault> {
    let version = match at {
        AsOf::Version(version) => version,
        AsOf::Time(time_ms) => version_at(drives, newest, time_ms).await?,
    };
    if version == newest.version && version > 0 {
        return Ok(newest.clone());
    }
    if version > newest.version || version == 0 {
        let what = format!("domain {} has no version {version}", newest.domain);
        return Err(with_kept(Fault::invalid(what), drives, newest).await);
    }
    let asking = in_order(drives, newest)
        .into_iter()
        .map(|drive| async move { asked(drives, drive, drive.door.past_manifest(newest.domain.clone(), version)).await });
    let mut faults = Vec::new();
    for answer in join_all(asking).await {
        match answer {
            Ok(Some(manifest)) => return Ok(manifest),
            Ok(None) => {}
            Err(fault) => faults.push(fault),
        }
    }
    // Who has it and cannot read it says more than who does not answer.
    faults.sort_by_key(|fault| fault.blame != Blame::Corrupt);
    let what = format!("version {version} of domain {} is not kept", newest.domain);
    let fault = match faults.into_iter().next() {
        Some(fault) => Fault::new(fault.blame, format!("{what} where it can be read: {}", fault.message)),
        None => Fault::invalid(format!("{what} any more")),
    };
    Err(with_kept(fault, drives, newest).await)
}

/// The version that was the newest at a time.
async fn version_at(drives: &Drives, newest: &Manifest, time_ms: u64) -> Result<u64, Fault> {
    if time_ms > now_ms().max(newest.time_ms) {
        let what = format!("{} is yet to come, and nobody knows what will be there then", time_text(time_ms));
        return Err(Fault::invalid(what).hint("leave AS OF out to read what is there now"));
    }
    if newest.time_ms > 0 && newest.time_ms <= time_ms {
        return Ok(newest.version);
    }
    let ask = HistoryAsk { domain: newest.domain.clone(), pick: Pick::At(time_ms) };
    let asking = in_order(drives, newest).into_iter().map(|drive| asked(drives, drive, drive.door.history(ask.clone())));
    let answers = join_all(asking).await;
    let found = answers.iter().flatten().flatten().find(|told| told.version < newest.version);
    if let Some(told) = found {
        return Ok(told.version);
    }
    let what = format!("what was in domain {} at {} is not known", newest.domain, time_text(time_ms));
    Err(with_kept(Fault::invalid(what), drives, newest).await)
}

/// The fault with the versions that there are.
async fn with_kept(fault: Fault, drives: &Drives, newest: &Manifest) -> Fault {
    let versions = versions(drives, newest).await;
    let since = |told: &ToldVersion| match told.time_ms {
        0 => String::new(),
        time_ms => format!(", made at {}", time_text(time_ms)),
    };
    let kept = match versions.iter().find(|told| !told.is_damaged) {
        Some(first) if first.version < newest.version => {
            format!("versions {}{} to {} are kept", first.version, since(first), newest.version)
        }
        _ => format!("only the newest version, {}, is kept", newest.version),
    };
    Fault { message: format!("{}; {kept}", fault.message), ..fault }.hint(format!("pithead log {} lists them", newest.domain))
}

/// The versions that any drive keeps, the oldest first. A drive that does not answer is left out.
async fn versions(drives: &Drives, newest: &Manifest) -> Vec<ToldVersion> {
    let told = join_all(in_order(drives, newest).into_iter().map(|drive| told_by(drives, drive, &newest.domain))).await;
    let mut found: BTreeMap<u64, ToldVersion> = BTreeMap::new();
    for version in told.into_iter().flatten() {
        let is_better = found.get(&version.version).is_none_or(|known| known.is_damaged && !version.is_damaged);
        if is_better {
            found.insert(version.version, version);
        }
    }
    found.into_values().collect()
}

async fn told_by(drives: &Drives, drive: &ConnectedDrive, domain: &str) -> Vec<ToldVersion> {
    let mut told: Vec<ToldVersion> = Vec::new();
    let mut before = u64::MAX;
    loop {
        let ask = HistoryAsk { domain: domain.to_owned(), pick: Pick::Before(before) };
        match asked(drives, drive, drive.door.history(ask)).await {
            // Versions that do not descend would have no end.
            Ok(more) if more.first().is_some_and(|first| first.version < before) => {
                before = more.last().map_or(0, |last| last.version.min(before.saturating_sub(1)));
                told.extend(more);
            }
            Ok(_) => return told,
            Err(fault) => {
                tracing::warn!(domain, drive = drive.label(), "versions that it keeps are not known: {}", fault.message);
                return told;
            }
        }
    }
}

/// The drives of a domain that are reached, home first, and all others after them: one that left it may keep versions of before.
fn in_order<'a>(drives: &'a Drives, manifest: &Manifest) -> Vec<&'a ConnectedDrive> {
    let own = manifest.drives.iter().filter_map(|id| drives.find(*id));
    let others = drives.all().iter().filter(|drive| !manifest.drives.contains(&drive.id()));
    own.chain(others).collect()
}

/// A dataset of before with the drives that have its rows now. A partition whose runs are all there still is where the manifest says,
/// whatever was moved since; another one is where it was when others took its place.
pub(crate) fn where_it_is(old: &Dataset, newest: Option<&Dataset>) -> Dataset {
    let newest = newest.filter(|newest| newest.id == old.id);
    let mut dataset = old.clone();
    for (number, partition) in dataset.partitions.iter_mut().enumerate() {
        let now = newest.and_then(|newest| newest.partitions.get(number)).filter(|now| has_all(now, partition));
        if let Some(now) = now {
            partition.copies.clone_from(&now.copies);
        }
    }
    dataset
}

fn has_all(now: &Partition, old: &Partition) -> bool {
    old.runs.iter().all(|run| now.runs.iter().any(|there| there.load == run.load))
}

/// Files that are read in place have no versions.
fn refuse_attached(snapshot: &Snapshot, name: &DatasetName) -> Result<(), Fault> {
    if snapshot.versioned(name).is_none_or(|found| !found.is_attached()) {
        return Ok(());
    }
    let what = format!("{name} is attached in place: it is files as they are now, of which no versions are kept");
    Err(Fault::new(Blame::Unsupported, what).hint("load the files with `pithead load` to have versions of them"))
}

fn not_there(manifest: &Manifest, name: &DatasetName) -> Fault {
    let version = manifest.version;
    if manifest.views.contains_key(&name.dataset) {
        let what = format!("{name} was a view in version {version}, and views are not read as of a version");
        return Fault::new(Blame::Unsupported, what).hint("read its tables as of that version");
    }
    let names: Vec<String> = manifest.datasets.keys().map(|dataset| manifest.name(dataset).to_string()).collect();
    let fault = unknown_dataset(name, names.iter().map(String::as_str));
    Fault { message: format!("{} in version {version}", fault.message), ..fault }
}

/// Milliseconds since 1970 UTC.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// A time in UTC for people, such as `2026-11-24 10:00:00.000 UTC`.
pub fn time_text(time_ms: u64) -> String {
    let (days, ms) = (time_ms / 86_400_000, time_ms % 86_400_000);
    let (year, month, day) = civil(days);
    let (seconds, ms) = (ms / 1_000, ms % 1_000);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{ms:03} UTC")
}

/// Year, month and day of the day that is so many days after 1970-01-01 (Hinnant 2013, "chrono-Compatible Low-Level Date Algorithms").
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_utc() {
        assert_eq!(time_text(0), "1970-01-01 00:00:00.000 UTC");
        assert_eq!(time_text(1_795_514_400_123), "2026-11-24 10:00:00.123 UTC");
        assert_eq!(time_text(951_782_400_000), "2000-02-29 00:00:00.000 UTC");
    }
}
