//! [`Sizes`]: what slices of sub-plans cost before. A sub-plan that is known well travels confidently sized (Skytether 6.3), and its
//! first rounds need not be measured.

use std::collections::HashMap;

use parking_lot::Mutex;
use pithead_model::SliceCosts;
use pithead_wire::{OpenRequest, PlanBytes};
use xxhash_rust::xxh3::xxh3_64;

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
            // What is asked for often comes back soon.
            known.clear();
        }
        known.insert(key(request), costs.clone());
    }
}

/// Partitions of a dataset are alike, and sizes only have to be about right: a collision does no harm.
fn key(request: &OpenRequest) -> u64 {
    let dataset = request.parts.first().map_or(0, |part| part.dataset.0);
    let plan = match &request.plan {
        PlanBytes::Substrait(bytes) => xxh3_64(bytes),
        PlanBytes::Scan { columns, .. } => xxh3_64(columns.join("\0").as_bytes()),
    };
    plan ^ dataset.rotate_left(17)
}
