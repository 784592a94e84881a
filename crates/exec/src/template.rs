//! [`Template`]: a sub-plan as it is read and optimised, before it is known over which slices.
//!
//! Reading and optimising take longer than a small session's work, and hang on nothing that differs from partition to partition. So
//! they are done over stand-ins for the session's tables, and the result is kept, for the other partitions of a query and for the
//! next one. A key is all that was read, byte for byte and column for column; what could come out otherwise another time is not kept.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;
use std::sync::{Arc, LazyLock};

use arrow::datatypes::SchemaRef;
use datafusion::catalog::{CatalogProvider, MemorySchemaProvider, SchemaProvider, Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, TableReference, internal_err};
use datafusion::datasource::{TableType, provider_as_source, source_as_provider};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{
    Expr, LogicalPlan, TableProviderFilterPushDown, TableScan, TableScanBuilder, TableSource, Volatility,
};
use datafusion::physical_plan::ExecutionPlan;
use lru::LruCache;
use parking_lot::Mutex;
use pithead_door::PlanBytes;
use pithead_functions::{EngineOptions, PlanningState, Registry, fault_from_datafusion, optimize, ready_to_run};
use pithead_model::{DatasetName, Fault, boxed, near_names};
use pithead_plan::{INPUT_SCHEMA, ResultShape, consume, shape};
use tokio::sync::OnceCell;

use crate::narrow::narrow;
use crate::table::{Feed, pushed_down};
use crate::{BindRequest, ExecError, PartData};

/// Templates that are kept at most.
const KEPT_MAX: NonZeroUsize = NonZeroUsize::new(256).unwrap();
/// Bytes of a sub-plan whose template is kept at most.
const PLAN_BYTES_MAX: usize = 16 << 10;
/// Bytes of a constant in one at most.
const LITERAL_BYTES_MAX: usize = 4 << 10;

/// A template, or none where it may not be kept, once it is made. Drives of one process are often asked for the same at the same time, and
/// one makes it for all.
type Cell = Arc<OnceCell<Option<Arc<Template>>>>;

static KEPT: LazyLock<Mutex<LruCache<Key, Cell>>> = LazyLock::new(|| Mutex::new(LruCache::new(KEPT_MAX)));

/// A sub-plan over stand-ins.
#[derive(Debug)]
pub(crate) struct Template {
    /// As it was read, with the scan that rounds drive.
    consumed: LogicalPlan,
    plan: LogicalPlan,
    ready: LogicalPlan,
    pub(crate) shape: ResultShape,
}

/// The columns that a Substrait plan over one dataset puts out. Some types are settled only where the plan is optimised, as for
/// every plan that is bound.
#[boxed]
pub async fn output_schema(
    plan: &[u8],
    dataset: &DatasetName,
    schema: &SchemaRef,
    functions: Arc<Registry>,
) -> Result<SchemaRef, Fault> {
    let mut state = PlanningState::new(&EngineOptions { functions, ..EngineOptions::default() });
    let state = state.for_tables();
    let catalog_name = &state.config_options().catalog.default_catalog;
    let catalog = state.catalog_list().catalog(catalog_name).ok_or_else(|| Fault::bug("a state without a catalogue"))?;
    let table = stand_in(StandsFor::TablePart(0, Feed::All), schema);
    add_table(&*catalog, &dataset.domain, &dataset.dataset, table)?;
    let consumed = consume(plan, state).await?;
    let plan = state.optimize(&consumed).map_err(fault_from_datafusion)?;
    Ok(Arc::new(plan.schema().as_arrow().clone()))
}

/// Everything that a template hangs on.
#[derive(Clone, PartialEq)]
struct Key {
    plan: PlanBytes,
    parts: Vec<(DatasetName, SchemaRef)>,
    inputs: Vec<(String, SchemaRef)>,
    time_zone: Option<String>,
    functions: Arc<Registry>,
}

