//! What the domains hold: a snapshot of their manifests for each statement.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::{join, join_all};
use parking_lot::Mutex;
use pithead_model::{Blame, Dataset, DatasetName, DriveId, Fault, Manifest, View, near_names};

use crate::attached::{LastTold, Overlay, Told, read_only};
use crate::drives::{ConnectedDrive, Drives};
use crate::fault::unknown_dataset;
use crate::homes::{Found, HomeState, Use, find_homes, find_manifest, is_unchanged};

/// Knows the home of each domain, and keeps the last manifest of each, parsed.
#[derive(Debug)]
pub(crate) struct Catalog {
    default_domain: String,
    homes: Mutex<Homes>,
    parsed: Mutex<BTreeMap<String, Arc<Domain>>>,
    /// What drives attach in place, and domains with that laid over them.
    told: LastTold,
    laid: Mutex<BTreeMap<String, Laid>>,
    /// Domains whose home is away, which was said.
    away: Mutex<BTreeSet<String>>,
}

#[derive(Debug)]
struct Homes {
    by_domain: BTreeMap<String, DriveId>,
    /// Drives that were asked. Another one may know more.
    asked: usize,
}

/// A domain with what was attached laid over it, and what it was made of.
#[derive(Debug)]
struct Laid {
    below: Option<Arc<Domain>>,
    versions: Vec<(DriveId, u64)>,
    domain: Arc<Domain>,
}

/// A domain at one version of its manifest.
#[derive(Debug)]
struct Domain {
    manifest: Manifest,
    /// Whether it came from its home, and is no copy of another drive's.
    told_by_home: bool,
    datasets: BTreeMap<String, Arc<VersionedDataset>>,
    /// What of it is in no manifest.
    overlay: Overlay,
}

impl Catalog {
    /// Asks every drive for the domains whose manifest it keeps.
    pub(crate) async fn discover(drives: &Drives, default_domain: &str) -> Result<Self, Fault> {
        let homes = Homes { by_domain: find_homes(drives).await?, asked: drives.all().len() };
        Ok(Self {
            default_domain: default_domain.to_owned(),
            homes: Mutex::new(homes),
            parsed: Mutex::default(),
            told: LastTold::default(),
            laid: Mutex::default(),
            away: Mutex::default(),
        })
    }

    /// Reads all manifests. A domain that cannot be read takes only itself away; the fault shows when it is asked for.
    pub(crate) async fn snapshot(&self, drives: &Arc<Drives>) -> Result<Arc<Snapshot>, Fault> {
        self.look_around(&self.default_domain, drives).await?;
        let homes = self.homes.lock().by_domain.clone();
        let read = join_all(homes.into_iter().map(|(name, home)| async move {
            let domain = self.read_domain(&name, drives, home).await;
            (name, domain)
        }));
        let (read, told) = join(read, self.told.ask(drives)).await;
        let mut domains = read.into_iter().collect();
        self.lay_over(&mut domains, &told, drives);
        Ok(Arc::new(Snapshot { domains, drives: Arc::clone(drives), untold: told.untold().cloned() }))
    }

    /// Lays what drives attach over their domains. One that nobody keeps is of what is attached alone.
    fn lay_over(&self, domains: &mut BTreeMap<String, Result<Arc<Domain>, Fault>>, told: &Told, drives: &Drives) {
        if told.is_empty() {
            return;
        }
        let versions = told.versions();
        for name in told.domains() {
            let below = match domains.get(&name) {
                Some(Err(_)) => continue,
                Some(Ok(domain)) => Some(Arc::clone(domain)),
                None => None,
            };
            let mut laid = self.laid.lock();
            let is_same = |laid: &&Laid| {
                let same_below = match (&laid.below, &below) {
                    (Some(laid), Some(now)) => Arc::ptr_eq(laid, now),
                    (None, None) => true,
                    _ => false,
                };
                same_below && laid.versions == versions
            };
            let domain = match laid.get(&name).filter(is_same) {
                Some(laid) => Arc::clone(&laid.domain),
                None => {
                    let told_by_home = below.as_ref().is_none_or(|below| below.told_by_home);
                    let mut manifest =
                        below.as_ref().map_or_else(|| Manifest::empty(&name, drives.ids()), |below| below.manifest.clone());
                    let overlay = told.lay_over(&mut manifest);
                    let domain = Arc::new(Domain::parse(manifest, told_by_home, overlay));
                    let made = Laid { below, versions: versions.clone(), domain: Arc::clone(&domain) };
                    laid.insert(name.clone(), made);
                    domain
                }
            };
            domains.insert(name, Ok(domain));
        }
    }

