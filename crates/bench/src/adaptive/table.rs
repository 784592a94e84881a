//! The table that is asked, and the small one that is joined to it: the same at every run.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use pithead_embed::Engine;
use pithead_host::LoadSpec;
use pithead_model::{Blame, Fault};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::tables::io;

/// Keys are below this; `k < c` lets a share of `c / KEYS` pass, evenly from all slices.
pub(super) const KEYS: i64 = 1_000_000;
const GROUPS: i64 = 50;
const CENTS: i64 = 10_000_000;
/// Rows of the table that is shipped.
const SMALL: i64 = 2_000;
const KINDS: i64 = 20;

/// Makes and loads both. Files are made in `folder`.
pub(super) async fn load(engine: &Engine, folder: &Path, slices: usize, slice_rows: usize) -> Result<(), Fault> {
    let numbers = folder.join("numbers.parquet");
    let mut random = StdRng::seed_from_u64(1);
    write(&numbers, (0..slices.max(1)).map(|_| numbers_batch(&mut random, slice_rows.max(1))))?;
    let spec = LoadSpec { slice_rows: Some(slice_rows), ..LoadSpec::new("numbers".parse()?, vec![path(&numbers)]) };
    engine.host.load(spec, Arc::new(|_| {})).await?;
    let kinds = folder.join("kinds.parquet");
    write(&kinds, [kinds_batch()].into_iter())?;
    engine.host.load(LoadSpec::new("kinds".parse()?, vec![path(&kinds)]), Arc::new(|_| {})).await?;
    Ok(())
}

fn path(file: &Path) -> String {
    file.display().to_string()
}

/// A key in no order, a group, a key into the small table, a value as a whole number and as a float.
fn numbers_batch(random: &mut StdRng, rows: usize) -> Result<RecordBatch, Fault> {
    let mut whole = |below: i64| -> Int64Array { (0..rows).map(|_| random.random_range(0..below)).collect::<Vec<_>>().into() };
    let (keys, groups, joined, values) = (whole(KEYS), whole(GROUPS), whole(SMALL), whole(CENTS));
    let floats = Float64Array::from_iter_values(whole(CENTS).values().iter().map(|cents| *cents as f64 / 100.0));
    let columns: [(&str, ArrayRef); 5] = [
        ("k", Arc::new(keys)),
        ("g", Arc::new(groups)),
        ("j", Arc::new(joined)),
        ("v", Arc::new(values)),
        ("f", Arc::new(floats)),
    ];
    RecordBatch::try_from_iter(columns).map_err(bug)
}

fn kinds_batch() -> Result<RecordBatch, Fault> {
    let columns: [(&str, ArrayRef); 2] = [
        ("id", Arc::new(Int64Array::from_iter_values(0..SMALL))),
        ("kind", Arc::new(StringArray::from_iter_values((0..SMALL).map(|id| format!("kind {}", id % KINDS))))),
    ];
    RecordBatch::try_from_iter(columns).map_err(bug)
}

fn write(path: &Path, batches: impl Iterator<Item = Result<RecordBatch, Fault>>) -> Result<(), Fault> {
    let failed = |error: parquet::errors::ParquetError| Fault::new(Blame::Device, format!("{}: {error}", path.display()));
    let mut writer = None;
    for batch in batches {
        let batch = batch?;
        let into = match writer.take() {
            Some(into) => into,
            None => {
                let file = File::create(path).map_err(|error| io(path, &error))?;
                ArrowWriter::try_new(file, batch.schema(), None).map_err(failed)?
            }
        };
        writer.insert(into).write(&batch).map_err(failed)?;
    }
    writer.map_or(Ok(()), |writer| writer.close().map(|_| ()).map_err(failed))
}

fn bug(error: impl std::fmt::Display) -> Fault {
    Fault::new(Blame::Bug, error.to_string())
}
