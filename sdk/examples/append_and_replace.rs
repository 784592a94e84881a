//! Append to a dataset, and replace it: readers see the rows before or after, and nothing between.

use std::error::Error;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use futures::{StreamExt, TryStreamExt, stream};
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_host::{LoadMode, LoadSpec};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let options = EmbedOptions { drives: Some(2), ..EmbedOptions::default() };
    let engine = connect(&Target::Data(directory.path().join("data")), &options).await?;
    for (mode, values, rows_and_sum) in
        [(LoadMode::Create, vec![1, 2], [2, 3]), (LoadMode::Append, vec![10], [3, 13]), (LoadMode::Replace, vec![7], [1, 7])]
    {
        load(&engine, mode, values).await?;
        let answer = engine.host.session().run("SELECT count(*), sum(value) FROM numbers").await?;
        let batches: Vec<_> = answer.rows.try_collect().await?;
        let found = [0, 1].map(|column| batches[0].column(column).as_primitive::<Int64Type>().value(0));
        println!("{mode:?}: {} rows, sum {}", found[0], found[1]);
        assert_eq!(found, rows_and_sum);
    }
    engine.shutdown().await;
    Ok(())
}

async fn load(engine: &Engine, mode: LoadMode, values: Vec<i64>) -> Result<(), Box<dyn Error>> {
    let batch = RecordBatch::try_from_iter([("value", Arc::new(Int64Array::from(values)) as ArrayRef)])?;
    let spec = LoadSpec { mode, ..LoadSpec::new("numbers".parse()?, vec![]) };
    engine.host.load_batches(spec, batch.schema(), stream::iter([Ok(batch)]).boxed()).await?;
    Ok(())
}
