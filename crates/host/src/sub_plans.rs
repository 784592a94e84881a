//! [`SubPlans`]: what an array does with a sub-plan from above. It reads the sub-plan back, and runs it as a query of its own: cut
//! again for the drives below, which may hand work back to it, and put together here.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProvider, MemoryCatalogProviderList, MemorySchemaProvider,
    SchemaProvider, TableProvider,
};
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::datasource::{MemTable, source_as_provider};
use datafusion::execution::SessionState;
use datafusion::execution::runtime_env::RuntimeEnv;

use datafusion::logical_expr::{Expr, Filter, LogicalPlan, Projection, TableScan, TableScanBuilder};
use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use pithead_door::{OpenRequest, SlicePart};
use pithead_fleet::VersionedDataset;
use pithead_functions::{EngineOptions, Registry, conjunction, fault_from_datafusion, session_state};
use pithead_model::{
    Blame, Dataset, DatasetName, Fault, PageSample, Partition, Partitioning, SLICE_ROWS_DEFAULT, SliceSpan, boxed,
};
use pithead_plan::{INPUT_SCHEMA, ResultShape, consume, shape};

use crate::aside::aside_waiting;
use crate::kept_rows::KeptRows;
use crate::query::{Mode, Query};
use crate::schemas::CATALOG;
use crate::table::DatasetTable;
use crate::{Host, Settings};
use pithead_remote::QueryProfile;

/// Bytes of a sub-plan whose reading takes long.
const LARGE_PLAN: usize = 32 << 10;

/// Runs sub-plans from above over the drives of a host. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SubPlans {
    host: Host,
    /// Memory and spill files, which all of them share.
    runtime: Arc<RuntimeEnv>,
}

/// One dataset of a sub-plan, as it is divided among the drives below.
#[derive(Clone, Debug)]
pub struct DividedPart {
    /// What OPEN says of it.
    pub part: SlicePart,
    /// By drive, its part of each run.
    pub drives: Vec<Partition>,
}

/// A sub-plan as it was read.
pub struct ReadSubPlan {
    query: Query,
    plan: LogicalPlan,
    schema: SchemaRef,
    driving_scans: usize,
}

/// The answer of a sub-plan on its way.
pub struct Merged {
    /// Its rows, in the columns that OPEN asks for. Dropping them ends the work below.
    pub rows: BoxStream<'static, Result<RecordBatch, Fault>>,
    /// What it cost below; complete once the rows have ended.
    pub profile: Arc<QueryProfile>,
}

/// What the sessions of a query ask for where the query is a sub-plan from above.
#[derive(Clone, Debug)]
pub(crate) struct FromAbove {
    /// The partition's number above, by dataset: the drives below store their parts under it.
    numbers: HashMap<DatasetName, u32>,
    driving: DatasetName,
    /// Slices that are answered for already, by drive.
    done: Vec<Vec<SliceSpan>>,
    /// The pages of the others' that are read; none: all.
    pub(crate) sample: Option<PageSample>,
}

impl FromAbove {
    /// The number that a dataset's partition has at the drives.
    pub(crate) fn number(&self, name: &DatasetName) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// What a session over the part at one of the drives leaves out.
    pub(crate) fn done(&self, driving: &DatasetName, drive: usize) -> Vec<SliceSpan> {
        let done = self.done.get(drive).filter(|_| *driving == self.driving);
        done.cloned().unwrap_or_default()
    }
}

impl SubPlans {
    /// Over the drives that `host` is connected to, in the memory that it has.
    pub fn new(host: Host) -> SubPlans {
        let runtime = host.runtime();
        SubPlans { host, runtime }
    }

    /// The drives below.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Reads a sub-plan in Substrait over datasets that are divided among the drives. `done`: by drive, the slices of the
    /// driving dataset that are left out. [`Blame::User`] if it names what was not sent along.
    #[boxed]
    pub async fn read(
        &self,
        bytes: &[u8],
        request: &OpenRequest,
        parts: &[DividedPart],
        done: Vec<Vec<SliceSpan>>,
    ) -> Result<ReadSubPlan, Fault> {
        let driving =
            parts.first().ok_or_else(|| Fault::invalid("expected a sub-plan over at least one dataset"))?.part.name.clone();
        let settings = Settings::for_sub_plan(&request.options);
        let functions = self.host.functions().of_extensions(&request.options.extensions).await?;
        let state = self.state(request, parts, &settings, functions)?;
        let plan = aside_waiting(bytes.len() > LARGE_PLAN, consume(bytes, &state)).await;
        let plan = plan.map_err(|error| Fault::from(error).at("the sub-plan"))?;
        let plan = plan.transform_down_with_subqueries(filters_above).map_err(fault_from_datafusion)?.data;
        let driving_scans = scans(&plan, &driving)?;
        let numbers = parts.iter().map(|part| (part.part.name.clone(), part.part.partition)).collect();
        let query = Query {
            host: self.host.clone(),
            kept: KeptRows::new(&state),
            admitted: Arc::default(),
            state: state.into(),
            settings,
            profile: QueryProfile::start(),
            computed: Mutex::default(),
            shared: Mutex::default(),
            from_above: Some(FromAbove { numbers, driving, done, sample: request.options.sample }),
            pages: None,
            replans_left: 0,
        };
        Ok(ReadSubPlan { query, plan, schema: Arc::clone(&request.schema), driving_scans })
    }

