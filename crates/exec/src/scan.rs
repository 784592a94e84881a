//! [`SliceScanExec`]: the leaf of a physical plan that reads slices.

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_expr_common::physical_expr::{is_volatile, snapshot_generation};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

use crate::ExecError;
use crate::keys::{BuildKeys, Key};
use crate::pruning::{conjuncts, move_columns};
use crate::read::{ReadPlan, Reading};
use crate::round::Round;
use crate::table::Feed;

/// Reads columns of a part's slices in one stream, and gives the rows that satisfy all conditions.
#[derive(Clone, Debug)]
pub(crate) struct SliceScanExec {
    plan: ReadPlan,
    /// Filters of operators above, over the part's columns. Rows that do not satisfy one may be left out.
    moving: Vec<Arc<dyn PhysicalExpr>>,
    /// Keys of joins above, one of which every row that they want has.
    keys: Vec<(usize, Arc<BuildKeys>)>,
    properties: Arc<PlanProperties>,
}

impl SliceScanExec {
    pub(crate) fn try_new(plan: ReadPlan) -> Result<Self> {
        let schema = Arc::new(plan.part.schema.project(&plan.columns)?);
        // A task takes the slices of a round one after the other, too.
        let order = plan.part.order.and_then(|(column, options)| {
            let index = plan.columns.iter().position(|known| *known == column)?;
            let sorted = Column::new(schema.field(index).name(), index);
            Some(vec![PhysicalSortExpr::new(Arc::new(sorted), options)])
        });
        let properties = PlanProperties::new(
            EquivalenceProperties::new_with_orderings(schema, order),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Self { plan, moving: vec![], keys: vec![], properties: Arc::new(properties) })
    }

    /// The scan with the keys of the join that made a filter; none if it lacks that filter, or is of no use for any key.
    pub(crate) fn with_keys(&self, filter: u64, keys: &[Key]) -> Option<Self> {
        let made = self.moving.iter().find(|moving| moving.expression_id() == Some(filter))?;
        // The filter is over the columns that are the join's keys, in their order.
        let columns = made.children();
        let known = keys.iter().filter_map(|key| {
            let column = columns.get(key.place)?.downcast_ref::<Column>()?.index();
            (*self.plan.part.schema.field(column).data_type() == key.data_type).then(|| (column, Arc::clone(&key.keys)))
        });
        let known: Vec<(usize, Arc<BuildKeys>)> = known.collect();
        let keys = self.keys.iter().cloned().chain(known.iter().cloned()).collect();
        (!known.is_empty()).then(|| Self { keys, ..self.clone() })
    }

    /// Takes over a filter over the output's columns. False: it cannot.
    fn take_over(&mut self, filter: &Arc<dyn PhysicalExpr>) -> Result<bool> {
        let moves = snapshot_generation(filter) != 0 || filter.downcast_ref::<DynamicFilterPhysicalExpr>().is_some();
        if is_volatile(filter) || (self.plan.part.prune_only && !moves) {
            return Ok(false);
        }
        let Some(filter) = move_columns(filter, &|column| self.plan.columns.get(column).copied())? else { return Ok(false) };
        if moves {
            self.moving.push(filter);
        } else {
            self.plan.conditions.extend(conjuncts(&filter, &self.plan.part.schema));
        }
        // A moving filter need not be applied: whoever made it applies it, too.
        Ok(!moves)
    }
}

impl DisplayAs for SliceScanExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let ReadPlan { part, columns, conditions, .. } = &self.plan;
        let names: Vec<&str> = columns.iter().map(|column| part.schema.field(*column).name().as_str()).collect();
        write!(f, "SliceScanExec: {} columns=[{}]", part.name, names.join(", "))?;
        let verb = if part.prune_only { "pruned by" } else { "filter" };
        if !conditions.is_empty() {
            let filters: Vec<String> = conditions.iter().map(|condition| condition.expr.to_string()).collect();
            write!(f, " {verb}=[{}]", filters.join(" AND "))?;
        }
        match self.moving.is_empty() {
            true => Ok(()),
            false => write!(f, " dynamic={}", self.moving.len()),
        }
    }
}

impl ExecutionPlan for SliceScanExec {
    fn name(&self) -> &str {
        "SliceScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for expr in self.plan.conditions.iter().map(|condition| &condition.expr).chain(&self.moving) {
            if f(expr)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("a scan of slices has no children") }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("a scan of slices has no children") }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("a scan of slices has one partition, not {partition}");
        }
        let Some(round) = context.session_config().get_extension::<Round>() else {
            return Err(DataFusionError::External(Box::new(pithead_model::Fault::from(ExecError::NoRound))));
        };
        Ok(Reading::new(self.plan.clone(), round, self.moving.clone(), self.keys.clone()).stream(self.schema()))
    }

    fn statistics_from_inputs(&self, _input_stats: &[Arc<Statistics>], _args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let ReadPlan { part, feed, columns, conditions, logical, .. } = &self.plan;
        let conditions = if part.prune_only { &[] } else { conditions.as_slice() };
        // A round sees a part of the slices, so nothing may be answered from statistics in place of its scan.
        let whole = *feed == Feed::All && conditions.is_empty() && self.moving.is_empty();
        Ok(part.facts.statistics(&part.schema, columns, conditions, *logical, whole))
    }

    fn handle_child_pushdown_result(
        &self,
        _phase: FilterPushdownPhase,
        child_pushdown_result: ChildPushdownResult,
        _config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let mut scan = self.clone();
        let mut taken = Vec::with_capacity(child_pushdown_result.parent_filters.len());
        for filter in &child_pushdown_result.parent_filters {
            taken.push(if scan.take_over(&filter.filter)? { PushedDown::Yes } else { PushedDown::No });
        }
        let changed = scan.plan.conditions.len() + scan.moving.len() > self.plan.conditions.len() + self.moving.len();
        let result = FilterPushdownPropagation::with_parent_pushdown_result(taken);
        Ok(if changed { result.with_updated_node(Arc::new(scan) as Arc<dyn ExecutionPlan>) } else { result })
    }
}
