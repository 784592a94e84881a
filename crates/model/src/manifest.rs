//! The manifest: one value a domain, on the domain's home drive, that says which loads of which datasets are visible.
//! Replacing it by compare-and-set on its version is the only commit (DESIGN's rule 10).

use std::collections::BTreeMap;

use arrow_schema::SchemaRef;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{ColumnSummary, DatasetId, DatasetName, DriveId, LoadId, Value, merge_columns, total};

/// A snapshot of one domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The domain's name.
    pub domain: String,
    /// Grows by one with each commit; 0 is the empty domain that was never written.
    pub version: u64,
    /// The drives that hold the domain's partitions, by identity. The first is home: it alone replaces the manifest. The
    /// others keep copies of it, to be read while home is down.
    pub drives: Vec<DriveId>,
    /// Homes that were declared lost, and were not home again since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_homes: Vec<LostHome>,
    /// Datasets by name.
    pub datasets: BTreeMap<String, Dataset>,
}

/// A home that was declared lost, and what of its changes the next home knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostHome {
    /// The drive.
    pub drive: DriveId,
    /// The last of its versions that is contained in the manifests of the homes after it.
    pub version: u64,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dataset {
    /// This incarnation.
    pub id: DatasetId,
    /// Columns, in order. Texts are Utf8View, binaries BinaryView, decimals Decimal128 (see `slice::normalise`).
    pub schema: SchemaRef,
    /// Application metadata, kept through every operation.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// How rows find their partition.
    pub partitioning: Partitioning,
    /// How rows are ordered within a load of a partition.
    #[serde(default)]
    pub sort: Vec<SortKey>,
    /// Name of the encoding of its slices: `vortex` or `arrow`.
    pub encoding: String,
    /// Rows that a slice holds at most.
    pub slice_rows: usize,
    /// Bytes of rows, as Arrow buffers, after which a slice ends however few they are; none: only the largest value bounds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_bytes: Option<usize>,
    /// Drives that each partition is to be on.
    #[serde(default = "one")]
    pub copies: usize,
    /// The partitions, by number.
    pub partitions: Vec<Partition>,
}

/// How rows find their partition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Partitioning {
    /// Batches in turn.
    RoundRobin,
    /// By a hash of these columns (`host::partition`). Datasets with equal numbers of partitions, the same types of
    /// key and the same placement are co-partitioned.
    Hash {
        /// At least one.
        columns: Vec<String>,
    },
    /// By ranges of one column. Partition `i` holds values below `bounds[i]`, the last one the rest; nulls go to
    /// partition 0.
    Range {
        /// The column.
        column: String,
        /// Ascending, one fewer than partitions.
        bounds: Vec<Value>,
    },
}

impl Partitioning {
    /// Whether rows whose keys are equal may be in two partitions: by ranges of floats with a bound of 0.0. Loads before that was
    /// mended placed -0.0 below it, and 0.0 above; since then they write such a bound as -0.0, which parts the two in no order.
    pub fn may_part_zeros(&self) -> bool {
        let is_zero = |bound: &Value| matches!(bound, Value::Float(value) if *value == 0.0 && value.is_sign_positive());
        matches!(self, Partitioning::Range { bounds, .. } if bounds.iter().any(is_zero))
    }
}

/// One column of an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SortKey {
    /// The column.
    pub column: String,
    /// Largest first.
    #[serde(default)]
    pub descending: bool,
}

/// The part of a dataset that lies on one drive, whole, and on each further drive that holds a copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Partition {
    /// The drives that hold it, each all of its runs, byte for byte the same. The first is asked first. Manifests of
    /// before there were copies name one, as `drive`.
    #[serde(alias = "drive", deserialize_with = "one_or_many")]
    pub copies: Vec<DriveId>,
    /// What was loaded, oldest first.
    pub runs: Vec<Run>,
}

/// What one load put into one partition: slices `0..slices` under its load id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The load.
    pub load: LoadId,
    /// Number of slices, dense from 0.
    pub slices: u32,
    /// Rows over the slices.
    pub rows: u64,
    /// Stored bytes over the slices.
    pub bytes: u64,
    /// One summary a column over the slices.
    pub columns: Vec<ColumnSummary>,
}

fn one() -> usize {
    1
}

fn one_or_many<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<DriveId>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Copies {
        One(DriveId),
        Many(Vec<DriveId>),
    }
    Ok(match Copies::deserialize(from)? {
        Copies::One(drive) => vec![drive],
        Copies::Many(drives) => drives,
    })
}

impl Manifest {
    /// The drive that alone replaces it.
    pub fn home(&self) -> Option<DriveId> {
        self.drives.first().copied()
    }

    /// The last version of a lost home that is contained in this; none: the drive was not declared lost.
    pub fn lost_home(&self, drive: DriveId) -> Option<u64> {
        self.lost_homes.iter().find(|lost| lost.drive == drive).map(|lost| lost.version)
    }

    /// The empty domain.
    pub fn empty(domain: impl Into<String>, drives: Vec<DriveId>) -> Self {
        Self { domain: domain.into(), version: 0, drives, lost_homes: vec![], datasets: BTreeMap::new() }
    }

    /// Full name of one of its datasets.
    pub fn name(&self, dataset: &str) -> DatasetName {
        DatasetName { domain: self.domain.clone(), dataset: dataset.to_owned() }
    }
}

impl Dataset {
    /// Rows over all partitions.
    pub fn rows(&self) -> u64 {
        total(self.runs().map(|run| run.rows))
    }

    /// Stored bytes over all partitions.
    pub fn bytes(&self) -> u64 {
        total(self.runs().map(|run| run.bytes))
    }

    /// Slices over all partitions.
    pub fn slices(&self) -> u64 {
        total(self.runs().map(|run| u64::from(run.slices)))
    }

    /// Every run of every partition.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.partitions.iter().flat_map(|partition| &partition.runs)
    }

    /// Summaries over all rows. A hash partition's key values occur in that partition only, so their distinct counts
    /// add up.
    pub fn columns(&self) -> Vec<ColumnSummary> {
        let mut merged = merge_columns(self.runs().map(|run| run.columns.as_slice()));
        if let Partitioning::Hash { columns } = &self.partitioning
            && let [column] = columns.as_slice()
            && let Ok(index) = self.schema.index_of(column)
            && let Some(summary) = merged.get_mut(index)
        {
            let per_partition = self.partitions.iter().map(|p| {
                p.runs.iter().filter_map(|run| run.columns.get(index)).map(|column| column.distinct).max().unwrap_or(0)
            });
            summary.distinct = total(per_partition);
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_of_before_there_were_copies_has_one() {
        let id = serde_json::to_string(&DriveId(7)).unwrap();
        let old: Partition = serde_json::from_str(&format!(r#"{{"drive":{id},"runs":[]}}"#)).unwrap();
        assert_eq!(old, Partition { copies: vec![DriveId(7)], runs: vec![] });
        let written = serde_json::to_string(&old).unwrap();
        assert_eq!(serde_json::from_str::<Partition>(&written).unwrap(), old);
    }
}
