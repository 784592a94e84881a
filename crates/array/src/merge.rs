//! A sub-plan as a query of the array's own: its rows are one round, to level 3, over all slices that are left.

use std::sync::Arc;
use std::time::Instant;

use futures::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use pithead_door::{Event, Events, batch_bytes};
use pithead_host::{Merged, QueryProfile, ReadSubPlan};
use pithead_model::{Annotation, Level, ScanShare, SessionProfile, SessionState, SliceSpan};

use crate::sessions::empty_profile;

/// What the round is of.
pub(crate) struct Merge {
    pub(crate) read: ReadSubPlan,
    pub(crate) partition: u32,
    /// The slices that it answers for.
    pub(crate) left: Vec<SliceSpan>,
    pub(crate) slices_total: u32,
}

/// Rows and bytes that went up.
#[derive(Clone, Copy, Default)]
struct Sent {
    rows: u64,
    bytes: u64,
}

impl Merge {
    /// Runs it as the events are pulled.
    pub(crate) fn events(self) -> Events {
        let Merge { read, partition, left, slices_total } = self;
        let started = Instant::now();
        let merged = stream::once(read.run()).map_ok(move |Merged { rows, profile }| {
            let sent = Arc::new(Mutex::new(Sent::default()));
            let counted = Arc::clone(&sent);
            let rows = rows.try_filter(|batch| std::future::ready(batch.num_rows() > 0)).map_ok(move |batch| {
                let mut sent = counted.lock();
                sent.rows += batch.num_rows() as u64;
                sent.bytes += batch_bytes(&batch) as u64;
                Event::Rows { round: 0, batch, link_bytes: 0 }
            });
            // Made when the rows have ended: only then is it known what they cost.
            let left = left.clone();
            let end = stream::once(async move {
                let annotation = annotation(partition, left, *sent.lock(), started, &profile);
                Ok(Event::Closed { annotation, link_bytes: 0 })
            });
            let profile = finished(slices_total);
            rows.chain(end).chain(stream::iter([Ok(Event::Finished { profile, link_bytes: 0 })]))
        });
        merged.try_flatten().boxed()
    }
}

/// The figures are those of the drives below; the array's own CPU time is not among them.
fn annotation(partition: u32, slices: Vec<SliceSpan>, sent: Sent, started: Instant, profile: &QueryProfile) -> Annotation {
    let below = profile.snapshot();
    let mut scan = ScanShare::default();
    let (mut pages_read, mut pages_skipped, mut pages_sent) = (0_u64, 0_u64, 0_u64);
    let (mut rows_in, mut stored_bytes, mut summarised) = (0_u64, 0_u64, 0_u32);
    for session in profile.sub_plans().iter().flat_map(|sub_plan| sub_plan.sessions()) {
        for round in &session.annotations {
            scan.add(round.scan);
            pages_read = pages_read.saturating_add(round.pages_read);
            pages_skipped = pages_skipped.saturating_add(round.pages_skipped);
            pages_sent = pages_sent.saturating_add(round.pages_sent);
            rows_in = rows_in.saturating_add(round.rows_in);
            stored_bytes = stored_bytes.saturating_add(round.stored_bytes);
            summarised = summarised.saturating_add(round.summarised);
        }
    }
    let count = slices.iter().fold(0_u32, |sum, span| sum.saturating_add(span.count));
    Annotation {
        round: 0,
        partition,
        slices,
        level: Level::Whole,
        slices_skipped: u32::try_from(below.slices_skipped).unwrap_or(u32::MAX).min(count),
        pages_read,
        pages_skipped,
        pages_sent,
        rows_in,
        rows_out: sent.rows,
        medium_bytes: below.medium_bytes,
        batch_bytes: sent.bytes,
        cpu_ns: below.drive_cpu_ns,
        scan,
        stored_bytes,
        summarised,
        wall_ns: started.elapsed().as_nanos() as u64,
        cause: None,
        queue_ms: None,
        retry_after_ms: None,
    }
}

fn finished(slices_total: u32) -> SessionProfile {
    SessionProfile { state: SessionState::Finished, rounds: 1, slices_total, slices_done: slices_total, ..empty_profile() }
}
