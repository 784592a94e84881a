//! Rows that wait for a slow link, from a stream of events to the events that are read.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt, stream};
use pithead_door::{Event, LinkGauge};

use super::*;
use crate::gauge::SocketGauge;
use crate::pace::Pace;

struct Paced(Option<f64>);

impl Pace for Paced {
    fn send(&self, _bytes: u64) -> Option<BoxFuture<'static, ()>> {
        None
    }

    fn bytes_per_second(&self) -> Option<f64> {
        self.0
    }
}

fn batch(values: impl Iterator<Item = i64>) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
    RecordBatch::try_from_iter([("k", column)]).unwrap()
}

fn noise() -> impl Iterator<Item = i64> {
    let mut state = 7_u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state ^ (state >> 29)).cast_signed()
    })
    .take(10_000)
}

/// The batches that arrive, their bytes on the link, and the share that the gauge tells.
async fn sent(batches: &[RecordBatch], filtered: bool, rate: Option<f64>) -> (Vec<RecordBatch>, u64, f64) {
    let link = Arc::new(SocketGauge::of(None));
    let event = |batch: &RecordBatch| match filtered {
        true => Event::Filtered { round: 3, batch: batch.clone(), link_bytes: 0 },
        false => Event::Rows { round: 3, batch: batch.clone(), link_bytes: 0 },
    };
    let events: Vec<_> = batches.iter().map(|batch| Ok(event(batch))).collect();
    let packer = Packer::new(Arc::clone(&link), Arc::new(Paced(rate)));
    let messages: Vec<_> = event_messages(stream::iter(events).boxed(), packer).try_collect().await.unwrap();
    let mut reader = EventReader::default();
    let (mut arrived, mut bytes) = (Vec::new(), 0);
    for message in messages {
        match reader.read(&message).unwrap() {
            Some(Event::Rows { round: 3, batch, link_bytes }) if !filtered => (arrived.push(batch), bytes += link_bytes).1,
            Some(Event::Filtered { round: 3, batch, link_bytes }) if filtered => (arrived.push(batch), bytes += link_bytes).1,
            None => {}
            other => panic!("{other:?}"),
        }
    }
    (arrived, bytes, link.rows_share())
}

#[tokio::test]
async fn rows_that_wait_for_a_slow_link_are_compressed() {
    let batches = [batch(0..100_000), batch((0..50_000).map(|i| i % 7)), batch(0..3)];
    for filtered in [false, true] {
        let (as_they_are, bytes, share) = sent(&batches, filtered, Some(1.25e9)).await;
        assert_eq!((as_they_are.as_slice(), share), (batches.as_slice(), 1.0));
        assert!(bytes > 1_200_000, "{bytes}");
        let (arrived, fewer, share) = sent(&batches, filtered, Some(125e6)).await;
        assert_eq!(arrived, batches);
        assert!(fewer < bytes / 3 && share < 0.34, "{fewer} of {bytes}: {share}");
    }
    // Within a process, and over a link of which nothing is known yet.
    let (arrived, bytes, _) = sent(&batches, false, None).await;
    assert_eq!(arrived, batches);
    assert!(bytes > 1_200_000, "{bytes}");
}

#[tokio::test]
async fn what_does_not_become_smaller_is_sent_as_it_is() {
    let batches = [batch(noise())];
    let (arrived, bytes, share) = sent(&batches, false, Some(1e6)).await;
    assert_eq!((arrived.as_slice(), share), (batches.as_slice(), 1.0));
    assert!((80_000..82_000).contains(&bytes), "{bytes}");
}

/// A drive that is slower than the link has nothing to gain.
#[tokio::test]
async fn rows_that_the_link_waits_for_are_not_compressed() {
    let slow = stream::iter([batch(0..10_000)]).then(|batch| async move {
        tokio::task::yield_now().await;
        Ok(Event::Rows { round: 0, batch, link_bytes: 0 })
    });
    let packer = Packer::new(Arc::new(SocketGauge::of(None)), Arc::new(Paced(Some(1e6))));
    let messages: Vec<_> = event_messages(slow.boxed(), packer).try_collect().await.unwrap();
    assert!(messages.last().unwrap().data_body.len() >= 80_000);
}
