//! What a load writes: the dataset as it is or is to be, and the load's own identity.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use pithead_door::{Discard, Loads};
use pithead_fleet::{Change, already_there, is_view, place, unknown_dataset};
use pithead_model::{
    Blame, Dataset, DatasetId, DatasetName, DriveId, Fault, LoadId, Loaded, Manifest, PARTITIONS_MAX, Partitioning,
    SLICE_ROWS_DEFAULT, SliceKey, near_names,
};
use pithead_slice::{encoding, encoding_names};

use crate::partition::{Sample, key_column, likely_key, sort_column};
use crate::spec::{LoadMode, LoadSpec, PartitionBy};

const ENCODING_DEFAULT: &str = "vortex";
const ENCODING_FALLBACK: &str = "arrow";

/// What is there before the load.
#[derive(Debug)]
pub(crate) struct Ground {
    /// The dataset that is appended to.
    pub present: Option<Dataset>,
    /// The domain's drives.
    pub drives: Vec<DriveId>,
}

impl Ground {
    /// Checks the load against the manifest, before any file is read.
    pub(crate) fn check(spec: &LoadSpec, manifest: &Manifest) -> Result<Self, Fault> {
        DatasetName::new(&spec.name.domain, &spec.name.dataset)?;
        if spec.slice_rows == Some(0) {
            return Err(Fault::invalid("a slice needs at least one row"));
        }
        if manifest.views.contains_key(&spec.name.dataset) {
            return Err(is_view(&spec.name));
        }
        let present = manifest.datasets.get(&spec.name.dataset);
        let present = match (spec.mode, present) {
            (LoadMode::Create, Some(_)) => return Err(already_there(&spec.name)),
            (LoadMode::Append, None) => {
                let names: Vec<String> = manifest.datasets.keys().map(|name| manifest.name(name).to_string()).collect();
                let fault = unknown_dataset(&spec.name, names.iter().map(String::as_str));
                return Err(fault.hint("load without --append to make it"));
            }
            (LoadMode::Append, Some(present)) => {
                check_append(spec, present)?;
                Some(present.clone())
            }
            (LoadMode::Create | LoadMode::Replace, _) => {
                place(&manifest.drives, partitions(spec, &manifest.drives), spec.copies.unwrap_or(1))?;
                None
            }
        };
        Ok(Self { present, drives: manifest.drives.clone() })
    }
}

/// What may not change when rows are added.
fn check_append(spec: &LoadSpec, present: &Dataset) -> Result<(), Fault> {
    if spec.over.as_ref().is_some_and(|over| over.schema != present.schema) {
        let message = format!("the columns of {} were changed meanwhile", spec.name);
        return Err(Fault::new(Blame::Conflict, message).hint("run the statement again"));
    }
    let differs = |what: &str, is: String| {
        let message = format!("dataset {} has {what} {is}, which appending cannot change", spec.name);
        Err(Fault::invalid(message).hint("leave the option out, or load with --replace"))
    };
    let same_partitioning = match (&spec.partitioning, &present.partitioning) {
        (None, _) | (Some(PartitionBy::RoundRobin), Partitioning::RoundRobin) => true,
        (Some(PartitionBy::Hash(wanted)), Partitioning::Hash { columns }) => wanted == columns,
        (Some(PartitionBy::Range(wanted)), Partitioning::Range { column, .. }) => wanted == column,
        _ => false,
    };
    if !same_partitioning {
        return differs("partitioning", describe(&present.partitioning));
    }
    if !spec.sort.is_empty() && spec.sort != present.sort {
        let keys: Vec<String> =
            present.sort.iter().map(|key| format!("{}{}", key.column, if key.descending { " desc" } else { "" })).collect();
        return differs("order", if keys.is_empty() { "none".into() } else { keys.join(", ") });
    }
    if spec.encoding.as_ref().is_some_and(|wanted| *wanted != present.encoding) {
        return differs("encoding", present.encoding.clone());
    }
    if spec.copies.is_some_and(|wanted| wanted != present.copies) {
        return differs("copies", present.copies.to_string());
    }
    if spec.partitions.is_some_and(|wanted| wanted != present.partitions.len()) {
        return differs("partitions", present.partitions.len().to_string());
    }
    if spec.slice_bytes.is_some() && spec.slice_bytes != present.slice_bytes {
        return differs("bytes a slice", present.slice_bytes.map_or_else(|| "unbounded".into(), |bytes| bytes.to_string()));
    }
    match spec.slice_rows {
        Some(rows) if rows != present.slice_rows => differs("rows a slice", present.slice_rows.to_string()),
        _ => Ok(()),
    }
}

