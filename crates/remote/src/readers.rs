//! [`Readers`]: the slices that came back to the host, open.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use pithead_device::{Device, Native};
use pithead_exec::{SliceRef, SliceSource};
use pithead_model::{Fault, SliceKey, boxed};
use pithead_slice::SliceReader;

/// The slices that are here, open.
#[derive(Debug)]
pub(crate) struct Readers {
    pub(crate) open: Mutex<HashMap<SliceKey, Arc<dyn SliceReader>>>,
    /// Those of other parts of the sub-plan, which each round reads: the driving part may have them, too, as where a dataset is joined
    /// with an older version of itself.
    pub(crate) every_round: Mutex<HashSet<SliceKey>>,
    device: Native,
}

#[boxed]
impl SliceSource for Readers {
    async fn open(&self, slice: &SliceRef) -> Result<Arc<dyn SliceReader>, Fault> {
        let reader = self.open.lock().get(&slice.key).cloned();
        reader.ok_or_else(|| Fault::bug(format!("slice {} is not at the host", slice.key)))
    }

    fn device(&self) -> &dyn Device {
        &self.device
    }
}

impl Readers {
    /// None yet.
    pub(crate) fn new() -> Readers {
        Readers { open: Mutex::default(), every_round: Mutex::default(), device: Native::new() }
    }

    /// Lets go of slices that were finished, unless the rounds to come read them.
    pub(crate) fn forget(&self, keys: &[SliceKey]) {
        let (mut open, every_round) = (self.open.lock(), self.every_round.lock());
        keys.iter().filter(|key| !every_round.contains(*key)).for_each(|key| drop(open.remove(key)));
    }
}
