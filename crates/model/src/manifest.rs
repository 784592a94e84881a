//! The manifest: one value for each domain, on the domain's home drive. It says which loads of which datasets are
//! visible. Replacing it by compare-and-set on its version is a domain's only commit (`ARCHITECTURE.md`, "Loads and
//! commits").

use std::collections::{BTreeMap, BTreeSet};

use arrow_schema::SchemaRef;
use serde::{Deserialize, Deserializer, Serialize};

use crate::distinct::distinct_of_samples;
use crate::{ColumnSummary, DatasetId, DatasetName, DriveId, Function, LoadId, Value, View, merge_columns, total};

/// A snapshot of one domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The domain's name.
    pub domain: String,
    /// Grows by one with each commit; 0 stands for the empty domain, whose manifest was never written.
    pub version: u64,
    /// When this version was made, milliseconds since 1970 UTC by the clock of the host that made it, and later than every version
    /// before it, whatever clocks say. 0: unknown, as in manifests of earlier releases.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub time_ms: u64,
    /// The version that this one was made from, where that is not the one before it: after a home was lost, versions leap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<u64>,
    /// How long versions are kept once another one has taken their place, milliseconds. None: for as long as each drive says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_ms: Option<u64>,
    /// The drives of the domain's partitions, by identity. The first is home: only the home replaces the manifest. The
    /// others store copies of it, which hosts read while the home is down.
    pub drives: Vec<DriveId>,
    /// Homes that were declared lost and have not become home again since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_homes: Vec<LostHome>,
    /// Datasets by name.
    pub datasets: BTreeMap<String, Dataset>,
    /// Functions of users by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub functions: BTreeMap<String, Function>,
    /// Views by name. No dataset has the name of one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub views: BTreeMap<String, View>,
    /// The drives that attach files as parts of loaded datasets, by the dataset's name. Where one of them is away, the dataset's rows
    /// are not all there, which also hosts know that never reached that drive.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attaching: BTreeMap<String, BTreeSet<DriveId>>,
}

/// A home that was declared lost, and how many of its changes the next home knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostHome {
    /// The drive.
    pub drive: DriveId,
    /// The last of its versions whose changes are in the manifests of the homes after it.
    pub version: u64,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dataset {
    /// The id of this incarnation.
    pub id: DatasetId,
    /// Columns, in order. Texts are Utf8View, binaries BinaryView, decimals Decimal128 (see `slice::normalise`).
    pub schema: SchemaRef,
    /// Application metadata, which every operation preserves.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// How rows are assigned to partitions.
    pub partitioning: Partitioning,
    /// How rows are ordered within a load of a partition.
    #[serde(default)]
    pub sort: Vec<SortKey>,
    /// Name of the encoding of its slices: `vortex`, `arrow`, `parquet`, `nsm` or `pax`.
    pub encoding: String,
    /// Most rows of a slice.
    pub slice_rows: usize,
    /// Bytes of rows, as Arrow buffers, after which a slice ends even if it has few rows. None: only the largest size
    /// of a value bounds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_bytes: Option<usize>,
    /// The number of drives that each partition is to be on.
    #[serde(default = "one")]
    pub copies: usize,
    /// The version of the manifest that last named a merged run in the place of its parts; 0 if no version did. From
    /// that version on, a load's rows may be in a run with another load id.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub merged: u64,
    /// The partitions, in the order of their numbers.
    pub partitions: Vec<Partition>,
}

/// How rows are assigned to partitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Partitioning {
    /// Batches go to the partitions in turn.
    RoundRobin,
    /// By a hash of these columns (`host::partition`). Datasets are co-partitioned if they have equal numbers of
    /// partitions, keys of the same types and the same placement.
    Hash {
        /// The columns, at least one.
        columns: Vec<String>,
    },
    /// By ranges of one column. Partition `i` has the values below `bounds[i]`, and the last partition has the rest.
    /// Nulls are in partition 0.
    Range {
        /// The column.
        column: String,
        /// The bounds, ascending; there is one fewer than there are partitions.
        bounds: Vec<Value>,
    },
}

impl Partitioning {
    /// Whether rows with equal keys may be in two partitions. This is so for ranges of floats with a bound of 0.0:
    /// earlier releases placed -0.0 below that bound and 0.0 above it. Loads now write such a bound as -0.0, which
    /// keeps the two zeros together in either order.
    pub fn may_part_zeros(&self) -> bool {
        let is_zero = |bound: &Value| matches!(bound, Value::Float(value) if *value == 0.0 && value.is_sign_positive());
        matches!(self, Partitioning::Range { bounds, .. } if bounds.iter().any(is_zero))
    }
}

