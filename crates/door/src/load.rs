//! Loads, and what becomes of the runs that they wrote.

use std::collections::BTreeMap;

use arrow::datatypes::SchemaRef;
use pithead_model::{DatasetId, DatasetName, DriveId, LoadId, Loaded, SliceKey, SortKey};
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

/// A run some of whose rows are to go. What is left of it becomes one run more on the same drive, which is not visible until a
/// manifest names it in the place of the other; that one stays as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MarkRun {
    /// The run to be made, as a load of its own that no rows are sent for.
    pub into: LoadRequest,
    /// The load of the run whose rows may go.
    pub load: LoadId,
    /// A sub-plan as Substrait over the run's slices, whose one column says of each row, in their order, whether it goes.
    #[serde(with = "hex_digits")]
    pub plan: Vec<u8>,
    /// The session's time zone.
    pub time_zone: Option<String>,
}

/// What came of [`MarkRun`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Marked {
    /// Rows that went.
    pub gone: u64,
    /// Of each column, nulls among them.
    pub nulls_gone: Vec<u64>,
    /// A checksum of which rows they were, the same wherever the run is; none: a release that told no such thing.
    #[serde(default)]
    pub going: Option<u64>,
    /// The run that has the other rows, be there any or not. None: no row went, and nothing was written.
    pub left: Option<Loaded>,
}

/// Bytes as text, two digits each.
mod hex_digits {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or_default();
        let digits = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]);
        serializer.serialize_str(&digits.collect::<String>())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let half = |digit: u8| char::from(digit).to_digit(16).map(|half| half as u8);
        let byte = |pair: &[u8]| match pair {
            [high, low] => Some(half(*high)? << 4 | half(*low)?),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
        bytes.ok_or_else(|| D::Error::custom("expected two hexadecimal digits a byte"))
    }
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
pub struct ManifestReceipt {
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
