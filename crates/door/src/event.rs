//! GET: the events of a session, and how the link that they travel over is.

use std::fmt::Debug;

use arrow::array::RecordBatch;
use bytes::Bytes;
use futures::stream::BoxStream;
use pithead_model::{Annotation, Fault, SessionProfile};

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
}
