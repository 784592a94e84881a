//! [`Replacement`]: runs that drives made of others take the place of these in the manifest: in all partitions, or none.

use arrow::datatypes::SchemaRef;
use pithead_door::{Discard, Loads};
use pithead_fleet::{ConnectedDrive, Drives, Edit, discard_at, is_as_read, relay};
use pithead_model::{Blame, Dataset, DatasetId, DatasetName, DriveId, Fault, LoadId, Loaded, Manifest, SliceKey};

/// One run that was made of others.
#[derive(Clone, Debug)]
pub(crate) struct ReplacementRun {
    pub(crate) partition: u32,
    /// The runs that it was made of.
    pub(crate) from: Vec<LoadId>,
    pub(crate) run: Loaded,
    /// The drives that have it.
    pub(crate) placed: Vec<DriveId>,
    /// Where it lacks rows of the one run that it was made of: of each column, nulls among them.
    pub(crate) nulls_gone: Option<Vec<u64>>,
}

/// Names runs in the place of those that they were made of.
#[derive(Debug)]
pub(crate) struct Replacement<'a> {
    pub(crate) name: &'a DatasetName,
    pub(crate) dataset: DatasetId,
    /// The columns that the runs were made with.
    pub(crate) schema: SchemaRef,
    pub(crate) made: Vec<ReplacementRun>,
    /// The dataset as it was read, where any other change of it is a conflict.
    pub(crate) over: Option<&'a Dataset>,
}

impl Replacement<'_> {
    pub(crate) fn runs_replaced(&self) -> usize {
        self.made.iter().map(|made| made.from.len()).sum()
    }

    /// Deletes the runs that were made: no manifest will ever name them.
    pub(crate) async fn give_up(&self, drives: &Drives) {
        for made in &self.made {
            give_up(drives, (self.name, self.dataset), made.partition, made.run.run.load, &made.placed).await;
        }
    }

    /// The runs that others took the place of, each with its drives, to be deleted once `version` names the others; for as long as the
    /// domain keeps versions, they stay.
    pub(crate) fn replaced(&self, version: u64) -> Vec<(Vec<DriveId>, Discard)> {
        let wanted = |made: &ReplacementRun| {
            let (name, loads) = (self.name.clone(), Loads::Only(made.from.clone()));
            let (dataset, partition) = (self.dataset, Some(made.partition));
            (made.placed.clone(), Discard { name, dataset, loads, partition, seen: Some(version) })
        };
        self.made.iter().map(wanted).collect()
    }

    fn find<'a>(&self, manifest: &'a Manifest) -> Option<&'a Dataset> {
        manifest.datasets.get(&self.name.dataset).filter(|present| present.id == self.dataset)
    }
}

impl Edit for Replacement<'_> {
    type Output = ();

    fn domain(&self) -> &str {
        &self.name.domain
    }

    fn subject(&self) -> String {
        format!("the runs of {}", self.name)
    }

    fn apply(&self, manifest: &mut Manifest) -> Result<(), Fault> {
        let version = manifest.version + 1;
        let conflict = || {
            let message = format!("dataset {} was changed by others meanwhile", self.name);
            Fault::new(Blame::Conflict, message).hint("run the statement again")
        };
        let present = manifest.datasets.get_mut(&self.name.dataset).filter(|present| present.id == self.dataset);
        let present = present.ok_or_else(conflict)?;
        if present.schema != self.schema || self.over.is_some_and(|over| !is_as_read(present, over)) {
            return Err(conflict());
        }
        for made in &self.made {
            let partition = present.partitions.get_mut(made.partition as usize).ok_or_else(conflict)?;
            let is_replaced = partition.copies.iter().all(|drive| made.placed.contains(drive))
                && match (&made.nulls_gone, made.from.as_slice()) {
                    (Some(nulls_gone), [from]) => partition.replace_marked(*from, &made.run, nulls_gone),
                    _ => partition.replace(&made.from, &made.run),
                };
            if !is_replaced {
                return Err(conflict());
            }
        }
        if !self.made.is_empty() {
            present.merged = version;
        }
        Ok(())
    }

    fn runs(&self) -> Vec<(DriveId, SliceKey)> {
        let key = |made: &ReplacementRun| SliceKey {
            name: self.name.clone(),
            dataset: self.dataset,
            load: made.run.run.load,
            partition: made.partition,
            number: None,
        };
        self.made.iter().flat_map(|made| made.placed.iter().map(move |drive| (*drive, key(made)))).collect()
    }

    fn is_in(&self, manifest: &Manifest) -> bool {
        let Some(present) = self.find(manifest) else { return false };
        self.made.iter().all(|made| {
            let partition = present.partitions.get(made.partition as usize);
            partition.is_some_and(|partition| partition.runs.iter().any(|run| run.load == made.run.run.load))
        })
    }

    fn may_be_hidden(&self, manifest: &Manifest, version: u64) -> bool {
        self.find(manifest).is_some_and(|present| present.merged > version)
    }

    fn may_be_undone(&self, manifest: &Manifest, version: u64) -> bool {
        self.find(manifest).is_none() && manifest.version > version
    }
}

/// Deletes a run that no manifest will ever name.
pub(crate) async fn give_up(
    drives: &Drives,
    (name, dataset): (&DatasetName, DatasetId),
    partition: u32,
    load: LoadId,
    copies: &[DriveId],
) {
    let (name, loads) = (name.clone(), Loads::Only(vec![load]));
    let wanted = Discard { name, dataset, loads, partition: Some(partition), seen: None };
    discard_at(drives, copies.iter().copied(), &wanted).await;
}

/// Copies a run to the other drives of its partition, byte for byte.
pub(crate) async fn relay_to(run: &SliceKey, first: &ConnectedDrive, others: &[ConnectedDrive]) -> Result<(), Fault> {
    for other in others {
        relay(run, first, other).await?;
    }
    Ok(())
}
