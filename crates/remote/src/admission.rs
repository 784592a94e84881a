//! Exactly once: a round's rows count when its annotation arrives, each slice in one round only.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use pithead_door::batch_bytes;
use pithead_model::{Annotation, Blame, Fault, SliceSpan};

/// Rows of rounds that are not closed, and the slices of those that are. It outlives the sessions that answer for a
/// partition: one that fails is followed by another one over a copy, for the slices that are left.
#[derive(Debug)]
pub(crate) struct Admission {
    pending: BTreeMap<u32, Vec<RecordBatch>>,
    answered: Vec<(u32, u32)>,
    slices_total: u64,
    rounds_closed: u64,
    reservation: MemoryReservation,
}

impl Admission {
    /// For a partition of so many slices. Rows that wait are held against `reservation`.
    pub(crate) fn new(slices_total: u64, reservation: MemoryReservation) -> Self {
        Self { pending: BTreeMap::new(), answered: vec![], slices_total, rounds_closed: 0, reservation }
    }

    /// Takes slices as answered for that others have answered for: sessions leave them out.
    pub(crate) fn leave_out(&mut self, done: &[SliceSpan]) {
        self.answered.extend(done.iter().map(|span| (span.first, span.first.saturating_add(span.count))));
    }

    /// The slices that are answered for, in order.
    pub(crate) fn done(&self) -> Vec<SliceSpan> {
        let mut answered = self.answered.clone();
        answered.sort_unstable();
        let mut spans: Vec<SliceSpan> = Vec::new();
        for (first, end) in answered {
            match spans.last_mut() {
                Some(span) if span.first + span.count == first => span.count = end - span.first,
                _ => spans.push(SliceSpan { first, count: end - first }),
            }
        }
        spans
    }

    /// Whether nothing is left to be asked for.
    pub(crate) fn is_complete(&self) -> bool {
        self.rounds_closed > 0 && self.slices_answered() == self.slices_total
    }

    /// Slices of the partition.
    pub(crate) fn slices_total(&self) -> u64 {
        self.slices_total
    }

    /// Drops the rows of rounds that were not closed: their session is over.
    pub(crate) fn restart(&mut self) {
        self.pending.clear();
        self.reservation.free();
    }

    /// These slices are answered for without a session.
    pub(crate) fn recall(&mut self, slices: Vec<u32>) {
        self.answered.extend(SliceSpan::cover(slices).into_iter().map(|span| (span.first, span.first + span.count)));
        self.rounds_closed += 1;
    }

    /// Forgets what was answered: all of it is asked for again.
    pub(crate) fn start_over(&mut self) {
        self.restart();
        self.answered.clear();
        self.rounds_closed = 0;
    }

    /// Keeps rows until their round is closed.
    pub(crate) fn hold(&mut self, round: u32, batch: RecordBatch) -> Result<()> {
        // Columns of a batch share the memory of its message.
        self.reservation.try_grow(batch_bytes(&batch))?;
        self.pending.entry(round).or_default().push(batch);
        Ok(())
    }

    /// What `accept` makes of the rows of a round that is closed now. Where anything of the round is wrong, none of its slices is taken as
    /// answered for: whoever is asked next answers for them, too.
    pub(crate) fn close<T>(
        &mut self,
        annotation: &Annotation,
        accept: impl FnOnce(Vec<RecordBatch>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let batches = self.pending.remove(&annotation.round).unwrap_or_default();
        let held: usize = batches.iter().map(batch_bytes).sum();
        self.reservation.shrink(held.min(self.reservation.size()));
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if rows as u64 != annotation.rows_out {
            return Err(broken(format!(
                "round {} has {rows} rows, its annotation says {}",
                annotation.round, annotation.rows_out
            )));
        }
        let answered = self.answered_by(annotation)?;
        let accepted = accept(batches)?;
        self.answered.extend(answered);
        self.rounds_closed += 1;
        Ok(accepted)
    }

    /// The slices that a round answers for, each of which is there and was not answered for yet.
    fn answered_by(&self, annotation: &Annotation) -> Result<Vec<(u32, u32)>, Fault> {
        let mut answered: Vec<(u32, u32)> = Vec::new();
        for span in &annotation.slices {
            let end = span.first.checked_add(span.count).ok_or_else(|| broken("a span of slices has no end".into()))?;
            let mut known = self.answered.iter().chain(&answered);
            if let Some((first, last)) = known.find(|(first, last)| span.first < *last && *first < end) {
                return Err(broken(format!("slices {first}..{last} were answered for twice")));
            }
            if u64::from(end) > self.slices_total {
                return Err(broken(format!("slice {} of {} was answered for", end - 1, self.slices_total)));
            }
            // An empty span would count for nothing, and yet be sent on.
            if span.count > 0 {
                answered.push((span.first, end));
            }
        }
        Ok(answered)
    }

    /// At the end: every slice is in a round, every round is closed.
    pub(crate) fn finish(&self) -> Result<(), Fault> {
        if let Some(round) = self.pending.keys().next() {
            return Err(broken(format!("round {round} was never closed")));
        }
        let answered = self.slices_answered();
        if answered != self.slices_total {
            return Err(broken(format!("{answered} of {} slices were answered for", self.slices_total)));
        }
        Ok(())
    }

    fn slices_answered(&self) -> u64 {
        self.answered.iter().map(|(first, end)| u64::from(end - first)).sum()
    }
}

fn broken(what: String) -> Fault {
    Fault::new(Blame::Device, format!("the drive broke the protocol: {what}"))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;
    use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, UnboundedMemoryPool};
    use pithead_model::Level;

