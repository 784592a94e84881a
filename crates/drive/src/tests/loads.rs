use super::*;
use pithead_door::{Claim, DomainAt};
use pithead_model::{Dataset, Manifest, Partition, Partitioning, SortKey};

use crate::storage::slice_key;

#[tokio::test]
async fn a_load_is_cut_into_slices_and_survives_a_restart() {
    let Rig { drive, directory } = rig();
    let loaded = drive.load(load_request(1), batches(vec![Ok(batch(0..25))])).await.unwrap();
    let run_made = loaded.run;
    assert_eq!((run_made.slices, run_made.rows), (3, 25));
    assert_eq!(loaded.columns[0].distinct, 25);
    let found = drive.directory(run_key(&run_made)).await.unwrap();
    assert_eq!((found.slices.len(), found.metadata["origin"].as_str()), (3, "test"));
    drive.commit(0, Manifest { version: 1, ..Manifest::empty("main", vec![drive.id()]) }).await.unwrap();
    let id = drive.id();
    drive.stop(Duration::ZERO).await;
    drop(drive);
    let drive = open_drive(&directory, |_| {});
    assert_eq!(drive.id(), id);
    assert_eq!(drive.manifest("main".to_owned()).await.unwrap().unwrap().version, 1);
    let answer = run(&*drive, scan(&[&run_made])).await;
    assert_eq!(answer.values, (0..25).collect::<Vec<i64>>());
    let status = drive.status().await.unwrap();
    assert_eq!((status.slices, status.sessions, status.memory_reserved), (3, 0, 0));
    assert_eq!(status.domains, [DomainAt { name: "main".to_owned(), version: 1, home: id }]);
}

#[tokio::test]
async fn rows_are_sorted_within_a_load() {
    let Rig { drive, directory: _directory } = rig();
    let request = LoadRequest { sort: vec![SortKey { column: "a".into(), descending: true }], ..load_request(1) };
    let made = drive.load(request, batches(vec![Ok(batch(0..15)), Ok(batch(15..30))])).await.unwrap().run;
    let found = drive.directory(run_key(&made)).await.unwrap();
    let lowest: Vec<f64> = found.slices.iter().map(|slice| slice.columns[0].min.as_ref().unwrap().position()).collect();
    assert_eq!(lowest, [20.0, 10.0, 0.0]);
    assert_eq!(drive.status().await.unwrap().memory_reserved, 0);
}

#[tokio::test]
async fn no_rows_are_a_run_without_slices() {
    let Rig { drive, directory: _directory } = rig();
    let made = drive.load(load_request(1), batches(vec![])).await.unwrap().run;
    assert_eq!((made.slices, made.rows), (0, 0));
    let answer = run(&*drive, scan(&[&made])).await;
    assert_eq!((answer.values.len(), answer.annotations.len()), (0, 1));
    assert_complete(&answer, 0);
}

#[tokio::test]
async fn a_load_that_fails_leaves_nothing() {
    let Rig { drive, directory: _directory } = rig();
    let fault = Fault::new(Blame::User, "a damaged file");
    let failed = drive.load(load_request(1), batches(vec![Ok(batch(0..25)), Err(fault.clone())])).await;
    assert_eq!(failed.unwrap_err(), fault);
    let other = RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]).unwrap();
    let failed = drive.load(load_request(1), batches(vec![Ok(other)])).await.unwrap_err();
    assert_eq!(failed.blame, Blame::User);
    for wrong in [
        LoadRequest { encoding: "paper".into(), ..load_request(1) },
        LoadRequest { slice_rows: 0, ..load_request(1) },
        LoadRequest { sort: vec![SortKey { column: "z".into(), descending: false }], ..load_request(1) },
        LoadRequest { schema: Arc::new(Schema::empty()), ..load_request(1) },
    ] {
        assert_eq!(drive.load(wrong, batches(vec![Ok(batch(0..1))])).await.unwrap_err().blame, Blame::User);
    }
    let status = drive.status().await.unwrap();
    assert_eq!((status.slices, status.stored_bytes, status.memory_reserved), (0, 0, 0));
}

