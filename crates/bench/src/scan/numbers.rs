//! Filter and sum over a table of numbers, beside a plain loop over the same two columns as arrays.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch};
use arrow::datatypes::{Float64Type, Int64Type};
use parquet::arrow::ArrowWriter;
use pithead_embed::Engine;
use pithead_host::{LoadSpec, Session};
use pithead_model::{Blame, Fault};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{Beside, ScanOptions, beside};
use crate::tables::io;

/// Keys are below this; the condition `k < c` lets a share of `c / KEYS` pass.
const KEYS: i64 = 1_000_000;
/// Values are whole cents below this.
const CENTS: i64 = 10_000_000;
/// Shares of the rows that are let pass.
const SELECTED: [f64; 4] = [0.001, 0.1, 0.5, 0.9];
const BATCH_ROWS: usize = 1 << 17;

/// The table: a key in no order, and a value as a whole number and as a float.
struct Numbers {
    keys: Vec<i64>,
    whole: Vec<i64>,
    floats: Vec<f64>,
}

/// Loads the table and measures. The queries count the rows too, in the same pass, so that both ways can be compared.
pub(super) async fn measure(
    engine: &Engine,
    session: &Session,
    options: &ScanOptions,
    place: &Path,
) -> Result<Vec<Beside>, Fault> {
    let numbers = Numbers::random(options.rows.max(1));
    let file = place.join("numbers.parquet");
    numbers.write(&file)?;
    let spec = LoadSpec::new("numbers".parse()?, vec![file.display().to_string()]);
    engine.host.load(spec, Arc::new(|_| {})).await?;
    let bytes = 16 * numbers.keys.len() as u64;
    let (runs, threads) = (options.runs, options.threads);
    let mut measured = Vec::new();
    for selected in SELECTED {
        let below = (selected * KEYS as f64) as i64;
        let rows = numbers.keys.iter().filter(|key| **key < below).count() as f64 / numbers.keys.len() as f64;
        let sql = format!("SELECT sum(w) FROM numbers WHERE k < {below}");
        let plain = || split(&numbers, threads, |range| sum_whole(&numbers.keys[range.clone()], &numbers.whole[range], below));
        let check = |found: &[RecordBatch], sums: &Vec<i64>| {
            (value(found)?.as_primitive_opt::<Int64Type>()?.value(0) == sums.iter().sum::<i64>()).then_some(rows)
        };
        measured.push(beside(session, sql, runs, bytes, plain, check).await?);
        let sql = format!("SELECT sum(f) FROM numbers WHERE k < {below}");
        let plain =
            || split(&numbers, threads, |range| sum_floats(&numbers.keys[range.clone()], &numbers.floats[range], below));
        let check = |found: &[RecordBatch], sums: &Vec<f64>| {
            let (found, sum) = (value(found)?.as_primitive_opt::<Float64Type>()?.value(0), sums.iter().sum::<f64>());
            ((found - sum).abs() <= 1e-9 * sum.abs()).then_some(rows)
        };
        measured.push(beside(session, sql, runs, bytes, plain, check).await?);
    }
    Ok(measured)
}

/// The one value of an answer.
fn value(found: &[RecordBatch]) -> Option<&ArrayRef> {
    found.iter().find(|batch| batch.num_rows() == 1)?.columns().first()
}

/// The loops that are the measure. Sums of whole numbers cannot overflow here, and wrap so that the loop is as plain as can be.
fn sum_whole(keys: &[i64], values: &[i64], below: i64) -> i64 {
    keys.iter().zip(values).fold(0i64, |sum, (key, value)| if *key < below { sum.wrapping_add(*value) } else { sum })
}

fn sum_floats(keys: &[i64], values: &[f64], below: i64) -> f64 {
    keys.iter().zip(values).fold(0.0, |sum, (key, value)| if *key < below { sum + value } else { sum })
}

/// What each thread makes of its share of the rows.
fn split<T: Send>(numbers: &Numbers, threads: usize, part: impl Fn(Range<usize>) -> T + Sync) -> Vec<T> {
    let (rows, threads) = (numbers.keys.len(), threads.max(1));
    std::thread::scope(|scope| {
        let part = &part;
        let start = |thread: usize| scope.spawn(move || part(rows * thread / threads..rows * (thread + 1) / threads));
        let running: Vec<_> = (0..threads).map(start).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    })
}

impl Numbers {
    fn random(rows: usize) -> Self {
        let mut random = StdRng::seed_from_u64(1);
        let keys = (0..rows).map(|_| random.random_range(0..KEYS)).collect();
        let whole: Vec<i64> = (0..rows).map(|_| random.random_range(0..CENTS)).collect();
        let floats = whole.iter().map(|cents| *cents as f64 / 100.0).collect();
        Self { keys, whole, floats }
    }

    fn write(&self, path: &Path) -> Result<(), Fault> {
        let failed = |error: &dyn std::fmt::Display| Fault::new(Blame::Device, format!("{}: {error}", path.display()));
        let out = File::create(path).map_err(|error| io(path, &error))?;
        let batch = |rows: Range<usize>| {
            let columns: [(&str, ArrayRef); 3] = [
                ("k", Arc::new(Int64Array::from_iter_values(self.keys[rows.clone()].iter().copied()))),
                ("w", Arc::new(Int64Array::from_iter_values(self.whole[rows.clone()].iter().copied()))),
                ("f", Arc::new(Float64Array::from_iter_values(self.floats[rows].iter().copied()))),
            ];
            RecordBatch::try_from_iter(columns).map_err(|error| failed(&error))
        };
        let mut writer = ArrowWriter::try_new(out, batch(0..0)?.schema(), None).map_err(|error| failed(&error))?;
        for start in (0..self.keys.len()).step_by(BATCH_ROWS) {
            let rows = start..self.keys.len().min(start + BATCH_ROWS);
            writer.write(&batch(rows)?).map_err(|error| failed(&error))?;
        }
        writer.close().map(|_| ()).map_err(|error| failed(&error))
    }
}
