//! The filter query of Gu et al. 2016 (Biscuit; see `docs/bibliography.md`), compared with DuckDB.

use std::path::Path;

use pithead_host::Session;
use pithead_model::Fault;
use serde::Serialize;

use super::ScanOptions;
use crate::duckdb::lineitem;
use crate::timing::{Spread, run};

pub(crate) const SQL: &str = "SELECT l_orderkey, l_shipdate, l_linenumber FROM lineitem WHERE l_shipdate = DATE '1995-01-17'";

/// Seconds until all rows are there: with us as Arrow batches, with DuckDB as an Arrow table.
#[derive(Debug, Serialize)]
pub(super) struct Biscuit {
    sql: &'static str,
    rows: usize,
    pub(super) seconds: Spread,
    duckdb: Option<String>,
    /// On its own table in the order of the Parquet file, as TPC-H makes it.
    pub(super) duckdb_seconds: Option<Spread>,
    /// On its own table in the order of `l_shipdate`, as ours is.
    pub(super) duckdb_sorted_seconds: Option<Spread>,
}

/// Measures, warm. Without a Python that has DuckDB there is nothing to compare to.
pub(super) async fn measure(session: &Session, options: &ScanOptions, tables: &Path) -> Result<Biscuit, Fault> {
    let mut rows = run(session, SQL).await?.rows();
    let mut seconds = Vec::new();
    for _ in 0..options.runs.max(1) {
        let ran = run(session, SQL).await?;
        (rows, _) = (ran.rows(), seconds.push(ran.seconds));
    }
    let own = options.directory.join(format!("duckdb-scan-{}", options.scale));
    let duck = lineitem(tables, &own, options.threads, options.runs, SQL)?;
    Ok(Biscuit {
        sql: SQL,
        rows,
        seconds: Spread::of(seconds),
        duckdb: duck.as_ref().map(|duck| duck.version.clone()),
        duckdb_seconds: duck.as_ref().map(|duck| Spread::of(duck.native.clone())),
        duckdb_sorted_seconds: duck.map(|duck| Spread::of(duck.sorted)),
    })
}
