//! Sub-plans over slices in memory, judged by DataFusion over the same rows in tables of its own.

mod filters;
mod joins;
mod levels;
mod order;
mod rounds;
mod speed;
mod templates;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch, StringViewArray,
};
use arrow::datatypes::SchemaRef;
use arrow::util::pretty::pretty_format_batches;
use datafusion::catalog::MemorySchemaProvider;
use datafusion::common::tree_node::TreeNode;
use datafusion::datasource::MemTable;
use datafusion::execution::SessionState;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use datafusion_substrait::logical_plan::producer::to_substrait_plan;
use futures::{StreamExt, TryStreamExt};
use pithead_device::{Device, Native};
use pithead_door::PlanBytes;
use pithead_functions::{EngineOptions, Registry, fault_from_datafusion, session_state};
use pithead_model::{DatasetId, DatasetName, Fault, Level, LoadId, SliceKey, SliceSpan, boxed};
use pithead_plan::{INPUT_SCHEMA, ResultShape};
use pithead_slice::{Predicate, SliceReader, encode_slice, encoding, open_slice};
use prost::Message;

use crate::table::{Feed, SliceTable, TablePart};
use crate::{BindRequest, Bound, PartData, RoundStats, SliceRef, SliceSource};

/// Slices in memory.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    readers: HashMap<SliceKey, Arc<dyn SliceReader>>,
    opened: AtomicUsize,
    /// Slices that are known to have no row of those that equalities want.
    ruled_out: Mutex<HashSet<SliceKey>>,
    /// Slices that were read in vain, with the columns of the equalities.
    in_vain: Mutex<Vec<(SliceKey, Vec<usize>)>>,
    device: Native,
}

#[boxed]
impl SliceSource for Memory {
    async fn open(&self, slice: &SliceRef) -> Result<Arc<dyn SliceReader>, Fault> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::clone(&self.readers[&slice.key]))
    }

    async fn may_match(&self, slice: &SliceRef, _predicates: &[Predicate]) -> bool {
        !self.ruled_out.lock().unwrap().contains(&slice.key)
    }

    fn read_in_vain(&self, slice: &SliceRef, _part: &SchemaRef, predicates: &[Predicate]) {
        let mut columns = Vec::new();
        predicates.iter().for_each(|predicate| predicate.equated(&mut columns));
        self.in_vain.lock().unwrap().push((slice.key.clone(), columns));
    }

    fn device(&self) -> &dyn Device {
        &self.device
    }
}

/// Datasets, as slices and as plain batches.
pub(crate) struct Lab {
    encoding: &'static str,
    memory: Memory,
    parts: Vec<PartData>,
    batches: HashMap<String, (SchemaRef, Vec<RecordBatch>)>,
    inputs: Vec<(String, SchemaRef, Vec<RecordBatch>)>,
}

/// How a sub-plan is run.
#[derive(Clone, Copy)]
pub(crate) struct How {
    pub(crate) slices_max: usize,
    pub(crate) whole_partition: bool,
    pub(crate) level_max: Level,
    pub(crate) zone_maps: bool,
    pub(crate) batch_rows: usize,
}

impl Default for How {
    fn default() -> Self {
        Self { slices_max: 1, whole_partition: false, level_max: Level::Whole, zone_maps: true, batch_rows: 8192 }
    }
}

/// What running one gave.
pub(crate) struct Ran {
    pub(crate) rows: Vec<RecordBatch>,
    pub(crate) rounds: Vec<RoundStats>,
    pub(crate) shape: ResultShape,
    pub(crate) opened: usize,
}

impl Lab {
    pub(crate) fn new(encoding: &'static str) -> Self {
        Self { encoding, memory: Memory::default(), parts: vec![], batches: HashMap::new(), inputs: vec![] }
    }

    /// Adds a dataset of the default domain, one slice a batch.
    pub(crate) fn dataset(mut self, name: &str, schema: &SchemaRef, slices: Vec<RecordBatch>) -> Self {
        let name: DatasetName = name.parse().unwrap();
        let encoding = encoding(self.encoding).unwrap();
        let id = DatasetId(self.parts.len() as u64);
        let run = SliceKey { name: name.clone(), dataset: id, load: LoadId(1), partition: 0, number: None };
        let mut refs = Vec::new();
        for (ordinal, batch) in (0..).zip(&slices) {
            let encoded = encode_slice(&*encoding, schema, std::slice::from_ref(batch)).unwrap();
            let key = run.slice(ordinal);
            self.memory.readers.insert(key.clone(), open_slice(schema, encoded.bytes).unwrap());
            refs.push(SliceRef { ordinal, key, entry: Arc::new(encoded.entry), fit: None, filtered: None, came: None });
        }
        self.batches.insert(name.dataset.clone(), (Arc::clone(schema), slices));
        self.parts.push(PartData { name, schema: Arc::clone(schema), partition: 0, sort: vec![], slices: refs, passing: None });
        self
    }

