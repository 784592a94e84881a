//! [`Sizes`]: what slices of sub-plans cost in earlier sessions. A sub-plan that was measured well travels confidently
//! sized (Montana et al. 2023, Skytether, section 6.3; see `docs/bibliography.md`), and its first rounds need not be
//! measured.

use std::collections::HashMap;

use parking_lot::Mutex;
use pithead_door::{OpenRequest, PlanBytes};
use pithead_model::SliceCosts;
use xxhash_rust::xxh3::Xxh3;

/// Sub-plans that are remembered at most.
const SUB_PLANS_MAX: usize = 4_096;

/// Costs by sub-plan.
#[derive(Debug, Default)]
pub(crate) struct Sizes(Mutex<HashMap<u64, SliceCosts>>);

impl Sizes {
    /// What slices of this sub-plan cost when it ran last.
    pub(crate) fn of(&self, request: &OpenRequest) -> Option<SliceCosts> {
        self.0.lock().get(&key(request)).cloned()
    }

    pub(crate) fn keep(&self, request: &OpenRequest, costs: &SliceCosts) {
        let mut known = self.0.lock();
        if known.len() >= SUB_PLANS_MAX {
            // Sub-plans that are asked for often are measured again soon.
            known.clear();
        }
        known.insert(key(request), costs.clone());
    }
}

/// A hash of the dataset and of bytes that are the sub-plan's alone. Partitions of a dataset are alike.
fn key(request: &OpenRequest) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&request.parts.first().map_or(0, |part| part.dataset.0).to_le_bytes());
    match &request.plan {
        PlanBytes::Substrait(bytes) => hash.update(bytes),
        PlanBytes::Scan { columns, .. } => columns.iter().for_each(|column| {
            hash.update(&(column.len() as u64).to_le_bytes());
            hash.update(column.as_bytes());
        }),
    }
    hash.digest()
}
