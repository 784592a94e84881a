//! GET from its first round to its end, and what ends it early.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{Int64Array, RecordBatch};
use futures::StreamExt;
use pithead_door::*;
use pithead_model::*;
use pithead_wire::*;

use crate::memory::*;

fn annotation(round: u32) -> Annotation {
    Annotation {
        round,
        partition: 2,
        slices: vec![SliceSpan { first: 0, count: 3 }],
        level: Level::Filtered,
        slices_skipped: 1,
        pages_read: 2,
        pages_skipped: 3,
        pages_sent: 0,
        rows_in: u64::MAX,
        rows_out: 5,
        medium_bytes: 6,
        batch_bytes: 7,
        cpu_ns: 8,
        scan: Default::default(),
        stored_bytes: 0,
        summarised: 0,
        wall_ns: 9,
        cause: Some(PushBackCause::Memory),
        queue_ms: None,
        retry_after_ms: Some(10),
    }
}

fn batch() -> RecordBatch {
    RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from(vec![1, 2, 3])) as _)]).unwrap()
}

fn closed(round: u32) -> Result<Event, Fault> {
    Ok(Event::Closed { annotation: annotation(round), link_bytes: 0 })
}

fn link_bytes(event: &Event) -> u64 {
    match event {
        Event::Rows { link_bytes, .. }
        | Event::Filtered { link_bytes, .. }
        | Event::Stored { link_bytes, .. }
        | Event::Hints { link_bytes, .. }
        | Event::Closed { link_bytes, .. }
        | Event::Finished { link_bytes, .. } => *link_bytes,
    }
}

fn uncounted(mut event: Event) -> Event {
    match &mut event {
        Event::Rows { link_bytes, .. }
        | Event::Filtered { link_bytes, .. }
        | Event::Stored { link_bytes, .. }
        | Event::Hints { link_bytes, .. }
        | Event::Closed { link_bytes, .. }
        | Event::Finished { link_bytes, .. } => *link_bytes = 0,
    }
    event
}

#[tokio::test]
async fn rounds_arrive_in_order_and_their_bytes_are_counted() {
    let sent = || {
        vec![row_event(0, batch()), row_event(0, batch()), closed(0), closed(1), row_event(2, batch()), closed(2), finished()]
    };
    let (served, arrived) = through_get(sent()).await;
    let counted: u64 = arrived.iter().map(|event| link_bytes(event.as_ref().unwrap())).sum();
    let ticket = 5 + 2 + 16;
    assert_eq!(
        counted,
        served.sent.0.load(Ordering::Relaxed) + ticket,
        "what the client counts is what the drive paces, and the ticket"
    );
    let arrived: Vec<_> = arrived.into_iter().map(|event| event.map(uncounted)).collect();
    assert_eq!(arrived, sent());
}

#[tokio::test]
async fn a_fault_in_mid_stream_keeps_blame_and_hint() {
    let fault = Fault::new(Blame::Corrupt, "slice main/t@1 is damaged: ünïcode\n at byte 7").hint("load it again");
    let (_served, arrived) = through_get(vec![row_event(0, batch()), Err(fault.clone()), finished()]).await;
    assert_eq!(arrived.len(), 2);
    assert!(matches!(&arrived[0], Ok(Event::Rows { .. })));
    assert_eq!(arrived[1], Err(fault));
}

#[tokio::test]
async fn an_answer_that_ends_early_is_a_fault() {
    let (_served, arrived) = through_get(vec![row_event(0, batch())]).await;
    assert!(matches!(&arrived[..], [Ok(_), Err(fault)] if fault.blame == Blame::Device), "{arrived:?}");
}

#[tokio::test]
async fn an_unknown_session_is_a_fault_of_get() {
    let served = served(MemoryDoor::default()).await;
    let fault = served.client.get(SessionId(5)).await.err().unwrap();
    assert_eq!(fault, no_session(SessionId(5)));
}

#[tokio::test]
async fn the_drive_notices_that_a_stream_was_dropped() {
    let served = served(MemoryDoor::default()).await;
    let mut events = served.client.get(ENDLESS).await.unwrap();
    assert!(events.next().await.unwrap().is_ok());
    drop(events);
    served.door.dropped.notified().await;
    // The connection is still good for other calls.
    assert_eq!(served.client.status().await.unwrap(), status());
}

#[tokio::test]
async fn streams_that_nobody_reads_do_not_hold_up_other_calls() {
    let served = served(MemoryDoor::default()).await;
    let mut unread = Vec::new();
    for _ in 0..40 {
        let mut events = served.client.get(ENDLESS).await.unwrap();
        assert!(events.next().await.unwrap().is_ok());
        unread.push(events);
    }
    assert_eq!(served.client.status().await.unwrap(), status());
    let mut last = served.client.get(ENDLESS).await.unwrap();
    for _ in 0..1_000 {
        assert!(last.next().await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn the_drive_notices_that_its_client_is_gone() {
    let served = served(MemoryDoor::default()).await;
    let address = served.address.clone();
    let other = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut events = FlightDoor::connect(&address).unwrap().get(ENDLESS).await.unwrap();
            assert!(events.next().await.unwrap().is_ok());
            // The runtime and all sockets of it go in mid-stream.
            std::mem::forget(events);
        });
    });
    tokio::task::spawn_blocking(|| other.join().unwrap()).await.unwrap();
    served.door.dropped.notified().await;
}

#[tokio::test]
async fn stopping_ends_streams_with_a_fault_and_the_server_without_one() {
    let served = served(MemoryDoor::default()).await;
    let mut events = served.client.get(ENDLESS).await.unwrap();
    assert!(events.next().await.unwrap().is_ok());
    served.stop.send(()).unwrap();
    let last = loop {
        if let Err(fault) = events.next().await.unwrap() {
            break fault;
        }
    };
    assert!(last.blame == Blame::Device && last.message.contains("stopping"), "{last:?}");
    served.serving.await.unwrap().unwrap();
    assert_eq!(served.client.status().await.unwrap_err().blame, Blame::Device);
}
