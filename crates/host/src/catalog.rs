//! What the domains hold: a snapshot of their manifests for each statement.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::join_all;
use parking_lot::Mutex;
use pithead_model::{Blame, Dataset, DatasetName, DriveId, Fault, Manifest, near_names};

use crate::fault::{at_drive, first_of, invalid, unknown_dataset};
use crate::host::{ConnectedDrive, Drives};
use crate::table::DatasetTable;

/// Knows the home of each domain, and keeps the last manifest of each, parsed.
#[derive(Debug)]
pub(crate) struct Catalog {
    default_domain: String,
    homes: Mutex<BTreeMap<String, DriveId>>,
    parsed: Mutex<BTreeMap<String, Arc<Domain>>>,
}

/// A domain at one version of its manifest.
#[derive(Debug)]
struct Domain {
    manifest: Manifest,
    tables: BTreeMap<String, Arc<DatasetTable>>,
}

impl Catalog {
    /// Asks every drive for the domains whose home it is.
    pub(crate) async fn discover(drives: &Drives, default_domain: &str) -> Result<Self, Fault> {
        let homes = find_homes(drives).await?;
        Ok(Self { default_domain: default_domain.to_owned(), homes: Mutex::new(homes), parsed: Mutex::default() })
    }

    /// Reads all manifests. A home that fails takes only its own domain away; the fault shows when it is asked for.
    pub(crate) async fn snapshot(&self, drives: &Drives) -> Result<Arc<Snapshot>, Fault> {
        if !self.homes.lock().contains_key(&self.default_domain) {
            self.rediscover(drives).await?;
        }
        let homes = self.homes.lock().clone();
        let read = join_all(homes.into_iter().map(|(name, home)| async move {
            let domain = self.read_domain(&name, drives, home).await;
            (name, domain)
        }));
        let domains = read.await.into_iter().filter_map(|(name, domain)| Some((name, domain.transpose()?))).collect();
        Ok(Arc::new(Snapshot { domains, connected: drives.ids() }))
    }

    /// A domain's manifest and home as they are now. For a domain that nobody keeps yet: the empty one, over all
    /// connected drives.
    pub(crate) async fn manifest<'a>(&self, name: &str, drives: &'a Drives) -> Result<(Manifest, &'a ConnectedDrive), Fault> {
        if !self.homes.lock().contains_key(name) {
            self.rediscover(drives).await?;
        }
        let known = self.homes.lock().get(name).copied();
        let ids = drives.ids();
        let home = drives.get(known.unwrap_or(ids[0]))?;
        let manifest = home.door.manifest(name.to_owned()).await.map_err(|fault| at_drive(fault, home.label()))?;
        Ok((manifest.unwrap_or_else(|| Manifest::empty(name, ids)), home))
    }

    /// Notes a domain that was made just now.
    pub(crate) fn note_home(&self, domain: &str, home: DriveId) {
        self.homes.lock().insert(domain.to_owned(), home);
    }

    async fn rediscover(&self, drives: &Drives) -> Result<(), Fault> {
        let homes = find_homes(drives).await?;
        *self.homes.lock() = homes;
        Ok(())
    }

    async fn read_domain(&self, name: &str, drives: &Drives, home: DriveId) -> Result<Option<Arc<Domain>>, Fault> {
        let home = drives.get(home)?;
        let manifest = home.door.manifest(name.to_owned()).await.map_err(|fault| at_drive(fault, home.label()))?;
        let Some(manifest) = manifest else {
            return Ok(None);
        };
        let known = self.parsed.lock().get(name).filter(|domain| domain.manifest.version == manifest.version).cloned();
        if let Some(domain) = known {
            return Ok(Some(domain));
        }
        let domain = Arc::new(Domain::parse(manifest));
        self.parsed.lock().insert(name.to_owned(), Arc::clone(&domain));
        Ok(Some(domain))
    }
}

