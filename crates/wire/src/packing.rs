//! Rows that are compressed where the link is what all wait for.
//!
//! An event that was there when the link asked for it has waited for the link: then time of the drive's CPU buys time on the link. One
//! that the link had to wait for is sent as it is, as the drive is what all wait for. zstd at level 1 takes rows in more than twice as
//! fast as a link of 1 Gbit/s does, and leaves half of what LZ4 leaves of decimals and keys (docs/internals/performance.md).

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_flight::FlightData;
use bytes::Bytes;

use crate::encode::BATCH_BYTES_MAX;
use crate::error::WireError;
use crate::event::Mark;
use crate::gauge::SocketGauge;
use crate::json::{check_bound, json};
use crate::server::Pace;

/// Rows that are compressed in a second, on a slow core.
const PACKED_BYTES_PER_S: f64 = 400e6;
/// What is expected to be left of rows before any were compressed.
const SHARE_EXPECTED: f64 = 0.5;
/// How fast that expectation comes back while nothing is compressed.
const FORGETTING: f64 = 0.02;
/// A smaller body is not worth the while.
const PACKED_BYTES_MIN: usize = 4 << 10;
const ZSTD_LEVEL: i32 = 1;

/// Compresses the rows of one answer to GET.
pub(crate) struct Packer {
    link: Arc<SocketGauge>,
    pace: Arc<dyn Pace>,
    /// What is left of rows that are compressed.
    share: f64,
}

impl Packer {
    pub(crate) fn new(link: Arc<SocketGauge>, pace: Arc<dyn Pace>) -> Packer {
        Packer { link, pace, share: SHARE_EXPECTED }
    }

    /// Compresses the messages of rows that have `waited` for the link, where that brings them to the host sooner.
    pub(crate) fn pack(&mut self, waited: bool, messages: &mut VecDeque<FlightData>, mark: &Mark) -> Result<(), WireError> {
        let rows = |message: &FlightData| !message.app_metadata.is_empty();
        let bytes =
            |messages: &VecDeque<FlightData>| messages.iter().filter(|m| rows(m)).map(|m| m.data_body.len()).sum::<usize>();
        let before = bytes(messages);
        if waited && self.is_sooner() {
            let worth = PACKED_BYTES_MIN..=BATCH_BYTES_MAX;
            for message in messages.iter_mut().filter(|m| rows(m) && worth.contains(&m.data_body.len())) {
                pack(message, mark)?;
            }
            self.share = bytes(messages) as f64 / before.max(1) as f64;
        } else {
            self.share += (SHARE_EXPECTED - self.share) * FORGETTING;
        }
        self.link.sent_rows(before as u64, bytes(messages) as u64);
        Ok(())
    }

    fn is_sooner(&self) -> bool {
        let rate = self.pace.bytes_per_second().or_else(|| self.link.rate_abroad());
        rate.is_some_and(|rate| rate < (1.0 - self.share) * PACKED_BYTES_PER_S)
    }
}

/// Compresses one message, if that makes it smaller by a tenth.
pub(crate) fn pack(message: &mut FlightData, mark: &Mark) -> Result<(), WireError> {
    let bytes = message.data_body.len();
    let Some(mark) = mark.packed(bytes as u64) else { return Ok(()) };
    let packed =
        zstd::bulk::compress(&message.data_body, ZSTD_LEVEL).map_err(|error| WireError::encode("compressed rows", error))?;
    if packed.len() < bytes - bytes / 10 {
        message.data_body = packed.into();
        message.app_metadata = json(&mark)?;
    }
    Ok(())
}

/// The body of a message that was compressed, of which the sender says that it had so many bytes.
pub(crate) fn unpacked(body: &[u8], bytes: u64) -> Result<Bytes, WireError> {
    let wrong = |why: String| WireError::malformed("compressed rows", why);
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    check_bound("a compressed body", bytes, BATCH_BYTES_MAX)?;
    let body = zstd::bulk::decompress(body, bytes).map_err(|error| wrong(error.to_string()))?;
    match body.len() == bytes {
        true => Ok(body.into()),
        false => Err(wrong(format!("{} bytes came of {bytes}", body.len()))),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use futures::future::BoxFuture;
    use futures::{StreamExt, TryStreamExt, stream};
    use pithead_door::{Event, LinkGauge};

    use super::*;
    use crate::event::{EventReader, event_messages};

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
                Some(Event::Filtered { round: 3, batch, link_bytes }) if filtered => {
                    (arrived.push(batch), bytes += link_bytes).1
                }
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

    #[test]
    fn lies_about_compressed_rows_are_refused() {
        let packed = zstd::bulk::compress(&[0; 100_000], 1).unwrap();
        assert_eq!(unpacked(&packed, 100_000).unwrap().len(), 100_000);
        for (body, bytes) in [
            (packed.as_slice(), 99_999),
            (packed.as_slice(), 100_001),
            (&packed[..packed.len() - 1], 100_000),
            (&[][..], 10),
            (packed.as_slice(), 1 << 40),
            (packed.as_slice(), u64::MAX),
            (b"no zstd", 7),
        ] {
            assert!(unpacked(body, bytes).is_err(), "{} of {bytes}", body.len());
        }
    }
}
