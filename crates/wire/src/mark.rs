//! [`Mark`]: what a message of GET's answer says of itself.

use pithead_door::{Event, PartsOutline};
use pithead_model::{Annotation, SessionProfile};
use serde::{Deserialize, Serialize};

/// The metadata of GET's messages.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mark {
    /// Rows of a round.
    Round(u32),
    /// Rows of a round that passed its filters.
    Filtered(u32),
    /// Rows of a round, filtered or not, whose body is compressed by zstd and had so many bytes.
    Packed { round: u32, filtered: bool, bytes: u64 },
    /// Part of a slice as it is stored, in the message's body.
    Stored { round: u32, slice: u32, total: u64 },
    /// The pages of a slice that may match, as a bitmap in the message's body. Its parts follow.
    Hints { round: u32, slice: u32, parts: PartsOutline },
    /// A round is closed.
    Closed(Annotation),
    /// All is done.
    Finished(SessionProfile),
}

impl Mark {
    /// The mark of the same rows once their body, which has so many bytes, is compressed.
    pub(crate) fn packed(&self, bytes: u64) -> Option<Mark> {
        match *self {
            Mark::Round(round) => Some(Mark::Packed { round, filtered: false, bytes }),
            Mark::Filtered(round) => Some(Mark::Packed { round, filtered: true, bytes }),
            _ => None,
        }
    }

    /// The mark of an event's rows; none: it has none.
    pub(crate) fn rows(event: &Event) -> Option<Mark> {
        match event {
            Event::Rows { round, .. } => Some(Mark::Round(*round)),
            Event::Filtered { round, .. } => Some(Mark::Filtered(*round)),
            _ => None,
        }
    }
}