    /// The state that a sub-plan is planned with: as at a host, with the tables that OPEN brings in place of a catalogue.
    fn state(
        &self,
        request: &OpenRequest,
        parts: &[DividedPart],
        settings: &Settings,
        functions: Arc<Registry>,
    ) -> Result<SessionState, Fault> {
        let engine = EngineOptions {
            batch_rows: request.options.batch_rows,
            target_partitions: self.host.options().threads.max(1),
            time_zone: request.options.time_zone.clone(),
            runtime: Arc::clone(&self.runtime),
            functions,
        };
        let mut state = session_state(&engine);
        let config = state.config_mut().options_mut();
        config.catalog.default_catalog = CATALOG.to_owned();
        config.catalog.default_schema.clone_from(&self.host.options().domain);
        config.extensions.insert(settings.clone());
        let catalog = MemoryCatalogProvider::new();
        for part in parts {
            let name = &part.part.name;
            let found = VersionedDataset::new(name.clone(), Arc::new(dataset(part)), request.manifest_version);
            add_table(&catalog, &name.domain, &name.dataset, Arc::new(DatasetTable::new(Arc::new(found))))?;
        }
        for input in &request.inputs {
            let table = MemTable::try_new(Arc::clone(&input.schema), vec![input.batches.clone()]);
            add_table(&catalog, INPUT_SCHEMA, &input.name, Arc::new(table.map_err(fault_from_datafusion)?))?;
        }
        let catalogs = MemoryCatalogProviderList::new();
        catalogs.register_catalog(CATALOG.to_owned(), Arc::new(catalog));
        state.register_catalog_list(Arc::new(catalogs));
        state.mark_start_execution();
        Ok(state)
    }
}

impl ReadSubPlan {
    /// How often it reads the driving dataset.
    pub fn driving_scans(&self) -> usize {
        self.driving_scans
    }

    /// Whether its rows over some slices and over others are just more rows, so that putting them together here saves nothing.
    pub fn is_rows(&self) -> bool {
        matches!(shape(&self.plan, &self.query.host.options().functions), ResultShape::Rows | ResultShape::Limit(_))
    }

    /// Cuts it again, and runs it.
    #[boxed]
    pub async fn run(self) -> Result<Merged, Fault> {
        let prepared = self.query.prepare(self.plan, Mode::Run).await?;
        let rows = self.query.execute(&prepared).await?;
        let schema = self.schema;
        let rows = rows.map(move |batch| conform(&batch.map_err(fault_from_datafusion)?, &schema)).boxed();
        Ok(Merged { rows, profile: Arc::clone(&self.query.profile) })
    }
}

/// A part as a dataset of its own, with a partition at each drive. Which rows are where nothing is said of.
fn dataset(divided: &DividedPart) -> Dataset {
    Dataset {
        id: divided.part.dataset,
        schema: Arc::clone(&divided.part.schema),
        metadata: Default::default(),
        partitioning: Partitioning::RoundRobin,
        sort: divided.part.sort.clone(),
        // Of what is stored already; nothing is written by it.
        encoding: String::new(),
        slice_rows: SLICE_ROWS_DEFAULT,
        slice_bytes: None,
        copies: 1,
        merged: 0,
        partitions: divided.drives.clone(),
    }
}

fn add_table(catalog: &MemoryCatalogProvider, schema: &str, name: &str, table: Arc<dyn TableProvider>) -> Result<(), Fault> {
    let tables = match catalog.schema(schema) {
        Some(tables) => tables,
        None => {
            let tables: Arc<dyn SchemaProvider> = Arc::new(MemorySchemaProvider::new());
            catalog.register_schema(schema, Arc::clone(&tables)).map_err(fault_from_datafusion)?;
            tables
        }
    };
    if tables.table_exist(name) {
        return Err(Fault::invalid(format!("two tables of the sub-plan are named {schema}.{name}")));
    }
    tables.register_table(name.to_owned(), table).map_err(fault_from_datafusion)?;
    Ok(())
}

/// Substrait's reader leaves filters in the scan. The cut looks for them above it.
fn filters_above(plan: LogicalPlan) -> datafusion::common::Result<Transformed<LogicalPlan>> {
    let LogicalPlan::TableScan(scan) = plan else { return Ok(Transformed::no(plan)) };
    let Some(condition) = conjunction(scan.filters.iter().cloned()) else {
        return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
    };
    let columns = scan.projected_schema.columns().into_iter().map(Expr::Column).collect();
    // A filter may need columns that the scan does not give.
    let TableScan { table_name, source, fetch, .. } = scan;
    let whole = TableScanBuilder::new(table_name, source).with_fetch(fetch).build()?;
    let filter = Filter::try_new(condition, Arc::new(LogicalPlan::TableScan(whole)))?;
    let plan = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(LogicalPlan::Filter(filter)))?);
    // The filter's input needs no further look.
    Ok(Transformed::new(plan, true, TreeNodeRecursion::Jump))
}

/// How often a plan reads a dataset.
fn scans(plan: &LogicalPlan, name: &DatasetName) -> Result<usize, Fault> {
    let mut found = 0;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(table) = source_as_provider(&scan.source)
            && table.downcast_ref::<DatasetTable>().is_some_and(|table| table.found().name() == name)
        {
            found += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map_err(fault_from_datafusion)?;
    Ok(found)
}

/// Rows in the columns that were asked for.
fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Fault> {
    if batch.num_columns() != schema.fields().len() {
        let what = format!("the sub-plan has {} columns, {} are expected", batch.num_columns(), schema.fields().len());
        return Err(Fault::new(Blame::User, what).hint("run the same release at hosts, arrays and drives"));
    }
    let columns =
        batch.columns().iter().zip(schema.fields()).map(|(column, field)| match column.data_type() == field.data_type() {
            true => Ok(Arc::clone(column)),
            false => cast(column, field.data_type()),
        });
    let columns = columns.collect::<Result<Vec<_>, _>>().map_err(Fault::bug)?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|error| Fault::bug(format!("rows of a sub-plan do not fit its columns: {error}")))
}
