//! A view where a statement reads it: its query is planned over the statement's snapshot, and with the rights of whoever reads.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result as EngineResult};
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableType};
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use pithead_entry::Right;
use pithead_functions::fault_from_datafusion;
use pithead_model::{Blame, DatasetName, Fault, FaultKind, OPERATORS_MAX, View, boxed};

use super::definition::query_of;
use super::in_full::in_full;
use crate::operators::operators;
use crate::schemas::{Scope, catalogs};
use crate::statement_plan::plan_of;
use crate::tokens::tokens;
use crate::{Frames, Host};

/// Views over views, at most so deep.
const DEPTH_MAX: usize = 16;
/// Operators of a view's plan, once the views that it reads are put in, at most.
const NODES_MAX: usize = 4_096;

/// What views are planned with: the state of a statement before it had a catalogue, and the functions of the host.
#[derive(Clone)]
pub(crate) struct Expander {
    pub(crate) state: SessionState,
    pub(crate) host: Host,
    /// Whether the statement has tables in memory, of whatever names.
    pub(crate) has_frames: bool,
}

impl std::fmt::Debug for Expander {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Expander").finish_non_exhaustive()
    }
}

/// The views that a statement read while it was planned, each with the operators of its text. It is an extension of the statement's
/// state.
#[derive(Debug, Default)]
pub(crate) struct ViewsRead(Mutex<BTreeMap<DatasetName, (View, usize)>>);

impl ViewsRead {
    /// What the planning of a statement read so far.
    pub(crate) fn of(state: &SessionState) -> Vec<(DatasetName, View)> {
        let Some(read) = state.config().get_extension::<ViewsRead>() else { return Vec::new() };
        let views = read.0.lock();
        views.iter().map(|(name, (view, _))| (name.clone(), view.clone())).collect()
    }
}

/// A view as the planner sees it.
#[derive(Debug)]
pub(crate) struct ViewTable {
    name: DatasetName,
    view: View,
    /// Why it cannot be planned: lists show it all the same.
    plan: Result<LogicalPlan, Fault>,
}

impl ViewTable {
    pub(crate) fn name(&self) -> &DatasetName {
        &self.name
    }
}

#[boxed]
impl TableProvider for ViewTable {
    fn schema(&self) -> SchemaRef {
        match &self.plan {
            Ok(plan) => Arc::clone(plan.schema().inner()),
            Err(_) => Arc::clone(&self.view.schema),
        }
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn get_table_definition(&self) -> Option<&str> {
        Some(&self.view.sql)
    }

    fn get_logical_plan(&self) -> Option<Cow<'_, LogicalPlan>> {
        self.plan.as_ref().ok().map(Cow::Borrowed)
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let fault = self.plan.as_ref().err().cloned();
        let fault = fault.unwrap_or_else(|| Fault::bug(format!("view {} was not put into its query", self.name)));
        Err(DataFusionError::External(Box::new(fault)))
    }
}

/// The table of a view for whoever asks for its name.
pub(crate) async fn table(scope: &Scope, name: &DatasetName, view: &View) -> Arc<dyn TableProvider> {
    let plan = planned(scope, name, view).await.map_err(|fault| fault.at(format_args!("view {name}")));
    Arc::new(ViewTable { name: name.clone(), view: view.clone(), plan })
}

