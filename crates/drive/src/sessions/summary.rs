//! [`SessionSummary`]: the kept partial results that a session finds, and those of its own that it keeps (Montana et al. 2023,
//! Skytether, section 7; see `docs/bibliography.md`).

use std::sync::Arc;

use arrow::array::RecordBatch;
use parking_lot::Mutex;
use pithead_door::{OpenRequest, SlicePart, batch_bytes, compact};
use pithead_exec::{Summaries, SummaryHit, SummaryKey, summary_key};
use pithead_model::SliceSpan;

use crate::sessions::rounds::RoundPolicy;
use crate::sessions::tally::Tally;

/// A session's part in the summaries of its drive.
#[derive(Debug)]
pub(crate) struct SessionSummary {
    summaries: Arc<Summaries>,
    key: SummaryKey,
    part: SlicePart,
    found: Mutex<Option<SummaryHit>>,
    /// The answer over a whole partition as it goes out; none once it has become too large.
    whole: Mutex<Option<Vec<RecordBatch>>>,
}

impl SessionSummary {
    /// Looks for what answers already, and adds those slices to the request's `done`. None: the host wants no such thing, or the
    /// sub-plan's results are not kept.
    pub(crate) fn look(summaries: &Arc<Summaries>, request: &mut OpenRequest) -> Option<SessionSummary> {
        let key = summary_key(request).filter(|_| request.options.adapt.summaries)?;
        let part = request.parts.first()?.clone();
        // Spans rise: that was checked.
        let is_done = |slice: u32| {
            let after = request.done.partition_point(|span| span.first <= slice);
            let span = after.checked_sub(1).and_then(|last| request.done.get(last));
            span.is_some_and(|span| slice - span.first < span.count)
        };
        let found = summaries.find(key, &part, is_done, request.whole_partition);
        if let Some(found) = &found {
            let done = request.done.iter().flat_map(|span| span.first..span.first + span.count);
            request.done = SliceSpan::cover(done.chain(found.slices.iter().copied()).collect());
        }
        let (found, whole) = (Mutex::new(found), Mutex::new(Some(vec![])));
        Some(SessionSummary { summaries: Arc::clone(summaries), key, part, found, whole })
    }

    /// The same if rounds of this kind can be put together, or are one.
    pub(crate) fn filter(self, policy: &RoundPolicy, whole_partition: bool) -> Option<SessionSummary> {
        (policy.keep || whole_partition).then_some(self)
    }

    /// The cached partial results, once.
    pub(crate) fn take(&self) -> Option<(Vec<RecordBatch>, Tally)> {
        let SummaryHit { batches, slices } = self.found.lock().take()?;
        let summarised = slices.len() as u32;
        Some((batches, Tally { slices, summarised, ..Tally::default() }))
    }

    /// A batch of the answer over a whole partition goes out.
    pub(crate) fn pass(&self, batch: &RecordBatch) {
        let mut whole = self.whole.lock();
        let Some(batches) = &mut *whole else { return };
        batches.push(compact(batch));
        if batches.iter().map(batch_bytes).sum::<usize>() > self.summaries.bytes_max() {
            *whole = None;
        }
    }

    /// The answer over these slices, which is all of the partition, went out.
    pub(crate) fn keep_whole(&self, slices: &[u32]) {
        if let Some(batches) = self.whole.lock().take() {
            self.keep(slices, batches);
        }
    }

    /// These partial results answer for these slices.
    pub(crate) fn keep(&self, slices: &[u32], batches: Vec<RecordBatch>) {
        self.summaries.keep(self.key, &self.part, slices, batches);
    }
}
