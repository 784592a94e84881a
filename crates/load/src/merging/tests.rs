use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use futures::stream::{self, StreamExt};
use pithead_door::Door;
use pithead_fakes::FakeDoor;
use pithead_fleet::Edit;
use pithead_model::{ColumnSummary, DatasetId, DriveId, Value};

use super::*;
use crate::{LoadMode, LoadSpec};

pub(crate) struct Cluster {
    pub(crate) doors: Vec<Arc<FakeDoor>>,
    pub(crate) loader: Loader,
}

pub(crate) async fn connect(doors: &[Arc<FakeDoor>]) -> Loader {
    let doors = doors.iter().map(|door| Arc::clone(door) as Arc<dyn Door>).collect();
    Loader::new(Fleet::connect(doors, "main", &[]).await.unwrap(), 2)
}

impl Cluster {
    pub(crate) async fn new(drives: u64, copies: usize) -> Self {
        let doors: Vec<_> = (1..=drives).map(FakeDoor::new).collect();
        let loader = connect(&doors).await;
        let spec = LoadSpec { copies: Some(copies), partitions: Some(1), ..LoadSpec::new("t".parse().unwrap(), vec![]) };
        put(&loader, spec, 0).await.unwrap();
        Self { doors, loader }
    }

    pub(crate) async fn dataset(&self) -> Dataset {
        let snapshot = self.loader.fleet().snapshot().await.unwrap();
        snapshot.dataset(&"t".parse().unwrap()).map(|(_, dataset)| dataset.clone()).unwrap()
    }

    /// The rows that the manifest names, in its order, at one of the drives.
    pub(crate) async fn rows(&self, drive: u64) -> Vec<i64> {
        let dataset = self.dataset().await;
        let stored = self.doors.iter().find(|door| door.id == DriveId(drive)).unwrap().stored.lock();
        let batches = dataset.partitions[0].runs.iter().flat_map(|run| stored[&(dataset.id, run.load, 0)].clone());
        batches.flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
    }

    async fn runs(&self) -> usize {
        self.dataset().await.partitions[0].runs.len()
    }

    pub(crate) fn stored(&self) -> usize {
        self.doors.iter().map(|door| door.rows()).sum()
    }
}

/// Loads one row.
async fn put(loader: &Loader, spec: LoadSpec, value: i64) -> Result<(), Fault> {
    let column: ArrayRef = Arc::new(Int64Array::from(vec![value]));
    let row = RecordBatch::try_from_iter([("k", column)]).unwrap();
    loader.load_batches(spec, row.schema(), stream::iter([Ok(row)]).boxed()).await.map(drop)
}

pub(crate) async fn append(loader: &Loader, value: i64) -> Result<(), Fault> {
    put(loader, LoadSpec { mode: LoadMode::Append, ..LoadSpec::new("t".parse().unwrap(), vec![]) }, value).await
}

#[tokio::test]
async fn appends_leave_few_runs_and_all_rows_in_their_order() {
    let place = Cluster::new(3, 2).await;
    for value in 1..300 {
        append(&place.loader, value).await.unwrap();
        assert!(place.runs().await <= 46, "after {value}");
    }
    let copies = place.dataset().await.partitions[0].copies.clone();
    assert_eq!(copies.len(), 2);
    for drive in copies {
        assert_eq!(place.rows(drive.0).await, (0..300).collect::<Vec<_>>());
    }
    assert!(place.stored() > 600, "statements may read what was merged");
    place.loader.fleet().collect_orphans().await.unwrap();
    assert_eq!(place.stored(), 600, "what nothing names is collected");
}