/// The plan of a view's query, with the names that its columns have.
pub(super) async fn planned(scope: &Scope, name: &DatasetName, view: &View) -> Result<LogicalPlan, Fault> {
    let Some(expander) = &scope.expander else { return Err(Fault::bug("a statement without a state reads a view")) };
    let mut expanding = scope.expanding.clone();
    if expanding.contains(name) {
        let way = expanding.iter().chain([name]).map(ToString::to_string).collect::<Vec<_>>().join(" → ");
        return Err(Fault::invalid(format!("it reads itself: {way}")).hint(format!("DROP VIEW {name}, or let it read tables")));
    }
    if expanding.len() >= DEPTH_MAX {
        let what = format!("views may be over views {DEPTH_MAX} deep, and this is one more");
        return Err(Fault::new(Blame::Limit, what).hint("let it read the tables themselves"));
    }
    expanding.push(name.clone());
    count_operators(expander, name, view)?;
    let mut state = expander.state.clone();
    state.config_mut().options_mut().catalog.default_schema.clone_from(&view.domain);
    let may_read = |domain: &str| scope.client.as_ref().is_none_or(|client| client.caller.may(Right::Read, domain));
    expander.host.functions().put_into(&mut state, &scope.snapshot, &may_read)?;
    let inner = Scope { made: None, frames: Frames::default(), domain: view.domain.clone(), expanding, ..scope.clone() };
    state.register_catalog_list(catalogs(inner));
    let mut query = query_of(&view.sql)?;
    if expander.has_frames || expander.state.config_options().catalog.default_schema != view.domain {
        in_full(&mut query, &view.domain, |table| {
            let name = DatasetName { domain: view.domain.clone(), dataset: table.to_owned() };
            scope.snapshot.dataset(&name).is_some() || scope.snapshot.view(&name).is_some()
        });
    }
    let plan = plan_of(&state, query).await.map_err(fault_from_datafusion)?;
    refuse_broken(&plan)?;
    count_nodes(&plan)?;
    named(plan, &view.columns)
}

/// Expressions of views are put into one another, and all that works through them nests as deep as they are long together.
fn count_operators(expander: &Expander, name: &DatasetName, view: &View) -> Result<(), Fault> {
    let Some(read) = expander.state.config().get_extension::<ViewsRead>() else { return Ok(()) };
    let own = operators(&tokens(&view.sql)?);
    let mut views = read.0.lock();
    views.insert(name.clone(), (view.clone(), own));
    let all: usize = views.values().map(|(_, operators)| operators).sum();
    if all <= OPERATORS_MAX {
        return Ok(());
    }
    let what = format!("the views that the statement reads have {all} operators; at most {OPERATORS_MAX} are allowed");
    Err(Fault::new(Blame::Limit, what).hint("keep what one of them gives as a table: CREATE TABLE … AS SELECT"))
}

fn count_nodes(plan: &LogicalPlan) -> Result<(), Fault> {
    let mut nodes = 0;
    let counted = plan.apply_with_subqueries(|_| {
        nodes += 1;
        Ok(if nodes > NODES_MAX { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    counted.map_err(fault_from_datafusion)?;
    if nodes <= NODES_MAX {
        return Ok(());
    }
    let what = format!("with the views that it reads, it has more than {NODES_MAX} operators");
    Err(Fault::new(Blame::Limit, what).hint("keep what one of them gives as a table: CREATE TABLE … AS SELECT"))
}

/// The plan with other names for its first columns.
fn named(plan: LogicalPlan, names: &[String]) -> Result<LogicalPlan, Fault> {
    let count = plan.schema().fields().len();
    if names.len() > count {
        return Err(Fault::invalid(format!("it names {} columns, and its query has {count}", names.len())));
    }
    let mut columns = plan.schema().columns();
    let alone = columns.iter().map(|column| column.name.clone()).collect::<BTreeSet<_>>();
    if names.is_empty() {
        return match alone.len() == count {
            true => Ok(plan),
            false => Err(Fault::invalid("two columns of its query have one name").hint("name one of them anew: SELECT a AS b")),
        };
    }
    let kept = columns.split_off(names.len()).into_iter().map(Expr::Column);
    let renamed = columns.into_iter().zip(names).map(|(column, name)| Expr::Column(column).alias(name));
    let plan = LogicalPlanBuilder::from(plan).project(renamed.chain(kept)).and_then(LogicalPlanBuilder::build);
    plan.map_err(|error| fault_from_datafusion(error).of_kind(FaultKind::WrongName))
}

/// An error where a plan reads a view that cannot be planned.
pub(crate) fn refuse_broken(plan: &LogicalPlan) -> Result<(), Fault> {
    let mut broken = None;
    let looked = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(provider) = source_as_provider(&scan.source)
            && let Some(ViewTable { plan: Err(fault), .. }) = provider.downcast_ref::<ViewTable>()
        {
            broken = Some(fault.clone());
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    looked.map_err(fault_from_datafusion)?;
    broken.map_or(Ok(()), Err)
}

/// The columns of a plan as they are kept with its view.
pub(super) fn listed(plan: &LogicalPlan) -> SchemaRef {
    let fields = plan.schema().fields().iter().map(|field| field.as_ref().clone().with_metadata(Default::default()));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}
