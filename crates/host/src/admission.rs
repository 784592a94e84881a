//! Exactly once: a round's rows count when its annotation arrives, each slice in one round only.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use pithead_model::{Annotation, Blame, Fault, SessionProfile};

/// Rows of rounds that are not closed, and the slices of those that are.
#[derive(Debug)]
pub(crate) struct Admission {
    pending: BTreeMap<u32, Vec<RecordBatch>>,
    answered: Vec<(u32, u32)>,
    reservation: MemoryReservation,
}

impl Admission {
    /// Rows that wait are held against `reservation`.
    pub(crate) fn new(reservation: MemoryReservation) -> Self {
        Self { pending: BTreeMap::new(), answered: vec![], reservation }
    }

    /// Keeps rows until their round is closed.
    pub(crate) fn hold(&mut self, round: u32, batch: RecordBatch) -> Result<()> {
        self.reservation.try_grow(batch.get_array_memory_size())?;
        self.pending.entry(round).or_default().push(batch);
        Ok(())
    }

    /// The rows of a round that is closed now.
    pub(crate) fn close(&mut self, annotation: &Annotation) -> Result<Vec<RecordBatch>, Fault> {
        let batches = self.pending.remove(&annotation.round).unwrap_or_default();
        let held: usize = batches.iter().map(RecordBatch::get_array_memory_size).sum();
        self.reservation.shrink(held.min(self.reservation.size()));
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if rows as u64 != annotation.rows_out {
            return Err(broken(format!(
                "round {} has {rows} rows, its annotation says {}",
                annotation.round, annotation.rows_out
            )));
        }
        for span in &annotation.slices {
            let end = span.first.checked_add(span.count).ok_or_else(|| broken("a span of slices has no end".into()))?;
            if let Some((first, last)) = self.answered.iter().find(|(first, last)| span.first < *last && *first < end) {
                return Err(broken(format!("slices {first}..{last} were answered for twice")));
            }
            self.answered.push((span.first, end));
        }
        Ok(batches)
    }

    /// At the end: every slice is in a round, every round is closed.
    pub(crate) fn finish(&self, profile: &SessionProfile) -> Result<(), Fault> {
        if let Some(round) = self.pending.keys().next() {
            return Err(broken(format!("round {round} was never closed")));
        }
        let answered: u64 = self.answered.iter().map(|(first, end)| u64::from(end - first)).sum();
        if answered != u64::from(profile.slices_total) {
            return Err(broken(format!("{answered} of {} slices were answered for", profile.slices_total)));
        }
        Ok(())
    }
}

fn broken(what: String) -> Fault {
    Fault::new(Blame::Bug, format!("the drive broke the protocol: {what}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;
    use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, UnboundedMemoryPool};
    use pithead_model::{Level, SessionState, SliceSpan};

    use super::*;

    fn admission() -> Admission {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        Admission::new(MemoryConsumer::new("test").register(&pool))
    }

    fn annotation(round: u32, first: u32, count: u32, rows_out: u64) -> Annotation {
        Annotation {
            round,
            partition: 0,
            slices: vec![SliceSpan { first, count }],
            level: Level::Whole,
            slices_skipped: 0,
            pages_read: 0,
            pages_skipped: 0,
            rows_in: 0,
            rows_out,
            medium_bytes: 0,
            batch_bytes: 0,
            cpu_ns: 0,
            wall_ns: 0,
            cause: None,
            retry_after_ms: None,
        }
    }

    fn batch() -> RecordBatch {
        RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from(vec![1, 2])) as _)]).unwrap()
    }

    fn profile(slices_total: u32) -> SessionProfile {
        SessionProfile {
            state: SessionState::Finished,
            rounds: 1,
            slices_total,
            slices_done: slices_total,
            memory_peak: 0,
            spilled_bytes: 0,
            other_rows_in: 0,
            other_medium_bytes: 0,
        }
    }

    #[test]
    fn rows_count_once_their_round_is_closed() {
        let mut admission = admission();
        admission.hold(0, batch()).unwrap();
        assert!(admission.finish(&profile(0)).is_err(), "an open round");
        assert_eq!(admission.close(&annotation(0, 0, 3, 2)).unwrap().len(), 1);
        assert!(admission.finish(&profile(4)).is_err(), "a slice is missing");
        assert!(admission.close(&annotation(1, 2, 1, 0)).is_err(), "a slice twice");
    }

    #[test]
    fn an_annotation_with_other_rows_is_refused() {
        let mut admission = admission();
        admission.hold(0, batch()).unwrap();
        assert!(admission.close(&annotation(0, 0, 1, 3)).is_err());
    }
}
