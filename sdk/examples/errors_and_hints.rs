//! Tell what goes wrong by who can help; a hint says what to do.

use std::error::Error;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use futures::{StreamExt, stream};
use pithead_embed::{EmbedOptions, Target, connect};
use pithead_host::LoadSpec;
use pithead_model::Blame;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let engine = connect(&Target::Data(directory.path().join("data")), &EmbedOptions::default()).await?;
    let cities: ArrayRef = Arc::new(StringArray::from(vec!["Oslo", "Bergen"]));
    let batch = RecordBatch::try_from_iter([("city", cities)])?;
    let spec = LoadSpec::new("trips".parse()?, vec![]);
    engine.host.load_batches(spec, batch.schema(), stream::iter([Ok(batch)]).boxed()).await?;

    let Err(fault) = engine.host.session().run("SELECT * FROM tirps").await else {
        return Err("there is no such dataset".into());
    };
    println!("{fault}");
    assert_eq!(fault.blame, Blame::User);
    assert!(fault.message.contains("near: main.trips"), "{fault}");
    assert!(fault.hint.is_some());

    engine.shutdown().await;
    Ok(())
}
