//! [`Door`]: sessions, loads and metadata of one CSE, as its host sees them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use pithead_model::{
    Adapt, Annotation, DatasetId, DatasetName, Directory, DriveId, Fault, HostState, Level, LoadId, Loaded, Manifest, Reply,
    SessionId, SessionProfile, SessionState, SliceKey, SliceSpan, SortKey,
};
use serde::{Deserialize, Serialize};

/// Batches on their way in.
pub type Batches = BoxStream<'static, Result<RecordBatch, Fault>>;
/// What GET yields.
pub type Events = BoxStream<'static, Result<Event, Fault>>;

/// First contact, from the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// [`pithead_model::PROTOCOL_VERSION`] of the caller.
    pub protocol: u32,
    /// The caller's release.
    pub release: String,
    /// Extension functions that the caller may use, `name/version`.
    pub extensions: Vec<String>,
}

/// First contact, the drive's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`pithead_model::PROTOCOL_VERSION`] of the drive.
    pub protocol: u32,
    /// The drive's release.
    pub release: String,
    /// The drive's identity.
    pub drive: DriveId,
    /// Extension functions that the drive has, `name/version`.
    pub extensions: Vec<String>,
    /// Encodings that the drive reads and writes.
    pub encodings: Vec<String>,
    /// Threads that it can grant at most.
    pub threads: u32,
    /// The rate that its sends are paced to, bits a second; none: not paced.
    pub link_bits_per_second: Option<f64>,
    /// The speed that its CPU is paced to, as a share of the real one's; 1: not paced.
    #[serde(default = "whole")]
    pub cpu_share: f64,
    /// Whether it merges runs, and collects those that nothing names any more.
    #[serde(default)]
    pub merges: bool,
}

/// A sub-plan as it travels.
#[derive(Clone, Debug, PartialEq)]
pub enum PlanBytes {
    /// A Substrait plan. Datasets are named tables `[domain, dataset]`, shipped inputs `["/input", name]`.
    Substrait(Bytes),
    /// These columns of the driving dataset, all rows: what always works, also for types that Substrait cannot name.
    Scan {
        /// The driving dataset.
        dataset: DatasetName,
        /// Columns by name, in the order of the output.
        columns: Vec<String>,
    },
}

/// The slices of one dataset's partition that a session is to see: the runs that the manifest names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlicePart {
    /// The dataset's name in the sub-plan.
    pub name: DatasetName,
    /// Its incarnation.
    pub dataset: DatasetId,
    /// Its schema in the manifest.
    pub schema: SchemaRef,
    /// The partition's number.
    pub partition: u32,
    /// Load and number of slices of each run, in the manifest's order.
    pub runs: Vec<(LoadId, u32)>,
    /// The order of rows within each run.
    pub sort: Vec<SortKey>,
}

/// A small table that the host sends along.
#[derive(Clone, Debug, PartialEq)]
pub struct ShippedInput {
    /// Its name in the sub-plan.
    pub name: String,
    /// Its columns.
    pub schema: SchemaRef,
    /// Its rows.
    pub batches: Vec<RecordBatch>,
}

/// How a session is to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionOptions {
    /// Threads wanted; the drive may grant fewer.
    pub threads: u32,
    /// Memory wanted, bytes; the drive may grant less. Work over it spills or fails.
    pub memory: u64,
    /// Rows of a batch.
    pub batch_rows: usize,
    /// How far the drive may go. Below [`Level::Whole`], the sub-plan's filters only rule out slices and pages.
    pub level_max: Level,
    /// Whether slice and page bounds may rule rows out.
    pub zone_maps: bool,
    /// The session's time zone.
    pub time_zone: Option<String>,
    /// What `now()` means, nanoseconds since 1970 UTC.
    pub now_ns: i64,
    /// Extension functions that the sub-plan uses, `name/version`.
    pub extensions: Vec<String>,
    /// Who asks: one number for all sessions of a host, which chooses it at random. A drive that is short of places shares
    /// them among hosts. 0: unknown; all such are one host.
    #[serde(default)]
    pub host: u64,
    /// How far slices may be taken, and what the host knows that the choice hangs on.
    #[serde(default)]
    pub adapt: Adapt,
}

/// OPEN.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenRequest {
    /// The sub-plan.
    pub plan: PlanBytes,
    /// Version of the manifest that the parts come from.
    pub manifest_version: u64,
    /// The partitions that the sub-plan reads, the driving one first.
    pub parts: Vec<SlicePart>,
    /// Tables sent along.
    pub inputs: Vec<ShippedInput>,
    /// Slices of the driving part that are answered for already, by another session over a copy: this one leaves them out.
    pub done: Vec<SliceSpan>,
    /// Schema that the output must have, by position and type.
    pub schema: SchemaRef,
    /// Whether the sub-plan must see all of the partition's slices in one round (complete groups, HAVING, top-k over
    /// groups), rather than any part of them.
    pub whole_partition: bool,
    /// How it is to run.
    pub options: SessionOptions,
}

