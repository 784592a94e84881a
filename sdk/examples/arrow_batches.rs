//! Load Arrow batches as they are made, without a file: the source streams, and is never in memory as a whole.

use std::error::Error;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use futures::{StreamExt, TryStreamExt, stream};
use pithead_embed::{EmbedOptions, Target, connect};
use pithead_host::{LoadSpec, PartitionBy};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let options = EmbedOptions { drives: Some(2), ..EmbedOptions::default() };
    let engine = connect(&Target::Data(directory.path().join("data")), &options).await?;

    let fields = [Field::new("sensor", DataType::Int64, false), Field::new("reading", DataType::Float64, false)];
    let schema = Arc::new(Schema::new(fields.to_vec()));
    // Each batch is made when the load asks for it.
    let made = schema.clone();
    let batches = stream::iter(0..10).map(move |sensor| Ok(readings(&made, sensor))).boxed();
    let by_sensor = Some(PartitionBy::Hash(vec!["sensor".to_owned()]));
    let spec = LoadSpec { partitioning: by_sensor, ..LoadSpec::new("readings".parse()?, vec![]) };
    let report = engine.host.load_batches(spec, schema, batches).await?;

    let answer = engine.host.session().run("SELECT count(*) FROM readings WHERE reading > 0.9999").await?;
    let batches: Vec<_> = answer.rows.try_collect().await?;
    let high = batches[0].column(0).as_primitive::<Int64Type>().value(0);
    println!("{} rows, of which {high} have a reading over 0.9999", report.rows);
    assert_eq!((report.rows, high), (100_000, 10));

    engine.shutdown().await;
    Ok(())
}

/// 10,000 readings that are spread evenly over 0 to 1.
fn readings(schema: &SchemaRef, sensor: i64) -> RecordBatch {
    let sensors: ArrayRef = Arc::new(Int64Array::from_value(sensor, 10_000));
    let readings: ArrayRef = Arc::new(Float64Array::from_iter_values((0..10_000).map(|n| f64::from(n) / 1e4 + 1e-5)));
    RecordBatch::try_new(schema.clone(), vec![sensors, readings]).expect("the columns are those of the schema")
}
