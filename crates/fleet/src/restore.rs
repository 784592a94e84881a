//! A version of before that becomes the newest one: history goes on, and nothing of it is rewritten.

use std::collections::{BTreeMap, BTreeSet};

use pithead_model::{Blame, Dataset, DatasetName, DriveId, Fault, Manifest, SliceKey, boxed};

use crate::Fleet;
use crate::change::{already_there, is_view};
use crate::commit::Edit;
use crate::discard::discard;
use crate::fault::unknown_dataset;
use crate::history::{AsOf, past, where_it_is};

/// Times that a restore is tried while partitions are moved and merged.
const ATTEMPTS_MAX: usize = 4;

/// What a restore has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The version whose datasets are there again.
    pub from: u64,
    /// The new version; none: all was as it was then.
    pub version: Option<u64>,
    /// Datasets and views that are others now, by name: those of before, and those that were not there then.
    pub changed: Vec<String>,
}

impl Fleet {
    /// Makes a domain's datasets and views, or one of them, what they were in a version of before: as a new version, whole or not at
    /// all. Functions stay. Where other hosts change the domain meanwhile, it is tried again.
    #[boxed]
    pub async fn restore(&self, domain: &str, dataset: Option<&str>, to: AsOf) -> Result<Restored, Fault> {
        let mut attempt = 1;
        loop {
            match self.restore_once(domain, dataset, to).await {
                Err(fault) if fault.blame == Blame::Conflict && attempt < ATTEMPTS_MAX => attempt += 1,
                restored => return restored,
            }
        }
    }

    async fn restore_once(&self, domain: &str, dataset: Option<&str>, to: AsOf) -> Result<Restored, Fault> {
        let drives = self.refreshed().await;
        let newest = self.manifest(domain, &drives).await?;
        if newest.version == 0 {
            return Err(Fault::invalid(format!("there is no domain {domain}")).hint("`pithead ls` shows the domains"));
        }
        let old = past(&drives, &newest, to).await?;
        let from = old.version;
        if let Some(name) = dataset {
            check_known(&old, name)?;
        }
        let restore = Restore { domain, dataset, old: &old, newest: &newest };
        if restore.is_in(&newest) {
            return Ok(Restored { from, version: None, changed: vec![] });
        }
        let changed = restore.changed(&newest);
        let committed = self.commit(&restore).await.map_err(|not| not.fault.at(format_args!("restoring version {from}")))?;
        for (name, gone) in &committed.made {
            discard(&drives, &committed.manifest.name(name), gone, committed.manifest.version).await;
        }
        Ok(Restored { from, version: Some(committed.manifest.version), changed })
    }

    /// Sets how long versions of a domain are kept, milliseconds; none: as long as each drive says. Returns the new version.
    #[boxed]
    pub async fn set_history(&self, domain: &str, history_ms: Option<u64>) -> Result<u64, Fault> {
        let committed = self.commit(&SetHistory { domain, history_ms }).await.map_err(|not| not.fault)?;
        Ok(committed.manifest.version)
    }
}

fn check_known(old: &Manifest, name: &str) -> Result<(), Fault> {
    if old.datasets.contains_key(name) || old.views.contains_key(name) {
        return Ok(());
    }
    let names: Vec<String> = old.datasets.keys().chain(old.views.keys()).map(|known| old.name(known).to_string()).collect();
    let fault = unknown_dataset(&old.name(name), names.iter().map(String::as_str));
    Err(Fault { message: format!("{} in version {}", fault.message, old.version), ..fault })
}

/// Datasets and views of a version of before in the place of those that there are.
struct Restore<'a> {
    domain: &'a str,
    /// The one that is meant; none: all of the domain.
    dataset: Option<&'a str>,
    old: &'a Manifest,
    /// The manifest when it began, which says where partitions are.
    newest: &'a Manifest,
}

impl Restore<'_> {
    fn means(&self, name: &str) -> bool {
        self.dataset.is_none_or(|only| only == name)
    }

    /// The datasets of before that are meant, where their rows are.
    fn datasets(&self, now: &Manifest) -> BTreeMap<String, Dataset> {
        let meant = self.old.datasets.iter().filter(|(name, _)| self.means(name));
        meant.map(|(name, old)| (name.clone(), where_it_is(old, now.datasets.get(name)))).collect()
    }

    /// A dataset does not take the place of a view, nor a view that of a dataset, where one of them alone is restored.
    fn refuse_other_kind(&self, now: &Manifest, only: &str) -> Result<(), Fault> {
        let name = now.name(only);
        if self.old.datasets.contains_key(only) && now.views.contains_key(only) {
            return Err(is_view(&name));
        }
        if self.old.views.contains_key(only) && now.datasets.contains_key(only) {
            return Err(already_there(&name).hint(format!("it was a view then; DROP TABLE {name} makes room for it")));
        }
        Ok(())
    }

    fn changed(&self, now: &Manifest) -> Vec<String> {
        let names: BTreeSet<&String> = [&self.old.datasets, &now.datasets]
            .into_iter()
            .flat_map(BTreeMap::keys)
            .chain([&self.old.views, &now.views].into_iter().flat_map(BTreeMap::keys))
            .filter(|name| self.means(name))
            .collect();
        let before = self.datasets(now);
        let differs = |name: &&&String| {
            let same_rows = match (before.get(**name), now.datasets.get(**name)) {
                (None, None) => true,
                (Some(before), Some(now)) => is_same(before, now),
                _ => false,
            };
            !same_rows || self.old.views.get(**name) != now.views.get(**name)
        };
        names.iter().filter(differs).map(|name| (*name).clone()).collect()
    }
}

