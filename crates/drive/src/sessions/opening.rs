//! OPEN: checks a request, takes a place, memory and leases for it, and binds its sub-plan.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use pithead_door::{Granted, OpenRequest, SlicePart, check_open, check_spans, input_bytes};
use pithead_exec::{BindRequest, Bound, PartData, SliceRef, SliceSource};
use pithead_functions::check_clock;
use pithead_model::{Adapt, Blame, Bytes, Fault, FaultKind, Level, LevelRule, Reply, SessionId, total};

use crate::resources::{Usage, panic_fault};
use crate::sessions::SessionServer;
use crate::sessions::rounds::{RoundPolicy, SessionFacts};
use crate::sessions::session::{Session, Work};
use crate::sessions::steer::{Facts as SteerFacts, Steer};
use crate::sessions::summary::SessionSummary;
use crate::sessions::turns::{Refusal, fair_threads};
use crate::sessions::uses::partitions;
use crate::storage::Lease;
use crate::storage::{fit, gone};

/// Slices of which nothing was read yet are taken to be encoded so.
const DEFAULT: &str = "vortex";
/// Longest that planning may take.
const BIND_WAIT: Duration = Duration::from_secs(60);

impl SessionServer {
    pub(crate) async fn open_session(&self, request: OpenRequest) -> Result<Reply<Granted>, Fault> {
        check_open(&request, self.functions.announced())?;
        check_clock()?;
        self.sessions.shutdown().check()?;
        let shipped = input_bytes(&request.inputs) as u64;
        if !self.resources.budget.could_reserve(request.options.memory, shipped) {
            return Err(too_little_memory(self.resources.budget.total(), shipped));
        }
        let room = self.resources.budget.room(request.options.memory);
        let place = match self.sessions.admit(request.options.host, room) {
            Ok(place) => place,
            Err(refusal) => return Ok(self.busy(refusal)),
        };
        let Some(grant) = self.resources.budget.reserve(request.options.memory, shipped) else {
            return Ok(self.busy(place.give_back()));
        };
        let lease = self.lease(&request.parts)?;
        let parts = self.parts(&request.parts).await?;
        let slices = parts.first().map_or(0, |part| part.slices.len() as u32);
        check_spans("done", &request.done, slices)?;
        check_spans("held", &request.options.adapt.held, slices)?;
        let mut request = request;
        let summary = SessionSummary::look(&self.summaries, &mut request);
        let partitions = partitions(&request.parts);
        let datasets = request.parts.iter().map(|part| part.name.clone()).collect();
        let usage = Arc::new(Usage::default());
        let runtime = self.resources.runtimes.session(grant.bytes(), &usage)?;
        let memory = Arc::clone(&runtime.memory_pool);
        let threads = fair_threads(request.options.threads as usize, self.resources.workers.threads(), self.sessions.count());
        let facts = Facts::of(&request, &parts, self.encoding_of(&request.parts).await);
        let source = Arc::clone(&self.storage.slices) as Arc<dyn SliceSource>;
        let functions = self.programs.registry(&request.options.extensions, &self.functions).await?;
        let bound = self.bind(BindRequest::of(request, parts, runtime, functions, source)).await?;
        let policy = RoundPolicy::new(&facts.session(&bound, threads));
        let steer = Steer::new(
            &SteerFacts {
                adapt: &facts.adapt,
                bound: &bound,
                policy: &policy,
                cores: &self.cores,
                whole_partition: facts.whole_partition,
                encoding: facts.encoding,
                others_bytes: facts.others_bytes,
            },
            &self.resources.device,
            &self.costs,
        );
        let used = self.uses.session(&partitions, &bound, self.resources.device.clock().now());
        let (partition, level_max) = (facts.partition, facts.level_max);
        let steer = Arc::new(steer);
        let summary = summary.and_then(|summary| summary.filter(&policy, facts.whole_partition));
        let work = Work { bound, policy, steer, summary, partition, level_max, memory, grant, used, datasets, _lease: lease };
        let granted = Granted { session: SessionId(rand::random()), threads: threads as u32, memory: work.grant.bytes() };
        tracing::debug!(session = %granted.session, threads, memory = granted.memory, ?policy, "opened");
        self.sessions.insert(Arc::new(Session::new(granted.session, work, usage, Arc::clone(&self.resources.device), place)));
        Ok(Reply::Granted(granted))
    }

    fn busy(&self, refusal: Refusal) -> Reply<Granted> {
        let (why, retry_after_ms) = (refusal.scarce.why(), refusal.retry_after.as_millis() as u64);
        tracing::debug!(why, retry_after_ms, sessions = self.sessions.count(), "busy");
        Reply::Busy { why: why.to_owned(), retry_after_ms }
    }