impl Domain {
    fn parse(manifest: Manifest) -> Self {
        let table = |(name, dataset): (&String, &Dataset)| {
            let table = DatasetTable::new(manifest.name(name), Arc::new(dataset.clone()), manifest.version);
            (name.clone(), Arc::new(table))
        };
        let tables = manifest.datasets.iter().map(table).collect();
        Self { manifest, tables }
    }
}

/// Home drives by domain. A domain with two homes means drives of two installations.
async fn find_homes(drives: &Drives) -> Result<BTreeMap<String, DriveId>, Fault> {
    let answers = join_all(drives.all().iter().map(|drive| drive.door.status())).await;
    let mut homes: BTreeMap<String, DriveId> = BTreeMap::new();
    let mut faults = Vec::new();
    for (drive, answer) in drives.all().iter().zip(answers) {
        let domains = match answer {
            Ok(status) => status.domains,
            Err(fault) => {
                faults.push((drive.label().to_owned(), fault));
                continue;
            }
        };
        for domain in domains {
            if let Some(other) = homes.insert(domain.clone(), drive.id()) {
                let other = drives.get(other)?.label();
                let message = format!("domain {domain} has its home on {other} and on {}", drive.label());
                return Err(invalid(message).hint("connect only to drives that were loaded together"));
            }
        }
    }
    match first_of(faults) {
        Some(fault) => Err(fault),
        None => Ok(homes),
    }
}

/// All domains at one moment. A statement sees one snapshot from its start to its end.
#[derive(Debug)]
pub struct Snapshot {
    domains: BTreeMap<String, Result<Arc<Domain>, Fault>>,
    connected: Vec<DriveId>,
}

impl Snapshot {
    /// A dataset, with the manifest that names it.
    pub fn dataset(&self, name: &DatasetName) -> Option<(&Manifest, &Dataset)> {
        let domain = self.domains.get(&name.domain)?.as_ref().ok()?;
        Some((&domain.manifest, domain.manifest.datasets.get(&name.dataset)?))
    }

    /// The same, or a fault with near names.
    pub fn find(&self, name: &DatasetName) -> Result<(&Manifest, &Dataset), Fault> {
        match self.domains.get(&name.domain) {
            Some(Err(fault)) => Err(fault.clone()),
            _ => self.dataset(name).ok_or_else(|| self.unknown(name)),
        }
    }

    /// The dataset for planning a query that reads it. A fault if it is not there, or needs a drive that is not.
    pub fn table(&self, name: &DatasetName) -> Result<Arc<DatasetTable>, Fault> {
        let (_, dataset) = self.find(name)?;
        let mut needed = dataset.partitions.iter().filter(|partition| !partition.runs.is_empty());
        if let Some(absent) = needed.find(|partition| !self.connected.contains(&partition.drive)) {
            let message = format!("dataset {name} needs drive {}, which is not connected", absent.drive);
            return Err(Fault::new(Blame::Device, message).hint("connect to all drives of the domain"));
        }
        self.tables().find(|table| table.name() == name).cloned().ok_or_else(|| self.unknown(name))
    }

    /// Every dataset, sorted by name.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<DatasetTable>> {
        self.domains.values().flatten().flat_map(|domain| domain.tables.values())
    }

    /// The names of the domains, and why one cannot be read.
    pub fn domains(&self) -> impl Iterator<Item = (&str, Result<&Manifest, &Fault>)> {
        self.domains.iter().map(|(name, domain)| (name.as_str(), domain.as_ref().map(|domain| &domain.manifest)))
    }

    fn unknown(&self, name: &DatasetName) -> Fault {
        let names: Vec<String> = self.tables().map(|table| table.name().to_string()).collect();
        let mut fault = unknown_dataset(name, names.iter().map(String::as_str));
        let domains = self.domains.keys().map(String::as_str);
        if !self.domains.contains_key(&name.domain)
            && near_names(&name.to_string(), names.iter().map(String::as_str)).is_empty()
        {
            let near = near_names(&name.domain, domains);
            let rest = if near.is_empty() { String::new() } else { format!(", near: {}", near.join(", ")) };
            fault.message = format!("{}; there is no domain {}{rest}", fault.message, name.domain);
        }
        fault
    }
}
