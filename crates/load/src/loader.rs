//! A load's way: what there is, what the files agree on, the slices, the commit, and what to delete.

mod afterwards;
mod asking;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use pithead_door::Batches;
use pithead_files::open_all;
use pithead_fleet::{Committed, Fleet, NotCommitted, attended, discard, discard_at, relay};
use pithead_model::{Blame, Dataset, DriveId, Fault, Loaded, Manifest, SliceKey, total};
use tokio::sync::OwnedRwLockReadGuard;
use tokio::task::JoinHandle;

use self::afterwards::Afterwards;
use self::asking::AskingFleet;
use crate::agree::{agree, agree_one};
use crate::merging::merge_small_runs;
use crate::pipeline::{self, Feed, Meter};
use crate::sample::{self, peek};
use crate::spec::{LoadProgress, LoadReport, LoadSpec, PartitionBy};
use crate::target::{Ground, Target};

/// Longest that a failed load waits for its slices to be deleted.
const DELETE_WAIT: Duration = Duration::from_secs(30);
/// Times that a load's slices follow a partition that is moved meanwhile.
const MOVES_MAX: usize = 5;

/// Loads into the datasets of a fleet. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Loader {
    fleet: AskingFleet,
    inner: Arc<Inner>,
    /// What goes on after answers. With the last one who has it, it is cut short.
    afterwards: Arc<Afterwards>,
}

#[derive(Debug)]
struct Inner {
    threads: usize,
    merging: tokio::sync::Mutex<()>,
}

impl Loader {
    /// Loads with so many threads.
    pub fn new(fleet: Fleet, threads: usize) -> Self {
        let inner = Arc::new(Inner { threads, merging: tokio::sync::Mutex::default() });
        Self { fleet: AskingFleet::new(fleet, None), inner, afterwards: Arc::default() }
    }

    /// The same, which asks before it sends a change that others may see: a fault, and nothing is sent. What `ask` gives is called
    /// where it is certain that the change was not made.
    #[must_use]
    pub fn asking(&self, ask: impl Fn() -> Result<Box<dyn FnOnce() + Send>, Fault> + Send + Sync + 'static) -> Self {
        Self { fleet: AskingFleet::new(self.fleet.own().clone(), Some(Arc::new(ask))), ..self.clone() }
    }

    /// Begins work that no answer needs, waits for a moment, and lets it go on by itself.
    pub async fn afterwards(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.afterwards.begin(work).await;
    }

    /// Waits for what goes on after answers, for so long at most. What has not ended by then is cut short: slices that nothing names
    /// stay for the drives' collectors, and small runs for a later append. Whether all has ended by itself.
    pub async fn settled(&self, limit: Duration) -> bool {
        self.afterwards.settled(limit).await
    }

