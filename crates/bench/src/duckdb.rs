//! DuckDB beside us, through Python.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pithead_model::{Blame, Fault};
use serde::Deserialize;
use serde::de::DeserializeOwned;

const SCRIPT: &str = include_str!("beside_duckdb.py");
const LINEITEM_SCRIPT: &str = include_str!("beside_duckdb_scan.py");

/// Seconds of each run, by the query's name.
#[derive(Debug, Deserialize)]
pub(crate) struct DuckDb {
    pub(crate) version: String,
    /// On tables of its own.
    pub(crate) native: BTreeMap<String, Vec<f64>>,
    /// Its process's largest memory during those.
    pub(crate) native_peak_bytes: u64,
    /// On the Parquet files.
    pub(crate) parquet: BTreeMap<String, Vec<f64>>,
}

/// Seconds of each run of one query over lineitem.
#[derive(Debug, Deserialize)]
pub(crate) struct Lineitem {
    pub(crate) version: String,
    /// On a table as the Parquet file has it.
    pub(crate) native: Vec<f64>,
    /// On one that is sorted by `l_shipdate`.
    pub(crate) sorted: Vec<f64>,
}

/// Runs queries, each with its name, in DuckDB, once to warm up and then `runs` times. None: there is no Python with DuckDB.
pub(crate) fn duckdb(
    tables: &Path,
    own: &Path,
    threads: usize,
    runs: usize,
    queries: &[(&str, &str)],
) -> Result<Option<DuckDb>, Fault> {
    let text = serde_json::to_vec(queries).map_err(|error| failed(error.to_string()))?;
    script(SCRIPT, [tables, own], &[threads.to_string(), runs.to_string()], &text)
}

/// The same for one query over lineitem, of which DuckDB keeps tables in `own`.
pub(crate) fn lineitem(tables: &Path, own: &Path, threads: usize, runs: usize, sql: &str) -> Result<Option<Lineitem>, Fault> {
    let parquet = tables.join("lineitem.parquet");
    script(LINEITEM_SCRIPT, [&parquet, own], &[threads.to_string(), runs.to_string(), sql.to_owned()], &[])
}

fn failed(what: String) -> Fault {
    Fault::new(Blame::Device, format!("DuckDB: {what}"))
}

/// Runs a script on these paths, arguments and input, and reads the JSON that it prints last.
fn script<T: DeserializeOwned>(
    script: &str,
    paths: [&Path; 2],
    arguments: &[String],
    input: &[u8],
) -> Result<Option<T>, Fault> {
    let Some(python) = python_with("duckdb") else { return Ok(None) };
    let mut child = Command::new(python)
        .arg("-c")
        .arg(script)
        .args(paths)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input).map_err(|error| failed(error.to_string()))?;
    }
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(format!("ended with {}", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.trim_end().lines().last().unwrap_or_default())
        .map(Some)
        .map_err(|error| failed(error.to_string()))
}

/// A Python that has this module: `$PITHEAD_PYTHON`, the tools' own, or the system's.
pub(crate) fn python_with(module: &str) -> Option<PathBuf> {
    let own = std::env::var_os("PITHEAD_PYTHON").map(PathBuf::from);
    let candidates = own.into_iter().chain([PathBuf::from(".tools/bin/python"), PathBuf::from("python3")]);
    candidates.into_iter().find(|python| {
        let status = Command::new(python).args(["-c", &format!("import {module}")]).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    })
}