    /// A domain's manifest and home as they are now, to change it. For a domain that nobody keeps yet: the empty one, over
    /// all connected drives. A fault if home is not reached, as a second one would lose what the first one has.
    pub(crate) async fn manifest(&self, name: &str, drives: &Drives) -> Result<(Manifest, ConnectedDrive), Fault> {
        self.look_around(name, drives).await?;
        let Some(known) = self.home(name) else { return first_manifest(name, drives) };
        let found = self.find(name, known, drives, Use::Change).await?;
        let home = found.manifest.home().unwrap_or(known);
        match found.home {
            HomeState::Here => Ok((found.manifest, drives.get(home)?.clone())),
            HomeState::Behind => {
                let home = drives.get(home)?.clone();
                let before = found.manifest.version.saturating_sub(1);
                let commit = home.door.commit(before, found.manifest.clone()).await;
                commit.map_err(|fault| fault.at_drive(home.label()))?;
                Ok((found.manifest, home))
            }
            HomeState::Away(fault) => Err(cannot_change(name, home, drives, &fault)),
        }
    }

    /// The newest manifest of a domain that is reached; none: nobody keeps it.
    pub(crate) async fn newest(&self, name: &str, drives: &Drives) -> Result<Option<Found>, Fault> {
        self.look_around(name, drives).await?;
        match self.home(name) {
            Some(known) => Ok(Some(self.find(name, known, drives, Use::Change).await?)),
            None => Ok(None),
        }
    }

    /// The domains that there are.
    pub(crate) async fn domains(&self, drives: &Drives) -> Result<Vec<String>, Fault> {
        self.rediscover(drives).await?;
        Ok(self.homes.lock().by_domain.keys().cloned().collect())
    }

    /// Notes a domain's home.
    pub(crate) fn note_home(&self, domain: &str, home: DriveId) {
        self.homes.lock().by_domain.insert(domain.to_owned(), home);
    }

    fn home(&self, name: &str) -> Option<DriveId> {
        self.homes.lock().by_domain.get(name).copied()
    }

    /// Asks all drives again where this domain is not known, or where there are drives that were not asked.
    async fn look_around(&self, name: &str, drives: &Drives) -> Result<(), Fault> {
        let known = {
            let homes = self.homes.lock();
            homes.by_domain.contains_key(name) && homes.asked == drives.all().len()
        };
        if known { Ok(()) } else { self.rediscover(drives).await }
    }

    async fn rediscover(&self, drives: &Drives) -> Result<(), Fault> {
        let found = find_homes(drives).await?;
        let mut homes = self.homes.lock();
        homes.by_domain.extend(found);
        homes.asked = drives.all().len();
        Ok(())
    }

    async fn find(&self, name: &str, known: DriveId, drives: &Drives, used: Use) -> Result<Found, Fault> {
        let found = find_manifest(name, known, drives, used).await?;
        if let Some(home) = found.manifest.home() {
            self.note_home(name, home);
        }
        let mut away = self.away.lock();
        match &found.home {
            HomeState::Away(fault) if away.insert(name.to_owned()) => {
                let version = found.manifest.version;
                tracing::warn!(
                    domain = name,
                    version,
                    "home is not reached; reading a copy of the manifest: {}",
                    fault.message
                );
            }
            HomeState::Away(_) => {}
            HomeState::Here | HomeState::Behind => {
                away.remove(name);
            }
        }
        Ok(found)
    }

