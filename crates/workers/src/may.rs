//! What a plan may hold that travels. A coordinator asks so as to send nothing that a worker would run in another way, and a worker so
//! as to run nothing that reaches beyond its drives, such as a scan of its own files.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::physical_expr::window::{StandardWindowExpr, WindowExpr};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec, WindowUDFExpr};
use pithead_functions::{EngineOptions, Registry, session_state, unnamed_functions};

/// Operators whose meaning travels whole.
const OPERATORS: &[&str] = &[
    "AggregateExec",
    "AnyOrderExec",
    "BoundedWindowAggExec",
    "BroadcastExec",
    "ChildrenIsolatorUnionExec",
    "CoalesceBatchesExec",
    "CoalescePartitionsExec",
    "CooperativeExec",
    "CrossJoinExec",
    "DataSourceExec",
    "EmptyExec",
    "FilterExec",
    "GlobalLimitExec",
    "HashJoinExec",
    "LocalLimitExec",
    "NestedLoopJoinExec",
    "NetworkBroadcastExec",
    "NetworkCoalesceExec",
    "NetworkShuffleExec",
    "PlaceholderRowExec",
    "ProjectionExec",
    "RemoteScanExec",
    "RepartitionExec",
    "SortExec",
    "SortExec(TopK)",
    "SortMergeJoinExec",
    "SortPreservingMergeExec",
    "UnionExec",
    "UnnestExec",
    "WindowAggExec",
];

/// Window functions whose calls travel whole. Of others, IGNORE NULLS or FILTER are lost on the way.
const RANKS: &[&str] = &["cume_dist", "dense_rank", "ntile", "percent_rank", "rank", "row_number"];

/// The functions that both ends have.
pub(crate) struct Functions {
    state: SessionState,
    announced: Vec<String>,
}

impl Functions {
    pub(crate) fn new(functions: &Arc<Registry>) -> Self {
        let mut state = session_state(&EngineOptions { functions: Arc::clone(functions), ..EngineOptions::default() });
        register(&mut state);
        Self { state, announced: functions.announced().to_vec() }
    }

    /// Those beyond the engine's own, as they are announced.
    pub(crate) fn announced(&self) -> &[String] {
        &self.announced
    }

    /// Why a plan does not travel; none: it does.
    pub(crate) fn refusal(&self, plan: &Arc<dyn ExecutionPlan>) -> Option<String> {
        let mut why = None;
        let walked = plan.apply(|node| {
            why = self.refusal_of(node);
            Ok(if why.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        });
        why.or_else(|| walked.err().map(|error| error.to_string()))
    }

    fn refusal_of(&self, node: &Arc<dyn ExecutionPlan>) -> Option<String> {
        if !OPERATORS.contains(&node.name()) {
            return Some(format!("the operator {} does not travel", node.name()));
        }
        if node.is::<DataSourceExec>() && !is_memory(node) {
            return Some("workers read from drives only".to_owned());
        }
        if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
            let mut functions = aggregate.aggr_expr().iter().map(|call| call.fun());
            let other = functions.find(|own| self.state.udaf(own.name()).ok().is_none_or(|known| *known != **own));
            if let Some(other) = other {
                return Some(format!("workers do not have the function {}", other.name()));
            }
        }
        if let Some(other) = calls(node).iter().find(|call| !self.is_rank(call)) {
            return Some(format!("the window function {} does not travel whole", other.name()));
        }
        let mut other = None;
        let walked = node.apply_expressions(&mut |expr| {
            expr.apply(|part| {
                other = other.take().or_else(|| self.unknown(part));
                Ok(if other.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })
        });
        let other = other.map(|name| format!("workers do not have the function {name}"));
        other.or_else(|| walked.err().map(|error| error.to_string()))
    }

    fn is_rank(&self, call: &Arc<dyn WindowExpr>) -> bool {
        let standard = call.as_any().downcast_ref::<StandardWindowExpr>().map(StandardWindowExpr::get_standard_func_expr);
        let Some(own) = standard.and_then(|standard| standard.as_any().downcast_ref::<WindowUDFExpr>()) else { return false };
        let fun = own.fun();
        RANKS.contains(&fun.name()) && self.state.udwf(fun.name()).is_ok_and(|known| *known == **fun)
    }

    fn unknown(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<String> {
        let call = expr.downcast_ref::<ScalarFunctionExpr>()?;
        let is_known = self.state.udf(call.fun().name()).is_ok_and(|known| *known == *call.fun());
        (!is_known).then(|| call.fun().name().to_owned())
    }
}

/// The calls of window functions of an operator.
fn calls(node: &Arc<dyn ExecutionPlan>) -> &[Arc<dyn WindowExpr>] {
    let bounded = node.downcast_ref::<BoundedWindowAggExec>().map(BoundedWindowAggExec::window_expr);
    bounded.or_else(|| node.downcast_ref::<WindowAggExec>().map(WindowAggExec::window_expr)).unwrap_or_default()
}

/// Adds the functions that plans about to run call.
pub(crate) fn register(state: &mut SessionState) {
    for function in unnamed_functions() {
        // It replaces none: no function that SQL can call has such a name.
        let _ = state.register_udf(Arc::new(function));
    }
}

/// Whether the rows of a source are in the plan.
fn is_memory(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.downcast_ref::<DataSourceExec>().is_some_and(|source| source.data_source().is::<MemorySourceConfig>())
}
