//! Loading: files or batches in, a dataset's new rows out, all of them or none.

mod agree;
mod csv;
mod ipc;
mod parquet;
mod pipeline;
mod source;
mod spec;
mod target;

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::{StreamExt, stream};
use pithead_model::{Fault, Run};
use pithead_wire::Batches;
use tokio::sync::OwnedRwLockReadGuard;
use tokio::task::JoinHandle;

pub use spec::{CsvOptions, Format, LoadMode, LoadProgress, LoadReport, LoadSpec, PartitionBy};

use crate::commit::{NotCommitted, commit, discard, loads_of};
use crate::fault::{bug, unknown_column};
use crate::host::Host;
use crate::partition::Sample;
use agree::{agree, agree_one};
use pipeline::{Feed, Meter};
use target::{Ground, Target};

/// Batches of a stream that ranges are chosen from.
const SAMPLE_BATCHES: usize = 32;
/// Longest that a failed load waits for its slices to be deleted.
const DELETE_WAIT: Duration = Duration::from_secs(30);

impl Host {
    /// Loads files into a dataset. Its rows become visible together at the end, or not at all; what a failed load left
    /// on the drives is deleted. `progress` is called from the threads that read.
    pub async fn load(&self, spec: LoadSpec, progress: Arc<dyn Fn(LoadProgress) + Send + Sync>) -> Result<LoadReport, Fault> {
        let started = Instant::now();
        let ground = self.ground(&spec).await?;
        let prepare = move || {
            let mut sources = source::open_all(&spec.sources, spec.format, &spec.csv)?;
            let schema = agree(&mut sources, ground.present.as_ref().map(|present| &present.schema))?;
            let target = Target::new(&spec, ground, &schema, |column| source::sample(&sources, column))?;
            Ok::<_, Fault>((sources, target))
        };
        let (sources, target) = tokio::task::spawn_blocking(prepare).await.map_err(bug)??;
        let bytes = sources.iter().map(|source| source.bytes()).sum();
        let report = self.write(target, Feed::Files(sources), Meter::new(bytes, progress)).await?;
        Ok(LoadReport { source_bytes: bytes, seconds: started.elapsed().as_secs_f64(), ..report })
    }

    /// The same for batches of a program, all of `schema`. The spec's sources, format and CSV options are not used.
    pub async fn load_batches(&self, spec: LoadSpec, schema: SchemaRef, rows: Batches) -> Result<LoadReport, Fault> {
        let started = Instant::now();
        let ground = self.ground(&spec).await?;
        let stored = agree_one(&schema, ground.present.as_ref().map(|present| &present.schema))?;
        let wants_sample = matches!(spec.partitioning, Some(PartitionBy::Range(_))) && ground.present.is_none();
        let (head, rows) = if wants_sample { peek(rows).await? } else { (Vec::new(), rows) };
        let target = Target::new(&spec, ground, &stored, |column| sample(&head, column))?;
        let report = self.write(target, Feed::Batches(schema, rows), Meter::new(0, Arc::new(|_| ()))).await?;
        Ok(LoadReport { seconds: started.elapsed().as_secs_f64(), ..report })
    }

    async fn ground(&self, spec: &LoadSpec) -> Result<Ground, Fault> {
        let (manifest, _) = self.catalog().manifest(&spec.name.domain, self.connected()).await?;
        Ground::check(spec, &manifest)
    }

    /// Writes the slices, commits them, deletes what they supersede, or what they left if anything failed.
    async fn write(&self, target: Target, feed: Feed, meter: Meter) -> Result<LoadReport, Fault> {
        let target = Arc::new(target);
        let meter = Arc::new(meter);
        let mut leftovers = Leftovers::new(self, &target).await;
        let runs = match pipeline::run(self.connected(), self.options().threads, &target, feed, Arc::clone(&meter)).await {
            Ok(runs) => runs,
            Err(fault) => {
                leftovers.delete().await;
                return Err(fault);
            }
        };
        let report = report(&target, &runs, &meter);
        leftovers.hold();
        match commit(self.catalog(), self.connected(), &target.name, &target.change(runs)).await {
            Ok(superseded) => {
                if let Some(old) = superseded {
                    discard(self.connected(), &target.name, &old, Vec::new()).await;
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
}

fn report(target: &Target, runs: &[Run], meter: &Meter) -> LoadReport {
    LoadReport {
        rows: runs.iter().map(|run| run.rows).sum(),
        source_bytes: meter.bytes(),
        stored_bytes: runs.iter().map(|run| run.bytes).sum(),
        slices: runs.iter().map(|run| u64::from(run.slices)).sum(),
        seconds: 0.0,
        encoding: target.dataset.encoding.clone(),
        note: target.note.clone(),
    }
}

/// The first batches of a stream, and the stream with them still in front.
async fn peek(mut rows: Batches) -> Result<(Vec<RecordBatch>, Batches), Fault> {
    let mut head = Vec::new();
    while head.len() < SAMPLE_BATCHES
        && let Some(batch) = rows.next().await
    {
        head.push(batch?);
    }
    let again = stream::iter(head.clone().into_iter().map(Ok)).chain(rows).boxed();
    Ok((head, again))
}

fn sample(batches: &[RecordBatch], column: &str) -> Result<Sample, Fault> {
    let mut sample = Sample::default();
    for batch in batches {
        let values = batch.column_by_name(column).ok_or_else(|| unknown_column(column, &batch.schema()))?;
        sample.add(values);
    }
    Ok(sample)
}

/// Slices of a load that is not committed yet. They are deleted when the load fails, and also when its caller gives up
/// and drops the future before the commit has begun.
struct Leftovers {
    host: Host,
    target: Arc<Target>,
    appending: Option<OwnedRwLockReadGuard<()>>,
    is_held: bool,
}

impl Leftovers {
    async fn new(host: &Host, target: &Arc<Target>) -> Self {
        let appending = if target.is_append() { Some(host.appends().begin().await) } else { None };
        Self { host: host.clone(), target: Arc::clone(target), appending, is_held: false }
    }

    /// From here on the slices may be needed.
    fn hold(&mut self) {
        self.is_held = true;
    }

    /// Deletes them. Other appends may keep that waiting; past some time it goes on by itself.
    async fn delete(mut self) {
        let deleted = self.start();
        if tokio::time::timeout(DELETE_WAIT, deleted).await.is_err() {
            tracing::info!(dataset = %self.target.name, "a failed load's slices are deleted when other loads have ended");
        }
    }

    fn start(&mut self) -> JoinHandle<()> {
        self.is_held = true;
        self.appending = None;
        tokio::spawn(delete(self.host.clone(), Arc::clone(&self.target)))
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        if !self.is_held && tokio::runtime::Handle::try_current().is_ok() {
            self.start();
        }
    }
}

async fn delete(host: Host, target: Arc<Target>) {
    let (name, dataset) = (&target.name, &target.dataset);
    if !target.is_append() {
        discard(host.connected(), name, dataset, Vec::new()).await;
        return;
    }
    let _paused = host.appends().pause().await;
    // All but what the manifest names by now: other loads may have been committed since.
    match host.catalog().manifest(&name.domain, host.connected()).await {
        Ok((manifest, _)) => {
            let named = manifest.datasets.get(&name.dataset).filter(|named| named.id == dataset.id);
            discard(host.connected(), name, dataset, named.map(loads_of).unwrap_or_default()).await;
        }
        Err(fault) => tracing::warn!(dataset = %name, "slices of a failed load stay: {}", fault.message),
    }
}

#[cfg(test)]
mod tests;
