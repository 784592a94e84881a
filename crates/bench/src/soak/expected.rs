//! The answers that clients compare with: from an engine in this process, without push-down, over the same files.

use std::path::Path;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::TryStreamExt;
use pithead_embed::{EmbedOptions, Target, connect};
use pithead_model::Fault;

use crate::QUERIES;
use crate::answers::{read_answer, write_answer};
use crate::demo::{Layout, load};
use crate::tables::io;

/// Orders that are looked up by key.
pub(super) const POINTS: &str = "points";
/// What is asked of them.
pub(super) const POINT_COLUMNS: &str = "o_orderkey, o_custkey, o_totalprice, o_orderdate";
const POINTS_MAX: usize = 5_000;

/// Computes all answers and writes each to a file of `directory`.
pub(super) async fn write(directory: &Path, data: &Path, tables: &Path) -> Result<(), Fault> {
    std::fs::create_dir_all(directory).map_err(|error| io(directory, &error))?;
    let engine = connect(&Target::Data(data.to_owned()), &EmbedOptions { drives: Some(1), ..EmbedOptions::default() }).await?;
    load(&engine, tables, Layout::Keyed).await?;
    let session = engine.host.session();
    session.run("SET pithead.pushdown = off").await?;
    let points = format!("SELECT {POINT_COLUMNS} FROM orders LIMIT {POINTS_MAX}");
    let queries = QUERIES.iter().map(|query| (query.name, query.statement().to_owned()));
    for (name, statement) in queries.chain([(POINTS, points)]) {
        let answer = session.run(&statement).await.map_err(|fault| fault.at(name))?;
        let schema = SchemaRef::clone(&answer.schema);
        let batches: Vec<RecordBatch> = answer.rows.try_collect().await?;
        write_answer(&directory.join(format!("{name}.arrow")), &schema, &batches)?;
    }
    engine.shutdown().await;
    Ok(())
}

/// One of the answers.
pub(super) fn read(directory: &Path, name: &str) -> Result<Vec<RecordBatch>, Fault> {
    read_answer(&directory.join(format!("{name}.arrow")))
}