/// What OPEN was granted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Granted {
    /// The session.
    pub session: SessionId,
    /// Threads.
    pub threads: u32,
    /// Reserved bytes.
    pub memory: u64,
}

/// OPEN's outcome as the host sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Opened {
    /// Granted or busy.
    pub reply: Reply<Granted>,
    /// Bytes that OPEN put on the link, both ways; 0 in-process.
    pub link_bytes: u64,
}

/// One thing that GET yields.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Rows of a round that is not closed yet. They count only once it is.
    Rows {
        /// The round.
        round: u32,
        /// The rows.
        batch: RecordBatch,
        /// Bytes on the link; 0 in-process.
        link_bytes: u64,
    },
    /// Rows of the driving dataset that passed the sub-plan's filters, of a round that is taken to [`Level::Filtered`]: the
    /// columns that the sub-plan needs, by name.
    Filtered {
        /// The round.
        round: u32,
        /// The rows.
        batch: RecordBatch,
        /// Bytes on the link; 0 in-process.
        link_bytes: u64,
    },
    /// A part of a slice as it is stored, of a round that is taken to [`Level::Bytes`]. The parts of a slice come in order, and
    /// nothing of the same round between them.
    Stored {
        /// The round.
        round: u32,
        /// The slice, by its number in the driving partition.
        slice: u32,
        /// Bytes of the whole slice. 0: the host holds it, and this is all.
        total: u64,
        /// The next bytes of it, at most [`PIECE_BYTES_MAX`].
        bytes: Bytes,
        /// Bytes on the link; 0 in-process.
        link_bytes: u64,
    },
    /// A round is closed: its rows, all sent before, count.
    Closed {
        /// What was done.
        annotation: Annotation,
        /// Bytes on the link; 0 in-process.
        link_bytes: u64,
    },
    /// All slices are answered for. The last event.
    Finished {
        /// What the session cost.
        profile: SessionProfile,
        /// Bytes on the link; 0 in-process.
        link_bytes: u64,
    },
}

/// A load into one partition. Its slices are written and flushed, but not visible until a manifest names them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadRequest {
    /// The load.
    pub load: LoadId,
    /// Domain and dataset.
    pub name: DatasetName,
    /// The dataset's incarnation.
    pub dataset: DatasetId,
    /// The partition.
    pub partition: u32,
    /// The dataset's schema.
    pub schema: SchemaRef,
    /// Kept in the metadata slice.
    pub metadata: BTreeMap<String, String>,
    /// Order of the rows.
    pub sort: Vec<SortKey>,
    /// Name of the encoding.
    pub encoding: String,
    /// Rows of a slice at most.
    pub slice_rows: usize,
    /// Bytes of rows, as Arrow buffers, after which a slice ends; none: only the largest value bounds it.
    #[serde(default)]
    pub slice_bytes: Option<usize>,
}

/// Runs that are merged in one call at most.
pub const MERGED_MAX: usize = 1024;

/// Runs of one partition whose rows are to be one run more, on the same drive. It is not visible until a manifest names it in
/// their place; until then, and for as long as sessions read them, they stay as they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MergeRuns {
    /// The run to be made, as a load of its own that no rows are sent for.
    pub into: LoadRequest,
    /// The loads of the runs that its rows come from, in the order in which they follow each other.
    pub loads: Vec<LoadId>,
}

/// What a drive says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DriveStatus {
    /// The drive.
    pub drive: DriveId,
    /// Its release.
    pub release: String,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Threads: its reactors.
    pub threads: u32,
    /// Memory for sessions, bytes.
    pub memory: u64,
    /// Of it, reserved now.
    pub memory_reserved: u64,
    /// Sessions open now.
    pub sessions: u32,
    /// Slices stored, visible or not.
    pub slices: u64,
    /// Bytes stored, visible or not.
    pub stored_bytes: u64,
    /// Bytes free on the medium.
    pub free_bytes: u64,
    /// Domains whose manifest this drive keeps, as their home or as a copy.
    pub domains: Vec<DomainAt>,
    /// What it holds of each partition, and how much that is asked for.
    pub partitions: Vec<PartitionUse>,
    /// The rate that its sends are paced to, bits a second.
    pub link_bits_per_second: Option<f64>,
    /// The speed that its CPU is paced to, as a share of the real one's; 1: not paced.
    #[serde(default = "whole")]
    pub cpu_share: f64,
    /// What its work costs, as it has learned.
    #[serde(default)]
    pub costs: Vec<CostRate>,
}

