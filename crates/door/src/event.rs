//! GET: the events of a session, and how the link that they travel over is.

use std::fmt::Debug;

use arrow::array::RecordBatch;
use bytes::Bytes;
use futures::stream::BoxStream;
use pithead_model::{Annotation, Blame, Fault, SLICE_BYTES_MAX, SessionProfile};
use serde::{Deserialize, Serialize};

/// The most parts of a slice that follow its match hints.
pub const PARTS_MAX: usize = 1 << 16;
/// The most bytes of a bitmap of pages.
pub const HINT_BYTES_MAX: usize = 1 << 20;

/// What GET yields.
pub type Events = BoxStream<'static, Result<Event, Fault>>;

/// One thing that GET yields.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Rows of a round that is not closed yet. They count only once it is.
    Rows {
        /// The round.
        round: u32,
        /// The rows.
        batch: RecordBatch,
        /// Bytes on the link; 0 in-process.
        link_bytes: u64,
    },
    /// Rows of the driving dataset that passed the sub-plan's filters, of a round that is taken to [`pithead_model::Level::Filtered`]: the
    /// columns that the sub-plan needs, by name.
    Filtered {
        /// The round.
        round: u32,
        /// The rows.
        batch: RecordBatch,
        /// Bytes on the link; 0 in-process.
        link_bytes: u64,
    },
    /// A part of a slice as it is stored, of a round that is taken to [`pithead_model::Level::Bytes`]. The parts of a slice come in order, and
    /// nothing of the same round between them.
    Stored {
        /// The round.
        round: u32,
        /// The slice, by its number in the driving partition.
        slice: u32,
        /// Bytes of the whole slice. 0: the host holds it, and this is all.
        total: u64,
        /// The next bytes of it, at most [`crate::PIECE_BYTES_MAX`].
        bytes: Bytes,
        /// Bytes on the link; 0 in-process.
        link_bytes: u64,
    },
    /// Match hints: the pages of a slice that may have rows that the sub-plan needs, of a round that is taken to
    /// [`pithead_model::Level::Hints`]. The parts of the slice that hold these pages follow as [`Event::Stored`], one after the
    /// other; `total` is then the sum of their bytes.
    Hints {
        /// The round.
        round: u32,
        /// The slice, by its number in the driving partition.
        slice: u32,
        /// The pages as a bitmap (`pithead_model::PageSet`).
        pages: Bytes,
        /// What will be sent.
        parts: PartsOutline,
        /// Bytes on the link; 0 in-process.
        link_bytes: u64,
    },
    /// A round is closed: its rows, all sent before, count.
    Closed {
        /// What was done.
        annotation: Annotation,
        /// Bytes on the link; 0 in-process.
        link_bytes: u64,
    },
    /// All slices are answered for. The last event.
    Finished {
        /// What the session cost.
        profile: SessionProfile,
        /// Bytes on the link; 0 in-process.
        link_bytes: u64,
    },
}

/// Which parts of a slice follow its match hints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartsOutline {
    /// The encoding's number and version.
    pub encoding: (u16, u16),
    /// Rows of the whole slice.
    pub rows: u64,
    /// Bytes of its whole body.
    pub body_bytes: u64,
    /// Where each part starts in the body, and its bytes: ascending, without overlaps.
    pub parts: Vec<(u64, u64)>,
}

impl PartsOutline {
    /// Bytes of all parts.
    pub fn bytes(&self) -> u64 {
        pithead_model::total(self.parts.iter().map(|(_, bytes)| *bytes))
    }

    /// Refuses what no slice has: parts that overlap, are empty or lie outside, and bodies over the bound of slices.
    pub fn check(&self) -> Result<(), Fault> {
        let broken = |what: String| Err(Fault::new(Blame::Device, format!("match hints name {what}")));
        if self.body_bytes > SLICE_BYTES_MAX as u64 || self.parts.len() > PARTS_MAX {
            return broken(format!("{} parts of {} bytes", self.parts.len(), self.body_bytes));
        }
        let mut free = 0;
        for (start, bytes) in &self.parts {
            let end = start.checked_add(*bytes).filter(|end| *end <= self.body_bytes);
            free = match end {
                Some(end) if *start >= free && *bytes > 0 => end,
                _ => return broken(format!("a part of {bytes} bytes at {start} of {}", self.body_bytes)),
            };
        }
        if self.parts.is_empty() { broken("no part".to_owned()) } else { Ok(()) }
    }
}

/// How the link from a drive to one of its hosts is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkReading {
    /// The rate that it delivered lately, bytes a second.
    pub bytes_per_s: f64,
    /// Bytes that were handed to it and have not left.
    pub backlog_bytes: f64,
}

/// Reads how a link is.
pub trait LinkGauge: Send + Sync + Debug {
    /// None: it is not known, as before the first bytes.
    fn read(&self) -> Option<LinkReading>;

    /// What is left of rows on this link, since some of them are compressed; 1: all of them.
    fn rows_share(&self) -> f64 {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_no_slice_has_are_refused() {
        let outline = |parts: &[(u64, u64)]| PartsOutline { encoding: (1, 1), rows: 9, body_bytes: 100, parts: parts.to_vec() };
        let honest = outline(&[(0, 10), (10, 5), (90, 10)]);
        assert_eq!((honest.check(), honest.bytes()), (Ok(()), 25));
        for parts in
            [&[][..], &[(0, 0)], &[(0, 10), (9, 5)], &[(10, 5), (0, 5)], &[(95, 6)], &[(u64::MAX, 2)], &[(0, u64::MAX)]]
        {
            assert_eq!(outline(parts).check().unwrap_err().blame, Blame::Device, "{parts:?}");
        }
        let large = PartsOutline { body_bytes: u64::MAX, ..honest };
        assert!(large.check().is_err());
    }
}
