//! What planning needs to know about a dataset.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::TableScan;
use pithead_model::{ColumnSummary, Dataset, DatasetName, DriveId, Partitioning, SliceSpan, Value};

/// A dataset at one version of its domain's manifest.
#[derive(Debug)]
pub struct DatasetFacts {
    /// Domain and dataset.
    pub name: DatasetName,
    /// Its entry in the manifest.
    pub dataset: Arc<Dataset>,
    /// [`Dataset::columns`], computed once.
    pub columns: Vec<ColumnSummary>,
    /// Version of the manifest.
    pub manifest_version: u64,
    /// What is left of it, where another plan has read some of its slices.
    pub rest: Option<Rest>,
}

/// The slices of a dataset that another plan has not read.
#[derive(Clone, Debug, PartialEq)]
pub struct Rest {
    /// By partition, the slices that are done.
    pub done: Vec<Vec<SliceSpan>>,
}

impl Rest {
    /// Slices that are done.
    pub fn slices_done(&self) -> u64 {
        self.done.iter().flatten().map(|span| u64::from(span.count)).sum()
    }
}

impl DatasetFacts {
    /// Rows that are to be read.
    pub fn rows(&self) -> f64 {
        let rows = self.dataset.rows() as f64;
        let done = self.rest.as_ref().map_or(0, Rest::slices_done) as f64;
        rows * (1.0 - done / (self.dataset.slices() as f64).max(1.0)).max(0.0)
    }
}

/// Finds the scans that are of datasets on drives.
pub trait Catalogue: Send + Sync + Debug {
    /// The dataset that a scan reads; none for a table that only the host has.
    fn facts(&self, scan: &TableScan) -> Option<Arc<DatasetFacts>>;

    /// A drive of the dataset, by its label, that does not have a function, which is given as `name/version`.
    fn lacking(&self, facts: &DatasetFacts, function: &str) -> Option<String>;
}

/// How rows are assigned to drives. Equal schemes put rows with equal keys on the same drive.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scheme {
    rule: Rule,
    /// The drives of each partition.
    pub(crate) copies: Vec<Vec<DriveId>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Rule {
    /// Rows with equal keys may be anywhere.
    None,
    /// By hash of keys of these kinds.
    Hash(Vec<KeyKind>),
    /// By range.
    Range(KeyKind, Vec<Value>),
}

/// Types whose equal values are placed on the same drive.
#[derive(Clone, Debug, PartialEq)]
enum KeyKind {
    Integer,
    Other(DataType),
}

impl Scheme {
    pub(crate) fn of(facts: &DatasetFacts) -> Scheme {
        let dataset = &facts.dataset;
        let kind = |column: &String| {
            let data_type =
                dataset.schema.field_with_name(column).map(|field| field.data_type().clone()).unwrap_or(DataType::Null);
            if data_type.is_integer() { KeyKind::Integer } else { KeyKind::Other(data_type) }
        };
        let rule = match &dataset.partitioning {
            Partitioning::RoundRobin => Rule::None,
            Partitioning::Hash { columns } => Rule::Hash(columns.iter().map(kind).collect()),
            partitioning if partitioning.may_part_zeros() => Rule::None,
            Partitioning::Range { column, bounds } => Rule::Range(kind(column), bounds.clone()),
        };
        Scheme { rule, copies: dataset.partitions.iter().map(|partition| partition.copies.clone()).collect() }
    }

    /// Whether all rows are on one drive, in one partition.
    pub(crate) fn single(&self) -> bool {
        self.copies.len() == 1
    }

    /// Whether a hash of the key determines a row's partition.
    pub(crate) fn is_hash(&self) -> bool {
        matches!(self.rule, Rule::Hash(_))
    }

    /// Whether rows with equal keys of both schemes are on the same drives.
    pub(crate) fn matches(&self, other: &Scheme) -> bool {
        self.rule == other.rule && self.rule != Rule::None && self.is_beside(other)
    }

    /// Whether each partition of one scheme is on exactly the drives of the other's partition, in whatever order. Fewer
    /// drives in common would be enough for a join, but would leave it fewer drives to go on at.
    pub(crate) fn is_beside(&self, other: &Scheme) -> bool {
        let same = |a: &Vec<DriveId>, b: &Vec<DriveId>| a.len() == b.len() && a.iter().all(|drive| b.contains(drive));
        self.copies.len() == other.copies.len() && self.copies.iter().zip(&other.copies).all(|(a, b)| same(a, b))
    }
}

/// The output columns that have a partition key: for each column of the key a class, which is the output positions that
/// are equal to that column. Where no columns determine the drive of a row, there are no classes, and nothing follows
/// from the key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeyClasses(Option<Vec<BTreeSet<usize>>>);

impl KeyClasses {
    /// The classes of a scan with these columns.
    pub(crate) fn of(facts: &DatasetFacts, output: &[String]) -> KeyClasses {
        let positions = |key: &String| output.iter().enumerate().filter(|(_, name)| *name == key).map(|(i, _)| i).collect();
        match &facts.dataset.partitioning {
            _ if facts.rest.is_some() => KeyClasses::lost(),
            Partitioning::RoundRobin => KeyClasses::lost(),
            Partitioning::Hash { columns } => KeyClasses::new(columns.iter().map(positions).collect()),
            partitioning if partitioning.may_part_zeros() => KeyClasses::lost(),
            Partitioning::Range { column, .. } => KeyClasses::new(vec![positions(column)]),
        }
    }

    fn new(classes: Vec<BTreeSet<usize>>) -> KeyClasses {
        KeyClasses(Some(classes).filter(|classes| !classes.is_empty()))
    }

    /// The classes of rows whose drive no columns determine: none.
    pub(crate) fn lost() -> KeyClasses {
        KeyClasses(None)
    }

    /// Applies a function to each class.
    pub(crate) fn map(&self, change: impl Fn(&BTreeSet<usize>) -> BTreeSet<usize>) -> KeyClasses {
        KeyClasses(self.0.as_ref().map(|classes| classes.iter().map(change).collect()))
    }

    /// The classes of two sides whose keys are equal, column by column.
    pub(crate) fn merge(&self, other: &KeyClasses) -> KeyClasses {
        let merged = self.0.iter().zip(&other.0).find(|(own, others)| own.len() == others.len());
        KeyClasses(merged.map(|(own, others)| own.iter().zip(others).map(|(a, b)| a | b).collect()))
    }

    /// Whether there are classes, and all of them satisfy a condition.
    pub(crate) fn all(&self, is_so: impl Fn(&BTreeSet<usize>) -> bool) -> bool {
        self.0.as_ref().is_some_and(|classes| classes.iter().all(is_so))
    }

    /// Whether both sides have the same number of classes, at least one, and all pairs of them satisfy a condition.
    pub(crate) fn all_pairs(&self, other: &KeyClasses, is_so: impl Fn(&BTreeSet<usize>, &BTreeSet<usize>) -> bool) -> bool {
        let (Some(own), Some(others)) = (&self.0, &other.0) else { return false };
        own.len() == others.len() && own.iter().zip(others).all(|(a, b)| is_so(a, b))
    }

    /// What a function finds for each class; none where there are no classes, or where it finds nothing for one of
    /// them.
    pub(crate) fn find_each<T>(&self, find: impl Fn(&BTreeSet<usize>) -> Option<T>) -> Option<Vec<T>> {
        self.0.as_ref()?.iter().map(find).collect()
    }
}