/// Partitions of a new dataset: one a drive unless asked for otherwise.
fn partitions(spec: &LoadSpec, drives: &[DriveId]) -> usize {
    spec.partitions.unwrap_or(drives.len().min(PARTITIONS_MAX))
}

fn describe(partitioning: &Partitioning) -> String {
    match partitioning {
        Partitioning::RoundRobin => "round-robin".into(),
        Partitioning::Hash { columns } => format!("by hash of {}", columns.join(", ")),
        Partitioning::Range { column, .. } => format!("by range of {column}"),
    }
}

/// A load that can begin.
#[derive(Debug)]
pub(crate) struct Target {
    /// The dataset's name.
    pub name: DatasetName,
    /// The dataset: as it was when appending, else new and without rows.
    pub dataset: Dataset,
    /// This load.
    pub load: LoadId,
    /// Why the encoding is not the default one.
    pub note: Option<String>,
    mode: LoadMode,
    over: Option<Arc<Dataset>>,
    metadata: std::collections::BTreeMap<String, String>,
}

impl Target {
    /// Checks columns and encoding. `sample` gives values of a column for choosing the partitioning.
    pub(crate) fn new(
        spec: &LoadSpec,
        ground: Ground,
        schema: &SchemaRef,
        sample: impl FnOnce(&str) -> Result<Sample, Fault>,
    ) -> Result<Self, Fault> {
        let load = LoadId(rand::random());
        let over = spec.over.clone().filter(|_| spec.mode == LoadMode::Replace);
        let (dataset, note) = match (ground.present, &over) {
            (Some(present), _) => (present, None),
            (None, Some(over)) => match &spec.shape {
                Some(shape) => (reshaped(shape, schema)?, None),
                None => (emptied(over), None),
            },
            (None, None) => new_dataset(spec, &ground.drives, schema, sample)?,
        };
        Ok(Self { name: spec.name.clone(), dataset, load, note, mode: spec.mode, over, metadata: spec.metadata.clone() })
    }

    /// Takes the place of this incarnation only, as it was read: its rows are among what was made of it.
    pub(crate) fn only_over(&mut self, over: Arc<Dataset>) {
        self.over = Some(over);
    }

    /// Whether rows are added to an incarnation that others may add to as well.
    pub(crate) fn is_append(&self) -> bool {
        self.mode == LoadMode::Append
    }

    /// The run that it puts into a partition.
    pub(crate) fn run_key(&self, partition: u32) -> SliceKey {
        SliceKey { name: self.name.clone(), dataset: self.dataset.id, load: self.load, partition, number: None }
    }

    /// Its slices, to be deleted: those of one partition, where the manifest of version `seen` does not name them; or all, of a load
    /// that no manifest will ever name.
    pub(crate) fn discard(&self, partition: Option<u32>, seen: Option<u64>) -> Discard {
        Discard { name: self.name.clone(), dataset: self.dataset.id, loads: Loads::Only(vec![self.load]), partition, seen }
    }

    /// The drives of each partition.
    pub(crate) fn copies(&self) -> Vec<Vec<DriveId>> {
        self.dataset.partitions.iter().map(|partition| partition.copies.clone()).collect()
    }

    /// The runs that it puts into all partitions, which are on these drives each.
    pub(crate) fn runs_at(&self, placed: &[Vec<DriveId>]) -> Vec<(DriveId, SliceKey)> {
        let runs = (0..).zip(placed).map(|(number, drives)| (self.run_key(number), drives));
        runs.flat_map(|(run, drives)| drives.iter().map(move |drive| (*drive, run.clone()))).collect()
    }

    /// The change that makes the load visible. `runs` has one a partition, `placed` the drives that it is on.
    pub(crate) fn change(&self, runs: &[Loaded], placed: Vec<Vec<DriveId>>) -> Change {
        let runs = runs.iter().map(|loaded| Some(loaded.clone()).filter(|loaded| loaded.run.rows > 0));
        if self.is_append() {
            let (dataset, schema) = (self.dataset.id, Arc::clone(&self.dataset.schema));
            let (load, metadata) = (self.load, self.metadata.clone());
            return Change::Append { dataset, schema, load, runs: runs.collect(), placed, metadata };
        }
        let mut dataset = self.dataset.clone();
        for (partition, run) in dataset.partitions.iter_mut().zip(runs) {
            run.into_iter().for_each(|run| partition.append(run));
        }
        match (self.mode, &self.over) {
            (LoadMode::Replace, Some(over)) => Change::Rewrite { over: Dataset::clone(over), dataset },
            (LoadMode::Replace, None) => Change::Replace(dataset),
            _ => Change::Create(dataset),
        }
    }
}