    /// Loads files into a dataset. Its rows become visible together at the end, or not at all; what a failed load left
    /// on the drives is deleted. `progress` is called from the threads that read.
    ///
    /// Boxed here, or every crate that awaits it would compile all of loading again.
    pub fn load(
        &self,
        spec: LoadSpec,
        progress: Arc<dyn Fn(LoadProgress) + Send + Sync>,
    ) -> BoxFuture<'_, Result<LoadReport, Fault>> {
        Box::pin(self.load_files(spec, progress))
    }

    /// The same for batches of a program, all of `schema`. The spec's sources, format and CSV options are not used.
    pub fn load_batches(&self, spec: LoadSpec, schema: SchemaRef, rows: Batches) -> BoxFuture<'_, Result<LoadReport, Fault>> {
        Box::pin(self.load_rows(spec, None, schema, rows))
    }

    /// The same with [`crate::LoadMode::Replace`], where the rows were made of those that they replace: these have to be as they were
    /// read, or it is a [`Blame::Conflict`]. The layout is the spec's.
    pub fn load_batches_over(
        &self,
        over: Arc<Dataset>,
        spec: LoadSpec,
        schema: SchemaRef,
        rows: Batches,
    ) -> BoxFuture<'_, Result<LoadReport, Fault>> {
        Box::pin(self.load_rows(spec, Some(over), schema, rows))
    }

    /// The fleet, as this loader changes it.
    pub(crate) fn fleet(&self) -> &AskingFleet {
        &self.fleet
    }

    /// Held by the load that merges small runs.
    pub(crate) fn merging(&self) -> &tokio::sync::Mutex<()> {
        &self.inner.merging
    }

    async fn load_files(&self, spec: LoadSpec, progress: Arc<dyn Fn(LoadProgress) + Send + Sync>) -> Result<LoadReport, Fault> {
        let started = Instant::now();
        let ground = self.ground(&spec).await?;
        let prepare = move || {
            let mut sources = open_all(&spec.sources, spec.format, &spec.csv)?;
            let schema = agree(&mut sources, ground.present.as_ref().map(|present| &present.schema))?;
            let target = Target::new(&spec, ground, &schema, |column| sample::of_files(&sources, column))?;
            Ok::<_, Fault>((sources, target))
        };
        let (sources, target) = tokio::task::spawn_blocking(prepare).await.map_err(Fault::bug)??;
        // What servers say of their files may add up to more than can be counted.
        let bytes = total(sources.iter().map(|source| source.bytes()));
        let report = self.write(target, Feed::Files(sources), Meter::new(bytes, progress)).await?;
        Ok(LoadReport { source_bytes: bytes, seconds: started.elapsed().as_secs_f64(), ..report })
    }

    async fn load_rows(
        &self,
        spec: LoadSpec,
        over: Option<Arc<Dataset>>,
        schema: SchemaRef,
        rows: Batches,
    ) -> Result<LoadReport, Fault> {
        let started = Instant::now();
        let (mut target, feed) = self.prepare_rows(&spec, schema, rows).await?;
        if let Some(over) = over {
            target.only_over(over);
        }
        let report = self.write(target, feed, Meter::new(0, Arc::new(|_| ()))).await?;
        Ok(LoadReport { seconds: started.elapsed().as_secs_f64(), ..report })
    }

    async fn prepare_rows(&self, spec: &LoadSpec, schema: SchemaRef, rows: Batches) -> Result<(Target, Feed), Fault> {
        let ground = self.ground(spec).await?;
        let stored = agree_one(&schema, ground.present.as_ref().map(|present| &present.schema))?;
        let wants_sample = matches!(spec.partitioning, None | Some(PartitionBy::Range(_))) && ground.present.is_none();
        let (head, rows) = if wants_sample { peek(rows).await? } else { (Vec::new(), rows) };
        let target = Target::new(spec, ground, &stored, |column| sample::of_batches(&head, column))?;
        Ok((target, Feed::Batches(schema, rows)))
    }

    async fn ground(&self, spec: &LoadSpec) -> Result<Ground, Fault> {
        let drives = self.fleet().refreshed().await;
        Ground::check(spec, &self.fleet().manifest(&spec.name.domain, &drives).await?)
    }

    /// Writes rows that are to be added. They are not visible yet.
    pub(crate) async fn write_unseen(&self, spec: &LoadSpec, schema: SchemaRef, rows: Batches) -> Result<Written, Fault> {
        let (target, feed) = self.prepare_rows(spec, schema, rows).await?;
        self.write_runs(target, feed, Meter::new(0, Arc::new(|_| ()))).await
    }

    /// Writes the slices; what they left is deleted if anything fails.
    async fn write_runs(&self, target: Target, feed: Feed, meter: Meter) -> Result<Written, Fault> {
        let target = Arc::new(target);
        let meter = Arc::new(meter);
        let leftovers = Leftovers::new(self.fleet(), &target).await;
        let drives = self.fleet().connected();
        let loading = pipeline::run(&drives, self.inner.threads, &target, feed, Arc::clone(&meter));
        let runs = match attended(self.fleet(), || target.runs_at(&target.copies()), loading).await {
            Ok(runs) => runs,
            Err(fault) => {
                leftovers.delete().await;
                return Err(fault);
            }
        };
        let report = report(&target, &runs, &meter);
        Ok(Written { target, runs, report, leftovers })
    }

    /// Writes the slices and commits them. Deletes what they left if anything failed.
    async fn write(&self, target: Target, feed: Feed, meter: Meter) -> Result<LoadReport, Fault> {
        let Written { target, runs, report, mut leftovers } = self.write_runs(target, feed, meter).await?;
        leftovers.hold();
        match self.make_visible(&target, &runs, &mut leftovers.placed).await {
            Ok(Committed { made, manifest }) => {
                if made.is_some() || target.is_append() {
                    self.clean_up(target, leftovers, made, manifest).await;
                }
                Ok(report)
            }
            Err(NotCommitted { fault, certain }) => {
                if certain {
                    leftovers.delete().await;
                }
                Err(fault)
            }
        }
    }

    /// Deletes what a load has superseded, or merges small runs. It was made, whatever comes of that.
    pub(crate) async fn clean_up(
        &self,
        target: Arc<Target>,
        leftovers: Leftovers,
        superseded: Option<Dataset>,
        manifest: Manifest,
    ) {
        // Has no part in what cuts it short.
        let loader =
            Self { fleet: AskingFleet::new(self.fleet.own().clone(), None), afterwards: Arc::default(), ..self.clone() };
        self.afterwards(async move {
            if let Some(old) = superseded {
                discard(&loader.fleet().connected(), &target.name, &old, manifest.version).await;
            }
            if target.is_append() {
                merge_small_runs(&loader, &target.name, &manifest).await;
            }
            // Until here nobody takes runs that are written for left behind.
            drop(leftovers);
        })
        .await;
    }

    /// Commits the load. Where a partition that is appended to was moved meanwhile, its run follows first. Adds the drives
    /// that runs were copied to to `placed`.
    async fn make_visible(
        &self,
        target: &Target,
        runs: &[Loaded],
        placed: &mut [Vec<DriveId>],
    ) -> Result<Committed<Option<Dataset>>, NotCommitted> {
        let (mut moves, mut left) = (0, Vec::new());
        loop {
            let change = target.change(runs, placed.to_vec());
            match self.fleet().commit_dataset(&target.name, &change).await {
                Err(NotCommitted { fault, certain: true }) if fault.blame == Blame::Conflict && moves < MOVES_MAX => {
                    moves += 1;
                    if !target.is_append() {
                        return Err(fault.into());
                    }
                    let begun = Mutex::new(target.runs_at(placed));
                    let following = self.follow(target, runs, placed, &mut left, &begun);
                    if !attended(self.fleet(), || begun.lock().clone(), following).await? {
                        return Err(fault.into());
                    }
                }
                Ok(committed) => {
                    for (partition, drive) in left {
                        let wanted = target.discard(Some(partition), Some(committed.manifest.version));
                        discard_at(&self.fleet().connected(), [drive], &wanted).await;
                    }
                    return Ok(committed);
                }
                outcome => return outcome,
            }
        }
    }

    /// Copies the runs to where their partitions are now. Whether any was elsewhere; `left` are the partitions on drives
    /// that they are not on any more, and `begun` all runs that are there or being copied.
    async fn follow(
        &self,
        target: &Target,
        runs: &[Loaded],
        placed: &mut [Vec<DriveId>],
        left: &mut Vec<(u32, DriveId)>,
        begun: &Mutex<Vec<(DriveId, SliceKey)>>,
    ) -> Result<bool, Fault> {
        left.clear();
        let drives = self.fleet().refreshed().await;
        let manifest = self.fleet().manifest(&target.name.domain, &drives).await?;
        let present = manifest.datasets.get(&target.name.dataset).filter(|present| present.id == target.dataset.id);
        let Some(present) = present else { return Ok(false) };
        let mut followed = false;
        for (number, ((partition, run), placed)) in (0..).zip(present.partitions.iter().zip(runs).zip(placed)) {
            let lacking = partition.copies.iter().filter(|drive| !placed.contains(drive));
            for id in lacking.copied().collect::<Vec<_>>() {
                let Some(from) = placed.iter().find_map(|id| drives.find(*id)) else { return Ok(false) };
                if run.run.rows > 0 {
                    let key = target.run_key(number);
                    begun.lock().push((id, key.clone()));
                    relay(&key, from, drives.get(id)?).await?;
                }
                placed.push(id);
                followed = true;
            }
            left.extend(placed.iter().filter(|id| !partition.copies.contains(id)).map(|id| (number, *id)));
        }
        Ok(followed)
    }
}