// What it holds is equal to itself.
impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.plan {
            PlanBytes::Substrait(bytes) => bytes.hash(state),
            PlanBytes::Scan { dataset, columns } => (dataset, columns).hash(state),
        }
        self.parts.iter().for_each(|(name, _)| name.hash(state));
        self.inputs.iter().for_each(|(name, _)| name.hash(state));
    }
}

impl Key {
    fn of(request: &BindRequest) -> Self {
        Self {
            plan: request.plan.clone(),
            parts: request.parts.iter().map(|part| (part.name.clone(), Arc::clone(&part.schema))).collect(),
            inputs: request.inputs.iter().map(|(name, schema, _)| (name.clone(), Arc::clone(schema))).collect(),
            time_zone: request.time_zone.clone(),
            functions: Arc::clone(&request.functions),
        }
    }

    fn bytes(&self) -> usize {
        match &self.plan {
            PlanBytes::Substrait(bytes) => bytes.len(),
            PlanBytes::Scan { columns, .. } => columns.iter().map(String::len).sum(),
        }
    }
}

impl Template {
    /// The request's sub-plan, read and optimised now or before. `state` is without tables, before and after.
    pub(crate) async fn of(request: &BindRequest, state: &mut PlanningState) -> Result<Arc<Self>, Fault> {
        let key = Key::of(request);
        if key.bytes() > PLAN_BYTES_MAX {
            return Self::make(request, state).await;
        }
        let cell = Arc::clone(KEPT.lock().get_or_insert(key.clone(), Cell::default));
        let mut own = None;
        let (making, mine) = (&mut *state, &mut own);
        let make = || async move {
            let made = mine.insert(Self::make(request, making).await?);
            Ok(made.may_be_kept().map_err(fault_from_datafusion)?.then(|| Arc::clone(made)))
        };
        let kept = cell.get_or_try_init(make).await;
        match kept {
            Ok(Some(kept)) => Ok(Arc::clone(kept)),
            // It may come out otherwise for each.
            Ok(None) => match own {
                Some(own) => Ok(own),
                None => Self::make(request, state).await,
            },
            Err(fault) => {
                KEPT.lock().pop(&key);
                Err(fault)
            }
        }
    }

    /// Whether the request's sub-plan was read and optimised before, so that binding it takes no time to speak of.
    pub(crate) fn is_kept(request: &BindRequest) -> bool {
        KEPT.lock().peek(&Key::of(request)).is_some_and(|cell| matches!(cell.get(), Some(Some(_))))
    }

    async fn make(request: &BindRequest, state: &mut PlanningState) -> Result<Arc<Self>, Fault> {
        let made = match register(state.for_tables(), request) {
            Ok(()) => Self::read(request, state).await,
            Err(fault) => Err(fault),
        };
        state.forget_tables();
        made.map(Arc::new)
    }

    async fn read(request: &BindRequest, state: &SessionState) -> Result<Self, Fault> {
        let driving = request.parts.first().ok_or(ExecError::NoParts)?;
        let consumed = match &request.plan {
            PlanBytes::Substrait(bytes) => {
                consume(bytes, state).await.map_err(|error| named_table(Fault::from(error), request))?
            }
            PlanBytes::Scan { dataset, columns } => scan_plan(dataset, columns, driving)?,
        };
        let consumed = drive(consumed, driving)?;
        let plan = optimize(state, &consumed).and_then(narrow).map_err(fault_from_datafusion)?;
        let ready = ready_to_run(plan.clone()).map_err(fault_from_datafusion)?;
        Ok(Self { shape: shape(&consumed, &request.functions), consumed, plan, ready })
    }