/// Whether two datasets are the same, wherever they lie.
fn is_same(a: &Dataset, b: &Dataset) -> bool {
    let placed = Dataset { partitions: vec![], ..a.clone() } == Dataset { partitions: vec![], merged: a.merged, ..b.clone() };
    placed && a.partitions.iter().map(|partition| &partition.runs).eq(b.partitions.iter().map(|partition| &partition.runs))
}

impl Edit for Restore<'_> {
    /// The incarnations that are there no more.
    type Output = Vec<(String, Dataset)>;

    fn domain(&self) -> &str {
        self.domain
    }

    fn subject(&self) -> String {
        match self.dataset {
            Some(name) => self.old.name(name).to_string(),
            None => format!("domain {}", self.domain),
        }
    }

    fn apply(&self, manifest: &mut Manifest) -> Result<Vec<(String, Dataset)>, Fault> {
        let mut restored = self.datasets(manifest);
        // The runs were claimed on the drives that had them when the restore began.
        if restored != self.datasets(self.newest) || manifest.drives != self.newest.drives {
            let what = format!("partitions of domain {} were moved or merged meanwhile", self.domain);
            return Err(Fault::new(Blame::Conflict, what).hint("restore it again"));
        }
        if let Some(only) = self.dataset {
            self.refuse_other_kind(manifest, only)?;
        }
        for (name, dataset) in &mut restored {
            stay_within(manifest, &self.old.name(name), dataset)?;
            // Rows of a load that were merged into another run since are in runs of their own again.
            dataset.merged = manifest.version + 1;
        }
        let mut gone = Vec::new();
        let names: Vec<String> = manifest.datasets.keys().filter(|name| self.means(name)).cloned().collect();
        for name in names {
            let Some(now) = manifest.datasets.remove(&name) else { continue };
            if restored.get(&name).is_none_or(|restored| restored.id != now.id) {
                gone.push((name, now));
            }
        }
        manifest.datasets.extend(restored);
        manifest.views.retain(|name, _| !self.means(name));
        let views = self.old.views.iter().filter(|(name, _)| self.means(name));
        manifest.views.extend(views.map(|(name, view)| (name.clone(), view.clone())));
        Ok(gone)
    }

    fn runs(&self) -> Vec<(DriveId, SliceKey)> {
        let mut runs = Vec::new();
        for (name, mut dataset) in self.datasets(self.newest) {
            let name = self.old.name(&name);
            if stay_within(self.newest, &name, &mut dataset).is_err() {
                continue;
            }
            for (partition, there) in (0..).zip(&dataset.partitions) {
                let key = |load| SliceKey { name: name.clone(), dataset: dataset.id, load, partition, number: None };
                for run in &there.runs {
                    runs.extend(there.copies.iter().map(|drive| (*drive, key(run.load))));
                }
            }
        }
        runs
    }

    fn is_in(&self, manifest: &Manifest) -> bool {
        self.changed(manifest).is_empty()
    }

    /// Others may have changed since what it restored.
    fn may_be_hidden(&self, manifest: &Manifest, version: u64) -> bool {
        manifest.version >= version
    }
}

/// Leaves out the copies on drives that the domain is on no more. A fault if none is left of a partition with rows.
fn stay_within(manifest: &Manifest, name: &DatasetName, dataset: &mut Dataset) -> Result<(), Fault> {
    for (number, partition) in dataset.partitions.iter_mut().enumerate() {
        let left: Vec<DriveId> = partition.copies.iter().copied().filter(|drive| manifest.drives.contains(drive)).collect();
        if !left.is_empty() {
            partition.copies = left;
        } else if partition.runs.is_empty() {
            partition.copies = manifest.home().into_iter().collect();
        } else {
            let drives = partition.copies.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let what = format!("partition {number} of {name} was on drive {drives}, which left domain {}", manifest.domain);
            return Err(Fault::invalid(what).hint("add that drive again, with `pithead drive add`"));
        }
    }
    Ok(())
}

/// Another time for which versions are kept.
struct SetHistory<'a> {
    domain: &'a str,
    history_ms: Option<u64>,
}

impl Edit for SetHistory<'_> {
    type Output = ();

    fn domain(&self) -> &str {
        self.domain
    }

    fn subject(&self) -> String {
        format!("the history of domain {}", self.domain)
    }

    fn apply(&self, manifest: &mut Manifest) -> Result<(), Fault> {
        manifest.history_ms = self.history_ms;
        Ok(())
    }

    fn is_in(&self, manifest: &Manifest) -> bool {
        manifest.history_ms == self.history_ms
    }
}