#[tokio::test]
async fn a_load_that_is_dropped_leaves_nothing_staged() {
    let directory = tempfile::tempdir().unwrap();
    let (drive, store) = memory_drive(1, &directory);
    let free = || store.usage().unwrap().free_bytes;
    let rows = futures::stream::iter([Ok(batch(0..1_000))]).chain(futures::stream::pending()).boxed();
    tokio::select! {
        ended = drive.load(load_request(1), rows) => panic!("rows that never end made {ended:?}"),
        () = until("slices are staged", async || free() < u64::MAX) => {}
    }
    until("staged slices are given up", async || free() == u64::MAX).await;
    assert_eq!(drive.status().await.unwrap().stored_bytes, 0);
}

#[tokio::test]
async fn a_load_is_not_made_twice() {
    let Rig { drive, directory: _directory } = rig();
    load(&drive, 1, 5).await;
    let again = drive.load(load_request(1), batches(vec![Ok(batch(0..5))])).await;
    assert_eq!(again.unwrap_err().blame, Blame::Conflict);
}

#[tokio::test]
async fn discarded_slices_go_but_for_those_kept_and_those_leased() {
    let Rig { drive, directory: _directory } = rig();
    let (old, kept) = (load(&drive, 1, 25).await, load(&drive, 2, 15).await);
    let session = open(&*drive, scan(&[&old])).await.session;
    assert_eq!(drive.discard(discard(Loads::AllBut(vec![kept.load]))).await.unwrap(), 0);
    let answer = collect(drive.get(session).await.unwrap()).await.unwrap();
    assert_eq!(answer.values.len(), 25);
    drive.close(session).await.unwrap();
    until("the leased run is gone", async || drive.status().await.unwrap().slices == 2).await;
    let fault = drive.open(scan(&[&old])).await.unwrap_err();
    assert_eq!(fault.blame, Blame::Conflict);
    assert_eq!(drive.discard(discard(Loads::All)).await.unwrap(), 2);
    assert_eq!(drive.status().await.unwrap().stored_bytes, 0);
}

#[tokio::test]
async fn a_discard_means_loads_and_partitions() {
    let Rig { drive, directory: _directory } = rig();
    let stored = async || {
        let partitions = drive.status().await.unwrap().partitions;
        partitions.iter().map(|it| (it.partition, it.slices)).collect::<Vec<_>>()
    };
    for number in 1..5 {
        load(&drive, number, 10).await;
        let elsewhere = LoadRequest { partition: 3, ..load_request(number) };
        drive.load(elsewhere, batches(vec![Ok(batch(0..10))])).await.unwrap();
    }
    let one = |loads, partition| Discard { partition, ..discard(loads) };
    assert_eq!(drive.discard(one(Loads::Only(vec![LoadId(1), LoadId(99)]), Some(3))).await.unwrap(), 1);
    assert_eq!(stored().await, [(0, 4), (3, 3)]);
    assert_eq!(drive.discard(one(Loads::Only(vec![LoadId(2)]), None)).await.unwrap(), 2);
    assert_eq!(stored().await, [(0, 3), (3, 2)]);
    assert_eq!(drive.discard(one(Loads::AllBut(vec![LoadId(4)]), Some(0))).await.unwrap(), 2);
    assert_eq!(stored().await, [(0, 1), (3, 2)]);
    assert_eq!(drive.discard(one(Loads::Only(vec![]), None)).await.unwrap(), 0);
    assert_eq!(drive.discard(Discard { dataset: DatasetId(8), ..discard(Loads::All) }).await.unwrap(), 0);
    assert_eq!(drive.discard(one(Loads::All, Some(3))).await.unwrap(), 2);
    assert_eq!(stored().await, [(0, 1)]);
}

