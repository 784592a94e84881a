//! [`Round`]: a share of the driving partition's slices, and what it cost.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use datafusion::execution::SendableRecordBatchStream;
use parking_lot::Mutex;
use pithead_model::ScanShare;
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

/// Looks at a round while it runs.
#[derive(Clone, Debug)]
pub struct RoundWatch(Arc<Round>);

impl RoundWatch {
    /// What the round did so far.
    pub fn stats(&self) -> RoundStats {
        self.0.stats()
    }

    /// The same without its slices: it costs no memory, so that it may be asked for often.
    pub fn counts(&self) -> RoundStats {
        self.0.counts()
    }
}

impl RunningRound {
    /// A way to look at it from outside.
    pub fn watch(&self) -> RoundWatch {
        RoundWatch(Arc::clone(&self.round))
    }

    /// Ends the round, and says what it did.
    pub fn finish(self) -> RoundStats {
        drop(self.stream);
        self.round.stats()
    }
}

/// The slices of a driving partition that rounds are to take, from the front, and the carrier from the back. Rounds side by
/// side share it.
#[derive(Debug)]
pub(crate) struct SliceQueue {
    slices: Arc<[SliceRef]>,
    left: Mutex<Range<usize>>,
}

impl SliceQueue {
    pub(crate) fn new(slices: Arc<[SliceRef]>) -> Self {
        let left = Mutex::new(0..slices.len());
        Self { slices, left }
    }

    /// All of its slices, taken or not.
    pub(crate) fn ordinals(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.slices.iter().map(|slice| slice.ordinal)
    }

    /// Which of its slices nobody has taken, by place.
    pub(crate) fn left(&self) -> Range<usize> {
        self.left.lock().clone()
    }

    pub(crate) fn slices(&self) -> &[SliceRef] {
        &self.slices
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left.lock().is_empty()
    }

    fn take(&self) -> Option<SliceRef> {
        let next = self.left.lock().next();
        self.slices.get(next?).cloned()
    }

    /// The last one that nobody has taken.
    pub(crate) fn take_last(&self) -> Option<SliceRef> {
        let last = self.left.lock().next_back();
        self.slices.get(last?).cloned()
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
    cpu_ns: AtomicU64,
    rows_out: AtomicU64,
    bytes_out: AtomicU64,
    searched: AtomicU64,
    matched: AtomicU64,
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
        RoundStats { slices: self.taken.lock().clone(), ..self.counts() }
    }

    fn counts(&self) -> RoundStats {
        RoundStats {
            slices: Vec::new(),
            slices_skipped: self.driving.slices_skipped.load(Ordering::Relaxed),
            pages_read: self.driving.pages_read.load(Ordering::Relaxed),
            pages_skipped: self.driving.pages_skipped.load(Ordering::Relaxed),
            rows_in: self.driving.rows_in.load(Ordering::Relaxed),
            scan: ScanShare {
                cpu_ns: self.driving.cpu_ns.load(Ordering::Relaxed),
                rows: self.driving.rows_out.load(Ordering::Relaxed),
                bytes: self.driving.bytes_out.load(Ordering::Relaxed),
                searched: self.driving.searched.load(Ordering::Relaxed),
                matched: self.driving.matched.load(Ordering::Relaxed),
            },
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

    /// CPU time of a poll of the scan.
    pub(crate) fn work(&self, cpu_ns: u64) {
        self.cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
    }

    /// Rows that the scan hands on.
    pub(crate) fn hand_on(&self, rows: u64, bytes: u64) {
        self.rows_out.fetch_add(rows, Ordering::Relaxed);
        self.bytes_out.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What the byte-pattern matcher did.
    pub(crate) fn matcher(&self) -> ScanShare {
        let (searched, matched) = (self.searched.load(Ordering::Relaxed), self.matched.load(Ordering::Relaxed));
        ScanShare { searched, matched, ..ScanShare::default() }
    }

    /// Moves what a reader has counted here. Returns the bytes.
    pub(crate) fn drain(&self, read: &ReadStats) -> u64 {
        let bytes = read.bytes.swap(0, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.pages_read.fetch_add(read.pages_read.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        self.pages_skipped.fetch_add(read.pages_skipped.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        self.searched.fetch_add(read.searched.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        self.matched.fetch_add(read.matched.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        bytes
    }
}