/// A new incarnation of a dataset, laid out as it is, and without its rows.
fn emptied(dataset: &Dataset) -> Dataset {
    let mut emptied = Dataset { id: DatasetId(rand::random()), ..dataset.clone() };
    for partition in &mut emptied.partitions {
        partition.runs.clear();
        partition.columns.clear();
    }
    emptied
}

/// The same with other columns, which the encoding and the layout have to fit.
pub(crate) fn reshaped(shape: &Dataset, schema: &SchemaRef) -> Result<Dataset, Fault> {
    choose_encoding(Some(&shape.encoding), schema)?;
    shape.sort.iter().try_for_each(|key| sort_column(&key.column, schema).map(drop))?;
    match &shape.partitioning {
        Partitioning::RoundRobin => {}
        Partitioning::Hash { columns } => {
            columns.iter().try_for_each(|column| key_column(column, schema).map(drop))?;
        }
        Partitioning::Range { column, .. } => drop(key_column(column, schema)?),
    }
    Ok(Dataset { schema: Arc::clone(schema), ..emptied(shape) })
}

fn new_dataset(
    spec: &LoadSpec,
    drives: &[DriveId],
    schema: &SchemaRef,
    sample: impl FnOnce(&str) -> Result<Sample, Fault>,
) -> Result<(Dataset, Option<String>), Fault> {
    for key in &spec.sort {
        sort_column(&key.column, schema)?;
    }
    let (encoding, note) = choose_encoding(spec.encoding.as_deref(), schema)?;
    let (partitions, copies) = (partitions(spec, drives), spec.copies.unwrap_or(1));
    let dataset = Dataset {
        id: DatasetId(rand::random()),
        schema: Arc::clone(schema),
        metadata: spec.metadata.clone(),
        partitioning: partitioning(spec.partitioning.as_ref(), schema, partitions, sample)?,
        sort: spec.sort.clone(),
        encoding,
        slice_rows: spec.slice_rows.unwrap_or(SLICE_ROWS_DEFAULT),
        slice_bytes: spec.slice_bytes,
        copies,
        merged: 0,
        partitions: place(drives, partitions, copies)?,
    };
    Ok((dataset, note))
}

fn partitioning(
    wanted: Option<&PartitionBy>,
    schema: &SchemaRef,
    partitions: usize,
    sample: impl FnOnce(&str) -> Result<Sample, Fault>,
) -> Result<Partitioning, Fault> {
    Ok(match wanted {
        Some(PartitionBy::RoundRobin) => Partitioning::RoundRobin,
        None => match likely_key(schema).filter(|_| partitions > 1) {
            Some(column) if sample(column)?.spreads(partitions) => Partitioning::Hash { columns: vec![column.to_owned()] },
            _ => Partitioning::RoundRobin,
        },
        Some(PartitionBy::Hash(columns)) if columns.is_empty() => {
            return Err(Fault::invalid("hash partitioning needs a column"));
        }
        Some(PartitionBy::Hash(columns)) => {
            for column in columns {
                key_column(column, schema)?;
            }
            Partitioning::Hash { columns: columns.clone() }
        }
        Some(PartitionBy::Range(column)) => {
            let index = key_column(column, schema)?;
            let bounds = sample(column)?.bounds(schema.field(index), partitions);
            Partitioning::Range { column: column.clone(), bounds }
        }
    })
}

/// The encoding that was asked for, or the default one, or the fallback and why.
fn choose_encoding(wanted: Option<&str>, schema: &SchemaRef) -> Result<(String, Option<String>), Fault> {
    let find = |name: &str| {
        encoding(name).ok_or_else(|| {
            let names = encoding_names();
            let near = near_names(name, names.iter().copied());
            let rest =
                if near.is_empty() { format!("there are {}", names.join(", ")) } else { format!("near: {}", near.join(", ")) };
            Fault::invalid(format!("no encoding {name}; {rest}"))
        })
    };
    match wanted {
        Some(name) => {
            let refused = |fault: Fault| fault.hint(format!("try --encoding {ENCODING_FALLBACK}, or leave the option out"));
            find(name)?.supports(schema).map_err(|error| refused(error.into()))?;
            Ok((name.to_owned(), None))
        }
        None => match find(ENCODING_DEFAULT)?.supports(schema) {
            Ok(()) => Ok((ENCODING_DEFAULT.to_owned(), None)),
            Err(why) => {
                find(ENCODING_FALLBACK)?.supports(schema)?;
                Ok((ENCODING_FALLBACK.to_owned(), Some(format!("stored as {ENCODING_FALLBACK}: {why}"))))
            }
        },
    }
}
