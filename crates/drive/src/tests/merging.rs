//! Runs that are merged at a drive.

use super::*;
use arrow::array::{Float64Array, ListArray};
use arrow::compute::concat_batches;
use arrow::datatypes::Float64Type;
use pithead_door::{MERGED_MAX, MergeRuns};
use pithead_model::{Loaded, PAGE_ROWS, SortKey};
use pithead_slice::{ReadStats, ScanRequest, open_slice};

use crate::storage::slice_key;

fn merge(into: LoadRequest, loads: &[u64]) -> MergeRuns {
    MergeRuns { into, loads: loads.iter().copied().map(LoadId).collect() }
}

/// The rows of a run, slice after slice, as they lie there.
pub(super) async fn stored(drive: &Drive, run: &Run) -> RecordBatch {
    let directory = drive.directory(run_key(run)).await.unwrap();
    let mut rows = Vec::new();
    for number in 0..run.slices {
        let (value, _) = drive.storage.store.get(&slice_key(&run_key(run).slice(number))).unwrap().unwrap();
        let request = ScanRequest {
            columns: (0..directory.schema.fields().len()).collect(),
            predicates: vec![],
            keys: Vec::new(),
            zone_maps: true,
            sample: None,
            batch_rows: PAGE_ROWS,
            stats: Arc::new(ReadStats::default()),
        };
        let mut stream = open_slice(&directory.schema, value).unwrap().scan(request).unwrap().stream;
        while let Some(batch) = stream.next().await {
            rows.push(RecordBatch::try_new(Arc::clone(&directory.schema), batch.unwrap().columns().to_vec()).unwrap());
        }
    }
    concat_batches(&directory.schema, &rows).unwrap()
}

pub(super) fn numbers(rows: &RecordBatch) -> Vec<i64> {
    rows.column(0).as_primitive::<Int64Type>().values().to_vec()
}

pub(super) async fn load_values(drive: &Drive, request: LoadRequest, values: &[i64]) -> Loaded {
    drive.load(request, batches(vec![Ok(batch(values.iter().copied()))])).await.unwrap()
}

#[tokio::test]
async fn runs_become_one_in_their_order() {
    let Rig { drive, directory: _directory } = rig();
    for (number, values) in [(1, &[5, 3][..]), (2, &[]), (3, &[9, 9, 1, 0]), (4, &[2; 9])] {
        load_values(&drive, load_request(number), values).await;
    }
    let merged = drive.merge_runs(merge(load_request(7), &[4, 1, 2, 3])).await.unwrap();
    assert_eq!((merged.run.load, merged.run.rows, merged.run.slices), (LoadId(7), 15, 2));
    assert_eq!(numbers(&stored(&drive, &merged.run).await), [2, 2, 2, 2, 2, 2, 2, 2, 2, 5, 3, 9, 9, 1, 0]);
    let found = drive.directory(run_key(&merged.run)).await.unwrap();
    assert_eq!((found.columns.clone(), found.metadata["origin"].as_str()), (merged.columns, "test"));
    assert_eq!((found.columns[0].distinct, found.columns[0].exact), (6, true), "over all rows");
    let answer = run(&*drive, scan(&[&merged.run])).await;
    assert_eq!(answer.values.len(), 15);
    assert_complete(&answer, 2);
    let status = drive.status().await.unwrap();
    assert_eq!((status.slices, status.memory_reserved), (5, 0), "those that were merged are there still");
    let nothing = drive.merge_runs(merge(load_request(8), &[2])).await.unwrap();
    assert_eq!((nothing.run.rows, nothing.run.slices, nothing.columns.len()), (0, 0, 2));
}

#[tokio::test]
async fn rows_are_in_order_over_all_of_a_merged_run() {
    let Rig { drive, directory: _directory } = rig();
    let request = |number| LoadRequest { sort: vec![SortKey { column: "a".into(), descending: true }], ..load_request(number) };
    for number in 1..=20 {
        let values: Vec<i64> = (0..3).map(|row| (number as i64 * 31 + row * 17) % 50).collect();
        load_values(&drive, request(number), &values).await;
    }
    let merged = drive.merge_runs(merge(request(99), &(1..=20).collect::<Vec<_>>())).await.unwrap();
    let values = numbers(&stored(&drive, &merged.run).await);
    assert_eq!((values.len(), merged.run.slices), (60, 6));
    assert!(values.is_sorted_by(|a, b| a >= b), "{values:?}");
}

