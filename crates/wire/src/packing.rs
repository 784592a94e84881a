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
use crate::gauge::SocketGauge;
use crate::json::{check_bound, json};
use crate::mark::Mark;
use crate::pace::Pace;

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
    use super::*;

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
