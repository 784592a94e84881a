//! Datasets that get other names: the rows are under one of the two, whatever others do meanwhile.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use pithead_door::Door;
use pithead_fakes::FakeDoor;
use pithead_model::{
    Blame, ColumnSummary, Dataset, DatasetId, DatasetName, DriveId, FaultKind, LoadId, Manifest, Partition, Partitioning, Run,
    SliceKey,
};

use crate::{Change, Fleet, NotCommitted, Rename};

const ROWS: usize = 40;

/// Two drives with two copies of the dataset `t`, and a host.
struct Place {
    doors: [Arc<FakeDoor>; 2],
    fleet: Fleet,
}

impl Place {
    async fn new() -> Self {
        let doors = [FakeDoor::new(1), FakeDoor::new(2)];
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS as i64));
        let rows = RecordBatch::try_from_iter([("k", keys)]).unwrap();
        let run = SliceKey { name: name("t"), dataset: DatasetId(7), load: LoadId(1), partition: 0, number: None };
        for door in &doors {
            door.keep(&run, vec![rows.clone()]);
            door.manifests.lock().insert("main".to_owned(), manifest(&rows));
        }
        let named = doors.iter().map(|door| Arc::clone(door) as Arc<dyn Door>).collect();
        let fleet = Fleet::connect(named, "main", &[]).await.unwrap();
        Self { doors, fleet }
    }

    async fn read(&self, dataset: &str) -> Dataset {
        let snapshot = self.fleet.snapshot().await.unwrap();
        snapshot.find(&name(dataset)).unwrap().1.clone()
    }

    async fn names(&self) -> Vec<String> {
        self.fleet.datasets().await.unwrap().into_iter().map(|(name, _)| name.dataset).collect()
    }

    fn rows(&self) -> [usize; 2] {
        [self.doors[0].rows(), self.doors[1].rows()]
    }
}

fn name(dataset: &str) -> DatasetName {
    dataset.parse().unwrap()
}

fn manifest(rows: &RecordBatch) -> Manifest {
    let drives = vec![DriveId(1), DriveId(2)];
    let run = Run { load: LoadId(1), slices: 1, rows: ROWS as u64, bytes: 8 * ROWS as u64 };
    let partition = Partition { copies: drives.clone(), runs: vec![run], columns: vec![ColumnSummary::default()] };
    let dataset = Dataset {
        id: DatasetId(7),
        schema: rows.schema(),
        metadata: Default::default(),
        partitioning: Partitioning::RoundRobin,
        sort: vec![],
        encoding: "vortex".to_owned(),
        slice_rows: 100,
        slice_bytes: None,
        copies: 2,
        merged: 0,
        partitions: vec![partition],
    };
    Manifest { version: 1, datasets: [("t".to_owned(), dataset)].into(), ..Manifest::empty("main", drives) }
}

#[tokio::test]
async fn rows_are_under_the_new_name_once_they_are_not_under_the_old_one() {
    let place = Place::new().await;
    let (from, to, read) = (name("t"), name("u"), place.read("t").await);
    let rename = Rename::new(&from, &to, &read);
    rename.copy(&place.fleet).await.unwrap();
    assert_eq!((place.names().await, place.rows()), (vec!["t".to_owned()], [2 * ROWS, 2 * ROWS]));
    let old = place.fleet.commit(&rename).await.unwrap().made;
    assert_eq!((old, place.names().await), (read.clone(), vec!["u".to_owned()]));
    let new = place.read("u").await;
    assert_eq!(Dataset { id: read.id, ..new.clone() }, read);
    assert_ne!(new.id, read.id, "runs that are to go have other keys than those that came");
    let not = place.fleet.commit(&rename).await.unwrap_err();
    assert_eq!((not.certain, not.fault.kind), (true, FaultKind::Exists));
}

#[tokio::test]
async fn who_changes_the_dataset_first_wins() {
    let place = Place::new().await;
    let (from, to, read) = (name("t"), name("u"), place.read("t").await);
    let rename = Rename::new(&from, &to, &read);
    rename.copy(&place.fleet).await.unwrap();
    place.fleet.commit_dataset(&from, &Change::Drop).await.unwrap();
    let NotCommitted { fault, certain } = place.fleet.commit(&rename).await.unwrap_err();
    assert!(certain && fault.blame == Blame::Conflict, "{fault}");
    rename.give_up(&place.fleet).await;
    assert_eq!((place.names().await.len(), place.rows()), (0, [ROWS, ROWS]));
}

#[tokio::test]
async fn a_name_that_is_taken_is_refused() {
    let place = Place::new().await;
    let (from, to, read) = (name("t"), name("u"), place.read("t").await);
    let empty = Partition::empty(vec![DriveId(1)]);
    let other = Dataset { id: DatasetId(8), partitions: vec![empty], ..read.clone() };
    place.fleet.commit_dataset(&to, &Change::Create(other)).await.unwrap();
    let not = place.fleet.commit(&Rename::new(&from, &to, &read)).await.unwrap_err();
    assert_eq!((not.fault.kind, place.names().await.len()), (FaultKind::Exists, 2));
}
