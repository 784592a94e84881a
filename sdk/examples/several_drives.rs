//! Partition two datasets by the same key over several drives, and their join runs at the drives, beside the rows.

use std::error::Error;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::util::pretty::pretty_format_batches;
use futures::{StreamExt, TryStreamExt, stream};
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_host::{LoadSpec, PartitionBy};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let options = EmbedOptions { drives: Some(4), ..EmbedOptions::default() };
    let engine = connect(&Target::Data(directory.path().join("data")), &options).await?;
    load(&engine, "customers", [("customer", (0..100).collect()), ("country", (0..100).map(|n| n % 5).collect())]).await?;
    load(&engine, "orders", [("customer", (0..3_000).map(|n| n % 100).collect()), ("price", (0..3_000).collect())]).await?;

    let session = engine.host.session();
    let paid = "SELECT country, sum(price) FROM customers JOIN orders USING (customer) GROUP BY country";
    let answer = session.run(&format!("EXPLAIN {paid}")).await?;
    let batches: Vec<_> = answer.rows.try_collect().await?;
    let plan = pretty_format_batches(&batches)?.to_string();
    println!("{plan}");
    let join = plan.lines().find(|line| line.contains("Join")).ok_or("the plan has a join")?;
    assert!(join.contains("drive"), "the join runs at the drives: {join}");

    engine.shutdown().await;
    Ok(())
}

async fn load(engine: &Engine, name: &str, columns: [(&str, Vec<i64>); 2]) -> Result<(), Box<dyn Error>> {
    let columns = columns.map(|(name, values)| (name, Arc::new(Int64Array::from(values)) as ArrayRef));
    let batch = RecordBatch::try_from_iter(columns)?;
    let by_customer = Some(PartitionBy::Hash(vec!["customer".to_owned()]));
    let spec = LoadSpec { partitioning: by_customer, ..LoadSpec::new(name.parse()?, vec![]) };
    engine.host.load_batches(spec, batch.schema(), stream::iter([Ok(batch)]).boxed()).await?;
    Ok(())
}
