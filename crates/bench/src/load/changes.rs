//! Small changes by SQL: rows inserted one by one, each durable, and a hundredth of a table's rows deleted, beside the table written
//! anew.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use pithead_embed::{EmbedOptions, Target, connect};
use pithead_host::Session;
use pithead_model::{Blame, Fault};
use serde::Serialize;

use super::{THREADS, remove};
use crate::TABLES;
use crate::demo::Layout;
use crate::duckdb::DuckDbChanges;
use crate::timing::run;

/// Rows that are inserted one by one.
pub(super) const INSERTS: usize = 300;
/// The table of which rows are deleted, and which ones: one of a hundred, all over it.
pub(super) const TABLE: &str = "orders";
pub(super) const DELETED: &str = "o_custkey % 100 = 7";

/// What small changes took.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Changes {
    /// Statements a second, one after the other, each of one row.
    inserts_per_s: f64,
    delete_seconds: f64,
    /// `CREATE TABLE AS` of the same table.
    rewrite_seconds: f64,
    duckdb: Option<DuckDbChanges>,
}

impl Changes {
    /// In a new store in this process, which is removed again.
    pub(super) async fn measure(files: &Path, store: &Path, duckdb: Option<DuckDbChanges>) -> Result<Self, Fault> {
        remove(store)?;
        let embed = EmbedOptions { threads: Some(THREADS), drives: Some(THREADS), ..EmbedOptions::default() };
        let engine = connect(&Target::Data(store.to_owned()), &embed).await?;
        let table = TABLES.iter().find(|table| table.name == TABLE).ok_or_else(|| Fault::new(Blame::Bug, "no such table"))?;
        engine.host.load(Layout::Keyed.of(table.load_spec(files)?), Arc::new(|_| {})).await?;
        let session = engine.host.session();
        seconds(&session, "CREATE TABLE inserted (k BIGINT, v VARCHAR)").await?;
        let started = Instant::now();
        for k in 0..INSERTS {
            run(&session, &format!("INSERT INTO inserted VALUES ({k}, 'value {k}')")).await?;
        }
        let inserts_per_s = INSERTS as f64 / started.elapsed().as_secs_f64();
        let rewrite_seconds = seconds(&session, &format!("CREATE TABLE again AS SELECT * FROM {TABLE}")).await?;
        let delete_seconds = seconds(&session, &format!("DELETE FROM {TABLE} WHERE {DELETED}")).await?;
        engine.shutdown().await;
        remove(store)?;
        Ok(Self { inserts_per_s, delete_seconds, rewrite_seconds, duckdb })
    }

    pub(super) fn inserts_per_s(&self) -> f64 {
        self.inserts_per_s
    }

    pub(super) fn delete_vs_rewrite(&self) -> f64 {
        self.delete_seconds / self.rewrite_seconds
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let own = |who: &str, inserts: f64, delete: f64, rewrite: f64| {
            format!(
                "{who}: {inserts:.0} single-row inserts a second; 1 % deleted in {delete:.3} s, table written anew in {rewrite:.3} s"
            )
        };
        let theirs = self.duckdb.map(|of| own("DuckDB", of.inserts_per_s, of.delete_seconds, of.rewrite_seconds));
        let ours = own("Pithead", self.inserts_per_s, self.delete_seconds, self.rewrite_seconds);
        theirs.into_iter().chain([ours]).collect::<Vec<_>>().join("\n")
    }
}

async fn seconds(session: &Session, sql: &str) -> Result<f64, Fault> {
    Ok(run(session, sql).await?.seconds)
}