    use super::*;

    fn admission(slices_total: u64) -> Admission {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        Admission::new(slices_total, MemoryConsumer::new("test").register(&pool))
    }

    pub(crate) fn annotation(round: u32, first: u32, count: u32, rows_out: u64) -> Annotation {
        Annotation {
            round,
            partition: 0,
            slices: vec![SliceSpan { first, count }],
            level: Level::Whole,
            slices_skipped: 0,
            pages_read: 0,
            pages_skipped: 0,
            pages_sent: 0,
            rows_in: 0,
            rows_out,
            medium_bytes: 0,
            batch_bytes: 0,
            cpu_ns: 0,
            scan: Default::default(),
            stored_bytes: 0,
            summarised: 0,
            wall_ns: 0,
            cause: None,
            queue_ms: None,
            retry_after_ms: None,
        }
    }

    fn close(admission: &mut Admission, annotation: &Annotation) -> Result<Vec<RecordBatch>, Fault> {
        admission.close(annotation, Ok)
    }

    fn batch() -> RecordBatch {
        RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from(vec![1, 2])) as _)]).unwrap()
    }

    #[test]
    fn rows_count_once_their_round_is_closed() {
        let mut admission = admission(4);
        admission.hold(0, batch()).unwrap();
        assert!(admission.finish().is_err(), "an open round");
        assert_eq!(close(&mut admission, &annotation(0, 0, 3, 2)).unwrap().len(), 1);
        assert!(admission.finish().is_err() && !admission.is_complete(), "a slice is missing");
        assert!(close(&mut admission, &annotation(1, 2, 1, 0)).is_err(), "a slice twice");
        assert!(close(&mut admission, &annotation(1, 4, 1, 0)).is_err(), "a slice that there is not");
        close(&mut admission, &annotation(1, 3, 1, 0)).unwrap();
        assert!(admission.finish().is_ok() && admission.is_complete());
    }

    #[test]
    fn another_session_goes_on_where_one_broke_off() {
        let mut admission = admission(5);
        close(&mut admission, &annotation(0, 3, 1, 0)).unwrap();
        close(&mut admission, &annotation(1, 4, 1, 0)).unwrap();
        admission.hold(2, batch()).unwrap();
        close(&mut admission, &annotation(2, 1, 1, 2)).unwrap();
        admission.hold(3, batch()).unwrap();
        admission.restart();
        assert_eq!(admission.done(), [SliceSpan { first: 1, count: 1 }, SliceSpan { first: 3, count: 2 }]);
        close(&mut admission, &annotation(1, 2, 1, 0)).unwrap();
        assert_eq!(admission.reservation.size(), 0);
        admission.hold(0, batch()).unwrap();
        assert_eq!(close(&mut admission, &annotation(0, 0, 1, 2)).unwrap().len(), 1);
        admission.finish().unwrap();
    }

    #[test]
    fn an_empty_partition_is_complete_once_it_has_answered() {
        let mut admission = admission(0);
        assert!(!admission.is_complete());
        close(&mut admission, &annotation(0, 0, 0, 0)).unwrap();
        assert!(admission.is_complete() && admission.done().is_empty());
    }

    #[test]
    fn an_annotation_with_other_rows_is_refused() {
        let mut admission = admission(1);
        admission.hold(0, batch()).unwrap();
        assert!(close(&mut admission, &annotation(0, 0, 1, 3)).is_err());
    }

    /// A regression: what came before the fault counted, and its rows were lost.
    #[test]
    fn nothing_of_a_round_with_a_fault_counts() {
        let mut admission = admission(6);
        close(&mut admission, &annotation(0, 5, 1, 0)).unwrap();
        let spans = |spans: &[(u32, u32)]| Annotation {
            slices: spans.iter().map(|(first, count)| SliceSpan { first: *first, count: *count }).collect(),
            ..annotation(1, 0, 0, 0)
        };
        for wrong in [&[(0, 2), (5, 1)][..], &[(0, 2), (1, 1)], &[(0, 2), (6, 1)], &[(0, 2), (u32::MAX, 2)]] {
            assert!(close(&mut admission, &spans(wrong)).is_err(), "{wrong:?}");
            assert_eq!(admission.done(), [SliceSpan { first: 5, count: 1 }], "{wrong:?}");
        }
        admission.hold(1, batch()).unwrap();
        let refused = admission.close(&annotation(1, 0, 5, 2), |_| Err::<(), _>(broken("rows of what came as stored".into())));
        assert!(refused.is_err() && admission.done().len() == 1 && !admission.is_complete());
        admission.restart();
        admission.hold(0, batch()).unwrap();
        assert_eq!(close(&mut admission, &annotation(0, 0, 5, 2)).unwrap().len(), 1);
        admission.finish().unwrap();
    }
}
