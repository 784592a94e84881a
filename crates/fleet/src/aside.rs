//! What homes changed that were declared lost and were not: manifests that are set aside on those drives. They are listed beside
//! what the domain has now; their runs are taken up, or they are dropped.

mod taking;

use pithead_model::{Blame, Dataset, DriveId, Fault, LoadId, Manifest, Run, boxed};

pub use taking::{TakeUp, TakeUpOutcome};

use crate::Fleet;
use crate::drives::{ConnectedDrive, Drives};
use crate::homes::asked;

/// A manifest that is set aside, beside what its domain has now.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Aside {
    /// The drive that was home, and keeps it.
    pub drive: DriveId,
    /// The drive, for people.
    pub label: String,
    /// The domain.
    pub domain: String,
    /// The manifest's version.
    pub version: u64,
    /// The datasets with runs that the domain does not have.
    pub datasets: Vec<AsideDataset>,
}

/// What a manifest that is set aside has of a dataset, and the domain has not.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct AsideDataset {
    /// The dataset's name in its domain.
    pub dataset: String,
    /// What the domain has under this name.
    pub there: There,
    /// Loads of which it does not have all runs.
    pub loads: Vec<LoadId>,
    /// Rows of the runs that it does not have.
    pub rows: u64,
    /// Their stored bytes.
    pub bytes: u64,
    /// How many of the rows the former home itself has.
    pub rows_here: u64,
}

/// What a domain has under the name of a dataset that is set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum There {
    /// The same dataset, which lacks these rows.
    Lacks,
    /// The same dataset. Runs were merged since the drives parted, so it may have some of these rows under another load's id.
    MayHave,
    /// Another dataset of this name.
    Another,
    /// Nothing.
    Nothing,
}

/// A run that a domain does not have.
#[derive(Clone, Debug, PartialEq)]
struct Lacking {
    partition: u32,
    run: Run,
    copies: Vec<DriveId>,
}

impl Fleet {
    /// The manifests that are set aside on connected drives. A drive that still takes itself for a domain's home is told first that
    /// another one is.
    #[boxed]
    pub async fn asides(&self) -> Result<Vec<Aside>, Fault> {
        let drives = self.refreshed().await;
        let mut asides = Vec::new();
        for (drive, aside) in self.read_asides(&drives, None).await? {
            let now = self.now(&aside.domain, &drives).await?;
            let datasets = aside.datasets.iter().filter_map(|(name, dataset)| compared(&drive, &aside, name, dataset, &now));
            asides.push(Aside {
                drive: drive.id(),
                label: drive.label().to_owned(),
                domain: aside.domain.clone(),
                version: aside.version,
                datasets: datasets.collect(),
            });
        }
        Ok(asides)
    }

    /// Drops a manifest that is set aside. The drive then deletes those of its runs that nothing else names.
    #[boxed]
    pub async fn drop_aside(&self, drive: DriveId, domain: &str, version: u64) -> Result<(), Fault> {
        let drives = self.refreshed().await;
        let drive = drives.get(drive)?;
        match asked(&drives, drive, drive.door.drop_aside(domain.to_owned(), version)).await? {
            true => Ok(()),
            false => {
                let what = format!("drive {} has set nothing aside of domain {domain} at version {version}", drive.label());
                Err(Fault::invalid(what).hint("`pithead drive aside ls` shows what there is"))
            }
        }
    }

    /// Manifests that are set aside, each with its drive: those of one domain, or all.
    async fn read_asides(&self, drives: &Drives, only: Option<&str>) -> Result<Vec<(ConnectedDrive, Manifest)>, Fault> {
        let mut found = Vec::new();
        for domain in self.catalog().domains(drives).await? {
            if only.is_some_and(|only| only != domain) {
                continue;
            }
            self.tell_former_homes(&domain, drives).await;
            for drive in drives.all() {
                let mut after = 0;
                while let Some(aside) = asked(drives, drive, drive.door.set_aside(domain.clone(), after)).await? {
                    if aside.version <= after || aside.domain != domain {
                        let what = format!("drive {} answers with another manifest than it was asked for", drive.label());
                        return Err(Fault::new(Blame::Device, what));
                    }
                    after = aside.version;
                    found.push((drive.clone(), aside));
                }
            }
        }
        Ok(found)
    }

    /// The domain's manifest, from its home or the newest copy.
    async fn now(&self, domain: &str, drives: &Drives) -> Result<Manifest, Fault> {
        let newest = self.catalog().newest(domain, drives).await?;
        Ok(newest.map_or_else(|| Manifest::empty(domain, vec![]), |found| found.manifest))
    }

