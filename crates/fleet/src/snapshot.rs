//! What the domains hold at one moment, as statements see it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use pithead_door::Refusal;
use pithead_model::{Blame, Dataset, DatasetName, DriveId, Fault, Manifest, View, near_names};

use crate::attached::{Overlay, read_only};
use crate::drives::Drives;
use crate::fault::unknown_dataset;
use crate::looking::Looking;

/// A domain at one version of its manifest.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) manifest: Manifest,
    /// Whether it came from its home, and is no copy of another drive's.
    pub(crate) told_by_home: bool,
    datasets: BTreeMap<String, Arc<VersionedDataset>>,
    /// What of it is in no manifest.
    overlay: Overlay,
}

impl Domain {
    /// Its datasets, as they are shared by the statements of this version.
    pub(crate) fn parse(manifest: Manifest, told_by_home: bool, overlay: Overlay) -> Self {
        let versioned = |(name, dataset): (&String, &Dataset)| {
            let found = VersionedDataset::new(manifest.name(name), Arc::new(dataset.clone()), manifest.version);
            let attached = overlay.attached.get(name).copied().unwrap_or(0);
            let is_attached = attached > 0 || manifest.attaching.contains_key(name);
            (name.clone(), Arc::new(VersionedDataset { attached, is_attached, ..found }))
        };
        let datasets = manifest.datasets.iter().map(versioned).collect();
        Self { manifest, told_by_home, datasets, overlay }
    }
}

/// A dataset as one version of its domain's manifest has it.
#[derive(Debug)]
pub struct VersionedDataset {
    name: DatasetName,
    dataset: Arc<Dataset>,
    manifest_version: u64,
    /// Its last partitions, as many as these, are attached in place: no manifest names them.
    attached: usize,
    /// Whether there are such partitions, be it at drives that are not reached.
    is_attached: bool,
}

impl VersionedDataset {
    /// A dataset of this name in the manifest of this version.
    pub fn new(name: DatasetName, dataset: Arc<Dataset>, manifest_version: u64) -> Self {
        Self { name, dataset, manifest_version, attached: 0, is_attached: false }
    }

    /// Its full name.
    pub fn name(&self) -> &DatasetName {
        &self.name
    }

    /// What the manifest says of it.
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// The version of that manifest.
    pub fn manifest_version(&self) -> u64 {
        self.manifest_version
    }

    /// Whether rows of it are attached in place.
    pub fn is_attached(&self) -> bool {
        self.is_attached
    }

    /// Refuses to change rows that are attached in place.
    pub fn check_changeable(&self) -> Result<(), Fault> {
        if self.is_attached { Err(read_only(&self.name)) } else { Ok(()) }
    }

    /// Refuses to add to, or to drop, what is attached in place and nothing else.
    pub fn check_loaded(&self) -> Result<(), Fault> {
        let is_loaded = self.attached < self.dataset.partitions.len();
        if is_loaded { Ok(()) } else { Err(read_only(&self.name)) }
    }
}

/// All domains at one moment. A statement sees one snapshot from its start to its end.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) domains: BTreeMap<String, Result<Arc<Domain>, Fault>>,
    pub(crate) drives: Arc<Drives>,
    /// Drives that do not tell what they attach, and why.
    pub(crate) untold: BTreeMap<DriveId, Fault>,
    /// Drives that attach something in domains that they do not tell this host of.
    pub(crate) hiding: BTreeSet<DriveId>,
    /// Loaded datasets that are attached, too, which their manifests do not say and cannot be made to say.
    pub(crate) unwritten: BTreeMap<DatasetName, Fault>,
    /// When all drives were asked which domains they keep, and what may have them asked again.
    pub(crate) looked: Instant,
    pub(crate) looking: Arc<Looking>,
}

impl Snapshot {
    /// Whether another one shows just the same. It is certain where it is true.
    pub fn is_as(&self, other: &Snapshot) -> bool {
        let is_same = |(name, domain): (&String, &Result<Arc<Domain>, Fault>)| match (domain, other.domains.get(name)) {
            (Ok(one), Some(Ok(other))) => Arc::ptr_eq(one, other),
            _ => false,
        };
        let is_whole = |snapshot: &Snapshot| snapshot.untold.is_empty() && snapshot.unwritten.is_empty();
        Arc::ptr_eq(&self.drives, &other.drives)
            && self.domains.len() == other.domains.len()
            && self.domains.iter().all(is_same)
            && self.hiding == other.hiding
            && is_whole(self)
            && is_whole(other)
    }