/// Rows of types and values that equality takes for the same, or for none.
fn odd_rows() -> RecordBatch {
    let floats = [Some(0.0), None, Some(-0.0), Some(f64::NAN), Some(-f64::NAN), Some(f64::NEG_INFINITY), Some(1.5)];
    let texts =
        [None, Some(""), Some("a text that is far too long to be kept inside of a view"), Some("ä"), None, Some("x"), None];
    let lists = (0..7).map(|row| match row {
        0 => None,
        row => Some((0..row - 1).map(|item| (item % 2 == 0).then_some(if item == 2 { -0.0 } else { f64::from(item) }))),
    });
    let lists = ListArray::from_iter_primitive::<Float64Type, _, _>(lists);
    let columns: [(&str, ArrayRef); 3] = [
        ("f", Arc::new(Float64Array::from(floats.to_vec()))),
        ("t", Arc::new(StringViewArray::from(texts.to_vec()))),
        ("l", Arc::new(lists)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true))).unwrap()
}

#[tokio::test]
async fn values_stay_as_they_are_bit_by_bit() {
    let Rig { drive, directory: _directory } = rig();
    let rows = odd_rows();
    for (encoding, first) in [("arrow", 100), ("vortex", 200)] {
        let request = |load| LoadRequest { schema: rows.schema(), encoding: encoding.into(), ..load_request(load) };
        for row in 0..rows.num_rows() {
            let one = batches(vec![Ok(rows.slice(row, 1))]);
            drive.load(request(first + row as u64), one).await.unwrap();
        }
        let loads: Vec<u64> = (first..first + rows.num_rows() as u64).collect();
        let merged = drive.merge_runs(merge(request(first + 50), &loads)).await.unwrap();
        let found = stored(&drive, &merged.run).await;
        assert_eq!(found, rows, "{encoding}");
        let bits = |rows: &RecordBatch| -> Vec<u64> {
            rows.column(0).as_primitive::<Float64Type>().iter().map(|value| value.map_or(1, f64::to_bits)).collect()
        };
        assert_eq!(bits(&found), bits(&rows), "{encoding}");
        assert_eq!(merged.columns.iter().map(|column| column.nulls).collect::<Vec<_>>(), [1, 3, 1], "{encoding}");
    }
}

#[tokio::test]
async fn what_cannot_be_merged_leaves_nothing() {
    let Rig { drive, directory: _directory } = rig();
    load(&drive, 1, 5).await;
    load(&drive, 2, 5).await;
    let before = drive.status().await.unwrap();
    // Of a column that is gone the rows are merged without it; of one that no run has, or has with other values, nothing can be made.
    let other = |name: &str, data_type| Arc::new(Schema::new(vec![Field::new(name, data_type, true)]));
    for (request, blame) in [
        (merge(load_request(9), &[1, 3]), Blame::Conflict),
        (merge(load_request(2), &[1]), Blame::Conflict),
        (merge(LoadRequest { schema: other("z", DataType::Int64), ..load_request(9) }, &[1]), Blame::User),
        (merge(LoadRequest { schema: other("a", DataType::Int32), ..load_request(9) }, &[1]), Blame::User),
        (merge(LoadRequest { slice_rows: 0, ..load_request(9) }, &[1]), Blame::User),
        (merge(load_request(9), &vec![1; MERGED_MAX + 1]), Blame::User),
    ] {
        assert_eq!(drive.merge_runs(request.clone()).await.unwrap_err().blame, blame, "{:?}", request.into);
    }
    let now = drive.status().await.unwrap();
    assert_eq!((now.slices, now.stored_bytes, now.memory_reserved), (before.slices, before.stored_bytes, 0));
    let small = rig_with(|options| options.memory = 1 << 20);
    load(&small.drive, 1, 5).await;
    let granted = small.drive.resources.budget.reserve(1 << 20, 0).unwrap();
    let fault = small.drive.merge_runs(merge(load_request(9), &[1])).await.unwrap_err();
    assert_eq!(fault.blame, Blame::Limit, "it does not wait for memory");
    drop(granted);
}

/// A session that reads the runs that are merged, to its end, also when they are to be deleted meanwhile.
#[tokio::test]
async fn sessions_read_on_what_was_merged() {
    let Rig { drive, directory: _directory } = rig();
    let (one, two) = (load(&drive, 1, 25).await, load(&drive, 2, 15).await);
    let session = open(&*drive, scan(&[&one, &two])).await.session;
    let merged = drive.merge_runs(merge(load_request(3), &[1, 2])).await.unwrap().run;
    assert_eq!(drive.discard(discard(Loads::AllBut(vec![merged.load]))).await.unwrap(), 0);
    assert_eq!(drive.merge_runs(merge(load_request(4), &[1, 2])).await.unwrap().run.rows, 40, "leased, so they are there");
    let answer = collect(drive.get(session).await.unwrap()).await.unwrap();
    assert_eq!(answer.values.len(), 40);
    drive.close(session).await.unwrap();
    until("the runs are gone", async || drive.status().await.unwrap().slices == u64::from(2 * merged.slices)).await;
    assert_eq!(run(&*drive, scan(&[&merged])).await.values, answer.values);
}