#[tokio::test]
async fn what_a_restart_interrupts_is_deleted_then() {
    let Rig { drive, directory } = rig();
    let old = load(&drive, 1, 25).await;
    let _session = open(&*drive, scan(&[&old])).await;
    drive.discard(discard(Loads::All)).await.unwrap();
    // Gone without CLOSE, as in a crash: the store alone knows that the run is to go.
    drop(drive);
    let drive = open_drive(&directory, |_| {});
    assert_eq!(drive.status().await.unwrap().slices, 0);
}

#[tokio::test]
async fn a_full_medium_is_said_so_and_nothing_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::bounded(20_000));
    let options = DriveOptions { threads: 2, ..DriveOptions::new(directory.path()) };
    let drive = Drive::over(store, DriveId(1), options).unwrap();
    let kept = load(&drive, 1, 20).await;
    let used = drive.status().await.unwrap();
    let fault = drive.load(load_request(2), batches(vec![Ok(batch(0..10_000))])).await.unwrap_err();
    assert_eq!(fault.blame, Blame::Limit);
    assert!(fault.hint.is_some());
    let now = drive.status().await.unwrap();
    assert_eq!((now.stored_bytes, now.slices, now.free_bytes), (used.stored_bytes, 2, used.free_bytes));
    assert_eq!(run(&*drive, scan(&[&kept])).await.values.len(), 20);
}

#[tokio::test]
async fn what_is_claimed_for_a_later_manifest_is_not_deleted() {
    let Rig { drive, directory: _directory } = rig();
    let run = run_key(&load(&drive, 1, 25).await);
    let missing = SliceKey { load: LoadId(9), ..run.clone() };
    let claim = Claim { runs: vec![run.clone(), missing.clone()], version: 4 };
    assert_eq!(drive.claim(claim).await.unwrap(), [missing]);
    let seen = |seen| Discard { seen, ..discard(Loads::Only(vec![LoadId(1)])) };
    assert_eq!(drive.discard(seen(Some(4))).await.unwrap(), 0, "version 5 may name it");
    drive.directory(run.clone()).await.unwrap();
    assert!(drive.discard(seen(Some(5))).await.unwrap() > 0, "version 5 does not name it");
    assert!(drive.storage.store.list(b"claim/").unwrap().is_empty());
}

#[tokio::test]
async fn a_drive_collects_what_no_manifest_names() {
    let Rig { drive, directory: _directory } = rig();
    let mut runs = Vec::new();
    for number in 1..=4 {
        runs.push(load(&drive, number, 25).await);
    }
    // 1 is named, 2 is about to be, 3 and 4 were left.
    let dataset = Dataset {
        id: DatasetId(7),
        schema: schema(),
        metadata: Default::default(),
        partitioning: Partitioning::RoundRobin,
        sort: vec![],
        encoding: "arrow".into(),
        slice_rows: 1,
        slice_bytes: None,
        copies: 1,
        merged: 0,
        partitions: vec![Partition { copies: vec![drive.id()], runs: vec![runs[0]], columns: vec![] }],
    };
    let mut manifest = Manifest { version: 1, ..Manifest::empty("main", vec![drive.id()]) };
    manifest.datasets.insert(name().dataset, dataset);
    drive.commit(0, manifest).await.unwrap();
    drive.claim(Claim { runs: vec![run_key(&runs[1])], version: 1 }).await.unwrap();
    drive.storage.collect_orphans(Duration::from_secs(3600)).await.unwrap();
    let is_there = |run: &Run| drive.storage.store.entry(&slice_key(&run_key(run))).unwrap().is_some();
    let there = || runs.iter().map(is_there).collect::<Vec<bool>>();
    assert_eq!(there(), [true; 4], "loads may be on their way");
    drive.storage.collect_orphans(Duration::ZERO).await.unwrap();
    assert_eq!(there(), [true, true, false, false]);
}
