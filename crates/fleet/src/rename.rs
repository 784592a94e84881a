//! A dataset that gets another name.
//!
//! Runs lie under the name of their dataset. So each drive first gets a copy of its own runs under the new name, byte for byte, and one
//! change of the manifest then takes the old name away and puts the new one there: others see either, and never both or none.

use futures::future::try_join_all;
use parking_lot::Mutex;
use pithead_door::{Discard, Loads};
use pithead_model::{Dataset, DatasetId, DatasetName, DriveId, Fault, LoadId, Manifest, SliceKey, boxed};

use crate::Fleet;
use crate::attached::read_only;
use crate::attended::attended;
use crate::change::{already_there, check_as_read};
use crate::commit::Edit;
use crate::discard::discard_at;
use crate::drives::{ConnectedDrive, Drives};
use crate::relay::relay_as;

/// Another name, in the same domain, for a dataset that is still as it was read.
#[derive(Debug)]
pub struct Rename<'a> {
    from: &'a DatasetName,
    to: &'a DatasetName,
    over: &'a Dataset,
    /// The incarnation under the new name.
    id: DatasetId,
}

/// Runs under the new name that were written or are being so, and where.
type Begun = Mutex<Vec<(DriveId, SliceKey)>>;

impl<'a> Rename<'a> {
    /// To be copied, and then committed.
    pub fn new(from: &'a DatasetName, to: &'a DatasetName, over: &'a Dataset) -> Self {
        Self { from, to, over, id: DatasetId(rand::random()) }
    }

    /// Writes the dataset's runs under the new name, at each drive that has them. What is left where this is cut off the drives collect.
    #[boxed]
    pub async fn copy(&self, fleet: &Fleet) -> Result<(), Fault> {
        let drives = fleet.refreshed().await;
        let begun = Begun::default();
        let copies = self.drives().into_iter().map(|id| self.copy_at(id, &drives, &begun));
        attended(fleet, || begun.lock().clone(), try_join_all(copies)).await.map(drop)
    }

    /// Deletes what was copied: no manifest will ever name it.
    #[boxed]
    pub async fn give_up(&self, fleet: &Fleet) {
        let wanted = Discard { name: self.to.clone(), dataset: self.id, loads: Loads::All, partition: None, seen: None };
        discard_at(&fleet.connected(), self.drives(), &wanted).await;
    }

    fn drives(&self) -> Vec<DriveId> {
        let mut drives: Vec<DriveId> = self.runs().into_iter().map(|(drive, _)| drive).collect();
        drives.sort();
        drives.dedup();
        drives
    }

    /// One run after the other, as each takes memory of the drive twice: to be read, and to be written.
    async fn copy_at(&self, id: DriveId, drives: &Drives, begun: &Begun) -> Result<(), Fault> {
        let drive: &ConnectedDrive = drives.get(id)?;
        for (_, run) in self.runs().into_iter().filter(|(drive, _)| *drive == id) {
            let own = SliceKey { name: self.from.clone(), dataset: self.over.id, ..run.clone() };
            begun.lock().push((id, run.clone()));
            relay_as(&own, &run, drive, drive).await?;
        }
        Ok(())
    }

    fn run(&self, load: LoadId, partition: u32) -> SliceKey {
        SliceKey { name: self.to.clone(), dataset: self.id, load, partition, number: None }
    }
}

impl Edit for Rename<'_> {
    /// The dataset under its old name.
    type Output = Dataset;

    fn domain(&self) -> &str {
        &self.from.domain
    }

    fn subject(&self) -> String {
        self.from.to_string()
    }

    fn apply(&self, manifest: &mut Manifest) -> Result<Dataset, Fault> {
        check_free(self.to, manifest)?;
        check_as_read(self.from, manifest, self.over)?;
        if manifest.attaching.contains_key(&self.from.dataset) {
            return Err(read_only(self.from));
        }
        let old =
            manifest.datasets.remove(&self.from.dataset).ok_or_else(|| Fault::bug("a dataset that was just read is gone"))?;
        manifest.datasets.insert(self.to.dataset.clone(), Dataset { id: self.id, merged: 0, ..old.clone() });
        Ok(old)
    }

    fn runs(&self) -> Vec<(DriveId, SliceKey)> {
        let mut runs = Vec::new();
        for (number, partition) in (0..).zip(&self.over.partitions) {
            for run in &partition.runs {
                runs.extend(partition.copies.iter().map(|drive| (*drive, self.run(run.load, number))));
            }
        }
        runs
    }

    fn is_in(&self, manifest: &Manifest) -> bool {
        manifest.datasets.get(&self.to.dataset).is_some_and(|present| present.id == self.id)
    }
}

/// A fault if a dataset or a view has a name that another one is to get.
pub fn check_free(name: &DatasetName, manifest: &Manifest) -> Result<(), Fault> {
    if manifest.datasets.contains_key(&name.dataset) {
        return Err(already_there(name).hint(format!("take another name; DROP TABLE {name} makes room for it")));
    }
    if manifest.views.contains_key(&name.dataset) {
        let fault = already_there(name).hint(format!("take another name; DROP VIEW {name} makes room for it"));
        return Err(Fault { message: format!("view {name} exists already"), ..fault });
    }
    Ok(())
}
