//! Datasets that drives attach in place, laid over what manifests name.
//!
//! No manifest names their files, and no host commits them: each snapshot sees what the drives tell when it is taken. A name that a
//! manifest has, too, is one dataset of both, if the columns are the same; which drives those are, the manifest says
//! ([`crate::attaching`]). What a drive attaches is one partition of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_schema::Schema;
use futures::future::join_all;
use parking_lot::Mutex;
use pithead_door::{AttachedDataset, Attachments, Refusal, same_columns};
use pithead_model::lasting::plain_columns;
use pithead_model::{
    Blame, Dataset, DatasetId, DatasetName, DriveId, Fault, Manifest, Partition, Partitioning, SLICE_ROWS_DEFAULT,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::drives::{ConnectedDrive, Drives};
use crate::homes::asked;

/// What a manifest does not say of datasets: what is attached.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overlay {
    /// The attached partitions of each dataset, which are its last ones.
    pub(crate) attached: BTreeMap<String, usize>,
    /// Datasets that cannot be read, and why.
    pub(crate) refused: BTreeMap<String, Refusal>,
}

/// What the drives attach at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttachmentReport {
    by_drive: Vec<(ConnectedDrive, Arc<Attachments>)>,
    /// Drives that do not tell now what they attach, and why.
    untold: BTreeMap<DriveId, Fault>,
}

/// What each drive told last.
#[derive(Debug, Default)]
pub(crate) struct LastTold(Mutex<BTreeMap<DriveId, Arc<Attachments>>>);

impl LastTold {
    /// Asks all drives that attach something. What one told last that does not answer now is known, but may be so no more.
    pub(crate) async fn ask(&self, drives: &Drives) -> AttachmentReport {
        let asking = drives.all().iter().filter(|drive| drive.welcome.attaches).map(|drive| async move {
            let known = self.0.lock().get(&drive.id()).cloned();
            let told = asked(drives, drive, drive.door.attached(known.as_ref().map(|known| known.version))).await;
            (drive, known, told)
        });
        let mut all = AttachmentReport::default();
        for (drive, known, told) in join_all(asking).await {
            let told = match (told, known) {
                (Ok(Some(news)), _) => {
                    self.0.lock().insert(drive.id(), Arc::clone(&news));
                    news
                }
                (Ok(None), Some(known)) => known,
                (Ok(None), None) => continue,
                (Err(fault), known) => {
                    all.untold.insert(drive.id(), fault);
                    // It is still listed.
                    let Some(known) = known else { continue };
                    known
                }
            };
            all.by_drive.push((drive.clone(), told));
        }
        all
    }
}

/// Which drives manifests named as attaching parts of their datasets, since this host has read them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written(BTreeSet<(DatasetName, DriveId)>);

impl Written {
    /// Notes what a manifest says.
    pub(crate) fn note(&mut self, manifest: &Manifest) {
        let named = manifest.attaching.iter().flat_map(|(name, drives)| drives.iter().map(move |drive| (name, *drive)));
        self.0.extend(named.map(|(name, drive)| (manifest.name(name), drive)));
    }

    /// Whether a manifest named the drive before, and names it no more. Where none ever did, nobody may have been able to write it.
    fn is_given_up(&self, manifest: &Manifest, name: &DatasetName, drive: DriveId) -> bool {
        let is_loaded = manifest.datasets.contains_key(&name.dataset);
        is_loaded && !manifest.is_attaching(&name.dataset, drive) && self.0.contains(&(name.clone(), drive))
    }
}

