//! Loads: files by the engine's readers, rows of other libraries by Arrow's C stream interface.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use pithead_host::{CsvOptions, LoadMode, LoadProgress, LoadReport, LoadSpec, PartitionBy};
use pithead_model::{Dataset, SortKey};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::connection::Connection;
use crate::errors;
use crate::import::{ImportProgress, Source};

/// Encodings that a load takes.
const ENCODINGS: [&str; 5] = ["vortex", "arrow", "parquet", "nsm", "pax"];

/// A dataset as it was found. A load over it takes its place only while it is still so.
#[pyclass(frozen, module = "pithead._pithead")]
pub(crate) struct Found(Arc<Dataset>);

impl Found {
    pub(crate) fn new(dataset: &Dataset) -> Self {
        Self(Arc::new(dataset.clone()))
    }

    /// The load in the place of this dataset, which is laid out as it is and has the load's metadata.
    fn replaced_by(&self, spec: LoadSpec) -> LoadSpec {
        let shape = Dataset { metadata: spec.metadata.clone(), ..Dataset::clone(&self.0) };
        LoadSpec { mode: LoadMode::Replace, over: Some(Arc::clone(&self.0)), shape: Some(Arc::new(shape)), ..spec }
    }
}

/// What is loaded how: the arguments of `Connection.load`, put in order by Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Spec {
    name: String,
    sources: Vec<String>,
    mode: String,
    metadata: BTreeMap<String, String>,
    /// `hash` or `range`, with columns.
    partition_by: Option<(String, Vec<String>)>,
    /// Columns, and whether the largest come first.
    sort_by: Vec<(String, bool)>,
    slice_rows: Option<usize>,
    encoding: Option<String>,
    partitions: Option<usize>,
    copies: Option<usize>,
}

impl Spec {
    fn load_spec(self) -> PyResult<LoadSpec> {
        let mode = match self.mode.as_str() {
            "create" => LoadMode::Create,
            "append" => LoadMode::Append,
            "replace" => LoadMode::Replace,
            other => return Err(unknown("mode", other, "\"create\", \"append\" or \"replace\"")),
        };
        let partitioning = match self.partition_by {
            None => None,
            Some((how, columns)) => Some(match (how.as_str(), columns.as_slice()) {
                ("hash", [_, ..]) => PartitionBy::Hash(columns),
                ("range", [column]) => PartitionBy::Range(column.clone()),
                ("round-robin", []) => PartitionBy::RoundRobin,
                _ => return Err(unknown("partition_by", &how, "\"hash:COLUMN,…\", \"range:COLUMN\" or \"round-robin\"")),
            }),
        };
        if let Some(encoding) = self.encoding.as_deref().filter(|encoding| !ENCODINGS.contains(encoding)) {
            return Err(unknown("encoding", encoding, "\"vortex\", \"arrow\", \"parquet\", \"nsm\" or \"pax\""));
        }
        if self.slice_rows == Some(0) {
            return Err(unknown("slice_rows", "0", "1 or more"));
        }
        Ok(LoadSpec {
            mode,
            partitioning,
            sort: self.sort_by.into_iter().map(|(column, descending)| SortKey { column, descending }).collect(),
            encoding: self.encoding,
            partitions: self.partitions,
            copies: self.copies,
            slice_rows: self.slice_rows,
            metadata: self.metadata,
            csv: CsvOptions::default(),
            ..LoadSpec::new(self.name.parse().map_err(errors::to_python)?, self.sources)
        })
    }
}

fn unknown(argument: &str, got: &str, expected: &str) -> PyErr {
    errors::user(
        format!("{argument}: expected {expected}, got {got:?}"),
        "help(pithead.Connection.load) tells of each argument",
    )
}

/// Loads files, or the rows of `stream`; with `over` in the place of what was found, or not at all. An interrupt gives up the
/// load, and what it stored is deleted.
pub(crate) fn load(
    connection: &Connection,
    py: Python<'_>,
    spec: Spec,
    stream: Option<Bound<'_, PyAny>>,
    progress: Option<Py<PyAny>>,
    over: Option<&Found>,
) -> PyResult<Py<PyDict>> {
    let (host, spec) = (connection.host()?, spec.load_spec()?);
    let spec = match over {
        Some(found) => found.replaced_by(spec),
        None => spec,
    };
    let so_far = Arc::new(Mutex::new(LoadProgress::default()));
    let seen = Arc::clone(&so_far);
    let taken = Arc::new(ImportProgress::default());
    let given = Arc::clone(&taken);
    let look = move |py: Python<'_>| {
        let Some(progress) = &progress else { return Ok(()) };
        let LoadProgress { bytes_done, bytes_total, rows } = *seen.lock();
        let rows = rows.max(given.rows.load(Ordering::Relaxed));
        progress.call1(py, (bytes_done, bytes_total, rows)).map(drop)
    };
    let report = match stream {
        Some(object) => {
            let source = Source::new(&object)?;
            drop(object);
            connection.run(py, look, async move {
                let schema = source.schema();
                host.load_batches(spec, schema, source.start(taken)).await
            })?
        }
        None => {
            let tell = Arc::new(move |progress| *so_far.lock() = progress);
            connection.run(py, look, async move { host.load(spec, tell).await })?
        }
    };
    facts(py, &report)
}

fn facts(py: Python<'_>, report: &LoadReport) -> PyResult<Py<PyDict>> {
    let facts = PyDict::new(py);
    facts.set_item("rows", report.rows)?;
    facts.set_item("source_bytes", report.source_bytes)?;
    facts.set_item("stored_bytes", report.stored_bytes)?;
    facts.set_item("slices", report.slices)?;
    facts.set_item("seconds", report.seconds)?;
    facts.set_item("encoding", &report.encoding)?;
    facts.set_item("note", &report.note)?;
    Ok(facts.unbind())
}
