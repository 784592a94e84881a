//! Appends of one row after the other: small runs are merged, so neither the manifest nor the work of a query grows with them.
//! `PITHEAD_APPENDS`: how many, to measure.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use futures::StreamExt;
use futures::stream;
use pithead_e2e::{Mode, Setup, block_on, collect};
use pithead_host::{LoadMode, LoadSpec, PartitionBy};
use pithead_model::Manifest;

const APPENDS: i64 = 300;
/// Columns of each type.
const INTS: usize = 8;
const FLOATS: usize = 4;
const TEXTS: usize = 4;
/// Bytes of a manifest with one such dataset in one partition, however many loads it had.
const MANIFEST_BYTES_MAX: usize = 12_000;
/// Runs of a partition after loads of one size.
const RUNS_MAX: usize = 50;

/// One row of 16 columns.
fn row(number: i64) -> RecordBatch {
    let ints = (0..INTS).map(|column| Arc::new(Int64Array::from(vec![number * (column as i64 + 1)])) as ArrayRef);
    let floats = (0..FLOATS).map(|column| Arc::new(Float64Array::from(vec![number as f64 / (column + 3) as f64])) as ArrayRef);
    let texts = (0..TEXTS).map(|column| Arc::new(StringArray::from(vec![format!("text {column} of {number}")])) as ArrayRef);
    let columns = ints.chain(floats).chain(texts).enumerate();
    RecordBatch::try_from_iter(columns.map(|(index, column)| (format!("c{index}"), column))).unwrap()
}

async fn put(setup: &Setup, spec: LoadSpec, number: i64) {
    let row = row(number);
    let loaded = setup.engine.host.load_batches(spec, row.schema(), stream::iter([Ok(row)]).boxed()).await;
    loaded.unwrap_or_else(|fault| panic!("loading row {number}: {fault}"));
}

fn append() -> LoadSpec {
    LoadSpec { mode: LoadMode::Append, ..LoadSpec::new("t".parse().unwrap(), vec![]) }
}

async fn manifest(setup: &Setup) -> Manifest {
    let snapshot = setup.engine.host.fleet().snapshot().await.unwrap();
    snapshot.dataset(&"t".parse().unwrap()).expect("it is there").0.clone()
}

fn runs(manifest: &Manifest) -> usize {
    manifest.datasets["t"].partitions.iter().map(|partition| partition.runs.len()).max().unwrap_or(0)
}

/// Two statements of one session, one of which may use what was kept of before.
async fn check(session: &pithead_host::Session, count: i64) {
    let sum = count * (count - 1) / 2;
    let all = collect(session, "SELECT count(*), sum(c0), max(c1), count(DISTINCT c15) FROM t").await.unwrap();
    let expected = [count, sum, 2 * (count - 1), count].map(|number| number.to_string());
    assert_eq!(all.rows, [expected.to_vec()], "{count} rows");
    let thirds = collect(session, "SELECT c0 % 3 AS g, count(*), sum(c0) FROM t GROUP BY g").await.unwrap();
    let total = |column: usize| -> i64 { thirds.rows.iter().map(|row| row[column].parse::<i64>().unwrap()).sum() };
    assert_eq!((thirds.rows.len() as i64, total(1), total(2)), (count.min(3), count, sum), "{count} rows");
}

#[test]
fn single_rows_do_not_lengthen_the_manifest() {
    let appends = std::env::var("PITHEAD_APPENDS").ok().and_then(|text| text.parse().ok()).unwrap_or(APPENDS);
    block_on(async {
        let setup = Setup::new(Mode::ONE_HERE).await;
        let session = setup.session().await;
        put(&setup, LoadSpec::new("t".parse().unwrap(), vec![]), 0).await;
        for number in 1..=appends {
            let start = Instant::now();
            put(&setup, append(), number).await;
            let took = start.elapsed();
            check(&session, number + 1).await;
            let manifest = manifest(&setup).await;
            assert!(runs(&manifest) <= RUNS_MAX, "{} runs after {number} appends", runs(&manifest));
            let bytes = serde_json::to_vec(&manifest).unwrap().len();
            assert!(bytes <= MANIFEST_BYTES_MAX, "a manifest of {bytes} bytes after {number} appends");
            if number == appends {
                let distinct = manifest.datasets["t"].columns()[0].distinct;
                assert!(distinct as i64 * 2 > appends / 8, "{distinct} distinct values of {appends} are known of");
                println!("{appends} appends: {bytes} bytes, {} runs; the last one took {took:?}", runs(&manifest));
            }
        }
        setup.shutdown().await;
    });
}

async fn ask_while_appending(setup: &Setup) {
    let appends = async {
        for number in 1..100 {
            put(setup, append(), number).await;
        }
    };
    let mut appends = std::pin::pin!(appends);
    let (mut seen, mut is_done) = (0, false);
    while !is_done {
        let session = setup.session().await;
        let ask = async {
            // A join reads the dataset twice, the second time as a whole.
            for sql in ["SELECT count(*), sum(c0) FROM t", "SELECT count(*), sum(a.c0) FROM t AS a JOIN t AS b ON a.c0 = b.c0"]
            {
                let rows = collect(&session, sql).await.unwrap_or_else(|fault| panic!("{}: {fault}", setup.mode.name)).rows;
                let [count, sum] = [0, 1].map(|column| rows[0][column].parse::<i64>().unwrap());
                assert!(count >= seen && sum == count * (count - 1) / 2, "{}: {count} rows, sum {sum}", setup.mode.name);
                seen = count;
            }
        };
        let mut ask = std::pin::pin!(ask);
        tokio::select! {
            () = &mut ask => {}
            () = &mut appends => {
                is_done = true;
                ask.await;
            }
        }
    }
}

/// Statements while appends merge what they read. Each row is the next number, so a statement that sees other rows than those of
/// one manifest adds up to another sum.
#[test]
fn statements_see_one_state_while_runs_are_merged() {
    block_on(async {
        for mode in [Mode::FOUR_HERE, Mode { drives: 2, ..Mode::FOUR_PROCESSES }, Mode::ARRAYS] {
            let setup = Setup::new(mode).await;
            let by_key = Some(PartitionBy::Hash(vec!["c0".to_owned()]));
            let copies = Some(if mode.drives == 2 { 2 } else { 1 });
            let spec =
                LoadSpec { partitioning: by_key, partitions: Some(2), copies, ..LoadSpec::new("t".parse().unwrap(), vec![]) };
            put(&setup, spec, 0).await;
            ask_while_appending(&setup).await;
            check(&setup.session().await, 100).await;
            let manifest = manifest(&setup).await;
            let merges = mode.arrays == 0;
            assert_eq!((runs(&manifest) <= RUNS_MAX / 2, manifest.datasets["t"].merged > 0), (merges, merges), "{}", mode.name);
            setup.shutdown().await;
        }
    });
}
