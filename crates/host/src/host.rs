//! [`Host`]: the drives that a client's statements run on, and what it needs to run them.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use datafusion::execution::memory_pool::{FairSpillPool, MemoryPool};
use pithead_door::{Batches, Door};
use pithead_fleet::Fleet;
use pithead_functions::Registry;
use pithead_load::{AlteredColumn, ExchangeSpec, LoadProgress, LoadReport, LoadSpec, Loader, MarkSpec};
use pithead_model::{Dataset, DatasetName, Fault, boxed};
use pithead_remote::RemoteContext;

use crate::Commitment;
use crate::activity::Activity;
use crate::elsewhere::Elsewhere;
use crate::functions::Functions;
use crate::large_texts::Texts;
use crate::metrics::Metrics;
use crate::sampler::KeptSamples;
use crate::schemas::Tables;
use crate::spills::SpillFolder;

/// Memory for partial results at most, bytes.
const SUMMARY_BYTES_MAX: u64 = 256 << 20;

/// How a host runs.
#[derive(Clone, Debug, PartialEq)]
pub struct HostOptions {
    /// Threads of the host's own operators and of loads.
    pub threads: usize,
    /// Memory of the host's own operators, bytes.
    pub memory: u64,
    /// The domain that bare names belong to.
    pub domain: String,
    /// What statements can call beyond DataFusion's own functions.
    pub functions: Arc<Registry>,
    /// A folder that outlives the process, for compiled code of users' functions; none: drives of this process keep it.
    pub code_folder: Option<PathBuf>,
}

impl Default for HostOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
        let domain = DatasetName::DEFAULT_DOMAIN.to_owned();
        Self { threads, memory: 2 << 30, domain, functions: Registry::own(), code_folder: None }
    }
}

/// A host: plans statements, sends work to its drives, finishes what comes back. Cheap to clone.
#[derive(Clone)]
pub struct Host {
    inner: Arc<Inner>,
}

struct Inner {
    fleet: Fleet,
    options: HostOptions,
    loader: Loader,
    remote: Arc<RemoteContext>,
    tables: Arc<Tables>,
    functions: Arc<Functions>,
    metrics: Metrics,
    spills: Arc<SpillFolder>,
    memory: Arc<dyn MemoryPool>,
    samples: KeptSamples,
    activity: Activity,
    texts: Texts,
    elsewhere: OnceLock<Arc<dyn Elsewhere>>,
    /// How many states sessions keep.
    idle_states: Arc<AtomicUsize>,
}

impl Host {
    /// Connects to the drives: see [`Fleet::connect`].
    #[boxed]
    pub async fn connect(doors: Vec<Arc<dyn Door>>, options: HostOptions) -> Result<Host, Fault> {
        let fleet = Fleet::connect(doors, &options.domain, options.functions.announced()).await?;
        let summary_bytes = (options.memory / 16).min(SUMMARY_BYTES_MAX);
        let inner = Inner {
            loader: Loader::new(fleet.clone(), options.threads),
            remote: RemoteContext::new(fleet.clone(), options.threads, summary_bytes),
            tables: Arc::default(),
            functions: Arc::new(Functions::new(fleet.clone(), &options)),
            spills: Arc::default(),
            memory: Arc::new(FairSpillPool::new(usize::try_from(options.memory).unwrap_or(usize::MAX))),
            metrics: Metrics::new(),
            samples: KeptSamples::default(),
            activity: Activity::default(),
            texts: Texts::new(usize::try_from(options.memory).unwrap_or(usize::MAX)),
            elsewhere: OnceLock::new(),
            idle_states: Arc::default(),
            fleet,
            options,
        };
        Ok(Host { inner: Arc::new(inner) })
    }

    /// How it runs.
    pub fn options(&self) -> &HostOptions {
        &self.inner.options
    }

    /// The drives, and what lies on them.
    pub fn fleet(&self) -> &Fleet {
        &self.inner.fleet
    }

    /// Loads files into a dataset: see [`Loader::load`].
    #[boxed]
    pub async fn load(&self, spec: LoadSpec, progress: Arc<dyn Fn(LoadProgress) + Send + Sync>) -> Result<LoadReport, Fault> {
        let loaded = self.inner.loader.load(spec, progress).await;
        self.metrics().loaded(&loaded);
        loaded
    }

    /// Loads batches into a dataset: see [`Loader::load_batches`].
    #[boxed]
    pub async fn load_batches(&self, spec: LoadSpec, schema: SchemaRef, rows: Batches) -> Result<LoadReport, Fault> {
        let loaded = self.inner.loader.load_batches(spec, schema, rows).await;
        self.metrics().loaded(&loaded);
        loaded
    }

    /// The same files for who may want to cancel it: that can be done by dropping this until [`Commitment::cancel`] says that it is too
    /// late.
    #[boxed]
    pub async fn load_until(
        &self,
        commitment: &Arc<Commitment>,
        spec: LoadSpec,
        progress: Arc<dyn Fn(LoadProgress) + Send + Sync>,
    ) -> Result<LoadReport, Fault> {
        let loaded = self.loader_of(commitment).load(spec, progress).await;
        self.metrics().loaded(&loaded);
        loaded
    }