#[tokio::test]
async fn a_merge_that_fails_costs_no_append_and_leaves_nothing() {
    let place = Cluster::new(2, 2).await;
    let fault = Fault::new(Blame::Device, "no space left");
    place.doors.iter().for_each(|door| *door.merge_fault.lock() = Some(fault.clone()));
    for value in 1..21 {
        append(&place.loader, value).await.unwrap();
    }
    assert_eq!((place.runs().await, place.stored()), (21, 2 * 21), "the fake drive has written before it fails");
    place.doors.iter().for_each(|door| *door.merge_fault.lock() = None);
    append(&place.loader, 21).await.unwrap();
    assert_eq!((place.runs().await, place.rows(1).await), (1, (0..22).collect()));
}

#[tokio::test]
async fn a_partition_with_a_copy_on_an_array_is_left_as_it_is() {
    let mut place = Cluster::new(2, 2).await;
    place.doors[1].merges.store(false, Ordering::Relaxed);
    place.loader = connect(&place.doors).await;
    for value in 1..40 {
        append(&place.loader, value).await.unwrap();
    }
    assert_eq!((place.runs().await, place.stored()), (40, 80));
}

#[tokio::test]
async fn a_copy_that_does_not_get_the_merged_run_ends_the_merge() {
    let place = Cluster::new(2, 2).await;
    for value in 1..15 {
        append(&place.loader, value).await.unwrap();
    }
    let first = place.dataset().await.partitions[0].copies[0];
    let door = place.doors.iter().find(|door| door.id == first).unwrap();
    let dataset = place.dataset().await;
    append(&place.loader, 15).await.unwrap();
    assert_eq!((place.runs().await, place.rows(1).await), (1, (0..16).collect()), "16 runs are merged");
    // The same merge once more, of runs that are still stored, from a drive whose runs cannot be read.
    door.is_damaged.store(true, Ordering::Relaxed);
    let before = place.stored();
    let drives = place.loader.fleet().connected();
    let runs = dataset.partitions[0].runs.clone();
    let name = "t".parse().unwrap();
    let fault = merge_partition(&drives, &name, &dataset, 0, runs, LoadId(99)).await.unwrap_err();
    assert_eq!((fault.blame, place.stored()), (Blame::Corrupt, before));
}

/// Appends by two hosts at one time, each of which merges what it finds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hosts_append_and_merge_at_one_time() {
    for round in 0..5 {
        let place = Cluster::new(2, 2).await;
        let other = connect(&place.doors).await;
        let appends = async |loader: &Loader, first: i64| {
            for value in (first..200).step_by(2) {
                while let Err(fault) = append(loader, value).await {
                    assert_eq!(fault.blame, Blame::Conflict, "{fault}");
                }
            }
        };
        tokio::join!(appends(&place.loader, 1), appends(&other, 2));
        let (one, two) = (place.rows(1).await, place.rows(2).await);
        assert_eq!(one, two, "round {round}");
        let of = |odd: i64| one.iter().copied().filter(|value| value % 2 == odd).collect::<Vec<_>>();
        assert_eq!((of(0), of(1)), ((0..200).step_by(2).collect(), (1..200).step_by(2).collect()), "round {round}");
        assert!(place.runs().await <= 64, "round {round}: {} runs", place.runs().await);
        place.loader.fleet().collect_orphans().await.unwrap();
        assert_eq!(place.stored(), 400, "round {round}");
    }
}

#[tokio::test]
async fn lost_answers_are_settled_by_looking() {
    let place = Cluster::new(2, 1).await;
    for value in 1..15 {
        append(&place.loader, value).await.unwrap();
    }
    // That of the append, and that of the merge.
    place.doors[0].answers_lost.store(2, Ordering::Relaxed);
    append(&place.loader, 15).await.unwrap();
    assert_eq!((place.runs().await, place.rows(1).await), (1, (0..16).collect()));
}

fn loaded(load: u64) -> Loaded {
    let value = Some(Value::Int(i128::from(load)));
    let column = ColumnSummary { min: value.clone(), max: value, exact: true, distinct: 1, ..ColumnSummary::default() };
    Loaded { run: Run { load: LoadId(load), slices: 1, rows: 1, bytes: 1 }, columns: vec![column] }
}

