//! [`Finisher`]: runs at the host what a drive handed back, with the engine that drives have (`pithead_exec`): a sub-plan is complete
//! and independent, so it gives the same rows here.

#[cfg(test)]
mod tests;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use bytes::{Bytes, BytesMut};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryReservation;
use futures::{StreamExt, TryStreamExt};
use pithead_device::Device;
use pithead_door::{Door, PartsOutline, SlicePart, batch_bytes, run_values};
use pithead_exec::{BindRequest, Bound, PartData, SliceRef, SliceSource};
use pithead_functions::fault_from_datafusion;
use pithead_model::{
    Annotation, Blame, CallShare, Fault, Finished, HostState, Level, SLICE_BYTES_MAX, SessionId, SliceKey, SliceSpan,
};
use pithead_slice::{Fit, open_slice};
use tokio::task::JoinSet;

use crate::finishing::Sharing;
use crate::held_slices::budget;
use crate::hinted::{Hint, Hints, open_hinted};
use crate::readers::Readers;
use crate::session::Target;

/// How often a drive is told how the host is, at most.
const TELL_INTERVAL: Duration = Duration::from_millis(10);

/// Finishes the slices of one partition that a drive has handed back.
pub(crate) struct Finisher {
    target: Arc<Target>,
    bound: Option<Arc<Bound>>,
    source: Arc<Readers>,
    driving: Vec<SliceRef>,
    /// Parts of slices of rounds that are not closed.
    coming: BTreeMap<u32, Coming>,
    /// Slices of a partition that must be seen whole.
    collected: Vec<SliceRef>,
    handed_back: bool,
    tasks: JoinSet<Result<Done>>,
    finished: Vec<Finished>,
    told: Instant,
    slice_ns: f64,
    /// Bytes that wait to be finished.
    reservation: MemoryReservation,
    /// Bytes of the sub-plan's other datasets, which stay until the end.
    others: MemoryReservation,
    _sharing: Sharing,
}

/// Slices of one round on their way.
#[derive(Default)]
struct Coming {
    slices: BTreeMap<u32, (u64, BytesMut)>,
    /// Those of which only some pages come.
    hints: Hints,
    held: BTreeSet<u32>,
}

impl Coming {
    /// Bytes that are reserved for what comes.
    fn reserved(&self) -> usize {
        self.slices.values().map(|(total, _)| *total as usize).sum()
    }
}

/// What finishing took.
pub(crate) struct Done {
    pub(crate) batches: Vec<RecordBatch>,
    pub(crate) level: Level,
    pub(crate) slices: u32,
    pub(crate) cpu_ns: u64,
    /// What users' functions have taken at the host so far, with this.
    pub(crate) calls: Vec<CallShare>,
    polled_ns: u64,
    bytes: usize,
    /// What the batches take until they are taken.
    held: MemoryReservation,
}

impl Finisher {
    pub(crate) fn new(target: &Arc<Target>, reservation: MemoryReservation) -> Finisher {
        Finisher {
            bound: None,
            source: Arc::new(Readers::new()),
            driving: vec![],
            coming: BTreeMap::new(),
            collected: vec![],
            handed_back: false,
            tasks: JoinSet::new(),
            finished: vec![],
            told: Instant::now(),
            slice_ns: 0.0,
            others: reservation.new_empty(),
            reservation,
            _sharing: target.context.finishing.share(),
            target: Arc::clone(target),
        }
    }

    /// The driving slices that the host holds. They stay at hand for this session.
    pub(crate) fn held(&self) -> Vec<SliceSpan> {
        let mut open = self.source.open.lock();
        let Some(part) = self.target.request.parts.first().filter(|_| self.target.slice_cache > 0) else { return vec![] };
        let mut held = Vec::new();
        let mut ordinal = 0;
        for (load, count) in &part.runs {
            let run = part.run(*load);
            for number in 0..*count {
                let key = run.slice(number);
                if let Some(reader) = self.target.context.held.get(&key) {
                    open.insert(key, reader);
                    held.push(ordinal);
                }
                ordinal += 1;
            }
        }
        SliceSpan::cover(held)
    }

