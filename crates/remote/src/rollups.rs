//! [`RollUps`]: which of the partial results that the host keeps may serve a sub-plan that groups by less (Montana et
//! al. 2023, Skytether, section 7; see `docs/bibliography.md`).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pithead_exec::SummaryKey;
use pithead_plan::RollUp;

/// Sub-plans over the same rows that are remembered at most.
const OF_ONE_MAX: usize = 8;
/// Sets of rows that are remembered at most.
const BASES_MAX: usize = 4_096;

/// Sub-plans whose partial results were kept, by what they read.
#[derive(Debug, Default)]
pub(crate) struct RollUps(Mutex<HashMap<SummaryKey, Vec<RollUpEntry>>>);

/// A sub-plan, by what it groups and computes.
type RollUpEntry = (SummaryKey, Arc<RollUp>);

impl RollUps {
    /// A sub-plan over these rows was kept.
    pub(crate) fn keep(&self, base: SummaryKey, key: SummaryKey, roll_up: &Arc<RollUp>) {
        let mut known = self.0.lock();
        if known.len() >= BASES_MAX {
            known.clear();
        }
        let of_base = known.entry(base).or_default();
        of_base.retain(|(other, _)| *other != key);
        if of_base.len() >= OF_ONE_MAX {
            of_base.remove(0);
        }
        of_base.push((key, Arc::clone(roll_up)));
    }

    /// Others over the same rows that hold all that this one needs, and in which columns; those that group by least first.
    pub(crate) fn serving(&self, base: SummaryKey, roll_up: &RollUp) -> Vec<(SummaryKey, Vec<usize>)> {
        let known = self.0.lock();
        let mut serving: Vec<(usize, SummaryKey, Vec<usize>)> = Vec::new();
        for (key, finer) in known.get(&base).into_iter().flatten() {
            if let Some(columns) = roll_up.columns_of(finer) {
                serving.push((finer.groups(), *key, columns));
            }
        }
        serving.sort_by_key(|(groups, ..)| *groups);
        serving.into_iter().map(|(_, key, columns)| (key, columns)).collect()
    }
}