fn whole() -> f64 {
    1.0
}

/// What one operator costs at a drive over slices of one encoding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostRate {
    /// The encoding.
    pub encoding: String,
    /// The operator.
    pub operator: String,
    /// What it is counted by, such as `row`.
    pub unit: String,
    /// CPU time of one unit, nanoseconds.
    pub ns: f64,
    /// Slices that it was learned from.
    pub learned: u64,
    /// Predicted over actual time, the median of the last slices; none: nothing was predicted yet.
    pub ratio: Option<f64>,
}

/// A domain's manifest on one drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainAt {
    /// The domain.
    pub name: String,
    /// Version of the manifest here.
    pub version: u64,
    /// The home that it names.
    pub home: DriveId,
}

/// A partition on one drive: how much is stored, and how much it is used (Skytether 5.1's partition utilization and load).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartitionUse {
    /// Domain and dataset.
    pub name: DatasetName,
    /// The incarnation.
    pub dataset: DatasetId,
    /// The partition.
    pub partition: u32,
    /// Slices stored, visible or not.
    pub slices: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Sessions that read it, since the drive started.
    pub sessions: u64,
    /// Slices that these sessions read.
    pub slices_read: u64,
    /// Bytes of them.
    pub bytes_read: u64,
    /// CPU time of their rounds.
    pub cpu_ns: u64,
    /// Seconds since the last such session was opened; none: not since the drive started.
    pub idle_s: Option<u64>,
}

/// A session that is open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenSession {
    /// The session.
    pub session: SessionId,
    /// The identity that opened it; none: the drive does not tell its callers apart.
    pub owner: Option<String>,
    /// The host that opened it, as [`SessionOptions::host`].
    pub host: u64,
    /// The datasets that it reads, the driving one first.
    pub datasets: Vec<DatasetName>,
    /// Where it stands.
    pub state: SessionState,
    /// Seconds since it was opened.
    pub open_s: f64,
    /// Slices that are answered for.
    pub slices_done: u32,
    /// Slices of the driving partition.
    pub slices_total: u32,
    /// Bytes of memory that are reserved for it.
    pub memory: u64,
}

/// Which loads of an incarnation a discard means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loads {
    /// Every one.
    All,
    /// These.
    Only(Vec<LoadId>),
    /// Every one but these.
    AllBut(Vec<LoadId>),
}

/// What a drive is to delete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Discard {
    /// Domain and dataset.
    pub name: DatasetName,
    /// The incarnation.
    pub dataset: DatasetId,
    /// The loads.
    pub loads: Loads,
    /// One partition; none: all that are here.
    pub partition: Option<u32>,
    /// The version of the domain's manifest that names none of these runs on this drive; 0 where there is no manifest. A run
    /// that a later one may come to name, since it was claimed for it, stays. None: no manifest can ever name them, as with the
    /// caller's own load that was given up.
    pub seen: Option<u64>,
}

/// Runs that are claimed in one call at most.
pub const CLAIMED_MAX: usize = 4096;

/// Runs on a drive that the next version of their domain's manifest may come to name there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The runs, all of one domain.
    pub runs: Vec<SliceKey>,
    /// The version that the change is going to replace.
    pub version: u64,
}

/// What a drive has of a manifest, once a copy was offered to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The version that was there before; 0: none was.
    pub before: u64,
    /// The version that is there now.
    pub version: u64,
    /// The home that it names.
    pub home: Option<DriveId>,
    /// Whether it says that the home of the manifest that was offered is lost: that one must make no more changes.
    #[serde(default)]
    pub home_is_lost: bool,
}

/// A part of a stored value of a run, on its way from drive to drive. The metadata slice comes first, so that each slice can
/// be compared with it when it comes; then the slices by number. The parts of a value come in order.
#[derive(Clone, Debug, PartialEq)]
pub struct RunPiece {
    /// The slice; none: the metadata slice.
    pub number: Option<u32>,
    /// Bytes of the whole value.
    pub total: u64,
    /// The next bytes of it, at most [`PIECE_BYTES_MAX`].
    pub bytes: Bytes,
}

/// Bytes of a [`RunPiece`] at most.
pub const PIECE_BYTES_MAX: usize = 2 << 20;

/// A run on its way from drive to drive.
pub type Pieces = BoxStream<'static, Result<RunPiece, Fault>>;

/// How the link from a drive to one of its hosts is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkReading {
    /// The rate that it delivered lately, bytes a second.
    pub bytes_per_s: f64,
    /// Bytes that were handed to it and have not left.
    pub backlog_bytes: f64,
}

/// Reads how a link is.
pub trait LinkGauge: Send + Sync + Debug {
    /// None: it is not known, as before the first bytes.
    fn read(&self) -> Option<LinkReading>;
}

