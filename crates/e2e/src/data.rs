//! The datasets of the suites, as `crates/e2e/suites/data/make.py` makes them.

use std::path::PathBuf;
use std::sync::OnceLock;

use pithead_host::{Format, LoadSpec, PartitionBy};
use pithead_model::SortKey;
use serde::Deserialize;

use crate::places::{repository, run_python, target};
use crate::{Setup, load};

/// One dataset of the manifest.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestDataset {
    /// Its name.
    pub name: String,
    /// File or glob, within the data's directory.
    pub files: String,
    format: TestFormat,
    slice_rows: usize,
    partitioning: TestPartitioning,
    #[serde(default)]
    sort: Vec<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TestFormat {
    Parquet,
    Csv,
    Arrow,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TestPartitioning {
    RoundRobin,
    Hash(Vec<String>),
    Range(String),
}

/// Makes the datasets where they are not there yet, and says what they are.
pub fn datasets() -> &'static [TestDataset] {
    static DATASETS: OnceLock<Vec<TestDataset>> = OnceLock::new();
    DATASETS.get_or_init(|| {
        run_python("crates/e2e/suites/data/make.py", &[&directory()]);
        let manifest = std::fs::read(directory().join("manifest.json")).expect("make.py writes a manifest");
        serde_json::from_slice(&manifest).expect("the manifest is JSON")
    })
}

/// Loads them all. Says which could not be.
pub async fn load_all(setup: &Setup) -> Vec<String> {
    let mut failures = Vec::new();
    for dataset in datasets() {
        if setup.mode.attached && dataset.is_parquet() {
            continue;
        }
        if let Err(fault) = load(&setup.engine, dataset.spec(setup.mode.encoding)).await {
            failures.push(format!("loading {}: {}: {fault}", dataset.name, fault.blame));
        }
    }
    failures
}

fn directory() -> PathBuf {
    target().join("test-data")
}

impl TestDataset {
    /// How it is loaded.
    pub fn spec(&self, encoding: &str) -> LoadSpec {
        let name = self.name.parse().expect("the manifest has valid names");
        let files = directory().join(&self.files).display().to_string();
        LoadSpec {
            format: Some(match self.format {
                TestFormat::Parquet => Format::Parquet,
                TestFormat::Csv => Format::Csv,
                TestFormat::Arrow => Format::ArrowIpc,
            }),
            partitioning: Some(match &self.partitioning {
                TestPartitioning::RoundRobin => PartitionBy::RoundRobin,
                TestPartitioning::Hash(columns) => PartitionBy::Hash(columns.clone()),
                TestPartitioning::Range(column) => PartitionBy::Range(column.clone()),
            }),
            sort: self.sort.iter().map(|column| SortKey { column: column.clone(), descending: false }).collect(),
            encoding: Some(encoding.to_owned()),
            slice_rows: Some(self.slice_rows),
            ..LoadSpec::new(name, vec![files])
        }
    }

    /// Whether it is in Parquet files.
    pub(crate) fn is_parquet(&self) -> bool {
        matches!(self.format, TestFormat::Parquet)
    }

    /// Its files, in order.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let (start, end) = self.files.split_once('*').unwrap_or((&self.files, ""));
        let is_one = |name: &str| name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end);
        let entries = std::fs::read_dir(directory()).expect("the datasets are there");
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a directory entry").path()).collect();
        paths.retain(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_one));
        paths.sort();
        paths
    }

    /// Rows of a slice.
    pub(crate) fn slice_rows(&self) -> usize {
        self.slice_rows
    }

    /// Where the suites are.
    pub(crate) fn suites() -> PathBuf {
        repository().join("crates/e2e/suites/slt")
    }
}