impl AttachmentReport {
    /// Whether no drive attaches anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_drive.is_empty() && self.untold.is_empty()
    }

    /// Who told, which version, and whether it tells now.
    pub(crate) fn versions(&self) -> Vec<(DriveId, u64, bool)> {
        self.by_drive.iter().map(|(drive, told)| (drive.id(), told.version, self.is_told(drive.id()))).collect()
    }

    /// The drives of which is not known what they attach now, and why.
    pub(crate) fn untold(&self) -> &BTreeMap<DriveId, Fault> {
        &self.untold
    }

    /// Whether it is known what a drive attaches now, if it is reached.
    pub(crate) fn is_told(&self, drive: DriveId) -> bool {
        !self.untold.contains_key(&drive)
    }

    /// What drives attach that tell it now.
    pub(crate) fn fresh(&self) -> impl Iterator<Item = (&ConnectedDrive, &Attachments)> {
        self.by_drive.iter().filter(|(drive, _)| self.is_told(drive.id())).map(|(drive, told)| (drive, told.as_ref()))
    }

    /// Drives that attach something in domains that they do not tell this host of.
    pub(crate) fn hiding(&self) -> BTreeSet<DriveId> {
        self.by_drive.iter().filter(|(_, told)| told.hides).map(|(drive, _)| drive.id()).collect()
    }

    /// Whether a drive told that it attaches files of this name, be it that they can be read or not.
    pub(crate) fn attaches(&self, drive: DriveId, domain: &str, dataset: &str) -> bool {
        let of_drive = self.by_drive.iter().find(|(told, _)| told.id() == drive);
        of_drive.is_some_and(|(_, told)| told.names(domain).any(|name| name == dataset))
    }

    /// The domains of what is attached.
    pub(crate) fn domains(&self) -> BTreeSet<String> {
        self.by_drive.iter().flat_map(|(_, told)| told.all_names()).map(|name| name.domain.clone()).collect()
    }

    /// Lays what is attached in a domain over its manifest. What a drive told last that is away, and was given up since, is no part.
    pub(crate) fn lay_over(&self, manifest: &mut Manifest, written: &Written) -> Overlay {
        let mut overlay = Overlay::default();
        let mut parts: BTreeMap<&str, Vec<(&ConnectedDrive, &AttachedDataset)>> = BTreeMap::new();
        for (drive, told) in &self.by_drive {
            let is_given_up = |name: &DatasetName| !self.is_told(drive.id()) && written.is_given_up(manifest, name, drive.id());
            let is_part = |name: &DatasetName| name.domain == manifest.domain && !is_given_up(name);
            for refused in told.refused.iter().filter(|refused| is_part(&refused.name)) {
                let refusal = refused.refusal.clone().at(format_args!("on {}", drive.label()));
                overlay.refused.insert(refused.name.dataset.clone(), refusal);
            }
            for dataset in told.datasets.iter().filter(|dataset| is_part(&dataset.name)) {
                parts.entry(&dataset.name.dataset).or_default().push((drive, dataset));
            }
        }
        for (name, parts) in parts {
            match joined(manifest, name, &parts) {
                Ok(dataset) => {
                    manifest.datasets.insert(name.to_owned(), dataset);
                    overlay.attached.insert(name.to_owned(), parts.len());
                }
                Err(why) => {
                    overlay.refused.entry(name.to_owned()).or_insert(why.into());
                }
            }
        }
        for name in overlay.refused.keys() {
            overlay.attached.remove(name);
        }
        overlay
    }
}

/// One dataset of what the manifest names and what drives attach; or why they cannot be one.
fn joined(manifest: &Manifest, name: &str, parts: &[(&ConnectedDrive, &AttachedDataset)]) -> Result<Dataset, String> {
    let loaded = manifest.datasets.get(name);
    if manifest.views.contains_key(name) {
        return Err(format!("there is a view of this name: drop it, or attach the files by another name than {name}"));
    }
    let (first_drive, first) = parts[0];
    let schema = loaded.map_or(&first.schema, |loaded| &loaded.schema);
    let said_by = if loaded.is_some() { "the loaded part" } else { first_drive.label() };
    if !Arc::ptr_eq(schema, &plain_columns(schema)) {
        return Err("the columns of the loaded part were changed by ALTER TABLE: attach the files by another name".to_owned());
    }
    for (drive, part) in parts {
        if !same_columns(schema, &part.schema) {
            let (these, those) = (columns(&part.schema), columns(schema));
            return Err(format!("on {} it has the columns ({these}), and {said_by} has ({those})", drive.label()));
        }
    }
    let attached = parts.iter().map(|(drive, part)| Partition {
        copies: vec![drive.id()],
        runs: part.runs.clone(),
        columns: part.columns.clone(),
    });
    let full_name = DatasetName { domain: manifest.domain.clone(), dataset: name.to_owned() };
    Ok(match loaded {
        Some(loaded) => Dataset {
            // Rows in files lie as they lie.
            partitioning: Partitioning::RoundRobin,
            sort: vec![],
            partitions: loaded.partitions.iter().cloned().chain(attached).collect(),
            ..loaded.clone()
        },
        None => Dataset {
            id: DatasetId(xxh3_64(full_name.to_string().as_bytes())),
            schema: Arc::clone(schema),
            metadata: BTreeMap::new(),
            partitioning: Partitioning::RoundRobin,
            sort: vec![],
            encoding: encodings(parts),
            slice_rows: SLICE_ROWS_DEFAULT,
            slice_bytes: None,
            copies: 1,
            merged: 0,
            partitions: attached.collect(),
        },
    })
}

/// What the files of all parts are, in words.
fn encodings(parts: &[(&ConnectedDrive, &AttachedDataset)]) -> String {
    let told = parts.iter().flat_map(|(_, part)| part.encoding.split(", ")).filter(|encoding| !encoding.is_empty());
    let all: Vec<&str> = told.collect::<BTreeSet<_>>().into_iter().collect();
    if all.is_empty() { "parquet".to_owned() } else { all.join(", ") }
}

fn columns(schema: &Schema) -> String {
    let named = schema.fields().iter().map(|field| {
        let bound = if field.is_nullable() { "" } else { " NOT NULL" };
        format!("{} {}{bound}", field.name(), field.data_type())
    });
    named.collect::<Vec<_>>().join(", ")
}

/// The fault of a statement that would change what is attached.
pub(crate) fn read_only(name: &DatasetName) -> Fault {
    Fault::new(Blame::User, format!("dataset {name} is attached in place: its files are read, and never written"))
        .hint(format!("copy it into a dataset of its own: CREATE TABLE other AS SELECT * FROM {name}"))
}