/// One column of a sort order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SortKey {
    /// The column.
    pub column: String,
    /// Whether the largest value comes first.
    #[serde(default)]
    pub descending: bool,
}

/// The part of a dataset that is on one drive as a whole, and on each further drive that has a copy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "WrittenPartition")]
pub struct Partition {
    /// The drives that have it. Each has all of its runs, byte for byte the same. Hosts ask the first one first.
    pub copies: Vec<DriveId>,
    /// The runs, oldest first.
    pub runs: Vec<Run>,
    /// One summary for each column over all runs; empty where there is no run. The summaries of one run are in its
    /// metadata slice.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<ColumnSummary>,
}

/// The slices `0..slices` that one load wrote into one partition under its load id, or that several runs were merged
/// into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The load.
    pub load: LoadId,
    /// The number of slices; their numbers are dense from 0.
    pub slices: u32,
    /// Rows over the slices.
    pub rows: u64,
    /// Stored bytes over the slices.
    pub bytes: u64,
}

/// A run that a drive has just written, and the summaries of its rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// The run as the manifest is to name it.
    pub run: Run,
    /// One summary for each column over the slices.
    pub columns: Vec<ColumnSummary>,
}

/// A partition as this release or an earlier one wrote it.
#[derive(Deserialize)]
struct WrittenPartition {
    /// Manifests from before there were copies name one drive, as `drive`.
    #[serde(alias = "drive", deserialize_with = "one_or_many")]
    copies: Vec<DriveId>,
    runs: Vec<WrittenRun>,
    #[serde(default)]
    columns: Vec<ColumnSummary>,
}

/// A run as this release or an earlier one wrote it.
#[derive(Deserialize)]
struct WrittenRun {
    load: LoadId,
    slices: u32,
    rows: u64,
    bytes: u64,
    /// Manifests from before partitions had summaries have the summaries in the runs.
    #[serde(default)]
    columns: Vec<ColumnSummary>,
}

impl From<WrittenPartition> for Partition {
    fn from(written: WrittenPartition) -> Self {
        let WrittenPartition { copies, runs, mut columns } = written;
        if columns.is_empty() {
            columns = merge_columns(runs.iter().map(|run| run.columns.as_slice()));
        }
        let run = |run: WrittenRun| Run { load: run.load, slices: run.slices, rows: run.rows, bytes: run.bytes };
        Partition { copies, runs: runs.into_iter().map(run).collect(), columns }
    }
}

fn one() -> usize {
    1
}

