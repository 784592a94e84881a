//! DuckDB beside us, through Python.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use pithead_model::Fault;
use serde::{Deserialize, Serialize};

use crate::python::Script;

const QUERIES: Script = script(include_str!("beside_duckdb.py"));
const LINEITEM: Script = script(include_str!("beside_duckdb_scan.py"));
const LOAD: Script = script(include_str!("beside_duckdb_load.py"));

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

/// What it took to make each table of a new database from its Parquet file.
#[derive(Debug, Deserialize)]
pub(crate) struct DuckDbLoad {
    pub(crate) version: String,
    /// By the table's name.
    pub(crate) tables: BTreeMap<String, DuckDbTable>,
    /// Of the database's files, once it was closed.
    pub(crate) stored_bytes: u64,
    pub(crate) changes: DuckDbChanges,
}

/// What small changes took.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct DuckDbChanges {
    pub(crate) inserts_per_s: f64,
    pub(crate) delete_seconds: f64,
    pub(crate) rewrite_seconds: f64,
}

/// One table that DuckDB made.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct DuckDbTable {
    pub(crate) rows: u64,
    pub(crate) seconds: f64,
    /// CPU time of the whole process, seconds.
    pub(crate) cpu_seconds: f64,
}

const fn script(text: &'static str) -> Script {
    Script { library: "DuckDB", module: "duckdb", text }
}

/// Runs queries, each with its name, in DuckDB, once to warm up and then `runs` times. None: there is no Python with DuckDB.
pub(crate) fn duckdb(
    tables: &Path,
    own: &Path,
    threads: usize,
    runs: usize,
    queries: &[(&str, &str)],
) -> Result<Option<DuckDb>, Fault> {
    let text = serde_json::to_vec(queries).map_err(|error| QUERIES.failed(error.to_string()))?;
    let (threads, runs) = (threads.to_string(), runs.to_string());
    QUERIES.run(&[tables.as_os_str(), own.as_os_str(), threads.as_ref(), runs.as_ref()], &text)
}

/// The same for one query over lineitem, of which DuckDB keeps tables in `own`.
pub(crate) fn lineitem(tables: &Path, own: &Path, threads: usize, runs: usize, sql: &str) -> Result<Option<Lineitem>, Fault> {
    let parquet = tables.join("lineitem.parquet");
    let (threads, runs) = (threads.to_string(), runs.to_string());
    LINEITEM.run(&[parquet.as_os_str(), own.as_os_str(), threads.as_ref(), runs.as_ref(), sql.as_ref()], &[])
}

/// `CREATE TABLE AS` of these tables, one after the other, from their Parquet files into a new database in `own`, which is removed
/// again. Then rows are inserted one by one, and those of one table deleted for which a condition holds. None: there is no Python
/// with DuckDB.
pub(crate) fn create_tables(
    tables: &Path,
    own: &Path,
    threads: usize,
    names: &[&str],
    [changed, deleted, inserts]: &[&str; 3],
) -> Result<Option<DuckDbLoad>, Fault> {
    let (threads, names) = (threads.to_string(), names.join(","));
    let words = [threads.as_str(), &names, changed, deleted, inserts];
    let arguments: Vec<&OsStr> = [tables.as_os_str(), own.as_os_str()].into_iter().chain(words.map(OsStr::new)).collect();
    LOAD.run(&arguments, &[])
}

/// The line for people where there is no Python with DuckDB.
pub(crate) fn missing() -> String {
    QUERIES.missing()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A regression: of a query with many rows a third of the time was that of Python, which made objects of them.
    #[test]
    fn queries_end_with_rows_as_arrow() {
        for script in [QUERIES, LINEITEM] {
            assert!(script.text.contains(".to_arrow_table()") && !script.text.contains("fetchall"), "{}", script.text);
        }
    }
}
