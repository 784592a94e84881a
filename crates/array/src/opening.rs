//! OPEN: finds where the slices are, chooses a way, and opens the sessions below where there are any yet.

use std::sync::Arc;

use futures::future::{join_all, try_join_all};
use pithead_door::{Granted, OpenRequest, PlanBytes, SlicePart, check_open, check_spans};
use pithead_host::DividedPart;
use pithead_model::{Adapt, Blame, Fault, HostState, Level, Partition, Reply, SessionId, SliceSpan};
use pithead_plan::take_annotation;

use crate::array::Inner;
use crate::lower::LowerSession;
use crate::merge::Merge;
use crate::ordinals::Ordinals;
use crate::relay::Relay;
use crate::sessions::{Begin, SessionPermit};
use crate::way::{Facts, Way, Why};

/// When a host is to ask again that found no place.
const RETRY_AFTER_MS: u64 = 50;

/// A dataset's partition at the drives below.
struct Divided {
    part: SlicePart,
    /// By drive, its part of each run.
    drives: Vec<Partition>,
    ordinals: Arc<Ordinals>,
}

impl Inner {
    pub(crate) async fn open(self: &Arc<Self>, mut request: OpenRequest) -> Result<Reply<Granted>, Fault> {
        self.check_running()?;
        take_annotation(&mut request)?;
        check_open(&request, &self.announced())?;
        let Some(place) = self.sessions.admit(self.options.sessions_max, &request.parts) else {
            let why = format!("all {} sessions of the array are taken", self.options.sessions_max);
            return Ok(Reply::Busy { why, retry_after_ms: RETRY_AFTER_MS });
        };
        let parts = try_join_all(request.parts.iter().map(|part| self.divided(part))).await?;
        let Some(driving) = parts.first() else { return Err(Fault::new(Blame::User, "expected at least one dataset")) };
        check_spans("done", &request.done, driving.ordinals.total())?;
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
    async fn relay(
        &self,
        request: &OpenRequest,
        driving: &Divided,
        place: SessionPermit,
        way: Way,
    ) -> Result<Reply<Granted>, Fault> {
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
            let run = part.run(*load);
            let parts = self.directories.run(&run).await?;
            let found = parts.counts();
            if found.iter().map(|count| u64::from(*count)).sum::<u64>() != u64::from(*slices) {
                let what = format!("{run} has {} slices, not {slices}", found.iter().sum::<u32>());
                return Err(Fault::new(Blame::User, what));
            }
            // Of a file that one drive attaches, the others do not even know.
            let attached = self.directories.attached.place(&run);
            let has = |index: usize| attached.is_none_or(|at| at == index);
            for (index, partition) in drives.iter_mut().enumerate().filter(|(index, _)| has(*index)) {
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