    pub(super) fn lease(&self, parts: &[SlicePart]) -> Result<Lease, Fault> {
        let runs = parts.iter().flat_map(|part| part.runs.iter().map(|(load, _)| part.run(*load)));
        self.storage.leases.lease(runs.collect()).map_err(|run| gone(&run))
    }

    pub(super) async fn parts(&self, parts: &[SlicePart]) -> Result<Vec<PartData>, Fault> {
        let mut data = Vec::with_capacity(parts.len());
        for part in parts {
            data.push(PartData {
                name: part.name.clone(),
                schema: Arc::clone(&part.schema),
                partition: part.partition,
                sort: part.sort.clone(),
                slices: self.slices_of(part).await?,
                passing: part.passing.filter(|share| (0.0..=1.0).contains(share)),
            });
        }
        Ok(data)
    }

    /// What the driving part's slices are encoded as: where none was read yet, what slices are written as.
    async fn encoding_of(&self, parts: &[SlicePart]) -> &'static str {
        let Some((part, (load, _))) = parts.first().and_then(|part| Some((part, part.runs.first()?))) else { return DEFAULT };
        match self.storage.directories.run(&part.run(*load)).await {
            Ok(directory) => directory.encoding.get().copied().unwrap_or(DEFAULT),
            Err(_) => DEFAULT,
        }
    }

    /// A part's slices over its runs, each run checked against its metadata slice.
    async fn slices_of(&self, part: &SlicePart) -> Result<Vec<SliceRef>, Fault> {
        let mut slices = Vec::new();
        for (load, count) in &part.runs {
            let run = part.run(*load);
            let directory = self.storage.directories.run(&run).await?;
            if directory.slices.len() != *count as usize {
                let what = format!("{run} has {} slices, not {count}", directory.slices.len());
                return Err(Fault::new(Blame::User, what));
            }
            let fit = fit(&run, &directory.schema, &part.schema)?;
            slices.extend(SliceRef::of_run(&run, slices.len() as u32, directory.slices.iter().cloned(), &fit));
        }
        Ok(slices)
    }

    pub(super) async fn bind(&self, request: BindRequest) -> Result<Arc<Bound>, Fault> {
        if Bound::is_quick(&request) {
            // The way to another thread and back would take longer.
            let bound = AssertUnwindSafe(Bound::bind(request)).catch_unwind().await;
            return bound.unwrap_or_else(|panic| Err(panic_fault(&*panic)));
        }
        let bound = self.resources.workers.control(async { tokio::time::timeout(BIND_WAIT, Bound::bind(request)).await });
        let late = |_| Fault::new(Blame::Limit, format!("the sub-plan took longer than {BIND_WAIT:?} to plan"));
        bound.await?.map_err(late)?
    }
}

/// What is needed of a request after its plan has gone to be bound.
struct Facts {
    partition: u32,
    level_max: pithead_model::Level,
    whole_partition: bool,
    other_parts: usize,
    others_bytes: u64,
    input_bytes: usize,
    is_sample: bool,
    encoding: &'static str,
    adapt: Adapt,
}

impl Facts {
    fn of(request: &OpenRequest, parts: &[PartData], encoding: &'static str) -> Self {
        let bytes = |part: &PartData| total(part.slices.iter().map(|slice| slice.entry.bytes));
        let prunes_only = request.options.level_max < Level::Whole;
        let adapt = request.options.adapt.clone();
        Self {
            others_bytes: total(parts.iter().skip(1).map(bytes)),
            encoding,
            adapt: if prunes_only { Adapt { level: LevelRule::default(), ..adapt } } else { adapt },
            partition: request.parts[0].partition,
            level_max: request.options.level_max,
            whole_partition: request.whole_partition,
            other_parts: request.parts.len() - 1,
            input_bytes: input_bytes(&request.inputs),
            is_sample: request.options.sample.is_some(),
        }
    }

    fn session(&self, bound: &Bound, threads: usize) -> SessionFacts {
        SessionFacts {
            shape: bound.shape(),
            whole_partition: self.whole_partition,
            other_parts: self.other_parts,
            input_bytes: self.input_bytes,
            is_sample: self.is_sample,
            slices: bound.slices_left().len() as u32,
            threads,
        }
    }
}

/// Waiting would not help.
fn too_little_memory(total: u64, shipped: u64) -> Fault {
    let (total, shipped) = (Bytes(total), Bytes(shipped));
    let what = format!("the drive has {total} of memory, too little for one session beside the {shipped} that are sent along");
    Fault::new(Blame::Limit, what)
        .of_kind(FaultKind::Memory)
        .hint("give the drive more memory, or ask for less: `SET pithead.drive_memory` and `SET pithead.ship_bytes_max`")
}