    /// Whether reading and optimising it another time must give the same, and it is not large.
    fn may_be_kept(&self) -> Result<bool> {
        let mut may = true;
        for plan in [&self.consumed, &self.ready] {
            plan.apply_with_subqueries(|node| {
                node.apply_expressions(|expr| {
                    expr.apply(|part| {
                        may &= match part {
                            Expr::ScalarFunction(call) => call.func.signature().volatility == Volatility::Immutable,
                            Expr::Literal(value, _) => value.size() <= LITERAL_BYTES_MAX,
                            _ => true,
                        };
                        Ok(if may { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
                    })
                })
            })?;
        }
        Ok(may)
    }

    /// As it was read, over these tables.
    pub(crate) fn consumed(&self, tables: &Tables) -> Result<LogicalPlan, Fault> {
        tables.put_into(&self.consumed)
    }

    /// Optimised, over these tables.
    pub(crate) fn plan(&self, tables: &Tables) -> Result<LogicalPlan, Fault> {
        tables.put_into(&self.plan)
    }

    /// [`ready_to_run`], over these tables.
    pub(crate) fn ready(&self, tables: &Tables) -> Result<LogicalPlan, Fault> {
        tables.put_into(&self.ready)
    }
}

/// A session's own tables.
pub(crate) struct Tables {
    /// By part: as rounds read it, and all of it.
    pub(crate) parts: Vec<(Arc<dyn TableSource>, Arc<dyn TableSource>)>,
    pub(crate) inputs: Vec<Arc<dyn TableSource>>,
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").field("parts", &self.parts.len()).field("inputs", &self.inputs.len()).finish()
    }
}

impl Tables {
    fn put_into(&self, plan: &LogicalPlan) -> Result<LogicalPlan, Fault> {
        let put = plan.clone().transform_down_with_subqueries(|node| {
            let LogicalPlan::TableScan(scan) = node else { return Ok(Transformed::no(node)) };
            let Some(stands_for) = stands_for(&scan) else { return Ok(Transformed::no(LogicalPlan::TableScan(scan))) };
            let source = match stands_for {
                StandsFor::TablePart(part, Feed::Round) => self.parts.get(part).map(|(round, _)| round),
                StandsFor::TablePart(part, Feed::All) => self.parts.get(part).map(|(_, all)| all),
                StandsFor::Input(input) => self.inputs.get(input),
            };
            let Some(source) = source else { return internal_err!("a session lacks a table of its sub-plan") };
            Ok(Transformed::yes(LogicalPlan::TableScan(TableScan { source: Arc::clone(source), ..scan })))
        });
        Ok(put.map_err(fault_from_datafusion)?.data)
    }
}

/// What a stand-in is replaced by.
#[derive(Clone, Copy, Debug)]
enum StandsFor {
    TablePart(usize, Feed),
    Input(usize),
}

/// A table of which only the columns are known.
#[derive(Debug)]
struct StandIn {
    stands_for: StandsFor,
    schema: SchemaRef,
}

#[boxed]
impl TableProvider for StandIn {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        internal_err!("a sub-plan was not put over its session's tables")
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        match self.stands_for {
            StandsFor::TablePart(..) => Ok(pushed_down(filters)),
            StandsFor::Input(_) => Ok(vec![TableProviderFilterPushDown::Unsupported; filters.len()]),
        }
    }
}

fn stands_for(scan: &TableScan) -> Option<StandsFor> {
    let provider = source_as_provider(&scan.source).ok()?;
    provider.downcast_ref::<StandIn>().map(|stand_in| stand_in.stands_for)
}

fn stand_in(stands_for: StandsFor, schema: &SchemaRef) -> Arc<dyn TableProvider> {
    Arc::new(StandIn { stands_for, schema: Arc::clone(schema) })
}

