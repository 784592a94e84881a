//! Versions of a domain: the one that there is, and those that are kept once another one has taken their place.

use std::collections::{BTreeMap, BTreeSet};

use pithead_model::lasting::lasting_name;
use pithead_model::{Dataset, DatasetId, DriveId, Manifest, VIEWS_MAX};
use serde::{Deserialize, Serialize};

/// Versions that one answer tells of at most.
pub const VERSIONS_TOLD_MAX: usize = 256;

/// A question about the versions of a domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryAsk {
    /// The domain.
    pub domain: String,
    /// Which ones are meant.
    pub pick: Pick,
}

/// Versions that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// The newest of those before a version, newest first: at most [`VERSIONS_TOLD_MAX`].
    Before(u64),
    /// The one that was the newest at a time, milliseconds since 1970 UTC, and is not the newest here any more. None is told unless it
    /// is certain which one that was.
    At(u64),
}

/// What is told of a version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToldVersion {
    /// The version.
    pub version: u64,
    /// When it was made, milliseconds since 1970 UTC; 0: unknown.
    pub time_ms: u64,
    /// The version that it was made from.
    pub made_from: u64,
    /// Its manifest is damaged here, and nothing else is told of it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_damaged: bool,
    /// How long versions are kept, as the domain says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_ms: Option<u64>,
    /// The drives of the domain, home first.
    #[serde(default)]
    pub drives: Vec<DriveId>,
    /// Its datasets, by name.
    #[serde(default)]
    pub datasets: BTreeMap<String, ToldDataset>,
    /// The queries of its views, by name.
    #[serde(default)]
    pub views: BTreeMap<String, String>,
    /// The modules of its functions, by name.
    #[serde(default)]
    pub functions: BTreeMap<String, String>,
    /// The drives that attach parts of its loaded datasets, by the dataset's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attaching: BTreeMap<String, BTreeSet<DriveId>>,
}

/// A dataset in a version, as far as it is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToldDataset {
    /// Its incarnation.
    pub id: DatasetId,
    /// Its rows.
    pub rows: u64,
    /// Its runs, over all partitions.
    pub runs: u64,
    /// The version that last named runs in the place of others; 0 if none did.
    #[serde(default)]
    pub merged: u64,
    /// Which runs these are, as a hash of their names: two versions of one incarnation with the same have the same rows. 0: not told.
    #[serde(default)]
    pub runs_hash: u64,
    /// A hash of its columns. 0: not told.
    #[serde(default)]
    pub columns_hash: u64,
    /// The drives of each partition.
    pub copies: Vec<Vec<DriveId>>,
}

impl ToldVersion {
    /// What is told of a manifest.
    pub fn of(manifest: &Manifest) -> Self {
        let dataset = |(name, dataset): (&String, &Dataset)| (name.clone(), ToldDataset::of(dataset));
        let views = manifest.views.iter().take(VIEWS_MAX);
        Self {
            version: manifest.version,
            time_ms: manifest.time_ms,
            made_from: manifest.made_from(),
            is_damaged: false,
            history_ms: manifest.history_ms,
            drives: manifest.drives.clone(),
            datasets: manifest.datasets.iter().map(dataset).collect(),
            views: views.map(|(name, view)| (name.clone(), view.sql.clone())).collect(),
            functions: manifest.functions.iter().map(|(name, function)| (name.clone(), function.module.clone())).collect(),
            attaching: manifest.attaching.clone(),
        }
    }

    /// What is told of a version whose manifest cannot be read.
    pub fn damaged(version: u64) -> Self {
        Self { version, is_damaged: true, ..Self::default() }
    }
}

impl ToldDataset {
    fn of(dataset: &Dataset) -> Self {
        Self {
            id: dataset.id,
            rows: dataset.rows(),
            runs: dataset.runs().count() as u64,
            merged: dataset.merged,
            runs_hash: runs_hash(dataset),
            columns_hash: columns_hash(dataset),
            copies: dataset.partitions.iter().map(|partition| partition.copies.clone()).collect(),
        }
    }
}

/// A hash of the runs of all partitions.
fn runs_hash(dataset: &Dataset) -> u64 {
    let runs = (0_u64..).zip(&dataset.partitions).flat_map(|(number, partition)| {
        let loads = partition.runs.iter().map(|run| run.load.0);
        std::iter::once(number).chain(loads)
    });
    fnv(runs.flat_map(u64::to_le_bytes))
}

/// A hash of the names and types of all columns.
fn columns_hash(dataset: &Dataset) -> u64 {
    let texts = dataset.schema.fields().iter().flat_map(|field| {
        let nulls = if field.is_nullable() { "?" } else { "" };
        [field.name().clone(), lasting_name(field).into_owned(), format!("{}{nulls}", field.data_type())]
    });
    fnv(texts.flat_map(|text| text.into_bytes().into_iter().chain([0])))
}

/// FNV-1a: Fowler, Noll and Vo 1991.
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn is_false(flag: &bool) -> bool {
    !flag
}
