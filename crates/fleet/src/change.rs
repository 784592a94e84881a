//! Changes of one dataset in a manifest: what loads and DROP do.

use std::collections::BTreeMap;

use arrow_schema::SchemaRef;
use pithead_model::{Blame, Dataset, DatasetId, DatasetName, DriveId, Fault, FaultKind, LoadId, Loaded, Manifest, SliceKey};

use crate::commit::Edit;
use crate::fault::unknown_dataset;

/// A change of one dataset.
#[derive(Clone, Debug)]
pub enum Change {
    /// A new name.
    Create(Dataset),
    /// A new incarnation, whether or not there is an old one.
    Replace(Dataset),
    /// A new incarnation in place of one that is still as it was read.
    Rewrite {
        /// The one that was read.
        over: Dataset,
        /// The new one.
        dataset: Dataset,
    },
    /// Other columns over the same runs, of an incarnation that is still as it was read.
    Alter {
        /// The one that was read.
        over: Dataset,
        /// The same with the other columns.
        dataset: Dataset,
    },
    /// One more load of an incarnation: what it put into each partition, and metadata to add.
    Append {
        /// The incarnation that the load was written for.
        dataset: DatasetId,
        /// The columns that it was written with.
        schema: SchemaRef,
        /// The load.
        load: LoadId,
        /// One a partition; none where the partition got no rows.
        runs: Vec<Option<Loaded>>,
        /// The drives that have each run.
        placed: Vec<Vec<DriveId>>,
        /// Added to the dataset's.
        metadata: BTreeMap<String, String>,
    },
    /// The name goes.
    Drop,
}

/// A change, and whose.
pub struct DatasetChange<'a> {
    /// The dataset.
    pub name: &'a DatasetName,
    /// What is changed.
    pub change: &'a Change,
}

impl Edit for DatasetChange<'_> {
    type Output = Option<Dataset>;

    fn domain(&self) -> &str {
        &self.name.domain
    }

    fn subject(&self) -> String {
        self.name.to_string()
    }

    /// Returns the incarnation that is superseded.
    fn apply(&self, manifest: &mut Manifest) -> Result<Option<Dataset>, Fault> {
        let name = self.name;
        match self.change {
            Change::Create(dataset) | Change::Replace(dataset) | Change::Rewrite { dataset, .. } => {
                if let Change::Rewrite { over, .. } = self.change {
                    check_as_read(name, manifest, over)?;
                }
                if manifest.views.contains_key(&name.dataset) {
                    return Err(is_view(name));
                }
                if matches!(self.change, Change::Create(_)) && manifest.datasets.contains_key(&name.dataset) {
                    return Err(already_there(name));
                }
                let mut copies = dataset.partitions.iter().flat_map(|partition| &partition.copies);
                if let Some(stray) = copies.find(|drive| !manifest.drives.contains(drive)) {
                    let message = format!("domain {} is on other drives meanwhile, without {stray}", name.domain);
                    return Err(Fault::new(Blame::Conflict, message).hint("load again"));
                }
                Ok(manifest.datasets.insert(name.dataset.clone(), dataset.clone()))
            }
            Change::Alter { over, dataset } => {
                check_as_read(name, manifest, over)?;
                manifest.datasets.insert(name.dataset.clone(), dataset.clone());
                Ok(None)
            }
            Change::Append { dataset, schema, runs, placed, metadata, .. } => {
                let present = manifest.datasets.get_mut(&name.dataset).filter(|present| present.id == *dataset);
                let Some(present) = present else {
                    return Err(Fault::new(Blame::Conflict, format!("dataset {name} was replaced or dropped during the load")));
                };
                if present.schema != *schema {
                    let message = format!("the columns of {name} were changed during the load");
                    return Err(Fault::new(Blame::Conflict, message).hint("load again"));
                }
                if let Some(partition) = moved(present, runs, placed) {
                    let message = format!("partition {partition} of {name} was moved during the load");
                    return Err(Fault::new(Blame::Conflict, message).hint("load again"));
                }
                for (partition, run) in present.partitions.iter_mut().zip(runs) {
                    run.iter().for_each(|run| partition.append(run.clone()));
                }
                present.metadata.extend(metadata.clone());
                Ok(None)
            }
            Change::Drop => match manifest.datasets.remove(&name.dataset) {
                Some(dropped) => Ok(Some(dropped)),
                None if manifest.views.contains_key(&name.dataset) => {
                    Err(Fault::invalid(format!("{name} is a view, and no dataset")).hint(format!("DROP VIEW {name} drops it")))
                }
                None => Err(unknown(name, manifest)),
            },
        }
    }

    fn runs(&self) -> Vec<(DriveId, SliceKey)> {
        let name = self.name;
        let run = |dataset: DatasetId, load: LoadId, partition: u32| SliceKey {
            name: name.clone(),
            dataset,
            load,
            partition,
            number: None,
        };
        let at = |drives: &[DriveId], run: &SliceKey| drives.iter().map(|drive| (*drive, run.clone())).collect::<Vec<_>>();
        match self.change {
            Change::Create(dataset) | Change::Replace(dataset) | Change::Rewrite { dataset, .. } => {
                let partitions = (0..).zip(&dataset.partitions);
                let runs =
                    partitions.flat_map(|(number, partition)| partition.runs.iter().map(move |run| (number, partition, run)));
                runs.flat_map(|(number, partition, made)| at(&partition.copies, &run(dataset.id, made.load, number))).collect()
            }
            Change::Append { dataset, load, runs, placed, .. } => {
                let partitions = (0..).zip(runs.iter().zip(placed)).filter(|(_, (run, _))| run.is_some());
                partitions.flat_map(|(number, (_, drives))| at(drives, &run(*dataset, *load, number))).collect()
            }
            Change::Alter { .. } | Change::Drop => Vec::new(),
        }
    }

    fn is_in(&self, manifest: &Manifest) -> bool {
        let present = manifest.datasets.get(&self.name.dataset);
        match self.change {
            Change::Create(dataset) | Change::Replace(dataset) | Change::Rewrite { dataset, .. } => {
                present.is_some_and(|present| present.id == dataset.id)
            }
            Change::Alter { dataset, .. } => {
                present.is_some_and(|present| present.id == dataset.id && present.schema == dataset.schema)
            }
            Change::Append { load, .. } => present.is_some_and(|present| present.runs().any(|run| run.load == *load)),
            Change::Drop => present.is_none(),
        }
    }

    /// An append's run may have been merged into another one since.
    fn may_be_hidden(&self, manifest: &Manifest, version: u64) -> bool {
        let Change::Append { dataset, .. } = self.change else { return false };
        let present = manifest.datasets.get(&self.name.dataset).filter(|present| present.id == *dataset);
        present.is_some_and(|present| present.merged > version)
    }

    /// The incarnation that it was made to, or that it took the place of, is there still where nobody has put another one there since.
    fn may_be_undone(&self, manifest: &Manifest, version: u64) -> bool {
        let present = manifest.datasets.get(&self.name.dataset);
        let is_untouched = match self.change {
            Change::Append { dataset, .. } => present.is_some_and(|present| present.id == *dataset),
            Change::Rewrite { over, .. } => present.is_some_and(|present| present.id == over.id && present.merged <= version),
            Change::Create(_) | Change::Replace(_) | Change::Alter { .. } | Change::Drop => false,
        };
        !is_untouched && manifest.version > version
    }
}

