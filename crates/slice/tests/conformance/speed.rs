//! How fast a Parquet file is read where it lies, beside the library's own reader over the same file. Run it by hand:
//! `PITHEAD_PARQUET=lineitem.parquet cargo test --release -p pithead-slice -- --ignored speed --nocapture`.

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use pithead_slice::{Origin, ParquetFile, ReadAt};

use super::*;

#[derive(Debug)]
struct OnDisk(fs::File, u64);

impl ReadAt for OnDisk {
    fn bytes(&self) -> u64 {
        self.1
    }

    fn read_at(&self, range: Range<u64>) -> Result<Bytes, SliceError> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.0.read_exact_at(&mut bytes, range.start).map_err(|error| SliceError::Medium(error.to_string()))?;
        Ok(bytes.into())
    }
}

fn best(name: &str, mut run: impl FnMut() -> usize) {
    let mut times: Vec<f64> = Vec::new();
    let mut rows = 0;
    for _ in 0..7 {
        let start = Instant::now();
        rows = run();
        times.push(start.elapsed().as_secs_f64());
    }
    let best = times.into_iter().fold(f64::INFINITY, f64::min);
    println!("{name:<40} {rows:>9} rows {:>8.2} ms", best * 1e3);
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    let path = std::env::var("PITHEAD_PARQUET").unwrap();
    let open = || {
        let file = fs::File::open(&path).unwrap();
        let bytes = file.metadata().unwrap().len();
        let file = Arc::new(ParquetFile::open(Arc::new(OnDisk(file, bytes))).unwrap());
        let origins: Vec<Origin> = (0..file.schema().fields().len()).map(Origin::Column).collect();
        let slices = file.slices(file.schema(), &origins).unwrap();
        (file, slices)
    };
    let (file, slices) = open();
    best("open and slices", || open().1.len());
    for (field, summary) in file.schema().fields().iter().zip(&slices[0].entry().columns) {
        println!("{} {} {summary:?}", field.name(), field.data_type());
    }
    let of = |columns: &[usize], predicates: &[Predicate]| {
        let mut rows = 0;
        for slice in &slices {
            let reader = slice.open().unwrap();
            let asked = ScanRequest { predicates: predicates.to_vec(), ..request(columns.to_vec()) };
            rows += read(reader.as_ref(), asked).unwrap().0.iter().map(RecordBatch::num_rows).sum::<usize>();
        }
        rows
    };
    let plain = |columns: &[usize]| {
        let builder = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(&path).unwrap()).unwrap();
        let mask = parquet::arrow::ProjectionMask::roots(builder.parquet_schema(), columns.iter().copied());
        let reader = builder.with_batch_size(8_192).with_projection(mask).build().unwrap();
        reader.map(|batch| batch.unwrap().num_rows()).sum::<usize>()
    };
    for columns in [(0..16).collect::<Vec<_>>(), vec![4, 5, 6, 7, 8, 9, 10], vec![10], vec![15]] {
        best(&format!("the library {columns:?}"), || plain(&columns));
        best(&format!("attached {columns:?}"), || of(&columns, &[]));
    }
    let compare = |column, op, value| Predicate::Compare { column, op, value: Value::Int(value) };
    let q6 = [
        compare(10, Compare::Ge, 8_766),
        compare(10, Compare::Lt, 9_131),
        compare(6, Compare::Ge, 5),
        compare(6, Compare::Le, 7),
        compare(4, Compare::Lt, 2_400),
    ];
    best("attached, Q6", || of(&[5, 6], &q6));
    best("the library, Q6's columns", || plain(&[4, 5, 6, 10]));
    best("attached, Q1", || of(&[4, 5, 6, 7, 8, 9], &[compare(10, Compare::Le, 10_471)]));
    best("the library, Q1's columns", || plain(&[4, 5, 6, 7, 8, 9, 10]));
}