    async fn read_domain(&self, name: &str, drives: &Drives, home: DriveId) -> Result<Arc<Domain>, Fault> {
        let of_home = |domain: &&Arc<Domain>| domain.told_by_home && domain.manifest.home() == Some(home);
        let known = self.parsed.lock().get(name).filter(of_home).cloned();
        if let Some(domain) = known
            && is_unchanged(name, home, domain.manifest.version, drives).await
        {
            return Ok(domain);
        }
        let found = self.find(name, home, drives, Use::Read).await?;
        let (manifest, told_by_home) = (found.manifest, matches!(found.home, HomeState::Here));
        let same = |domain: &&Arc<Domain>| {
            let told = &domain.manifest;
            told.version == manifest.version && told.drives == manifest.drives && domain.told_by_home == told_by_home
        };
        let known = self.parsed.lock().get(name).filter(same).cloned();
        if let Some(domain) = known {
            return Ok(domain);
        }
        let domain = Arc::new(Domain::parse(manifest, told_by_home, Overlay::default()));
        self.parsed.lock().insert(name.to_owned(), Arc::clone(&domain));
        Ok(domain)
    }
}

/// The empty manifest of a domain that nobody keeps, and its home to be. A drive that is not reached may be one that keeps
/// it.
fn first_manifest(name: &str, drives: &Drives) -> Result<(Manifest, ConnectedDrive), Fault> {
    let Some(home) = drives.all().first().filter(|_| drives.absent().is_empty()) else {
        let fault = Fault::new(Blame::Device, format!("no drive that is reached knows domain {name}"));
        return Err(drives.with_absent(fault).hint("a domain is made while all drives are reached"));
    };
    Ok((Manifest::empty(name, drives.ids()), home.clone()))
}

fn cannot_change(name: &str, home: DriveId, drives: &Drives, fault: &Fault) -> Fault {
    let message = format!(
        "domain {name} cannot be changed while its home, drive {}, is not reached: {}",
        drives.name(home),
        fault.message
    );
    let hint = format!("start that drive again; if it is lost for good, `pithead repair --lost {home}` makes another one home");
    Fault::new(Blame::Device, message).hint(hint)
}

impl Domain {
    fn parse(manifest: Manifest, told_by_home: bool, overlay: Overlay) -> Self {
        let versioned = |(name, dataset): (&String, &Dataset)| {
            let found = VersionedDataset::new(manifest.name(name), Arc::new(dataset.clone()), manifest.version);
            let attached = overlay.attached.get(name).copied().unwrap_or(0);
            (name.clone(), Arc::new(VersionedDataset { attached, ..found }))
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
}

impl VersionedDataset {
    /// A dataset of this name in the manifest of this version.
    pub fn new(name: DatasetName, dataset: Arc<Dataset>, manifest_version: u64) -> Self {
        Self { name, dataset, manifest_version, attached: 0 }
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

    /// How many of its partitions, the last ones, are attached in place, each by one drive.
    pub fn attached(&self) -> usize {
        self.attached
    }

    /// Refuses to change rows that are attached in place.
    pub fn check_changeable(&self) -> Result<(), Fault> {
        if self.attached > 0 { Err(read_only(&self.name)) } else { Ok(()) }
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
    domains: BTreeMap<String, Result<Arc<Domain>, Fault>>,
    drives: Arc<Drives>,
    /// Why not all is known that drives attach.
    untold: Option<Fault>,
}

impl Snapshot {
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
                Err(Fault::invalid(format!("there is no domain {domain}{rest}")))
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
        let (_, dataset) = self.find(name)?;
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
        if let Some(why) = domain.overlay.refused.get(&name.dataset) {
            return Err(Fault::new(Blame::User, format!("dataset {name}, which is attached in place, cannot be read: {why}")));
        }
        if self.versioned(name).is_none_or(|found| found.attached == 0) {
            return Ok(());
        }
        let what = || format!("dataset {name} is attached in place, and a drive that may have a part of it does not answer");
        match &self.untold {
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
        fault
    }
}