/// All that a host sees of a CSE below.
///
/// Every call either does what it says or changes nothing. Faults carry who is to blame; a link or drive that fails is
/// [`pithead_model::Blame::Device`].
#[async_trait]
pub trait Door: Send + Sync + Debug {
    /// How a person knows the drive: its address or directory.
    fn label(&self) -> &str;

    /// Whether the drive runs in this very process, so that batches pass by pointer and no link is between.
    fn is_in_process(&self) -> bool {
        false
    }

    /// First contact. Either end refuses a protocol that is not its own.
    async fn hello(&self, hello: Hello) -> Result<Welcome, Fault>;

    /// OPEN: binds a sub-plan to slices, grants threads and reserves memory, or answers busy.
    async fn open(&self, request: OpenRequest) -> Result<Opened, Fault>;

    /// GET: runs the rounds as they are pulled, to the end. Asked once a session; dropping the stream stops the work.
    async fn get(&self, session: SessionId) -> Result<Events, Fault>;

    /// GET for a host at the other end of a link.
    async fn get_over(&self, session: SessionId, _link: Arc<dyn LinkGauge>) -> Result<Events, Fault> {
        self.get(session).await
    }

    /// How the host is by now, for a session whose rounds follow it. A session that is gone is no error.
    async fn tell(&self, session: SessionId, state: HostState) -> Result<(), Fault>;

    /// Where a session stands.
    async fn poll(&self, session: SessionId) -> Result<SessionProfile, Fault>;

    /// CLOSE: ends the session, frees everything. Closing a session that is gone is no error.
    async fn close(&self, session: SessionId) -> Result<(), Fault>;

    /// Writes and flushes slices under a load id. Returns what the manifest has to name. A load that fails leaves nothing.
    async fn load(&self, request: LoadRequest, rows: Batches) -> Result<Loaded, Fault>;

    /// Writes and flushes the rows of several runs as one more run, as a load would that was sent them in this order. Fails with
    /// [`pithead_model::Blame::Conflict`] if one of the runs is not here, and [`pithead_model::Blame::Unsupported`] from a CSE that
    /// merges none; either leaves nothing.
    async fn merge_runs(&self, request: MergeRuns) -> Result<Loaded, Fault>;

    /// Deletes what loads left of a dataset's incarnation. Slices that open sessions lease go when the last one closes.
    /// Returns the number of slices that went at once.
    async fn discard(&self, discard: Discard) -> Result<u64, Fault>;

    /// Protects runs from being deleted by whoever saw no later manifest than [`Claim::version`], durably. To be done before each
    /// attempt to commit a manifest that names them here for the first time. Returns those that are not here.
    async fn claim(&self, claim: Claim) -> Result<Vec<SliceKey>, Fault>;

    /// Reads a run as it is stored: its metadata slice, then its slices in order. Every value's checksum is verified.
    /// [`pithead_model::Blame::Conflict`] if the run is not here.
    async fn read_run(&self, run: SliceKey) -> Result<Pieces, Fault>;

    /// Stores a run that [`Door::read_run`] of another drive yields: all of it, flushed, or nothing. Each slice is opened and
    /// compared with the metadata slice first. A run that is here already is replaced by its equal; one that is not its equal is
    /// [`pithead_model::Blame::Conflict`].
    async fn write_run(&self, run: SliceKey, pieces: Pieces) -> Result<(), Fault>;

    /// A domain's manifest as this drive has it, be it home or not; none: not kept here.
    async fn manifest(&self, domain: String) -> Result<Option<Manifest>, Fault>;

    /// Replaces a domain's manifest if its version here is still `expected` (0: there is none), durably. The new one has
    /// version `expected + 1` and names this drive as home. Otherwise [`pithead_model::Blame::Conflict`] and nothing has changed.
    async fn commit(&self, expected: u64, manifest: Manifest) -> Result<(), Fault>;

    /// Keeps a copy of a manifest whose home is another drive, durably, unless what is here is as new. Returns what was there
    /// and what is there now, so that a home learns that another drive has taken its place.
    async fn keep_manifest(&self, manifest: Manifest) -> Result<Kept, Fault>;

    /// The metadata slice of one load of a partition (`number` none).
    async fn directory(&self, key: SliceKey) -> Result<Directory, Fault>;

    /// How the drive is.
    async fn status(&self) -> Result<DriveStatus, Fault>;

    /// The sessions that are open, as far as the caller may see them: the longest open first.
    async fn sessions(&self) -> Result<Vec<OpenSession>, Fault>;

    /// Ends somebody's session, who is told so. Whether it was there.
    async fn kill(&self, session: SessionId) -> Result<bool, Fault>;
}