    /// Tells what share of a dataset's rows pass the filters over its scan.
    pub(crate) fn passing(mut self, name: &str, share: f64) -> Self {
        let part = self.parts.iter_mut().find(|part| part.name.dataset == name).unwrap();
        part.passing = Some(share);
        self
    }

    /// Adds a table that is sent along.
    pub(crate) fn input(mut self, name: &str, batch: RecordBatch) -> Self {
        self.inputs.push((name.to_owned(), batch.schema(), vec![batch]));
        self
    }

    fn tables(&self, slices: bool) -> SessionContext {
        let state = session_state(&EngineOptions::default());
        let catalog = state.catalog_list().catalog("datafusion").unwrap();
        for domain in ["main", INPUT_SCHEMA] {
            catalog.register_schema(domain, Arc::new(MemorySchemaProvider::new())).unwrap();
        }
        for part in &self.parts {
            let (schema, batches) = &self.batches[&part.name.dataset];
            let tables = catalog.schema("main").unwrap();
            let name = part.name.dataset.clone();
            if slices {
                let table = SliceTable { part: Arc::new(self.unread(part)), feed: Feed::All };
                tables.register_table(name, Arc::new(table)).unwrap();
            } else {
                let table = MemTable::try_new(Arc::clone(schema), vec![batches.clone()]).unwrap();
                tables.register_table(name, Arc::new(table)).unwrap();
            }
        }
        for (name, schema, batches) in &self.inputs {
            let table = MemTable::try_new(Arc::clone(schema), vec![batches.clone()]).unwrap();
            catalog.schema(INPUT_SCHEMA).unwrap().register_table(name.clone(), Arc::new(table)).unwrap();
        }
        SessionContext::new_with_state(state)
    }

    /// A part that only plans are made with: it takes filters, as the host's tables do.
    fn unread(&self, part: &PartData) -> TablePart {
        TablePart {
            number: 0,
            name: part.name.to_string(),
            schema: Arc::clone(&part.schema),
            slices: Arc::new([]),
            facts: crate::statistics::PartFacts::new(Arc::new([]), None),
            order: None,
            source: Arc::new(Memory::default()),
            zone_maps: true,
            sample: None,
            prune_only: false,
            batch_rows: 8192,
            reads: crate::table::ReadCounters::default(),
        }
    }

    /// The sub-plan of a query, with its filters in the scans, and its output's schema.
    pub(crate) async fn sub_plan(&self, sql: &str) -> (PlanBytes, SchemaRef) {
        let state: SessionState = self.tables(true).state();
        let plan = state.create_logical_plan(sql).await.unwrap();
        let optimised = state.optimize(&plan).unwrap();
        // A plan of which nothing is left travels as it was.
        let empty = optimised.exists(|node| Ok(matches!(node, LogicalPlan::EmptyRelation(_)))).unwrap();
        let plan = if empty { plan } else { optimised };
        let bytes = to_substrait_plan(&plan, &state).unwrap().encode_to_vec();
        (PlanBytes::Substrait(bytes.into()), Arc::new(plan.schema().as_arrow().clone()))
    }

    pub(crate) fn request(self: &Arc<Self>, plan: PlanBytes, schema: SchemaRef, how: How) -> BindRequest {
        BindRequest {
            plan,
            parts: self.parts.clone(),
            inputs: self.inputs.clone(),
            done: vec![],
            held: vec![],
            schema,
            whole_partition: how.whole_partition,
            level_max: how.level_max,
            zone_maps: how.zone_maps,
            sample: None,
            batch_rows: how.batch_rows,
            time_zone: None,
            runtime: Arc::new(RuntimeEnv::default()),
            functions: Registry::own(),
            source: Arc::clone(self) as Arc<dyn SliceSource>,
        }
    }

