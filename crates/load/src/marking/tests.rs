use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use futures::StreamExt;
use futures::stream;

use super::*;
use crate::merging::tests::{Cluster, append, connect};

/// The rows 0 to 9, each a run of its own, on two drives.
async fn ten_rows() -> Cluster {
    let place = Cluster::new(2, 2).await;
    for value in 1..10 {
        append(&place.loader, value).await.unwrap();
    }
    place
}

async fn without(place: &Cluster, going: &[i64]) -> MarkSpec {
    let plan = going.iter().flat_map(|number| number.to_le_bytes()).collect();
    MarkSpec { name: "t".parse().unwrap(), dataset: Arc::new(place.dataset().await), plan, time_zone: None, alone: false }
}

fn row(value: i64) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from(vec![value]));
    RecordBatch::try_from_iter([("k", column)]).unwrap()
}

async fn exchange(loader: &Loader, spec: MarkSpec, new: i64) -> Result<Option<u64>, Fault> {
    loader.exchange(spec, comes(&[new], None)).await
}

fn comes(values: &[i64], gone: Option<u64>) -> ExchangeSpec {
    let rows: Vec<RecordBatch> = values.iter().map(|value| row(*value)).collect();
    ExchangeSpec { schema: row(0).schema(), rows: stream::iter(rows.into_iter().map(Ok)).boxed(), gone }
}

#[tokio::test]
async fn rows_go_and_others_come_at_all_copies() {
    let place = ten_rows().await;
    assert_eq!(place.loader.mark(without(&place, &[2, 7]).await).await.unwrap(), Some(2));
    assert_eq!(place.loader.mark(without(&place, &[2, 70]).await).await.unwrap(), Some(0));
    assert_eq!(exchange(&place.loader, without(&place, &[4]).await, 40).await.unwrap(), Some(1));
    for drive in [1, 2] {
        assert_eq!(place.rows(drive).await, [0, 1, 3, 5, 6, 8, 9, 40]);
    }
}

/// Who has what was asked for does not wait for drives that delete what it took the place of.
#[tokio::test]
async fn what_was_replaced_is_deleted_afterwards() {
    let place = ten_rows().await;
    place.doors.iter().for_each(|door| door.discards_hang.store(true, Ordering::Relaxed));
    let (marked, changed) = (without(&place, &[2, 7]).await, without(&place, &[4]).await);
    let changes = async {
        assert_eq!(place.loader.mark(marked).await.unwrap(), Some(2));
        assert_eq!(exchange(&place.loader, changed, 40).await.unwrap(), Some(1));
    };
    tokio::time::timeout(Duration::from_secs(60), changes).await.expect("they have an answer");
    assert_eq!(place.rows(1).await, [0, 1, 3, 5, 6, 8, 9, 40]);
}

/// A copy that marks other rows, or fails, gets what is left of the run from the first one.
#[tokio::test]
async fn copies_come_to_the_same_end() {
    let place = ten_rows().await;
    place.doors[1].marks_others.store(true, Ordering::Relaxed);
    assert_eq!(place.loader.mark(without(&place, &[2, 7]).await).await.unwrap(), Some(2));
    assert_eq!((place.rows(1).await, place.rows(2).await), (vec![0, 1, 3, 4, 5, 6, 8, 9], vec![0, 1, 3, 4, 5, 6, 8, 9]));
    // One that finds a row where there is none leaves nothing behind.
    place.loader.fleet().collect_orphans().await.unwrap();
    let stored = place.stored();
    assert_eq!(place.loader.mark(without(&place, &[-1]).await).await.unwrap(), Some(0));
    assert_eq!((place.stored(), place.rows(2).await.len()), (stored, 8));
    // The first one has the word.
    place.doors[1].marks_others.store(false, Ordering::Relaxed);
    place.doors[0].marks_others.store(true, Ordering::Relaxed);
    assert_eq!(place.loader.mark(without(&place, &[4]).await).await.unwrap(), Some(1));
    assert_eq!((place.rows(1).await, place.rows(2).await), (vec![0, 1, 3, 4, 6, 8, 9], vec![0, 1, 3, 4, 6, 8, 9]));
}

