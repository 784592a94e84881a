//! Loads, and what becomes of the runs that they wrote.

use std::collections::BTreeMap;

use arrow::datatypes::SchemaRef;
use pithead_model::{DatasetId, DatasetName, DriveId, LoadId, SliceKey, SortKey};
use serde::{Deserialize, Serialize};

/// A load into one partition. Its slices are written and flushed, but not visible until a manifest names them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadRequest {
    /// The load.
    pub load: LoadId,
    /// Domain and dataset.
    pub name: DatasetName,
    /// The dataset's incarnation.
    pub dataset: DatasetId,
    /// The partition.
    pub partition: u32,
    /// The dataset's schema.
    pub schema: SchemaRef,
    /// Kept in the metadata slice.
    pub metadata: BTreeMap<String, String>,
    /// Order of the rows.
    pub sort: Vec<SortKey>,
    /// Name of the encoding.
    pub encoding: String,
    /// Rows of a slice at most.
    pub slice_rows: usize,
    /// Bytes of rows, as Arrow buffers, after which a slice ends; none: only the largest value bounds it.
    #[serde(default)]
    pub slice_bytes: Option<usize>,
}

/// Runs that are merged in one call at most.
pub const MERGED_MAX: usize = 1024;

/// Runs of one partition whose rows are to be one run more, on the same drive. It is not visible until a manifest names it in
/// their place; until then, and for as long as sessions read them, they stay as they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MergeRuns {
    /// The run to be made, as a load of its own that no rows are sent for.
    pub into: LoadRequest,
    /// The loads of the runs that its rows come from, in the order in which they follow each other.
    pub loads: Vec<LoadId>,
}

/// Which loads of an incarnation a discard means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loads {
    /// Every one.
    All,
    /// These.
    Only(Vec<LoadId>),
    /// Every one but these.
    AllBut(Vec<LoadId>),
}

/// What a drive is to delete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Discard {
    /// Domain and dataset.
    pub name: DatasetName,
    /// The incarnation.
    pub dataset: DatasetId,
    /// The loads.
    pub loads: Loads,
    /// One partition; none: all that are here.
    pub partition: Option<u32>,
    /// The version of the domain's manifest that names none of these runs on this drive; 0 where there is no manifest. A run
    /// that a later one may come to name, since it was claimed for it, stays. None: no manifest can ever name them, as with the
    /// caller's own load that was given up.
    pub seen: Option<u64>,
}

/// Runs that are claimed in one call at most.
pub const CLAIMED_MAX: usize = 4096;

/// Runs on a drive that the next version of their domain's manifest may come to name there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The runs, all of one domain.
    pub runs: Vec<SliceKey>,
    /// The version that the change is going to replace.
    pub version: u64,
}

/// What a drive has of a manifest, once a copy was offered to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The version that was there before; 0: none was.
    pub before: u64,
    /// The version that is there now.
    pub version: u64,
    /// The home that it names.
    pub home: Option<DriveId>,
    /// Whether it says that the home of the manifest that was offered is lost: that one must make no more changes.
    #[serde(default)]
    pub home_is_lost: bool,
}
