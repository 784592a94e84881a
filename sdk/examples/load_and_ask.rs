//! Load a file into a dataset, and ask in SQL.

use std::error::Error;
use std::sync::Arc;

use arrow::util::pretty::pretty_format_batches;
use futures::TryStreamExt;
use pithead_embed::{EmbedOptions, Target, connect};
use pithead_host::LoadSpec;

const TRIPS: &str = "city,day,fare\nOslo,2026-03-01,18.50\nBern,2026-03-01,4.20\nOslo,2026-03-02,31.00\n";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("trips.csv");
    std::fs::write(&file, TRIPS)?;

    // Two drives run inside this process, on a directory that is made now.
    let options = EmbedOptions { drives: Some(2), ..EmbedOptions::default() };
    let engine = connect(&Target::Data(directory.path().join("data")), &options).await?;
    let load = LoadSpec::new("trips".parse()?, vec![file.display().to_string()]);
    engine.host.load(load, Arc::new(|_| {})).await?;

    let session = engine.host.session();
    let answer = session.run("SELECT city, count(*) AS trips FROM trips GROUP BY city ORDER BY city").await?;
    let batches: Vec<_> = answer.rows.try_collect().await?;
    let table = pretty_format_batches(&batches)?.to_string();
    println!("{table}");
    assert!(table.contains("| Bern | 1     |") && table.contains("| Oslo | 2     |"));

    engine.shutdown().await;
    Ok(())
}
