//! Values beside a statement, which is planned once and asked again and again.

use std::error::Error;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use futures::{StreamExt, TryStreamExt, stream};
use pithead_embed::{EmbedOptions, Target, connect};
use pithead_host::{LoadMode, LoadSpec, Parameters};

fn fares(fares: Vec<f64>) -> RecordBatch {
    let column: ArrayRef = Arc::new(Float64Array::from(fares));
    RecordBatch::try_from_iter([("fare", column)]).expect("one column")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let engine = connect(&Target::Data(directory.path().to_owned()), &EmbedOptions::default()).await?;
    let load = async |mode, batch: RecordBatch| {
        let spec = LoadSpec { mode, ..LoadSpec::new("trips".parse()?, vec![]) };
        engine.host.load_batches(spec, batch.schema(), stream::iter([Ok(batch)]).boxed()).await
    };
    load(LoadMode::Create, fares(vec![18.5, 4.2, 31.0])).await?;

    // A batch of one row: the first column is for $1, or each is for the placeholder of its name.
    let least = Parameters::by_name(&RecordBatch::try_from_iter([("least", fares(vec![10.0]).column(0).clone())])?)?;
    let session = engine.host.session();
    let statement = session.prepare("SELECT count(*) AS trips FROM trips WHERE fare > $least", &least).await?;
    assert_eq!(statement.schema().expect("it is a query").field(0).name(), "trips");

    let count = async || {
        let batches: Vec<_> = statement.run(&session).await?.rows.try_collect().await?;
        Ok::<_, pithead_model::Fault>(batches[0].column(0).as_primitive::<Int64Type>().value(0))
    };
    assert_eq!(count().await?, 2);
    // Each run sees the rows of its time.
    load(LoadMode::Append, fares(vec![12.0, 3.0])).await?;
    assert_eq!(count().await?, 3);

    engine.shutdown().await;
    Ok(())
}
