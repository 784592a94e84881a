//! OPEN: what a session is to do, and what it was granted.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use pithead_model::{Adapt, DatasetId, DatasetName, Level, LoadId, PageSample, Reply, SessionId, SliceKey, SliceSpan, SortKey};
use serde::{Deserialize, Serialize};

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
    /// The share of its rows that the host expects to pass the filters over its scan, from 0 to 1, where samples or earlier queries
    /// have told. It bears on the order of joins only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passing: Option<f64>,
}

impl SlicePart {
    /// The key of a run of it: that of the run's metadata slice.
    pub fn run(&self, load: LoadId) -> SliceKey {
        SliceKey { name: self.name.stored().0, dataset: self.dataset, load, partition: self.partition, number: None }
    }
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
    /// The pages of each slice that are read; none: all of them. What a sample answers is no answer to its sub-plan, and nothing keeps
    /// it as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<PageSample>,
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

impl OpenRequest {
    /// Whether there is a slice that its rows could come from: one of the driving part that is not done, or one of any part where
    /// the partition is taken as a whole.
    pub fn has_slices(&self) -> bool {
        let slices = |part: &SlicePart| part.runs.iter().map(|(_, slices)| u64::from(*slices)).sum::<u64>();
        if self.whole_partition {
            return self.parts.iter().any(|part| slices(part) > 0);
        }
        let done: u64 = self.done.iter().map(|span| u64::from(span.count)).sum();
        self.parts.first().is_some_and(|part| slices(part) > done)
    }
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