    /// A dataset, with the manifest that names it.
    pub fn dataset(&self, name: &DatasetName) -> Option<(&Manifest, &Dataset)> {
        let domain = self.domains.get(&name.domain)?.as_ref().ok()?;
        Some((&domain.manifest, domain.manifest.datasets.get(&name.dataset)?))
    }

    /// The manifest of a domain. A fault if it cannot be read, or there is no such domain.
    pub(crate) fn manifest(&self, domain: &str) -> Result<&Manifest, Fault> {
        match self.domains.get(domain) {
            Some(Ok(domain)) => Ok(&domain.manifest),
            Some(Err(fault)) => Err(fault.clone()),
            None => {
                let near = near_names(domain, self.domains.keys().map(String::as_str));
                let rest = if near.is_empty() { String::new() } else { format!("; near: {}", near.join(", ")) };
                let fault = Fault::invalid(format!("there is no domain {domain}{rest}"));
                Err(self.of_reading(domain, fault.hint("`pithead ls` shows the domains")))
            }
        }
    }

    /// The drives that it was read from.
    pub(crate) fn drives(&self) -> &Arc<Drives> {
        &self.drives
    }

    /// The same, or a fault with near names.
    pub fn find(&self, name: &DatasetName) -> Result<(&Manifest, &Dataset), Fault> {
        match self.domains.get(&name.domain) {
            Some(Err(fault)) => Err(fault.clone()),
            Some(Ok(domain)) if domain.overlay.refused.contains_key(&name.dataset) => {
                self.check_whole(name)?;
                Err(self.unknown(name))
            }
            _ => self.dataset(name).ok_or_else(|| self.unknown(name)),
        }
    }

    /// The dataset for a query that reads it. A fault if it is not there, or if of a partition no copy is reached.
    pub fn readable(&self, name: &DatasetName) -> Result<Arc<VersionedDataset>, Fault> {
        let (_, dataset) = self.find(name).map_err(|fault| self.of_reading(&name.domain, fault))?;
        self.check_whole(name)?;
        for (number, partition) in dataset.partitions.iter().enumerate() {
            let is_reached = partition.copies.iter().any(|id| self.drives.find(*id).is_some());
            if !is_reached && !partition.runs.is_empty() {
                let fault = self.drives.not_connected(&partition.copies);
                return Err(fault.at(format_args!("dataset {name} needs partition {number}")));
            }
        }
        self.datasets().find(|found| found.name() == name).cloned().ok_or_else(|| self.unknown(name))
    }

    /// A fault if not all is known of what drives attach of a dataset: some of its rows might be missing.
    fn check_whole(&self, name: &DatasetName) -> Result<(), Fault> {
        let Some(domain) = self.domains.get(&name.domain).and_then(|domain| domain.as_ref().ok()) else { return Ok(()) };
        if let Some(Refusal { why, passes }) = domain.overlay.refused.get(&name.dataset) {
            let what = format!("dataset {name}, which is attached in place, cannot be read: {why}");
            return Err(match passes {
                true => Fault::new(Blame::Device, what).hint("try again later; the statement is right"),
                false => Fault::new(Blame::User, what),
            });
        }
        if let Some(fault) = self.unwritten.get(name) {
            return Err(fault.clone());
        }
        let Some(found) = self.versioned(name) else { return Ok(()) };
        let loaded = found.dataset.partitions.len().saturating_sub(found.attached);
        if loaded == 0 {
            return self.all_tell(name);
        }
        let told: Vec<DriveId> =
            found.dataset.partitions.iter().skip(loaded).flat_map(|partition| partition.copies.clone()).collect();
        let written = domain.manifest.attaching.get(&name.dataset).into_iter().flatten();
        for drive in written.chain(&told) {
            self.tells(name, *drive)?;
            if self.hiding.contains(drive) && !told.contains(drive) {
                let what =
                    format!("dataset {name} has a part that {} attaches, and you may not read there", self.drives.name(*drive));
                return Err(Fault::new(Blame::Access, what).hint("ask for the right to read this domain at all of its drives"));
            }
        }
        Ok(())
    }