    /// The host, as its drive should know it.
    pub(crate) fn state(&self) -> HostState {
        self.target.context.finishing.state(self.tasks.len() as f64 * self.slice_ns)
    }

    /// Whether as much is being finished as there are cores for, and some to go on with.
    pub(crate) fn is_full(&self) -> bool {
        self.tasks.len() > 2 * self.target.context.finishing.width()
    }

    /// Whether nothing is being finished.
    pub(crate) fn is_idle(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Binds the sub-plan at the host. The drive gives the slices' entries, and once the other datasets of a join.
    pub(crate) async fn bind(&mut self, door: &Arc<dyn Door>) -> Result<(), Fault> {
        if self.bound.is_some() {
            return Ok(());
        }
        let request = &self.target.request;
        // What a copy gave that failed meanwhile is asked for again.
        self.others.free();
        let mut parts = Vec::with_capacity(request.parts.len());
        for (index, part) in request.parts.iter().enumerate() {
            let slices = match index {
                0 => slices_of(door, part).await?,
                _ => self.fetch(door, part).await?,
            };
            parts.push(part_data(part, slices));
        }
        self.driving.clone_from(&parts[0].slices);
        let source = Arc::clone(&self.source) as Arc<dyn SliceSource>;
        // All of what comes back, whatever the drive was to leave out, and to the end.
        let (runtime, functions) = (Arc::clone(&self.target.runtime), Arc::clone(&self.target.functions));
        let whole = BindRequest::of(request.clone(), parts, runtime, functions, source);
        let request = BindRequest { done: vec![], held: vec![], level_max: Level::Whole, ..whole };
        // Planning takes stack and time.
        let bound = tokio::spawn(Bound::bind(request)).await.map_err(Fault::bug)??;
        self.bound = Some(bound);
        Ok(())
    }

    /// All slices of another dataset.
    async fn fetch(&self, door: &Arc<dyn Door>, part: &SlicePart) -> Result<Vec<SliceRef>, Fault> {
        let slices = slices_of(door, part).await?;
        self.source.every_round.lock().extend(slices.iter().map(|slice| slice.key.clone()));
        let missing = |slice: &&SliceRef| match self.target.context.held.get(&slice.key) {
            Some(reader) => {
                self.source.open.lock().insert(slice.key.clone(), reader);
                false
            }
            None => true,
        };
        if slices.iter().filter(missing).count() == 0 {
            return Ok(slices);
        }
        let mut first = 0;
        for (load, count) in &part.runs {
            let mut values = run_values(door.read_run(part.run(*load)).await?);
            while let Some((number, bytes)) = values.try_next().await? {
                if let Some(number) = number {
                    self.others.try_grow(bytes.len()).map_err(fault_of)?;
                    let slice = slices.get((first + number) as usize).filter(|_| number < *count);
                    self.take_in(part, slice.ok_or_else(|| protocol(format!("slice {number} of {count} came")))?, bytes)?;
                }
            }
            first += count;
        }
        Ok(slices)
    }

    /// Opens a slice, which checks it, and keeps it for the next query.
    fn take_in(&self, part: &SlicePart, slice: &SliceRef, bytes: Bytes) -> Result<(), Fault> {
        let (key, size) = (slice.key.clone(), bytes.len() as u64);
        let reader = open_slice(slice.stored(&part.schema), bytes).map_err(|error| Fault::from(error).at(&key))?;
        if self.target.slice_cache > 0 {
            let budget = budget(self.target.slice_cache, &*self.target.runtime.memory_pool);
            self.target.context.held.keep(key.clone(), Arc::clone(&reader), size, budget);
        }
        self.source.open.lock().insert(key, reader);
        Ok(())
    }

    /// Whether slices of a closed round are to be finished here. With push-down off, rows travel at level 1, and are all that is
    /// asked for.
    pub(crate) fn is_handed_back(&self, level: Level) -> bool {
        match level {
            Level::Bytes | Level::Filtered => true,
            Level::Hints => self.target.request.options.level_max == Level::Whole,
            Level::Whole => false,
        }
    }

    /// Which pages of a slice come.
    pub(crate) fn hint(&mut self, round: u32, slice: u32, pages: Bytes, parts: PartsOutline) -> Result<(), Fault> {
        self.slice(slice)?;
        let hint = Hint::new(pages, parts)?;
        let coming = self.coming.entry(round).or_default();
        let is_new = !coming.slices.contains_key(&slice) && !coming.held.contains(&slice);
        match is_new && coming.hints.insert(slice, hint).is_none() {
            true => Ok(()),
            false => Err(protocol(format!("match hints of slice {slice} came late, or twice"))),
        }
    }

    /// The next bytes of a slice.
    pub(crate) fn store(&mut self, round: u32, slice: u32, total: u64, bytes: &Bytes) -> Result<()> {
        let broken = |what: String| Err(external(protocol(what)));
        let coming = self.coming.entry(round).or_default();
        let hinted = coming.hints.get(&slice).map(Hint::bytes);
        if coming.held.contains(&slice) || (total == 0 && coming.slices.contains_key(&slice)) {
            return broken(format!("slice {slice} came twice, or besides is said to be at the host"));
        }
        if total == 0 && hinted.is_none() {
            coming.held.insert(slice);
            return Ok(());
        }
        if hinted.is_some_and(|hinted| hinted != total) {
            return broken(format!("{total} bytes of slice {slice} were to come, and its match hints name others"));
        }
        if total > SLICE_BYTES_MAX as u64 {
            return broken(format!("slice {slice} of {total} bytes is over the bound of {SLICE_BYTES_MAX}"));
        }
        let (expected, value) = match coming.slices.entry(slice) {
            Entry::Occupied(begun) => begun.into_mut(),
            Entry::Vacant(next) => {
                self.reservation.try_grow(total as usize)?;
                next.insert((total, BytesMut::with_capacity(total as usize)))
            }
        };
        if *expected != total || value.len() as u64 + bytes.len() as u64 > total || bytes.is_empty() {
            return broken(format!("{} bytes of slice {slice} where {} of {expected} are missing", bytes.len(), {
                *expected - value.len() as u64
            }));
        }
        value.extend_from_slice(bytes);
        Ok(())
    }

    /// What a closed round of slices as stored holds, open and checked. Nothing of it counts before.
    pub(crate) fn opened(&mut self, annotation: &Annotation) -> Result<(Vec<SliceRef>, usize), Fault> {
        let coming = self.coming.remove(&annotation.round).unwrap_or_default();
        let reserved = coming.reserved();
        let opened = self.open_all(annotation, coming);
        if opened.is_err() {
            self.let_go(reserved);
        }
        opened
    }

    fn open_all(&self, annotation: &Annotation, coming: Coming) -> Result<(Vec<SliceRef>, usize), Fault> {
        let part = self.target.request.parts.first().ok_or_else(|| Fault::bug("a sub-plan without a dataset"))?;
        let mut found = Vec::new();
        let mut hinted = Vec::new();
        let mut size = 0;
        let Coming { slices, mut hints, held } = coming;
        for (ordinal, (total, value)) in slices {
            let slice = self.slice(ordinal)?;
            if value.len() as u64 != total {
                return Err(protocol(format!("{} of {total} bytes of slice {ordinal} came", value.len())));
            }
            size += value.len();
            match (hints.remove(&ordinal), annotation.level) {
                (Some(hint), Level::Hints) => hinted.push((slice, hint, value.freeze())),
                (None, Level::Bytes) => {
                    self.take_in(part, &slice, value.freeze())?;
                    found.push(slice);
                }
                (_, level) => return Err(protocol(format!("slice {ordinal} came otherwise than at level {}", level as u8))),
            }
        }
        if let Some(ordinal) = hints.keys().next() {
            return Err(protocol(format!("match hints of slice {ordinal} came without its pages")));
        }
        if annotation.level == Level::Hints {
            found.extend(open_hinted(part, annotation, hinted)?);
        }
        for ordinal in held {
            let slice = self.slice(ordinal)?;
            if !self.source.open.lock().contains_key(&slice.key) {
                return Err(protocol(format!("slice {ordinal} was not sent, and is not at the host")));
            }
            found.push(slice);
        }
        let named: u64 = annotation.slices.iter().map(|span| u64::from(span.count)).sum();
        let expected = named.saturating_sub(u64::from(annotation.slices_skipped));
        let is_named = |slice: &SliceRef| {
            annotation.slices.iter().any(|span| slice.ordinal >= span.first && slice.ordinal - span.first < span.count)
        };
        if found.len() as u64 != expected || !found.iter().all(is_named) {
            return Err(protocol(format!("round {} names {expected} slices, and {} came", annotation.round, found.len())));
        }
        Ok((found, size))
    }

    fn slice(&self, ordinal: u32) -> Result<SliceRef, Fault> {
        let slice = self.driving.get(ordinal as usize).cloned();
        slice.ok_or_else(|| protocol(format!("slice {ordinal} of {} came back", self.driving.len())))
    }

    /// Rows of the driving dataset that passed the filters, as a slice, and their bytes, which are reserved.
    pub(crate) fn filtered(&self, annotation: &Annotation, rows: Vec<RecordBatch>) -> Result<(Vec<SliceRef>, usize), Fault> {
        let Some(first) = annotation.slices.first() else { return Ok((vec![], 0)) };
        let bytes = rows.iter().map(batch_bytes).sum();
        self.reservation.try_grow(bytes).map_err(fault_of)?;
        Ok((vec![SliceRef { filtered: Some(rows.into()), ..self.slice(first.first)? }], bytes))
    }

    /// Finishes these slices of a closed round. `bytes` of them are reserved.
    pub(crate) fn finish(&mut self, annotation: &Annotation, slices: Vec<SliceRef>, bytes: usize) -> Result<(), Fault> {
        self.handed_back = true;
        if self.target.request.whole_partition {
            self.collected.extend(slices);
            return Ok(());
        }
        let count = annotation.slices.iter().map(|span| span.count).sum();
        if slices.is_empty() {
            return Ok(());
        }
        self.start(slices, annotation.level, count, bytes)
    }

    /// After the last round: a partition that must be seen whole is finished now.
    pub(crate) fn all_came(&mut self) -> Result<(), Fault> {
        if self.target.request.whole_partition && std::mem::take(&mut self.handed_back) {
            let slices = std::mem::take(&mut self.collected);
            let (count, bytes) = (slices.len() as u32, self.reservation.size());
            self.start(slices, Level::Bytes, count, bytes)?;
        }
        Ok(())
    }

    fn start(&mut self, slices: Vec<SliceRef>, level: Level, count: u32, bytes: usize) -> Result<(), Fault> {
        let bound = self.bound.clone().ok_or_else(|| Fault::bug("slices came back before the sub-plan was bound"))?;
        let (source, finishing) = (Arc::clone(&self.source), Arc::clone(&self.target.context.finishing));
        let held = self.reservation.new_empty();
        self.tasks.spawn(async move {
            let _turn = finishing.turn().await;
            let keys: Vec<SliceKey> = slices.iter().map(|slice| slice.key.clone()).collect();
            let (batches, calls) = (vec![], vec![]);
            let mut done = Done { batches, level, slices: count, cpu_ns: 0, calls, polled_ns: 0, bytes, held };
            let run = async {
                let mut round = bound.round_over(slices).await.map_err(external)?;
                let mut batches = Vec::new();
                while let Some(batch) = round.stream.next().await.transpose()? {
                    done.held.try_grow(batch_bytes(&batch))?;
                    batches.push(batch);
                }
                Ok::<_, DataFusionError>(batches)
            };
            done.batches = metered(source.device(), run, &mut done.cpu_ns, &mut done.polled_ns).await?;
            done.calls = bound.calls().sums();
            finishing.took(done.cpu_ns, done.polled_ns);
            source.forget(&keys);
            Ok(done)
        });
        Ok(())
    }

    /// The next slices that are finished; waits for ever while there are none.
    pub(crate) async fn next(&mut self) -> Result<Done> {
        let done = match self.tasks.join_next().await {
            None => std::future::pending().await,
            Some(Ok(done)) => done?,
            Some(Err(error)) => return Err(external(Fault::bug(error))),
        };
        self.reservation.shrink(done.bytes.min(self.reservation.size()));
        self.slice_ns = done.cpu_ns as f64 / f64::from(done.slices.max(1));
        self.finished.push(Finished { level: done.level, slices: done.slices, cpu_ns: done.cpu_ns });
        Ok(done)
    }

    /// Tells the drive what was finished and how the host is, not too often.
    pub(crate) fn tell(&mut self, door: &Arc<dyn Door>, session: SessionId) {
        if self.finished.is_empty() || self.told.elapsed() < TELL_INTERVAL {
            return;
        }
        self.told = Instant::now();
        let state = HostState { finished: std::mem::take(&mut self.finished), ..self.state() };
        let door = Arc::clone(door);
        tokio::spawn(async move {
            if let Err(fault) = door.tell(session, state).await {
                tracing::debug!(%session, %fault, "the drive was not told how the host is");
            }
        });
    }

    /// Forgets what was collected of a partition that must be seen whole. Whether there was any.
    pub(crate) fn forget(&mut self) -> bool {
        self.collected.clear();
        self.reservation.free();
        std::mem::take(&mut self.handed_back)
    }

    /// Gives back the bytes of slices that were opened and then did not count.
    pub(crate) fn let_go(&self, bytes: usize) {
        self.reservation.shrink(bytes.min(self.reservation.size()));
    }

    /// Drops what came of rounds that were not closed: their session is over.
    pub(crate) fn restart(&mut self) {
        let reserved: usize = std::mem::take(&mut self.coming).values().map(Coming::reserved).sum();
        self.let_go(reserved);
    }
}

/// Counts the CPU time and the wall time of a future's polls.
async fn metered<T>(device: &dyn Device, future: impl Future<Output = T>, cpu_ns: &mut u64, polled_ns: &mut u64) -> T {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        let (start, cpu) = (device.clock().now(), device.cpu_ns());
        let polled = future.as_mut().poll(context);
        *cpu_ns += device.cpu_ns().saturating_sub(cpu);
        *polled_ns += device.clock().now().since(start).as_nanos() as u64;
        polled
    })
    .await
}

