//! Which drives attach files as parts of loaded datasets, kept in the manifest.
//!
//! Only the drive that attaches files tells of them, and a host that never reached that drive would take the loaded rows for all
//! there are. So the rows of files belong to a loaded dataset from the version of the manifest on that names their drive: a
//! host that hears of such files writes that before it answers with them.

use std::collections::BTreeMap;
use std::sync::Arc;

use pithead_model::{Blame, DatasetName, DriveId, Fault, Manifest};

use crate::attached::AttachmentReport;
use crate::catalog::{Catalog, CatalogReading};
use crate::commit::{Edit, commit};
use crate::drives::Drives;

/// Writes into the manifests which drives attach parts of their datasets, where they do not say it.
pub(crate) async fn write_attaching(catalog: &Catalog, seen: &mut CatalogReading, drives: &Drives) {
    for read in seen.domains.values_mut() {
        let Ok(domain) = read.as_ref().map(Arc::clone) else { continue };
        let Some(unwritten) = Attaching::unwritten(&domain.manifest, &seen.told, drives) else { continue };
        match commit(catalog, drives, &unwritten).await {
            Ok(committed) => *read = Ok(catalog.changed(committed.manifest)),
            Err(not) => seen.unwritten.extend(unwritten.refused(&not.fault, drives)),
        }
    }
}

/// What a domain's manifest does not say yet of the drives that attach parts of its datasets.
struct Attaching<'a> {
    domain: &'a str,
    /// Datasets, and drives that attach a part of them.
    joined: Vec<(String, DriveId)>,
    /// Datasets, and drives that attach no part of them any more.
    gone: Vec<(String, DriveId)>,
}

impl<'a> Attaching<'a> {
    /// The edit that a manifest needs; none: the manifest agrees with the drives. Drives that do not tell change nothing.
    fn unwritten(manifest: &'a Manifest, told: &AttachmentReport, drives: &Drives) -> Option<Self> {
        let (domain, hiding) = (manifest.domain.as_str(), told.hiding());
        let of_loaded = told.fresh().flat_map(|(drive, told)| told.names(domain).map(move |name| (name, drive.id())));
        let is_new =
            |(name, drive): &(&str, DriveId)| manifest.datasets.contains_key(*name) && !manifest.is_attaching(name, *drive);
        let joined = of_loaded.filter(is_new).map(|(name, drive)| (name.to_owned(), drive)).collect();
        let written = manifest.attaching.iter().flat_map(|(name, drives)| drives.iter().map(move |drive| (name, *drive)));
        let is_gone = |(name, drive): &(&String, DriveId)| {
            let is_known = drives.find(*drive).is_some() && told.is_told(*drive) && !hiding.contains(drive);
            is_known && !told.attaches(*drive, domain, name)
        };
        let gone = written.filter(is_gone).map(|(name, drive)| (name.clone(), drive)).collect();
        let unwritten = Self { domain, joined, gone };
        (!unwritten.joined.is_empty() || !unwritten.gone.is_empty()).then_some(unwritten)
    }

    /// The datasets that cannot be read unless this is written, and why it was not.
    fn refused(&self, fault: &Fault, drives: &Drives) -> BTreeMap<DatasetName, Fault> {
        let refused = self.joined.iter().map(|(name, drive)| {
            let name = DatasetName { domain: self.domain.to_owned(), dataset: name.clone() };
            let message = format!(
                "dataset {name} is loaded, and {} attaches files of that name, which the domain's manifest does not say yet: {}",
                drives.name(*drive),
                fault.message
            );
            let refused = Fault::new(fault.blame, message);
            let refused = match fault.blame {
                Blame::Access => refused.hint(format!("any statement of somebody who may write to domain {} writes it", self.domain)),
                _ => refused.hint("try again once the domain can be changed"),
            };
            (name, refused)
        });
        refused.collect()
    }
}

impl Edit for Attaching<'_> {
    type Output = ();

    fn domain(&self) -> &str {
        self.domain
    }

    fn subject(&self) -> String {
        format!("what drives attach in {}", self.domain)
    }

    /// Datasets that are not loaded any more are their files alone.
    fn apply(&self, manifest: &mut Manifest) -> Result<(), Fault> {
        for (name, drive) in &self.gone {
            manifest.remove_attaching(name, *drive);
        }
        for (name, drive) in &self.joined {
            if manifest.datasets.contains_key(name) {
                manifest.add_attaching(name, *drive);
            }
        }
        Ok(())
    }

    fn is_in(&self, manifest: &Manifest) -> bool {
        let joined =
            |(name, drive): &(String, DriveId)| manifest.is_attaching(name, *drive) || !manifest.datasets.contains_key(name);
        self.joined.iter().all(joined) && !self.gone.iter().any(|(name, drive)| manifest.is_attaching(name, *drive))
    }
}