    /// A fault if a drive that attaches a part of a dataset does not tell of it.
    fn tells(&self, name: &DatasetName, drive: DriveId) -> Result<(), Fault> {
        let what = || format!("dataset {name} is attached in place, too, and {} has a part of it", self.drives.name(drive));
        match self.untold.get(&drive) {
            Some(fault) => Err(Fault::new(Blame::Device, format!("{}: {}", what(), fault.message))),
            None if self.drives.find(drive).is_none() => Err(self.drives.not_connected(&[drive]).at(what())),
            None => Ok(()),
        }
    }

    /// A fault if a drive does not tell what it attaches: of a dataset that no manifest names, any one may have a part.
    fn all_tell(&self, name: &DatasetName) -> Result<(), Fault> {
        let what = || format!("dataset {name} is attached in place, and a drive that may have a part of it does not answer");
        match self.untold.values().next() {
            Some(fault) => Err(Fault::new(Blame::Device, format!("{}: {}", what(), fault.message))),
            None if !self.drives.absent().is_empty() => Err(self.drives.with_absent(Fault::new(Blame::Device, what()))),
            None => Ok(()),
        }
    }

    /// The dataset as a version of its domain has it.
    pub fn versioned(&self, name: &DatasetName) -> Option<&Arc<VersionedDataset>> {
        self.domains.get(&name.domain)?.as_ref().ok()?.datasets.get(&name.dataset)
    }

    /// Every dataset, sorted by name.
    pub fn datasets(&self) -> impl Iterator<Item = &Arc<VersionedDataset>> {
        self.domains.values().flatten().flat_map(|domain| domain.datasets.values())
    }

    /// A view.
    pub fn view(&self, name: &DatasetName) -> Option<&View> {
        self.domains.get(&name.domain)?.as_ref().ok()?.manifest.views.get(&name.dataset)
    }

    /// Every view, sorted by name.
    pub fn views(&self) -> impl Iterator<Item = (DatasetName, &View)> {
        let manifests = self.domains.values().flatten().map(|domain| &domain.manifest);
        manifests.flat_map(|manifest| manifest.views.iter().map(|(name, view)| (manifest.name(name), view)))
    }

    /// The names of the domains, and why one cannot be read.
    pub fn domains(&self) -> impl Iterator<Item = (&str, Result<&Manifest, &Fault>)> {
        self.domains.iter().map(|(name, domain)| (name.as_str(), domain.as_ref().map(|domain| &domain.manifest)))
    }

    fn unknown(&self, name: &DatasetName) -> Fault {
        let views = self.views().map(|(name, _)| name.to_string());
        let names: Vec<String> = self.datasets().map(|found| found.name().to_string()).chain(views).collect();
        let mut fault = unknown_dataset(name, names.iter().map(String::as_str));
        let domains = self.domains.keys().map(String::as_str);
        if !self.domains.contains_key(&name.domain)
            && near_names(&name.to_string(), names.iter().map(String::as_str)).is_empty()
        {
            let near = near_names(&name.domain, domains);
            let rest = if near.is_empty() { String::new() } else { format!(", near: {}", near.join(", ")) };
            fault.message = format!("{}; there is no domain {}{rest}", fault.message, name.domain);
            if !self.drives.absent().is_empty() {
                // A drive that is not reached may know it.
                fault = Fault { blame: Blame::Device, ..self.drives.with_absent(fault) };
            }
        }
        if !self.domains.contains_key(&name.domain) {
            // It is looked for before the next statement.
            self.looking.want(self.looked);
        }
        fault
    }

    /// The fault of a statement that reads. Another host may have made the domain since the drives were asked which ones they keep: then
    /// it is for them to say, and they are asked again (see [`crate::Fleet::settled_snapshot`]).
    fn of_reading(&self, domain: &str, fault: Fault) -> Fault {
        let is_known = self.domains.contains_key(domain);
        if !is_known && self.looking.want(self.looked) { Fault { blame: Blame::Device, ..fault } } else { fault }
    }
}
