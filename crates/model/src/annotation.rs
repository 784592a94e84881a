//! Annotations: what of a sub-plan a CSE executed, on which slices, to which level, and at what cost (Montana et al.
//! 2023, Skytether, sections 4 and 5.3; see `docs/bibliography.md`).

use serde::{Deserialize, Serialize};

/// How much of the slice-wise part of a sub-plan a drive executed for a slice. The host executes the rest.
/// `docs/glossary.md` has the same definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub enum Level {
    /// Nothing: the drive sends the slice's bytes as they are stored.
    Bytes = 0,
    /// Match hints: the drive finds the pages that may have rows that pass, by bounds and by what of the filter is cheap, and
    /// sends what is stored of these pages, in the columns that the sub-plan reads. When `pithead.pushdown` is off, scans
    /// run at this level, too: then bounds alone rule pages out, and the rows of the others travel.
    Hints = 1,
    /// The filter and the projection: the drive sends the rows that pass.
    Filtered = 2,
    /// The whole slice-wise part.
    Whole = 3,
}

impl From<Level> for u8 {
    fn from(level: Level) -> u8 {
        level as u8
    }
}

impl TryFrom<u8> for Level {
    type Error = String;
    fn try_from(level: u8) -> Result<Self, String> {
        match level {
            0 => Ok(Level::Bytes),
            1 => Ok(Level::Hints),
            2 => Ok(Level::Filtered),
            3 => Ok(Level::Whole),
            _ => Err(format!("expected a level from 0 to 3, got {level}")),
        }
    }
}

/// Why a CSE handed work back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PushBackCause {
    /// The host asked for no higher level.
    Asked,
    /// The work does not fit the session's memory reservation.
    Memory,
    /// The engine is too busy.
    Busy,
    /// The whole query is done sooner if the host finishes the slice.
    Sooner,
    /// The host has the slice in its cache already.
    Held,
}

/// The share of a round that was reading and filtering the driving slices, which is what level 2 would have cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanShare {
    /// CPU time, nanoseconds.
    pub cpu_ns: u64,
    /// Rows that passed the filters.
    pub rows: u64,
    /// Their bytes as Arrow buffers.
    pub bytes: u64,
    /// Rows whose texts the byte-pattern matcher searched.
    #[serde(default)]
    pub searched: u64,
    /// Of these, the rows that it let through to the exact predicates.
    #[serde(default)]
    pub matched: u64,
}

impl ScanShare {
    /// Adds what another round did.
    pub fn add(&mut self, other: ScanShare) {
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
        self.rows = self.rows.saturating_add(other.rows);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.searched = self.searched.saturating_add(other.searched);
        self.matched = self.matched.saturating_add(other.matched);
    }
}

/// Slices `first..first + count` of the driving partition, counted across its runs in the manifest's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceSpan {
    /// First slice.
    pub first: u32,
    /// The number of slices.
    pub count: u32,
}

impl SliceSpan {
    /// The fewest spans that have exactly these slices.
    pub fn cover(mut slices: Vec<u32>) -> Vec<SliceSpan> {
        slices.sort_unstable();
        slices.dedup();
        let mut spans: Vec<SliceSpan> = Vec::new();
        for slice in slices {
            match spans.last_mut() {
                Some(span) if span.first + span.count == slice => span.count += 1,
                _ => spans.push(SliceSpan { first: slice, count: 1 }),
            }
        }
        spans
    }
}

/// The message that closes one round. The host admits the round's rows when it arrives, and not before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Annotation {
    /// The round, dense from 0 within a session.
    pub round: u32,
    /// The partition of the driving dataset.
    pub partition: u32,
    /// The slices of the round, including those that were skipped by their bounds. No slice is in two rounds.
    pub slices: Vec<SliceSpan>,
    /// The level at which they were executed.
    pub level: Level,
    /// The number of these slices that were skipped by their directory entries.
    pub slices_skipped: u32,
    /// Pages that were decoded, and pages that were skipped by their bounds.
    pub pages_read: u64,
    /// See `pages_read`.
    pub pages_skipped: u64,
    /// Pages whose stored bytes were sent. Of a round at level 1, `rows_in` counts the rows of these pages.
    #[serde(default)]
    pub pages_sent: u64,
    /// Rows in the slices that were read.
    pub rows_in: u64,
    /// Rows in the round's batches.
    pub rows_out: u64,
    /// Bytes read from the medium, or from the drive's cache of it.
    pub medium_bytes: u64,
    /// Bytes of the round's batches as Arrow buffers.
    pub batch_bytes: u64,
    /// CPU time of the round.
    pub cpu_ns: u64,
    /// The share of reading and filtering in these figures.
    #[serde(default)]
    pub scan: ScanShare,
    /// Bytes of its slices as they are stored.
    #[serde(default)]
    pub stored_bytes: u64,
    /// The number of slices that the drive answered from partial results that it had kept.
    #[serde(default)]
    pub summarised: u32,
    /// Time from the round's start to its end.
    pub wall_ns: u64,
    /// Why the level is less than [`Level::Whole`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<PushBackCause>,
    /// CPU time of the work that waited at the drive when it handed this work back, as time on its cores, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_ms: Option<u64>,
    /// When the host should try pushing down again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// A drive's answer to OPEN.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply<T> {
    /// The session may begin.
    Granted(T),
    /// The drive is busy now.
    Busy {
        /// The resource that ran out.
        why: String,
        /// When the host should ask again.
        retry_after_ms: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_cover_each_slice_once() {
        let spans = SliceSpan::cover(vec![7, 1, 2, 0, 2, 9]);
        assert_eq!(
            spans,
            [SliceSpan { first: 0, count: 3 }, SliceSpan { first: 7, count: 1 }, SliceSpan { first: 9, count: 1 }]
        );
    }
}
