//! What planning needs to know of a dataset.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::TableScan;
use pithead_model::{ColumnSummary, Dataset, DatasetName, DriveId, Partitioning, Value};

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
}

/// Tells which scans are of datasets on drives.
pub trait Catalogue: Send + Sync + Debug {
    /// The dataset that a scan reads; none: a table that only the host has.
    fn facts(&self, scan: &TableScan) -> Option<Arc<DatasetFacts>>;
}

/// How rows are spread over drives. Equal schemes put rows with equal keys on the same drive.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scheme {
    rule: Rule,
    /// Drives of each partition.
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

/// Types whose equal values are placed alike.
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
            Partitioning::Range { column, bounds } => Rule::Range(kind(column), bounds.clone()),
        };
        Scheme { rule, copies: dataset.partitions.iter().map(|partition| partition.copies.clone()).collect() }
    }

    /// Whether all rows are on one drive, in one partition.
    pub(crate) fn single(&self) -> bool {
        self.copies.len() == 1
    }

    /// Whether a hash of the key finds a row's partition.
    pub(crate) fn is_hash(&self) -> bool {
        matches!(self.rule, Rule::Hash(_))
    }

    /// Whether rows with equal keys of both are on the same drives.
    pub(crate) fn matches(&self, other: &Scheme) -> bool {
        self.rule == other.rule && self.rule != Rule::None && self.is_beside(other)
    }

    /// Whether each partition of one is on the very drives that the other's is on, in whatever order. Fewer in common would
    /// do for a join, but leave it fewer drives to go on at.
    pub(crate) fn is_beside(&self, other: &Scheme) -> bool {
        let same = |a: &Vec<DriveId>, b: &Vec<DriveId>| a.len() == b.len() && a.iter().all(|drive| b.contains(drive));
        self.copies.len() == other.copies.len() && self.copies.iter().zip(&other.copies).all(|(a, b)| same(a, b))
    }
}

/// The columns of a scan that hold the partition key: one class a key column, of output positions that are equal to it.
pub(crate) fn key_classes(facts: &DatasetFacts, output: &[String]) -> Vec<BTreeSet<usize>> {
    let positions = |key: &String| output.iter().enumerate().filter(|(_, name)| *name == key).map(|(i, _)| i).collect();
    match &facts.dataset.partitioning {
        Partitioning::RoundRobin => vec![],
        Partitioning::Hash { columns } => columns.iter().map(positions).collect(),
        Partitioning::Range { column, .. } => vec![positions(column)],
    }
}