/// Of two that have read the same rows, one comes too late. It changes nothing, and leaves nothing behind.
#[tokio::test]
async fn one_that_comes_too_late_leaves_nothing() {
    let place = ten_rows().await;
    let other = connect(&place.doors).await;
    let (early, late, change) = (without(&place, &[3]).await, without(&place, &[3, 5]).await, without(&place, &[3]).await);
    assert_eq!(place.loader.mark(early).await.unwrap(), Some(1));
    place.loader.fleet().collect_orphans().await.unwrap();
    let before = place.stored();
    assert_eq!(other.mark(late).await.unwrap_err().blame, Blame::Conflict);
    assert_eq!(exchange(&other, change, 30).await.unwrap_err().blame, Blame::Conflict);
    assert_eq!((place.stored(), place.rows(1).await), (before, vec![0, 1, 2, 4, 5, 6, 7, 8, 9]));
    // What others have added meanwhile is no conflict.
    let spec = without(&place, &[6]).await;
    append(&other, 10).await.unwrap();
    assert_eq!(place.loader.mark(spec).await.unwrap(), Some(1));
    assert_eq!(place.rows(2).await, [0, 1, 2, 4, 5, 7, 8, 9, 10]);
}

/// As a MERGE does: other numbers of rows come than go, and what others change meanwhile is a conflict.
#[tokio::test]
async fn more_or_fewer_rows_come_than_go() {
    let place = ten_rows().await;
    let alone = async |going: &[i64]| MarkSpec { alone: true, ..without(&place, going).await };
    assert_eq!(place.loader.exchange(alone(&[1, 2]).await, comes(&[20, 21, 22], Some(2))).await.unwrap(), Some(2));
    assert_eq!(place.loader.exchange(alone(&[3]).await, comes(&[], Some(1))).await.unwrap(), Some(1));
    assert_eq!(place.loader.exchange(alone(&[4]).await, comes(&[30], Some(0))).await.unwrap(), Some(0));
    assert_eq!(place.rows(1).await, [0, 4, 5, 6, 7, 8, 9, 20, 21, 22, 30]);
    let (before, other) = (place.rows(2).await, connect(&place.doors).await);
    place.loader.fleet().collect_orphans().await.unwrap();
    let stored = place.stored();
    assert!(place.loader.exchange(alone(&[5]).await, comes(&[50], Some(2))).await.is_err());
    assert_eq!((place.rows(2).await, place.stored()), (before, stored));
    for gone in [0, 1] {
        let spec = alone(&[5]).await;
        append(&other, 100 + gone as i64).await.unwrap();
        let fault = place.loader.exchange(spec, comes(&[50], Some(gone))).await.unwrap_err();
        assert_eq!(fault.blame, Blame::Conflict, "{fault}");
    }
    let spec = alone(&[5]).await;
    append(&other, 102).await.unwrap();
    assert_eq!(place.loader.mark(spec).await.unwrap_err().blame, Blame::Conflict);
    assert_eq!(place.rows(1).await, [0, 4, 5, 6, 7, 8, 9, 20, 21, 22, 30, 100, 101, 102]);
}

/// Where nobody knows whether the manifest names them, runs that were made stay.
#[tokio::test]
async fn what_a_manifest_may_name_is_not_given_up() {
    for exchanges in [false, true] {
        let place = ten_rows().await;
        let before = place.stored();
        // Those of the change, and of the one that is to settle it.
        place.doors.iter().for_each(|door| door.commits_lost.store(2, Ordering::Relaxed));
        let spec = without(&place, &[3]).await;
        let fault = match exchanges {
            true => exchange(&place.loader, spec, 30).await.unwrap_err(),
            false => place.loader.mark(spec).await.unwrap_err(),
        };
        assert!(fault.message.contains("may have been made or not"), "{fault}");
        // A row's run that has none left takes no room here, so what was written is looked for by its run.
        let runs = |drive: usize| place.doors[drive].stored.lock().len();
        let made = if exchanges { 12 } else { 11 };
        assert_eq!((runs(0), runs(1)), (made, made), "{exchanges}");
        assert!(place.stored() >= before);
    }
}

#[tokio::test]
async fn lost_answers_are_settled_by_looking() {
    let place = ten_rows().await;
    for exchanges in [false, true] {
        place.doors.iter().for_each(|door| door.answers_lost.store(1, Ordering::Relaxed));
        match exchanges {
            false => assert_eq!(place.loader.mark(without(&place, &[3]).await).await.unwrap(), Some(1)),
            true => assert_eq!(exchange(&place.loader, without(&place, &[8]).await, 80).await.unwrap(), Some(1)),
        }
        place.doors.iter().for_each(|door| door.answers_lost.store(0, Ordering::Relaxed));
    }
    assert_eq!(place.rows(1).await, [0, 1, 2, 4, 5, 6, 7, 9, 80]);
}