    /// Gives the newest manifest to drives that take themselves for home and are not. Where that is not possible, what they changed
    /// is not set aside yet.
    async fn tell_former_homes(&self, domain: &str, drives: &Drives) {
        let Ok(Some(found)) = self.catalog().newest(domain, drives).await else { return };
        for drive in drives.all().iter().filter(|drive| found.manifest.lost_home(drive.id()).is_some()) {
            let own = asked(drives, drive, drive.door.manifest(domain.to_owned())).await;
            if !own.is_ok_and(|own| own.is_some_and(|own| own.home() == Some(drive.id()))) {
                continue;
            }
            if let Err(fault) = asked(drives, drive, drive.door.keep_manifest(found.manifest.clone())).await {
                tracing::warn!(domain, "a former home does not know of the new one: {}", fault.message);
            }
        }
    }
}

/// What of a dataset the domain does not have; none: it has all of it.
fn compared(drive: &ConnectedDrive, aside: &Manifest, name: &str, dataset: &Dataset, now: &Manifest) -> Option<AsideDataset> {
    let present = now.datasets.get(name);
    let lacking = lacking(dataset, present);
    if lacking.is_empty() {
        return None;
    }
    let there = match present {
        None => There::Nothing,
        Some(present) if present.id != dataset.id => There::Another,
        Some(present) if may_have(present, dataset, aside, now.lost_home(drive.id())) => There::MayHave,
        Some(_) => There::Lacks,
    };
    let mut loads: Vec<LoadId> = lacking.iter().map(|lacking| lacking.run.load).collect();
    loads.sort();
    loads.dedup();
    let rows = |here: bool| -> u64 {
        let counted = lacking.iter().filter(|lacking| !here || lacking.copies.contains(&drive.id()));
        counted.map(|lacking| lacking.run.rows).sum()
    };
    let bytes = lacking.iter().map(|lacking| lacking.run.bytes).sum();
    Some(AsideDataset { dataset: name.to_owned(), there, loads, rows: rows(false), bytes, rows_here: rows(true) })
}

/// The runs of a dataset that are not in what the domain has.
fn lacking(dataset: &Dataset, present: Option<&Dataset>) -> Vec<Lacking> {
    let present = present.filter(|present| present.id == dataset.id);
    let is_there = |partition: u32, load: LoadId| {
        let partition = present.and_then(|present| present.partitions.get(partition as usize));
        partition.is_some_and(|partition| partition.runs.iter().any(|run| run.load == load))
    };
    let partitions = (0..).zip(&dataset.partitions);
    let runs = partitions.flat_map(|(number, partition)| {
        partition.runs.iter().map(move |run| Lacking { partition: number, run: *run, copies: partition.copies.clone() })
    });
    runs.filter(|lacking| !is_there(lacking.partition, lacking.run.load)).collect()
}

/// Whether one side has merged runs since they parted. Then rows that both have can be under different loads' ids.
fn may_have(present: &Dataset, dataset: &Dataset, aside: &Manifest, known: Option<u64>) -> bool {
    present.merged > aside.version || dataset.merged > known.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pithead_model::{DatasetId, Loaded, Partition, Partitioning};

    use super::*;

    fn dataset(loads: &[&[u64]]) -> Dataset {
        let partition = |loads: &&[u64]| {
            let mut partition = Partition::empty(vec![DriveId(1)]);
            for load in *loads {
                let run = Run { load: LoadId(*load), slices: 1, rows: 10, bytes: 7 };
                partition.append(Loaded { run, columns: vec![] });
            }
            partition
        };
        Dataset {
            id: DatasetId(5),
            schema: Arc::new(arrow::datatypes::Schema::empty()),
            metadata: Default::default(),
            partitioning: Partitioning::RoundRobin,
            sort: vec![],
            encoding: "arrow".into(),
            slice_rows: 1,
            slice_bytes: None,
            copies: 1,
            merged: 0,
            partitions: loads.iter().map(partition).collect(),
        }
    }

    #[test]
    fn what_the_domain_lacks_is_told_by_partition_and_load() {
        let (aside, now) = (dataset(&[&[1, 2], &[1]]), dataset(&[&[1], &[2, 1]]));
        let found = |present: Option<&Dataset>| -> Vec<(u32, u64)> {
            lacking(&aside, present).iter().map(|lacking| (lacking.partition, lacking.run.load.0)).collect()
        };
        assert_eq!(found(Some(&now)), [(0, 2)]);
        assert_eq!(found(Some(&aside)), []);
        assert_eq!(found(None), [(0, 1), (0, 2), (1, 1)]);
        assert_eq!(found(Some(&Dataset { id: DatasetId(6), ..now })).len(), 3, "another incarnation");
    }

    #[test]
    fn merged_runs_on_either_side_make_it_unsure() {
        let aside = Manifest { version: 12, ..Manifest::empty("main", vec![]) };
        let merged = |merged| Dataset { merged, ..dataset(&[&[1]]) };
        let unsure = |present, set_aside, known| may_have(&merged(present), &merged(set_aside), &aside, known);
        assert!(!unsure(0, 0, None) && !unsure(12, 10, Some(10)));
        assert!(unsure(900, 0, Some(10)), "merged in the domain");
        assert!(unsure(0, 11, Some(10)), "merged at the former home");
        assert!(unsure(0, 3, None), "where it is not known when they parted");
    }
}