fn report(target: &Target, runs: &[Loaded], meter: &Meter) -> LoadReport {
    let runs = || runs.iter().map(|loaded| loaded.run);
    LoadReport {
        rows: total(runs().map(|run| run.rows)),
        source_bytes: meter.bytes(),
        stored_bytes: total(runs().map(|run| run.bytes)),
        slices: total(runs().map(|run| u64::from(run.slices))),
        seconds: 0.0,
        encoding: target.dataset.encoding.clone(),
        note: target.note.clone(),
    }
}

/// Runs that were written, and that no manifest names yet.
pub(crate) struct Written {
    pub(crate) target: Arc<Target>,
    pub(crate) runs: Vec<Loaded>,
    pub(crate) report: LoadReport,
    pub(crate) leftovers: Leftovers,
}

/// Slices of a load that is not committed yet. They are deleted when the load fails, and also when its caller gives up
/// and drops the future before the commit has begun.
pub(crate) struct Leftovers {
    fleet: Fleet,
    target: Arc<Target>,
    /// Drives that may have slices of each partition.
    pub(crate) placed: Vec<Vec<DriveId>>,
    _writing: OwnedRwLockReadGuard<()>,
    is_held: bool,
}

impl Leftovers {
    async fn new(fleet: &Fleet, target: &Arc<Target>) -> Self {
        let writing = fleet.writing().await;
        let placed = target.copies();
        Self { fleet: fleet.clone(), target: Arc::clone(target), placed, _writing: writing, is_held: false }
    }

    /// From here on the slices may be needed.
    pub(crate) fn hold(&mut self) {
        self.is_held = true;
    }

    /// Deletes them. Past some time that goes on by itself.
    pub(crate) async fn delete(mut self) {
        let deleted = self.start();
        if tokio::time::timeout(DELETE_WAIT, deleted).await.is_err() {
            tracing::info!(dataset = %self.target.name, "a failed load's slices are still being deleted");
        }
    }

    /// Only this load's own slices: others may be loading, too, of whom no manifest tells yet.
    fn start(&mut self) -> JoinHandle<()> {
        self.is_held = true;
        let wanted = self.target.discard(None, None);
        let drives: BTreeSet<DriveId> = self.placed.iter().flatten().copied().collect();
        let fleet = self.fleet.clone();
        tokio::spawn(async move {
            discard_at(&fleet.connected(), drives, &wanted).await;
        })
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        if !self.is_held && tokio::runtime::Handle::try_current().is_ok() {
            self.start();
        }
    }
}

#[cfg(test)]
mod tests;