/// A part's slices, from the directories of its runs.
async fn slices_of(door: &Arc<dyn Door>, part: &SlicePart) -> Result<Vec<SliceRef>, Fault> {
    let mut slices = Vec::new();
    for (load, count) in &part.runs {
        let run = part.run(*load);
        let directory = door.directory(run.clone()).await?;
        let fit = Fit::of(&directory.schema, &part.schema);
        let (Ok(fit), true) = (fit, directory.slices.len() == *count as usize) else {
            return Err(protocol(format!("the directory of {run} is not that of the manifest")));
        };
        slices.extend(SliceRef::of_run(&run, slices.len() as u32, directory.slices.into_iter().map(Arc::new), &fit));
    }
    Ok(slices)
}

fn part_data(part: &SlicePart, slices: Vec<SliceRef>) -> PartData {
    // Slices come back in any order, so none is declared.
    let sort = vec![];
    let (name, schema) = (part.name.clone(), Arc::clone(&part.schema));
    PartData { name, schema, partition: part.partition, sort, slices, passing: part.passing }
}

fn protocol(what: String) -> Fault {
    Fault::new(Blame::Device, format!("the drive broke the protocol: {what}"))
}

pub(crate) fn external(fault: Fault) -> DataFusionError {
    DataFusionError::External(Box::new(fault))
}

/// A fault that a session can go on from at another copy.
pub(crate) fn fault_of(error: DataFusionError) -> Fault {
    fault_from_datafusion(error)
}
