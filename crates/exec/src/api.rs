//! What a caller brings, and what it gets back besides rows.

use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::execution::runtime_env::RuntimeEnv;
use pithead_device::Device;
use pithead_door::{OpenRequest, PlanBytes};
use pithead_functions::Registry;
use pithead_model::{DatasetName, Fault, Level, PageSample, PageSet, ScanShare, SliceEntry, SliceKey, SliceSpan, SortKey};
use pithead_slice::{Fit, Predicate, SliceParts, SliceReader, fitted};

/// One slice of a part.
#[derive(Clone, Debug)]
pub struct SliceRef {
    /// Its number across the partition's runs, in the manifest's order, dense from 0.
    pub ordinal: u32,
    /// Where it is stored.
    pub key: SliceKey,
    /// What is known of it without reading it, of the columns that its part has.
    pub entry: Arc<SliceEntry>,
    /// How these are found in it; none: it is stored with just these.
    pub fit: Option<Arc<Fit>>,
    /// Rows that a CSE below filtered already, in place of the stored slice: the columns that the sub-plan needs, by name.
    pub filtered: Option<Arc<[RecordBatch]>>,
    /// What a CSE below has sent of it, in place of the stored slice: pages that may have rows which pass the filters.
    pub came: Option<Arc<dyn SliceReader>>,
}

impl SliceRef {
    /// The slices of a run with these columns, counted on from `first`: as its directory describes them.
    pub fn of_run(
        run: &SliceKey,
        first: u32,
        entries: impl IntoIterator<Item = Arc<SliceEntry>>,
        fit: &Option<Arc<Fit>>,
    ) -> Vec<SliceRef> {
        let slice = |(number, entry): (u32, Arc<SliceEntry>)| SliceRef {
            ordinal: first + number,
            key: run.slice(number),
            entry: match fit {
                Some(fit) => Arc::new(fit.entry(&entry)),
                None => entry,
            },
            fit: fit.clone(),
            filtered: None,
            came: None,
        };
        (0..).zip(entries).map(slice).collect()
    }

    /// The columns that are stored, of a part with these.
    pub fn stored<'a>(&'a self, part: &'a SchemaRef) -> &'a SchemaRef {
        self.fit.as_ref().map_or(part, |fit| fit.stored())
    }

    /// The slice with the columns that its part has, where `reader` is of those that are stored.
    pub fn fitted(&self, reader: Arc<dyn SliceReader>) -> Arc<dyn SliceReader> {
        match &self.fit {
            Some(fit) => fitted(fit, reader),
            None => reader,
        }
    }
}

/// The slices of one dataset's partition that a sub-plan is to see.
#[derive(Clone, Debug)]
pub struct PartData {
    /// The dataset's name in the sub-plan.
    pub name: DatasetName,
    /// Its columns.
    pub schema: SchemaRef,
    /// The partition's number.
    pub partition: u32,
    /// The order of rows within each run.
    pub sort: Vec<SortKey>,
    /// The slices, by ordinal.
    pub slices: Vec<SliceRef>,
    /// The share of its rows that are expected to pass the filters over its scan, where more is known than bounds tell.
    pub passing: Option<f64>,
}

/// Where slices come from.
#[async_trait]
pub trait SliceSource: Send + Sync + Debug {
    /// Opens a slice for reading, with the columns that are stored. Waits where the medium does; must not block.
    async fn open(&self, slice: &SliceRef) -> Result<Arc<dyn SliceReader>, Fault>;

    /// The parts of a slice that [`SliceReader::parts`] gives. Must not block.
    async fn parts(&self, reader: &Arc<dyn SliceReader>, columns: &[usize], pages: &PageSet) -> Result<SliceParts, Fault> {
        Ok(reader.parts(columns, pages)?)
    }

