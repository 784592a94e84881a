//! Work over fake drives that takes longer than drives keep what no manifest names: what it has written is claimed meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use futures::stream::{self, StreamExt};
use pithead_fakes::FakeDoor;
use pithead_fleet::{Fleet, TakeUp};
use pithead_model::{DriveId, Fault};

use crate::marking::{ExchangeSpec, MarkSpec};
use crate::merging::tests::{Cluster, append, connect};
use crate::{LoadMode, LoadSpec, Loader, PartitionBy};

/// Longest wait for work that ends as soon as its runs are claimed.
const LIMIT: Duration = Duration::from_secs(60);

/// From here on a drive goes on only once all that it has was claimed.
fn wait_for_claims(loader: &Loader, doors: &[Arc<FakeDoor>]) {
    loader.fleet().attend_every(Duration::from_millis(1));
    doors.iter().for_each(|door| door.waits_for_claims.store(true, Ordering::Relaxed));
}

fn numbers(values: std::ops::Range<i64>) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
    RecordBatch::try_from_iter([("k", column)]).unwrap()
}

/// Moves all of a drive elsewhere, and takes it out of its domains.
async fn leave(fleet: &Fleet, drive: DriveId) -> Result<(), Fault> {
    fleet.drain(drive, Arc::new(|_| ())).await?;
    fleet.remove(drive).await
}

/// A regression: the runs that a move had copied first were deleted before it had copied the last ones.
#[tokio::test]
async fn a_move_claims_what_it_has_copied() {
    let place = Cluster::new(2, 1).await;
    for value in 1..6 {
        append(&place.loader, value).await.unwrap();
    }
    wait_for_claims(&place.loader, &place.doors);
    let moved = place.loader.fleet().drain(DriveId(1), Arc::new(|_| ()));
    let report = tokio::time::timeout(LIMIT, moved).await.expect("its runs are claimed").unwrap();
    assert_eq!((report.partitions, place.rows(2).await), (1, (0..6).collect()));
}

/// A regression: taking up rows that took longer than drives keep what nothing names always failed at its end.
#[tokio::test]
async fn rows_that_are_taken_up_are_claimed() {
    let place = Cluster::new(2, 1).await;
    for value in 1..6 {
        append(&place.loader, value).await.unwrap();
    }
    let home = place.doors.iter().find(|door| door.rows() > 0).unwrap();
    *home.aside.lock() = home.manifests.lock().get("main").cloned();
    for door in &place.doors {
        let mut manifests = door.manifests.lock();
        let manifest = manifests.get_mut("main").unwrap();
        manifest.datasets.clear();
        manifest.version += 1;
    }
    wait_for_claims(&place.loader, &place.doors);
    let [name, into] = ["t", "u"].map(|name| name.parse().unwrap());
    let taking = TakeUp { name, into, drive: None, version: None, partial: false };
    let taken = place.loader.fleet().take_up(&taking, Arc::new(|_| ()));
    let taken = tokio::time::timeout(LIMIT, taken).await.expect("its runs are claimed").unwrap();
    assert_eq!((taken.rows, taken.created), (6, true));
}

/// A regression: what one drive had made of a run was deleted while it, or another one, made the next.
#[tokio::test]
async fn a_change_claims_what_was_made_and_written() {
    let place = Cluster::new(2, 2).await;
    for value in 1..6 {
        append(&place.loader, value).await.unwrap();
    }
    wait_for_claims(&place.loader, &place.doors);
    let without = async |going: [i64; 2]| {
        let plan = going.iter().flat_map(|number| number.to_le_bytes()).collect();
        MarkSpec { name: "t".parse().unwrap(), dataset: Arc::new(place.dataset().await), plan, time_zone: None, alone: false }
    };
    let changes = async {
        let new = numbers(20..22);
        let new = ExchangeSpec { schema: new.schema(), rows: stream::iter([Ok(new)]).boxed(), gone: None };
        assert_eq!(place.loader.exchange(without([1, 4]).await, new).await.unwrap(), Some(2));
        assert_eq!(place.loader.mark(without([2, 5]).await).await.unwrap(), Some(2));
    };
    tokio::time::timeout(LIMIT, changes).await.expect("its runs are claimed");
    assert_eq!(place.rows(1).await, [0, 3, 20, 21]);
}

/// A regression: where partitions were moved under an append, what had followed one of them was deleted before all had.
#[tokio::test]
async fn an_append_claims_what_has_followed_its_partitions() {
    let doors: Vec<Arc<FakeDoor>> = (1..=3).map(FakeDoor::new).collect();
    let loader = connect(&doors).await;
    let spec = |mode| LoadSpec { mode, ..LoadSpec::new("t".parse().unwrap(), vec![]) };
    let first = numbers(0..100);
    let partitioning = Some(PartitionBy::Hash(vec!["k".into()]));
    let made = LoadSpec { partitions: Some(2), copies: Some(1), partitioning, ..spec(LoadMode::Create) };
    loader.load_batches(made, first.schema(), stream::iter([Ok(first.clone())]).boxed()).await.unwrap();
    let (fleet, watched) = (loader.fleet().own().clone(), doors.clone());
    let moving = loader.clone();
    let rows = stream::once(async move {
        leave(&fleet, DriveId(1)).await.unwrap();
        leave(&fleet, DriveId(2)).await.unwrap();
        wait_for_claims(&moving, &watched);
        Ok(numbers(100..200))
    });
    let appended = loader.load_batches(spec(LoadMode::Append), first.schema(), rows.boxed());
    tokio::time::timeout(LIMIT, appended).await.expect("its runs are claimed").unwrap();
    assert_eq!(doors.iter().map(|door| door.rows()).collect::<Vec<_>>(), [0, 0, 200]);
}
