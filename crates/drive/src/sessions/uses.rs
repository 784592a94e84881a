//! [`Uses`]: how much each partition of a drive was used since the drive started (partition load in Montana et al.
//! 2023, Skytether, section 5.1; see `docs/bibliography.md`).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use pithead_device::Instant;
use pithead_door::SlicePart;
use pithead_exec::{Bound, PartReads};
use pithead_model::{DatasetId, DatasetName};

/// Partitions that are counted at most; those that come later are not. No drive holds so many.
const PARTITIONS_MAX: usize = 1 << 17;

/// A partition of one incarnation of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PartitionKey {
    pub(crate) name: DatasetName,
    pub(crate) dataset: DatasetId,
    pub(crate) partition: u32,
}

/// What sessions asked of one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) sessions: u64,
    pub(crate) slices_read: u64,
    pub(crate) bytes_read: u64,
    pub(crate) cpu_ns: u64,
    /// When the last of them was opened.
    pub(crate) opened: Option<Instant>,
}

/// What sessions asked of each partition.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    partitions: Mutex<HashMap<PartitionKey, Use>>,
}

/// One session's part in the uses. Its reads are added when this is dropped: when its rounds are done, however they end.
#[derive(Debug)]
pub(crate) struct SessionUse {
    uses: Arc<Uses>,
    bound: Arc<Bound>,
    /// The driving one first, as in OPEN. None: a part without runs, of which nothing is stored.
    parts: Vec<Option<PartitionKey>>,
    cpu_ns: AtomicU64,
}

impl Uses {
    /// Counts a session that is opened now.
    pub(crate) fn session(self: &Arc<Self>, parts: &[Option<PartitionKey>], bound: &Arc<Bound>, now: Instant) -> SessionUse {
        let mut partitions = self.partitions.lock();
        for key in parts.iter().flatten() {
            if partitions.len() < PARTITIONS_MAX || partitions.contains_key(key) {
                let used = partitions.entry(key.clone()).or_default();
                used.sessions += 1;
                used.opened = Some(now);
            }
        }
        drop(partitions);
        SessionUse { uses: Arc::clone(self), bound: Arc::clone(bound), parts: parts.to_vec(), cpu_ns: AtomicU64::new(0) }
    }

    /// How a partition was used.
    pub(crate) fn of(&self, key: &PartitionKey) -> Use {
        self.partitions.lock().get(key).copied().unwrap_or_default()
    }

    /// Forgets partitions that are no longer here.
    pub(crate) fn retain(&self, is_here: impl Fn(&PartitionKey) -> bool) {
        self.partitions.lock().retain(|key, _| is_here(key));
    }

    fn add(&self, key: &PartitionKey, reads: PartReads, cpu_ns: u64) {
        if let Some(used) = self.partitions.lock().get_mut(key) {
            used.slices_read += reads.slices;
            used.bytes_read += reads.bytes;
            used.cpu_ns += cpu_ns;
        }
    }
}

impl SessionUse {
    /// A round took this much. It counts for the driving partition.
    pub(crate) fn add_cpu(&self, cpu_ns: u64) {
        self.cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
    }
}

impl Drop for SessionUse {
    fn drop(&mut self) {
        for (index, (key, reads)) in self.parts.iter().zip(self.bound.reads()).enumerate() {
            let cpu_ns = if index == 0 { self.cpu_ns.load(Ordering::Relaxed) } else { 0 };
            if let Some(key) = key {
                self.uses.add(key, reads, cpu_ns);
            }
        }
    }
}

/// The partitions that these parts are of.
pub(crate) fn partitions(parts: &[SlicePart]) -> Vec<Option<PartitionKey>> {
    let key = |part: &SlicePart| {
        let key = PartitionKey { name: part.name.stored().0, dataset: part.dataset, partition: part.partition };
        (!part.runs.is_empty()).then_some(key)
    };
    parts.iter().map(key).collect()
}