fn is_zero(number: &u64) -> bool {
    *number == 0
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
    /// The drive that alone may replace the manifest.
    pub fn home(&self) -> Option<DriveId> {
        self.drives.first().copied()
    }

    /// The last version of a lost home whose changes are in this manifest; none: the drive was not declared lost.
    pub fn lost_home(&self, drive: DriveId) -> Option<u64> {
        self.lost_homes.iter().find(|lost| lost.drive == drive).map(|lost| lost.version)
    }

    /// The manifest of an empty domain.
    pub fn empty(domain: impl Into<String>, drives: Vec<DriveId>) -> Self {
        Self {
            domain: domain.into(),
            version: 0,
            time_ms: 0,
            follows: None,
            history_ms: None,
            drives,
            lost_homes: vec![],
            datasets: BTreeMap::new(),
            functions: BTreeMap::new(),
            views: BTreeMap::new(),
            attaching: BTreeMap::new(),
        }
    }

    /// Names a drive that attaches a part of a dataset.
    pub fn add_attaching(&mut self, dataset: &str, drive: DriveId) {
        self.attaching.entry(dataset.to_owned()).or_default().insert(drive);
    }

    /// A drive attaches no part of a dataset any more.
    pub fn remove_attaching(&mut self, dataset: &str, drive: DriveId) {
        if let Some(drives) = self.attaching.get_mut(dataset) {
            drives.remove(&drive);
            if drives.is_empty() {
                self.attaching.remove(dataset);
            }
        }
    }

    /// Whether the manifest says that a drive attaches a part of a dataset.
    pub fn is_attaching(&self, dataset: &str, drive: DriveId) -> bool {
        self.attaching.get(dataset).is_some_and(|drives| drives.contains(&drive))
    }

    /// The datasets of which a drive attaches a part.
    pub fn attached_by(&self, drive: DriveId) -> impl Iterator<Item = &str> {
        self.attaching.iter().filter(move |(_, drives)| drives.contains(&drive)).map(|(name, _)| name.as_str())
    }

    /// Makes this the version after the one that it is, at a time by the caller's clock.
    pub fn succeed(&mut self, now_ms: u64) {
        self.version += 1;
        self.follows = None;
        self.time_ms = self.time_after(now_ms);
    }

    /// The time of a version that follows this one: that of the caller's clock, unless this one is as late already.
    pub fn time_after(&self, now_ms: u64) -> u64 {
        now_ms.max(self.time_ms.saturating_add(1))
    }

    /// The version that this one was made from.
    pub fn made_from(&self) -> u64 {
        self.follows.unwrap_or(self.version.saturating_sub(1))
    }

    /// The full name of one of the domain's datasets.
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

    /// Summaries over all rows. The values of the key of a hash or range partition occur in that partition only, so their distinct
    /// counts can be added up; for other columns, each partition is a sample of the dataset.
    pub fn columns(&self) -> Vec<ColumnSummary> {
        let parts = || self.partitions.iter().filter(|partition| !partition.columns.is_empty());
        let mut merged = merge_columns(parts().map(|partition| partition.columns.as_slice()));
        let (key, rows) = (self.partitioning_key(), self.rows());
        for (index, summary) in merged.iter_mut().enumerate() {
            let of_parts = parts().filter_map(|partition| Some((partition.sampled_rows(), partition.columns.get(index)?)));
            summary.distinct = match Some(index) == key {
                true => total(of_parts.map(|(_, column)| column.distinct)),
                false => distinct_of_samples(&of_parts.collect::<Vec<_>>(), rows, summary),
            };
        }
        merged
    }

    /// The one column each of whose values is in one partition.
    fn partitioning_key(&self) -> Option<usize> {
        let column = match &self.partitioning {
            Partitioning::Hash { columns } if columns.len() == 1 => &columns[0],
            Partitioning::Range { column, .. } => column,
            Partitioning::Hash { .. } | Partitioning::RoundRobin => return None,
        };
        self.schema.index_of(column).ok()
    }
}

impl Partition {
    /// A partition without a run.
    pub fn empty(copies: Vec<DriveId>) -> Self {
        Self { copies, ..Self::default() }
    }

    /// The rows that its distinct counts are of: those counts are the largest of any run's.
    fn sampled_rows(&self) -> u64 {
        self.runs.iter().map(|run| run.rows).max().unwrap_or(0)
    }

    /// Appends a run of new rows.
    pub fn append(&mut self, loaded: Loaded) {
        self.columns = match self.columns.is_empty() {
            true => loaded.columns,
            false => merge_columns([self.columns.as_slice(), &loaded.columns]),
        };
        self.runs.push(loaded.run);
    }

    /// Puts a run in the place of those that it was made from. Returns false, and changes nothing, unless all of
    /// these are there, one after the other.
    pub fn replace(&mut self, from: &[LoadId], by: &Loaded) -> bool {
        let names = |runs: &[Run]| runs.iter().map(|run| run.load).eq(from.iter().copied());
        let Some(first) = self.runs.windows(from.len().max(1)).position(names) else { return false };
        self.runs.splice(first..first + from.len(), [by.run]);
        if self.runs.len() == 1 {
            self.columns.clone_from(&by.columns);
            return true;
        }
        // The rows are the same, but the distinct counts are better: sketches went over all rows.
        for (known, found) in self.columns.iter_mut().zip(&by.columns) {
            known.distinct = known.distinct.max(found.distinct);
        }
        true
    }

