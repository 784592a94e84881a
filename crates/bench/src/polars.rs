//! Polars' streaming engine beside us, through Python.

use std::collections::BTreeMap;
use std::path::Path;

use pithead_model::Fault;
use serde::Deserialize;

use crate::python::Script;

const QUERIES: Script = Script { library: "Polars", module: "polars", text: include_str!("beside_polars.py") };

/// Seconds of each run on the Parquet files, by the query's name.
#[derive(Debug, Deserialize)]
pub(crate) struct Polars {
    pub(crate) version: String,
    pub(crate) seconds: BTreeMap<String, Vec<f64>>,
    /// What Polars says of queries that it does not run.
    pub(crate) refused: BTreeMap<String, String>,
}

/// Runs queries, each with its name, on a directory's Parquet files, once to warm up and then `runs` times. The first answer of each
/// is in `answers`, as `NAME.arrow`. None: there is no Python with Polars.
pub(crate) fn polars(
    tables: &Path,
    answers: &Path,
    threads: usize,
    runs: usize,
    queries: &[(&str, &str)],
) -> Result<Option<Polars>, Fault> {
    let text = serde_json::to_vec(queries).map_err(|error| QUERIES.failed(error.to_string()))?;
    let (threads, runs) = (threads.to_string(), runs.to_string());
    QUERIES.run(&[tables.as_os_str(), answers.as_os_str(), threads.as_ref(), runs.as_ref()], &text)
}

/// The line for people where there is no Python with Polars.
pub(crate) fn missing() -> String {
    QUERIES.missing()
}
