//! OPEN with its GET in one round trip: when such a session ends.

use arrow::array::{Int64Array, RecordBatch};
use futures::StreamExt;
use pithead_door::*;
use pithead_model::*;

use crate::calls::open_request;
use crate::memory::*;

const SESSION: SessionId = SessionId(7);

fn scan() -> OpenRequest {
    open_request(PlanBytes::Scan { dataset: "t".parse().unwrap(), columns: vec!["at".into()] }, vec![])
}

fn door(granted: SessionId) -> MemoryDoor {
    MemoryDoor { granted: Some(granted), ..MemoryDoor::default() }
}

/// The events of a session that was granted.
async fn events(served: &Served) -> Events {
    let (opened, events) = served.client.open_and_get(scan()).await.unwrap();
    assert!(matches!(opened.reply, Reply::Granted(_)) && opened.link_bytes > 0);
    events.unwrap()
}

fn rows() -> RecordBatch {
    RecordBatch::try_from_iter([("a", std::sync::Arc::new(Int64Array::from_iter(0..10)) as _)]).unwrap()
}

#[tokio::test]
async fn the_session_is_closed_before_its_last_event_comes() {
    let fault = || Err(Fault::new(Blame::Limit, "the grant is used up"));
    for last in [finished(), fault()] {
        let served = served(door(SESSION)).await;
        served.door.answers.lock().unwrap().insert(SESSION, vec![row_event(0, rows()), last.clone()]);
        let mut events = events(&served).await;
        assert!(matches!(events.next().await, Some(Ok(Event::Rows { round: 0, batch, .. })) if batch == rows()));
        let came = events.next().await.unwrap();
        assert_eq!(came.is_ok(), last.is_ok());
        assert_eq!(*served.door.closed.lock().unwrap(), [SESSION]);
        assert!(events.next().await.is_none());
    }
}

#[tokio::test]
async fn a_session_whose_events_are_dropped_is_closed() {
    let served = served(door(ENDLESS)).await;
    let mut events = events(&served).await;
    assert!(events.next().await.unwrap().is_ok());
    drop(events);
    served.door.closing.notified().await;
    assert_eq!(*served.door.closed.lock().unwrap(), [ENDLESS]);
}

#[tokio::test]
async fn events_that_break_off_are_a_fault_and_the_session_is_closed() {
    let served = served(door(SESSION)).await;
    served.door.answers.lock().unwrap().insert(SESSION, vec![row_event(0, rows())]);
    let came: Vec<_> = events(&served).await.collect().await;
    assert!(matches!(&came[..], [Ok(_), Err(fault)] if fault.blame == Blame::Device), "{came:?}");
    served.door.closing.notified().await;
}

#[tokio::test]
async fn a_session_that_is_gone_at_once_is_a_fault_and_closed() {
    let served = served(door(SESSION)).await;
    assert_eq!(served.client.open_and_get(scan()).await.err().unwrap(), no_session(SESSION));
    served.door.closing.notified().await;
}

#[tokio::test]
async fn a_busy_drive_has_no_events() {
    let served = served(door(ENDLESS)).await;
    let _first = events(&served).await;
    let (opened, events) = served.client.open_and_get(scan()).await.unwrap();
    assert!(matches!(opened.reply, Reply::Busy { retry_after_ms: 250, .. }) && events.is_none());
    assert!(served.door.closed.lock().unwrap().is_empty());
}