    /// The same where the run lacks some rows of the other one, with so many nulls in each column.
    pub fn replace_marked(&mut self, from: LoadId, by: &Loaded, nulls_gone: &[u64]) -> bool {
        if !self.replace(&[from], by) {
            return false;
        }
        if self.runs.len() > 1 {
            // What was a bound may have gone with its row.
            for (known, gone) in self.columns.iter_mut().zip(nulls_gone) {
                known.nulls = known.nulls.saturating_sub(*gone);
                known.exact &= known.min.is_none() && known.max.is_none();
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(min: i128, max: i128, nulls: u64, distinct: u64) -> ColumnSummary {
        ColumnSummary {
            min: Some(Value::Int(min)),
            max: Some(Value::Int(max)),
            exact: true,
            nulls,
            nulls_unknown: false,
            distinct,
        }
    }

    fn loaded(load: u64, rows: u64, column: ColumnSummary) -> Loaded {
        Loaded { run: Run { load: LoadId(load), slices: 1, rows, bytes: 10 }, columns: vec![column] }
    }

    fn loads(partition: &Partition) -> Vec<u64> {
        partition.runs.iter().map(|run| run.load.0).collect()
    }

    #[test]
    fn a_partition_of_before_there_were_copies_has_one() {
        let id = serde_json::to_string(&DriveId(7)).unwrap();
        let old: Partition = serde_json::from_str(&format!(r#"{{"drive":{id},"runs":[]}}"#)).unwrap();
        assert_eq!(old, Partition::empty(vec![DriveId(7)]));
        let written = serde_json::to_string(&old).unwrap();
        assert_eq!(serde_json::from_str::<Partition>(&written).unwrap(), old);
    }

    /// A manifest as release 0.1.0 wrote it before the summaries of runs were dropped.
    #[test]
    fn summaries_of_runs_become_the_partitions() {
        let old = r#"{"copies":["1afee7a17c1c6b3e","94f9e877229d28b4"],"runs":[
            {"load":"0000000000000001","slices":1,"rows":2,"bytes":2612,"columns":[
              {"min":{"int":"-3"},"max":{"int":"170141183460469231731687303715884105727"},"exact":true,"nulls":1,"distinct":2}]},
            {"load":"0000000000000002","slices":2,"rows":9,"bytes":3020,"columns":[
              {"min":{"int":"-8"},"max":{"int":"4"},"exact":true,"nulls":4,"distinct":5}]}]}"#;
        let partition: Partition = serde_json::from_str(old).unwrap();
        assert_eq!(partition.columns, [summary(-8, i128::MAX, 5, 5)]);
        assert_eq!((loads(&partition), partition.runs[1].rows, partition.copies.len()), (vec![1, 2], 9, 2));
        let written = serde_json::to_string(&partition).unwrap();
        assert!(written.len() < old.len() && written.matches("distinct").count() == 1, "{written}");
        assert_eq!(serde_json::from_str::<Partition>(&written).unwrap(), partition);
    }

    #[test]
    fn a_run_takes_little_room() {
        let run = Run { load: LoadId(u64::MAX), slices: 1, rows: 1, bytes: 20_000 };
        assert!(serde_json::to_string(&run).unwrap().len() < 80);
    }

    #[test]
    fn runs_are_replaced_where_they_are_all_there() {
        let mut partition = Partition::empty(vec![DriveId(1)]);
        for number in 1..=5 {
            partition.append(loaded(number, 1, summary(number as i128, number as i128, 1, 1)));
        }
        let by = loaded(9, 3, summary(2, 4, 3, 3));
        let ids = |ids: &[u64]| ids.iter().copied().map(LoadId).collect::<Vec<_>>();
        for wrong in [&[4, 3][..], &[2, 4], &[5, 6], &[7], &[]] {
            assert!(!partition.clone().replace(&ids(wrong), &by), "{wrong:?}");
        }
        assert!(partition.replace(&ids(&[2, 3, 4]), &by));
        assert_eq!((loads(&partition), &partition.columns), (vec![1, 9, 5], &vec![summary(1, 5, 5, 3)]));
        assert!(!partition.replace(&ids(&[2, 3, 4]), &by), "twice");
    }

    #[test]
    fn distinct_values_of_a_hashed_key_add_up_over_partitions() {
        let partition = |distinct| {
            let mut partition = Partition::empty(vec![DriveId(1)]);
            partition.append(loaded(1, 9, summary(1, 4, 0, distinct)));
            partition.append(loaded(2, 9, summary(0, 3, 1, 2)));
            partition
        };
        let mut dataset = Dataset {
            id: DatasetId(1),
            schema: SchemaRef::new(arrow_schema::Schema::new(vec![arrow_schema::Field::new(
                "k",
                arrow_schema::DataType::Int64,
                true,
            )])),
            metadata: BTreeMap::new(),
            partitioning: Partitioning::Hash { columns: vec!["k".into()] },
            sort: vec![],
            encoding: "arrow".into(),
            slice_rows: 10,
            slice_bytes: None,
            copies: 1,
            merged: 0,
            partitions: vec![partition(7), Partition::empty(vec![DriveId(1)]), partition(4)],
        };
        assert_eq!(dataset.columns(), [summary(0, 4, 2, 11)]);
        dataset.partitioning = Partitioning::RoundRobin;
        assert_eq!(dataset.columns(), [summary(0, 4, 2, 7)], "there are no more than five");
        assert_eq!(serde_json::from_str::<Dataset>(&serde_json::to_string(&dataset).unwrap()).unwrap(), dataset);
    }
}
