//! [`Round`]: a share of the driving partition's slices, and what it cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use datafusion::execution::SendableRecordBatchStream;
use parking_lot::Mutex;
use pithead_slice::ReadStats;

use crate::{RoundStats, SliceRef};

/// A round as it runs.
pub struct RunningRound {
    /// Its rows, in the schema that the session asked for. Dropping it stops the round.
    pub stream: SendableRecordBatchStream,
    pub(crate) round: Arc<Round>,
}

impl std::fmt::Debug for RunningRound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningRound").field("round", &self.round).finish_non_exhaustive()
    }
}

impl RunningRound {
    /// Ends the round, and says what it did.
    pub fn finish(self) -> RoundStats {
        drop(self.stream);
        self.round.stats()
    }
}

/// The slices of a driving partition that rounds are to take. Rounds side by side share it.
#[derive(Debug)]
pub(crate) struct SliceQueue {
    slices: Arc<[SliceRef]>,
    next: AtomicUsize,
}

impl SliceQueue {
    pub(crate) fn new(slices: Arc<[SliceRef]>) -> Self {
        Self { slices, next: AtomicUsize::new(0) }
    }

    /// All of its slices, taken or not.
    pub(crate) fn ordinals(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.slices.iter().map(|slice| slice.ordinal)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.slices.len()
    }

    fn take(&self) -> Option<SliceRef> {
        // Stays put at the end, so that it cannot overflow.
        let next =
            self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| (next < self.slices.len()).then_some(next + 1));
        self.slices.get(next.ok()?).cloned()
    }
}

/// One round. Scans find it among the extensions of their task.
#[derive(Debug)]
pub(crate) struct Round {
    queue: Arc<SliceQueue>,
    slices_max: usize,
    slices_read: AtomicUsize,
    taken: Mutex<Vec<u32>>,
    /// What scans of the driving slices cost.
    pub(crate) driving: Cost,
    /// What scans of other datasets cost.
    pub(crate) others: Cost,
}

/// What reading slices costs.
#[derive(Debug, Default)]
pub(crate) struct Cost {
    slices_skipped: AtomicU32,
    rows_in: AtomicU64,
    bytes: AtomicU64,
    pages_read: AtomicU64,
    pages_skipped: AtomicU64,
}

impl Round {
    pub(crate) fn new(queue: Arc<SliceQueue>, slices_max: usize) -> Self {
        Self {
            queue,
            slices_max,
            slices_read: AtomicUsize::new(0),
            taken: Mutex::default(),
            driving: Cost::default(),
            others: Cost::default(),
        }
    }

    /// The next slice of the driving partition; none once the round has read its share or no slices are left. Slices
    /// that are then skipped do not count towards the share.
    pub(crate) fn take(&self) -> Option<SliceRef> {
        if self.slices_read.load(Ordering::Relaxed) >= self.slices_max {
            return None;
        }
        let slice = self.queue.take()?;
        self.taken.lock().push(slice.ordinal);
        Some(slice)
    }

    /// A taken slice is read.
    pub(crate) fn reads_slice(&self) {
        self.slices_read.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> RoundStats {
        RoundStats {
            slices: self.taken.lock().clone(),
            slices_skipped: self.driving.slices_skipped.load(Ordering::Relaxed),
            pages_read: self.driving.pages_read.load(Ordering::Relaxed),
            pages_skipped: self.driving.pages_skipped.load(Ordering::Relaxed),
            rows_in: self.driving.rows_in.load(Ordering::Relaxed),
            medium_bytes: self.driving.bytes.load(Ordering::Relaxed),
            other_rows_in: self.others.rows_in.load(Ordering::Relaxed),
            other_medium_bytes: self.others.bytes.load(Ordering::Relaxed),
        }
    }
}

impl Cost {
    pub(crate) fn skip_slice(&self) {
        self.slices_skipped.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read_slice(&self, rows: u64) {
        self.rows_in.fetch_add(rows, Ordering::Relaxed);
    }

    /// Moves what a reader has counted here. Returns the bytes.
    pub(crate) fn drain(&self, read: &ReadStats) -> u64 {
        let bytes = read.bytes.swap(0, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.pages_read.fetch_add(read.pages_read.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        self.pages_skipped.fetch_add(read.pages_skipped.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        bytes
    }
}
