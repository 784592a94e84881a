//! OPEN: finds where the slices are, chooses a way, and opens the sessions below where there are any yet.

use std::sync::Arc;

use futures::future::{join_all, try_join_all};
use pithead_host::DividedPart;
use pithead_model::{Adapt, Blame, Fault, HostState, Level, LoadId, Partition, Reply, SessionId, SliceKey, SliceSpan};
use pithead_wire::{Granted, OpenRequest, PlanBytes, SlicePart};

use crate::array::Inner;
use crate::lower::LowerSession;
use crate::merge::Merge;
use crate::ordinals::Ordinals;
use crate::relay::Relay;
use crate::sessions::{Begin, Place};
use crate::way::{Facts, Way, Why};

/// When a host is to ask again that found no place.
const RETRY_AFTER_MS: u64 = 50;
/// Rows of a batch at most, as at a drive.
const BATCH_ROWS_MAX: usize = 1 << 16;
/// Parts of one sub-plan at most, as at a drive.
const PARTS_MAX: usize = 64;

/// A dataset's partition at the drives below.
struct Divided {
    part: SlicePart,
    /// By drive, its part of each run.
    drives: Vec<Partition>,
    ordinals: Arc<Ordinals>,
}

impl Inner {
    pub(crate) async fn open(self: &Arc<Self>, request: OpenRequest) -> Result<Reply<Granted>, Fault> {
        self.check_running()?;
        check(&request)?;
        let Some(place) = self.sessions.admit(self.options.sessions_max, &request.parts) else {
            let why = format!("all {} sessions of the array are taken", self.options.sessions_max);
            return Ok(Reply::Busy { why, retry_after_ms: RETRY_AFTER_MS });
        };
        let parts = try_join_all(request.parts.iter().map(|part| self.divided(part))).await?;
        let Some(driving) = parts.first() else { return Err(Fault::new(Blame::User, "expected at least one dataset")) };
        check_done(&request.done, driving.ordinals.total())?;
        let options = &request.options;
        let (level, level_max) = (options.adapt.level, options.level_max);
        let mut facts = Facts {
            parts: parts.len(),
            driving_scans: 1,
            whole_partition: request.whole_partition,
            is_rows: true,
            level,
            level_max,
            busy: self.sessions.merging() >= self.options.threads.max(1),
            some_done: !request.done.is_empty(),
        };
        let bytes = match &request.plan {
            PlanBytes::Substrait(bytes) if level_max == Level::Whole => bytes.clone(),
            // Columns, and filters that only rule out: rows of one dataset.
            _ if parts.len() == 1 => {
                return self.relay(&request, driving, place, Way::of(&Facts { whole_partition: false, ..facts })).await;
            }
            _ => return Err(Fault::new(Blame::Unsupported, "columns of several datasets at once")),
        };
        let done: Vec<Vec<SliceSpan>> =
            (0..self.drives.len()).map(|drive| driving.ordinals.spans_below(drive, &request.done)).collect();
        let divided: Vec<DividedPart> = parts.iter().map(|part| self.divided_part(part)).collect();
        let read = self.plans.read(&bytes, &request, &divided, done).await?;
        (facts.driving_scans, facts.is_rows) = (read.driving_scans(), read.is_rows());
        match Way::of(&facts) {
            Way::Merge(why) => {
                tracing::debug!(?why, slices = driving.ordinals.total(), "merging a sub-plan");
                let merge = Merge {
                    read,
                    partition: driving.part.partition,
                    left: driving.ordinals.without(&request.done),
                    slices_total: driving.ordinals.total(),
                };
                let mut place = place;
                place.merges();
                let begin: Begin = Box::new(move || merge.events());
                let session = self.sessions.insert(Arc::default(), driving.ordinals.total(), begin, place, &request);
                Ok(Reply::Granted(self.granted(session)))
            }
            way => self.relay(&request, driving, place, way).await,
        }
    }

    /// One session a drive that has slices of it.
    async fn relay(&self, request: &OpenRequest, driving: &Divided, place: Place, way: Way) -> Result<Reply<Granted>, Fault> {
        let Way::Relay(why) = way else {
            let what = "an array cannot go on in the middle of a sub-plan that reads its dataset twice";
            return Err(Fault::new(Blame::Device, what).hint("run the query again"));
        };
        let ordinals = &driving.ordinals;
        let mut asked: Vec<usize> = (0..self.drives.len()).filter(|drive| ordinals.count(*drive) > 0).collect();
        if asked.is_empty() {
            // Of no slices, too, one drive has to say so: an aggregate has a row.
            asked.push(0);
        }
        tracing::debug!(?why, drives = asked.len(), slices = ordinals.total(), "relaying a sub-plan");
        let opening = asked.iter().filter_map(|index| {
            let drive = self.drives.get(*index)?;
            Some(LowerSession::open(*index, drive, lower_request(request, driving, *index, asked.len())))
        });
        let mut lower = Vec::with_capacity(asked.len());
        let mut busy = None;
        for opened in join_all(opening).await {
            match opened? {
                Reply::Granted(session) => lower.push(session),
                Reply::Busy { why, retry_after_ms } => busy = Some(Reply::Busy { why, retry_after_ms }),
            }
        }
        if let Some(busy) = busy {
            join_all(lower.iter().map(LowerSession::close)).await;
            return Ok(busy);
        }
        let lower = Arc::new(lower);
        let relay = Relay::new(Arc::clone(&lower), Arc::clone(ordinals), why == Why::Busy);
        let begin: Begin = Box::new(move || relay.events());
        Ok(Reply::Granted(self.granted(self.sessions.insert(lower, ordinals.total(), begin, place, request))))
    }