    /// Runs a query's sub-plan in rounds, as a drive does, and puts them together where there are several.
    pub(crate) async fn run(self: &Arc<Self>, sql: &str, how: How) -> Result<Ran, Fault> {
        let (plan, schema) = self.sub_plan(sql).await;
        let opened = self.memory.opened.load(Ordering::Relaxed);
        let bound = Bound::bind(self.request(plan, schema, how)).await?;
        let (mut rows, mut rounds) = (Vec::new(), Vec::new());
        loop {
            let mut round = bound.round(how.slices_max).await?;
            while let Some(batch) = round.stream.next().await {
                rows.push(batch.map_err(fault_from_datafusion)?);
            }
            rounds.push(round.finish());
            let enough = matches!(bound.shape(), ResultShape::Limit(limit) if total_rows(&rows) >= limit);
            if enough || bound.queue_is_empty() || rounds.last().is_some_and(|round| round.slices.is_empty()) {
                break;
            }
        }
        if rounds.len() > 1 {
            rows = bound.combine(rows).await?.try_collect().await.map_err(fault_from_datafusion)?;
        }
        let opened = self.memory.opened.load(Ordering::Relaxed) - opened;
        Ok(Ran { rows, rounds, shape: bound.shape(), opened })
    }

    /// The same query over plain tables.
    pub(crate) async fn judge(&self, sql: &str) -> Vec<RecordBatch> {
        self.tables(false).sql(sql).await.unwrap().collect().await.unwrap()
    }

    /// Runs a query both ways and compares the rows as bags.
    pub(crate) async fn same(self: &Arc<Self>, sql: &str, how: How) -> Ran {
        let ran = self.run(sql, how).await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
        assert_eq!(bag(&ran.rows), bag(&self.judge(sql).await), "{} {sql}", self.encoding);
        ran
    }
}

#[boxed]
impl SliceSource for Lab {
    async fn open(&self, slice: &SliceRef) -> Result<Arc<dyn SliceReader>, Fault> {
        self.memory.open(slice).await
    }

    async fn may_match(&self, slice: &SliceRef, predicates: &[Predicate]) -> bool {
        self.memory.may_match(slice, predicates).await
    }

    fn read_in_vain(&self, slice: &SliceRef, part: &SchemaRef, predicates: &[Predicate]) {
        self.memory.read_in_vain(slice, part, predicates);
    }

    fn device(&self) -> &dyn Device {
        self.memory.device()
    }
}

impl std::fmt::Debug for Lab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lab({})", self.encoding)
    }
}

/// Rows as sorted lines of text.
pub(crate) fn bag(batches: &[RecordBatch]) -> Vec<String> {
    let batches: Vec<RecordBatch> = batches.iter().filter(|batch| batch.num_rows() > 0).cloned().collect();
    let text = pretty_format_batches(&batches).unwrap().to_string();
    let mut rows: Vec<String> =
        text.lines().filter(|line| line.starts_with('|')).skip(1).map(|line| line.replace(' ', "")).collect();
    rows.sort();
    rows
}

pub(crate) fn total_rows(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

/// Rows `first..first + count` of a table with a column of each kind, NULLs and NaN among them. `k` grows with the row.
pub(crate) fn rows(first: i64, count: i64) -> RecordBatch {
    let at = first..first + count;
    let some = |every: i64| move |row: i64| (row % every != 0).then_some(row);
    let text = |row: i64| format!("{} item {}", ["north", "south", "east, a long one"][(row % 3) as usize], row % 50);
    let float = |row: i64| if row % 97 == 0 { f64::NAN } else { (row % 1000) as f64 / 8.0 - 10.0 };
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("k", Arc::new(Int64Array::from_iter_values(at.clone()))),
        ("i", Arc::new(Int32Array::from_iter(at.clone().map(some(7)).map(|row| row.map(|row| (row % 100) as i32))))),
        ("f", Arc::new(Float64Array::from_iter(at.clone().map(some(11)).map(|row| row.map(float))))),
        (
            "d",
            Arc::new(
                Decimal128Array::from_iter(at.clone().map(some(13)).map(|row| row.map(|row| i128::from(row % 5000) - 2500)))
                    .with_precision_and_scale(15, 2)
                    .unwrap(),
            ),
        ),
        ("t", Arc::new(StringViewArray::from_iter(at.clone().map(some(5)).map(|row| row.map(text))))),
        ("b", Arc::new(BooleanArray::from_iter(at.clone().map(some(17)).map(|row| row.map(|row| row % 4 == 1))))),
        ("day", Arc::new(Date32Array::from_iter_values(at.map(|row| (row / 100) as i32 - 30)))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

/// A dataset `t` of three slices of 20,000 rows.
pub(crate) fn lab(encoding: &'static str) -> Arc<Lab> {
    let slices: Vec<RecordBatch> = (0..3).map(|slice| rows(slice * 20_000, 20_000)).collect();
    Arc::new(Lab::new(encoding).dataset("t", &slices[0].schema(), slices))
}

pub(crate) const ENCODINGS: [&str; 2] = ["vortex", "arrow"];