fn register(state: &SessionState, request: &BindRequest) -> Result<(), Fault> {
    let catalog_name = &state.config_options().catalog.default_catalog;
    let catalog = state.catalog_list().catalog(catalog_name).ok_or_else(|| Fault::bug("a state without a catalogue"))?;
    for (number, part) in request.parts.iter().enumerate() {
        let table = stand_in(StandsFor::TablePart(number, Feed::All), &part.schema);
        add_table(&*catalog, &part.name.domain, &part.name.dataset, table)?;
    }
    for (number, (name, schema, _)) in request.inputs.iter().enumerate() {
        add_table(&*catalog, INPUT_SCHEMA, name, stand_in(StandsFor::Input(number), schema))?;
    }
    Ok(())
}

fn scan_plan(dataset: &DatasetName, columns: &[String], driving: &PartData) -> Result<LogicalPlan, Fault> {
    if *dataset != driving.name {
        return Err(ExecError::NotDriven(driving.name.clone()).into());
    }
    let index = |column: &String| {
        driving.schema.index_of(column).map_err(|_| ExecError::UnknownColumn {
            column: column.clone(),
            dataset: dataset.clone(),
            near: near_names(column, driving.schema.fields().iter().map(|field| field.name().as_str())).join(", "),
        })
    };
    let columns = columns.iter().map(index).collect::<Result<Vec<usize>, ExecError>>()?;
    let table = provider_as_source(stand_in(StandsFor::TablePart(0, Feed::All), &driving.schema));
    let name = TableReference::partial(dataset.domain.as_str(), dataset.dataset.as_str());
    let scan = TableScanBuilder::new(name, table).with_projection(Some(columns)).build();
    Ok(LogicalPlan::TableScan(scan.map_err(fault_from_datafusion)?))
}

/// Makes the first scan of the driving dataset, left child first, read the slices of its round. Others of the same
/// dataset read the whole partition.
fn drive(plan: LogicalPlan, driving: &PartData) -> Result<LogicalPlan, Fault> {
    let mut driven = false;
    let source = provider_as_source(stand_in(StandsFor::TablePart(0, Feed::Round), &driving.schema));
    let rewritten = plan.transform_down(|node| match node {
        LogicalPlan::TableScan(scan) if !driven && matches!(stands_for(&scan), Some(StandsFor::TablePart(0, _))) => {
            driven = true;
            Ok(Transformed::yes(LogicalPlan::TableScan(TableScan { source: Arc::clone(&source), ..scan })))
        }
        node => Ok(Transformed::no(node)),
    });
    let plan = rewritten.map_err(fault_from_datafusion)?.data;
    if driven { Ok(plan) } else { Err(ExecError::NotDriven(driving.name.clone()).into()) }
}

/// Puts a table into a schema of the catalogue, which it may have to make.
fn add_table(catalog: &dyn CatalogProvider, schema: &str, name: &str, table: Arc<dyn TableProvider>) -> Result<(), Fault> {
    let tables = match catalog.schema(schema) {
        Some(tables) => tables,
        None => {
            let tables: Arc<dyn SchemaProvider> = Arc::new(MemorySchemaProvider::new());
            catalog.register_schema(schema, Arc::clone(&tables)).map_err(fault_from_datafusion)?;
            tables
        }
    };
    if tables.table_exist(name) {
        return Err(ExecError::TwoTables(format!("{schema}.{name}")).into());
    }
    tables.register_table(name.to_owned(), table).map_err(fault_from_datafusion)?;
    Ok(())
}

/// A plan that fails to be read may do so for want of a table: then say which tables there are.
fn named_table(fault: Fault, request: &BindRequest) -> Fault {
    let lower = fault.message.to_lowercase();
    if lower.contains("no table named") || lower.contains("failed to resolve schema") {
        unknown(&fault.message, request).into()
    } else {
        fault
    }
}

fn unknown(name: &str, request: &BindRequest) -> ExecError {
    let parts = request.parts.iter().map(|part| part.name.to_string());
    let inputs = request.inputs.iter().map(|(name, ..)| format!("{INPUT_SCHEMA}.{name}"));
    ExecError::UnknownTable { name: name.to_owned(), known: parts.chain(inputs).collect::<Vec<_>>().join(", ") }
}