    /// The same files for a statement, while it can be cancelled.
    pub(crate) async fn load_of(&self, commitment: &Arc<Commitment>, spec: LoadSpec) -> Result<LoadReport, Fault> {
        self.load_until(commitment, spec, Arc::new(|_| ())).await
    }

    /// The same batches for who wants to know whether they may be visible after a fault, or to cancel that before they are sent.
    #[boxed]
    pub async fn load_batches_until(
        &self,
        commitment: &Arc<Commitment>,
        spec: LoadSpec,
        schema: SchemaRef,
        rows: Batches,
    ) -> Result<LoadReport, Fault> {
        let loaded = self.loader_of(commitment).load_batches(spec, schema, rows).await;
        self.metrics().loaded(&loaded);
        loaded
    }

    /// The same batches, in the place of this dataset only, as it was read: see [`Loader::load_batches_over`].
    pub(crate) async fn load_batches_over(
        &self,
        commitment: &Arc<Commitment>,
        over: Arc<Dataset>,
        spec: LoadSpec,
        (schema, rows): (SchemaRef, Batches),
    ) -> Result<LoadReport, Fault> {
        let loaded = self.loader_of(commitment).load_batches_over(over, spec, schema, rows).await;
        self.metrics().loaded(&loaded);
        loaded
    }

    /// Loads for a statement: what it changes is sent unless the statement is cancelled.
    fn loader_of(&self, commitment: &Arc<Commitment>) -> Loader {
        let commitment = Arc::clone(commitment);
        self.inner.loader.asking(move || {
            commitment.send()?;
            let commitment = Arc::clone(&commitment);
            Ok(Box::new(move || commitment.withdraw()))
        })
    }

    /// Begins work that no answer needs: see [`Loader::afterwards`].
    pub(crate) async fn afterwards(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.inner.loader.afterwards(work).await;
    }

    /// Waits for what goes on after answers, such as merging small runs, for so long at most. What has not ended by then is cut short,
    /// which loses nothing: a later append merges, and the drives collect what nothing names. For who is about to end the host.
    #[boxed]
    pub async fn settled(&self, limit: Duration) {
        if !self.inner.loader.settled(limit).await {
            tracing::info!("what goes on after statements was cut short");
        }
    }

    /// Gives a dataset other columns: see [`Loader::alter`].
    pub(crate) async fn alter(
        &self,
        commitment: &Arc<Commitment>,
        name: &DatasetName,
        over: &Dataset,
        shape: &Dataset,
        columns: &[AlteredColumn],
    ) -> Result<bool, Fault> {
        self.loader_of(commitment).alter(name, over, shape, columns).await
    }

    /// Takes rows from a dataset: see [`Loader::mark`].
    pub(crate) async fn mark(&self, commitment: &Arc<Commitment>, spec: MarkSpec) -> Result<Option<u64>, Fault> {
        self.loader_of(commitment).mark(spec).await
    }

    /// Puts rows in the place of others: see [`Loader::exchange`].
    pub(crate) async fn exchange(
        &self,
        commitment: &Arc<Commitment>,
        spec: MarkSpec,
        new: ExchangeSpec,
    ) -> Result<Option<u64>, Fault> {
        self.loader_of(commitment).exchange(spec, new).await
    }

    /// The statements that run and that ran lately, once somebody follows them.
    pub fn activity(&self) -> &Activity {
        &self.inner.activity
    }

    /// What its operators spill. Whoever ends the host removes it, or the last one who has it.
    pub fn spills(&self) -> &Arc<SpillFolder> {
        &self.inner.spills
    }

    /// What the operators of all sessions may take together.
    pub(crate) fn memory(&self) -> &Arc<dyn MemoryPool> {
        &self.inner.memory
    }

    /// What the texts of all statements have together.
    pub(crate) fn texts(&self) -> &Texts {
        &self.inner.texts
    }

    /// From now on, super-plans that can be divided run there. The first one who says so is heeded.
    pub fn runs_at(&self, elsewhere: Arc<dyn Elsewhere>) {
        let _ = self.inner.elsewhere.set(elsewhere);
    }

    /// Where super-plans run that can be divided.
    pub(crate) fn elsewhere(&self) -> Option<&Arc<dyn Elsewhere>> {
        self.inner.elsewhere.get()
    }

    /// What the remote scans of all its queries share.
    pub fn remote(&self) -> &Arc<RemoteContext> {
        &self.inner.remote
    }

    /// Functions of users.
    pub(crate) fn functions(&self) -> &Arc<Functions> {
        &self.inner.functions
    }

    /// How many states of statements its sessions keep.
    pub(crate) fn idle_states(&self) -> &Arc<AtomicUsize> {
        &self.inner.idle_states
    }

    /// The datasets that were planned with.
    pub(crate) fn tables(&self) -> &Arc<Tables> {
        &self.inner.tables
    }

    /// What samples and queries have counted.
    pub(crate) fn samples(&self) -> &KeptSamples {
        &self.inner.samples
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("fleet", &self.inner.fleet).field("options", &self.inner.options).finish_non_exhaustive()
    }
}