#[tokio::test]
async fn runs_that_are_not_there_any_more_are_not_replaced() {
    let place = Cluster::new(1, 1).await;
    let mut manifest =
        Manifest { version: 8, ..place.loader.fleet().manifest("main", &place.loader.fleet().connected()).await.unwrap() };
    let dataset = manifest.datasets.get_mut("t").unwrap();
    let (id, schema) = (dataset.id, Arc::clone(&dataset.schema));
    dataset.partitions[0] = Partition::empty(vec![DriveId(1)]);
    (1..=5).for_each(|load| dataset.partitions[0].append(loaded(load)));
    let name: DatasetName = "t".parse().unwrap();
    let change = |from: &[u64], placed: u64, dataset| Replacement {
        name: &name,
        dataset,
        schema: Arc::clone(&schema),
        made: vec![ReplacementRun {
            partition: 0,
            from: from.iter().copied().map(LoadId).collect(),
            run: loaded(9),
            placed: vec![DriveId(placed)],
            nulls_gone: None,
        }],
        over: None,
    };
    for wrong in [change(&[1, 2], 2, id), change(&[2, 1], 1, id), change(&[5, 6], 1, id), change(&[1, 2], 1, DatasetId(1))] {
        assert_eq!(wrong.apply(&mut manifest.clone()).unwrap_err().blame, Blame::Conflict, "{:?}", wrong.made);
        assert!(!wrong.is_in(&manifest) && !wrong.may_be_hidden(&manifest, 0));
    }
    // Others may have appended meanwhile.
    let right = change(&[2, 3, 4], 1, id);
    right.apply(&mut manifest).unwrap();
    let present = &manifest.datasets["t"];
    assert_eq!(present.partitions[0].runs.iter().map(|run| run.load.0).collect::<Vec<_>>(), [1, 9, 5]);
    assert_eq!((present.merged, right.is_in(&manifest), right.runs().len()), (9, true, 1));
    // An append of version 5 may be among what version 9 has merged; one of version 9 or later is not.
    let append = |dataset| pithead_fleet::Change::Append {
        dataset,
        schema: Arc::clone(&schema),
        load: LoadId(3),
        runs: vec![Some(loaded(3))],
        placed: vec![vec![DriveId(1)]],
        metadata: Default::default(),
    };
    let hidden = |dataset, version| {
        let change = append(dataset);
        let change = pithead_fleet::DatasetChange { name: &name, change: &change };
        (change.is_in(&manifest), change.may_be_hidden(&manifest, version))
    };
    assert_eq!([hidden(id, 5), hidden(id, 9), hidden(DatasetId(1), 5)], [(false, true), (false, false), (false, false)]);
    // It may have been made before another incarnation took the place of its own, unless that was in the version that it was to be.
    let undone = |dataset, version| {
        let appended = append(dataset);
        let appended = pithead_fleet::DatasetChange { name: &name, change: &appended };
        (appended.may_be_undone(&manifest, version), change(&[1, 2], 1, dataset).may_be_undone(&manifest, version))
    };
    let other = DatasetId(1);
    assert_eq!([undone(id, 5), undone(other, 5), undone(other, 8)], [(false, false), (true, true), (false, false)]);
    let dataset = || Dataset { id: other, ..present.clone() };
    let over = |merged| pithead_fleet::Change::Rewrite { over: Dataset { merged, ..present.clone() }, dataset: dataset() };
    let unsure = |change: &pithead_fleet::Change, merged| {
        let mut manifest = manifest.clone();
        manifest.datasets.get_mut("t").unwrap().merged = merged;
        pithead_fleet::DatasetChange { name: &name, change }.may_be_undone(&manifest, 7)
    };
    assert!(unsure(&pithead_fleet::Change::Create(dataset()), 3), "what is there may have come after it");
    assert!(unsure(&over(3), 8), "it may have been restored");
    assert!(!unsure(&over(3), 7), "what was to be replaced was there all the time");
}