/// Whether a dataset has the rows and the columns that it had when it was read, on the same drives.
pub fn is_as_read(present: &Dataset, read: &Dataset) -> bool {
    present.id == read.id && present.schema == read.schema && present.partitions == read.partitions
}

pub(crate) fn check_as_read(name: &DatasetName, manifest: &Manifest, read: &Dataset) -> Result<(), Fault> {
    match manifest.datasets.get(&name.dataset) {
        Some(present) if is_as_read(present, read) => Ok(()),
        _ => {
            let message = format!("dataset {name} was changed by others meanwhile");
            Err(Fault::new(Blame::Conflict, message).hint("run the statement again"))
        }
    }
}

/// A partition of which a drive holds a copy that does not have the load's run.
fn moved(present: &Dataset, runs: &[Option<Loaded>], placed: &[Vec<DriveId>]) -> Option<usize> {
    let all = present.partitions.iter().zip(runs).zip(placed).enumerate();
    let mut lacking = all.filter(|(_, ((partition, run), placed))| {
        run.is_some() && partition.copies.iter().any(|drive| !placed.contains(drive))
    });
    lacking.next().map(|(partition, _)| partition)
}

/// A dataset that is there already, where a new one was asked for.
pub fn already_there(name: &DatasetName) -> Fault {
    Fault::invalid(format!("dataset {name} exists already"))
        .of_kind(FaultKind::Exists)
        .hint("load with --append to add to it, or --replace to start anew")
}

/// A view where rows are to be written.
pub fn is_view(name: &DatasetName) -> Fault {
    Fault::invalid(format!("{name} is a view, which holds no rows of its own"))
        .of_kind(FaultKind::Exists)
        .hint(format!("write into the tables that it reads, or give the new table another name; DROP VIEW {name} drops it"))
}

fn unknown(name: &DatasetName, manifest: &Manifest) -> Fault {
    let names: Vec<String> = manifest.datasets.keys().map(|dataset| manifest.name(dataset).to_string()).collect();
    unknown_dataset(name, names.iter().map(String::as_str))
}
