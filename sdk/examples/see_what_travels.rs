//! See what a filter at the drives saves: with push-down off, the drives send columns, and the host filters.

use std::error::Error;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use futures::{StreamExt, TryStreamExt, stream};
use pithead_embed::{EmbedOptions, Target, connect};
use pithead_host::LoadSpec;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let options = EmbedOptions { drives: Some(2), ..EmbedOptions::default() };
    let engine = connect(&Target::Data(directory.path().join("data")), &options).await?;
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100_000));
    let batch = RecordBatch::try_from_iter([("number", numbers)])?;
    let spec = LoadSpec::new("numbers".parse()?, vec![]);
    engine.host.load_batches(spec, batch.schema(), stream::iter([Ok(batch)]).boxed()).await?;

    let session = engine.host.session();
    for (setting, rows_that_travel) in [("on", 100), ("off", 100_000)] {
        session.run(&format!("SET pithead.pushdown = {setting}")).await?;
        let answer = session.run("SELECT number FROM numbers WHERE number % 1000 = 0").await?;
        let rows: usize = answer.rows.map_ok(|batch| batch.num_rows()).try_fold(0, async |sum, rows| Ok(sum + rows)).await?;
        // The profile is complete once the rows have ended.
        let profile = answer.profile.snapshot();
        println!("push-down {setting}: {} rows come from the drives", profile.rows_from_drives);
        assert_eq!((rows, profile.rows_from_drives), (100, rows_that_travel));
    }
    engine.shutdown().await;
    Ok(())
}
