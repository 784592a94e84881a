//! Take rows as they come, and stop when there are enough: the work at the drives ends with them.

use std::error::Error;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use futures::{StreamExt, stream};
use pithead_embed::{EmbedOptions, Target, connect};
use pithead_host::LoadSpec;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let engine = connect(&Target::Data(directory.path().join("data")), &EmbedOptions::default()).await?;

    // Rows of a program are loaded as a stream, too.
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100_000));
    let batch = RecordBatch::try_from_iter([("number", numbers)])?;
    let spec = LoadSpec::new("numbers".parse()?, vec![]);
    engine.host.load_batches(spec, batch.schema(), stream::iter([Ok(batch)]).boxed()).await?;

    let session = engine.host.session();
    let mut answer = session.run("SELECT a.number FROM numbers AS a, numbers AS b").await?;
    let mut taken = 0;
    while let Some(batch) = answer.rows.next().await {
        taken += batch?.num_rows();
        if taken >= 20_000 {
            break;
        }
    }
    // Ten thousand million rows are not waited for.
    drop(answer);
    println!("took {taken} rows");
    assert!(taken >= 20_000);

    engine.shutdown().await;
    Ok(())
}