    fn granted(&self, session: SessionId) -> Granted {
        Granted { session, threads: self.options.threads as u32, memory: self.options.memory }
    }

    /// Where a part's slices are.
    async fn divided(&self, part: &SlicePart) -> Result<Divided, Fault> {
        let mut drives: Vec<Partition> = self.drives.iter().map(|drive| Partition::empty(vec![drive.id()])).collect();
        let mut counts = Vec::with_capacity(part.runs.len());
        for (load, slices) in &part.runs {
            let run = run_key(part, *load);
            let parts = self.directories.run(&run).await?;
            let found = parts.counts();
            if found.iter().map(|count| u64::from(*count)).sum::<u64>() != u64::from(*slices) {
                let what = format!("{run} has {} slices, not {slices}", found.iter().sum::<u32>());
                return Err(Fault::new(Blame::User, what));
            }
            for (index, partition) in drives.iter_mut().enumerate() {
                if let Some(part) = parts.run(index, &run) {
                    partition.append(part);
                }
            }
            counts.push(found);
        }
        let ordinals = Ordinals::new(self.drives.len(), &counts)
            .ok_or_else(|| Fault::new(Blame::User, format!("the runs of {} have too many slices", part.name)))?;
        Ok(Divided { part: part.clone(), drives, ordinals: Arc::new(ordinals) })
    }

    fn divided_part(&self, divided: &Divided) -> DividedPart {
        DividedPart { part: divided.part.clone(), drives: divided.drives.clone() }
    }
}

/// OPEN for one drive's part of the slices, where `drives` of them share the work.
fn lower_request(request: &OpenRequest, driving: &Divided, drive: usize, drives: usize) -> OpenRequest {
    let share = drives.max(1) as f64;
    let ordinals = &driving.ordinals;
    let runs = driving.drives.get(drive).map(|partition| partition.runs.as_slice()).unwrap_or_default();
    let adapt = &request.options.adapt;
    let mut options = request.options.clone();
    options.adapt = Adapt {
        held: ordinals.spans_below(drive, &adapt.held),
        host: shared(&adapt.host, drives),
        expected: adapt.expected.map(|(rows, bytes)| (rows / share, bytes / share)),
        ..adapt.clone()
    };
    OpenRequest {
        parts: vec![SlicePart { runs: runs.iter().map(|run| (run.load, run.slices)).collect(), ..driving.part.clone() }],
        done: ordinals.spans_below(drive, &request.done),
        whole_partition: false,
        options,
        ..request.clone()
    }
}

/// A host as each of so many drives should see it: they share its cores.
pub(crate) fn shared(host: &HostState, drives: usize) -> HostState {
    HostState { cores: host.cores / drives.max(1) as f64, ..host.clone() }
}

fn run_key(part: &SlicePart, load: LoadId) -> SliceKey {
    SliceKey { name: part.name.clone(), dataset: part.dataset, load, partition: part.partition, number: None }
}

/// Bounds first, those that no drive below would check.
fn check(request: &OpenRequest) -> Result<(), Fault> {
    let user = |what: String| Err(Fault::new(Blame::User, what));
    if request.parts.is_empty() || request.parts.len() > PARTS_MAX {
        return user(format!("expected 1 to {PARTS_MAX} datasets, got {}", request.parts.len()));
    }
    if !(1..=BATCH_ROWS_MAX).contains(&request.options.batch_rows) {
        return user(format!("expected batches of 1 to {BATCH_ROWS_MAX} rows, got {}", request.options.batch_rows));
    }
    if request.whole_partition && !request.done.is_empty() {
        return user("a sub-plan that needs the whole partition in one round cannot leave slices out".to_owned());
    }
    Ok(())
}

/// Slices that are done: in order, none twice, none past the end.
fn check_done(done: &[SliceSpan], slices: u32) -> Result<(), Fault> {
    let mut end = 0;
    for span in done {
        let last = span.first.checked_add(span.count).filter(|last| *last <= slices);
        match last {
            Some(last) if span.count > 0 && span.first >= end => end = last,
            _ => {
                let what = format!(
                    "{} slices from {} on cannot be done: expected rising spans of {slices} slices",
                    span.count, span.first
                );
                return Err(Fault::new(Blame::User, what));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_that_are_done_rise_and_are_there() {
        let span = |first, count| SliceSpan { first, count };
        assert!(check_done(&[span(0, 2), span(3, 1)], 4).is_ok());
        for wrong in [vec![span(0, 0)], vec![span(2, 1), span(0, 1)], vec![span(3, 2)], vec![span(1, u32::MAX)]] {
            assert_eq!(check_done(&wrong, 4).unwrap_err().blame, Blame::User, "{wrong:?}");
        }
    }
}
