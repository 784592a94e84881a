//! [`Recall`]: partial results of a partition that the host has kept, and those that it will keep (Montana et al. 2023,
//! Skytether, section 7; see `docs/bibliography.md`).

use std::sync::Arc;

use arrow::array::RecordBatch;
use pithead_door::{batch_bytes, compact};
use pithead_exec::{SummaryHit, SummaryKey, base_key, summary_key};
use pithead_plan::RollUp;

use crate::context::RemoteContext;
use crate::session::Target;

/// One partition's answer, as it is put together from what was kept and what comes.
pub(crate) struct Recall {
    context: Arc<RemoteContext>,
    key: SummaryKey,
    roll_up: Option<(SummaryKey, Arc<RollUp>)>,
    /// None once it has become too large.
    rows: Option<Vec<RecordBatch>>,
    bytes: usize,
}

impl Recall {
    /// None where the answer's parts cannot be put together later, or nobody wants that.
    pub(crate) fn new(target: &Target) -> Option<Recall> {
        // What leaves slices out from the start is no answer over all of them.
        let keeps = target.summaries && target.request.done.is_empty();
        let key = summary_key(&target.request).filter(|_| keeps)?;
        let roll_up = target.roll_up.as_ref().filter(|_| !target.request.whole_partition);
        let roll_up = roll_up.and_then(|roll_up| Some((base_key(&target.request, roll_up.base_hash())?, Arc::clone(roll_up))));
        Some(Recall { context: Arc::clone(&target.context), key, roll_up, rows: Some(vec![]), bytes: 0 })
    }

    /// Rows that were kept, and the slices that they answer for: of this sub-plan, or of one over the same rows that groups by more.
    pub(crate) fn found(&self, target: &Target) -> Option<(Vec<RecordBatch>, Vec<u32>)> {
        let part = target.request.parts.first()?;
        let whole = target.request.whole_partition;
        let find = |key| self.context.summaries.find(key, part, |_| false, whole);
        if let Some(SummaryHit { batches, slices }) = find(self.key) {
            return Some((batches, slices));
        }
        let (base, roll_up) = self.roll_up.as_ref()?;
        self.context.rollups.serving(*base, roll_up).into_iter().find_map(|(key, columns)| {
            let SummaryHit { batches, slices } = find(key)?;
            let batches: Result<Vec<RecordBatch>, _> = batches.iter().map(|batch| batch.project(&columns)).collect();
            Some((batches.ok()?, slices))
        })
    }

    /// More rows of the answer.
    pub(crate) fn pass(&mut self, batches: &[RecordBatch]) {
        let Some(rows) = &mut self.rows else { return };
        for batch in batches {
            let batch = compact(batch);
            self.bytes += batch_bytes(&batch);
            rows.push(batch);
        }
        if self.bytes > self.context.summaries.bytes_max() {
            self.rows = None;
        }
    }

    /// The answer is complete: so many slices.
    pub(crate) fn keep(self, target: &Target, slices: u64) {
        let (Some(rows), Some(part)) = (self.rows, target.request.parts.first()) else { return };
        let slices: Vec<u32> = (0..u32::try_from(slices).unwrap_or(u32::MAX)).collect();
        self.context.summaries.keep(self.key, part, &slices, rows);
        if let Some((base, roll_up)) = &self.roll_up {
            self.context.rollups.keep(*base, self.key, roll_up);
        }
    }
}