    /// Whether a slice may have a row that satisfies all of these predicates, where more is known of it than its entry says. Their
    /// columns are those of its part. `false` is certain. Must not block.
    async fn may_match(&self, _slice: &SliceRef, _predicates: &[Predicate]) -> bool {
        true
    }

    /// A slice of a part with these columns was read for rows that satisfy these predicates, and has none.
    fn read_in_vain(&self, _slice: &SliceRef, _part: &SchemaRef, _predicates: &[Predicate]) {}

    /// What reads have to pass.
    fn device(&self) -> &dyn Device;
}

/// What a session brings to be bound.
#[derive(Clone, Debug)]
pub struct BindRequest {
    /// The sub-plan.
    pub plan: PlanBytes,
    /// The partitions that it reads, the driving one first.
    pub parts: Vec<PartData>,
    /// Small tables sent along: name, columns, rows.
    pub inputs: Vec<(String, SchemaRef, Vec<RecordBatch>)>,
    /// Slices of the driving partition, by ordinal, that rounds leave out. Those past its end mean nothing.
    pub done: Vec<SliceSpan>,
    /// Slices of the driving partition that the host holds, in rising spans.
    pub held: Vec<SliceSpan>,
    /// Schema that the output must have, by position and type; its names and nullability are those of the output.
    pub schema: SchemaRef,
    /// Whether one round must see all slices.
    pub whole_partition: bool,
    /// How far to go. Below [`Level::Whole`], filters only rule out slices and pages.
    pub level_max: Level,
    /// Whether bounds of slices and pages may rule rows out.
    pub zone_maps: bool,
    /// The pages of the driving partition's slices that are read; none: all.
    pub sample: Option<PageSample>,
    /// Rows of a batch at most.
    pub batch_rows: usize,
    /// The session's time zone.
    pub time_zone: Option<String>,
    /// Memory and spill files of the session.
    pub runtime: Arc<RuntimeEnv>,
    /// What the sub-plan may call.
    pub functions: Arc<Registry>,
    /// Where slices come from.
    pub source: Arc<dyn SliceSource>,
}

impl BindRequest {
    /// What OPEN asks for, over slices that were found.
    pub fn of(
        request: OpenRequest,
        parts: Vec<PartData>,
        runtime: Arc<RuntimeEnv>,
        functions: Arc<Registry>,
        source: Arc<dyn SliceSource>,
    ) -> Self {
        Self {
            plan: request.plan,
            parts,
            inputs: request.inputs.into_iter().map(|input| (input.name, input.schema, input.batches)).collect(),
            done: request.done,
            held: request.options.adapt.held,
            schema: request.schema,
            whole_partition: request.whole_partition,
            level_max: request.options.level_max,
            zone_maps: request.options.zone_maps,
            sample: request.options.sample,
            batch_rows: request.options.batch_rows,
            time_zone: request.options.time_zone,
            runtime,
            functions,
            source,
        }
    }
}

/// What was read of one part so far, by all rounds and scans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartReads {
    /// Slices, each as often as it was read.
    pub slices: u64,
    /// Bytes of them that were read.
    pub bytes: u64,
}

/// What a round did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundStats {
    /// Slices of the driving partition that it took care of, by ordinal: read, or ruled out by their bounds.
    pub slices: Vec<u32>,
    /// Of them, ruled out.
    pub slices_skipped: u32,
    /// Pages of the driving partition that were decoded at least in part.
    pub pages_read: u64,
    /// Pages of the driving partition that were ruled out by their bounds, in slices that were read.
    pub pages_skipped: u64,
    /// Rows in the slices that were read.
    pub rows_in: u64,
    /// Bytes of the driving partition that were read.
    pub medium_bytes: u64,
    /// What reading and filtering the driving partition took: CPU time, rows that passed, and about how many bytes they have.
    pub scan: ScanShare,
    /// Rows in the slices of the other datasets that were read.
    pub other_rows_in: u64,
    /// Bytes of the other datasets that were read.
    pub other_medium_bytes: u64,
}
