//! What users' functions take: of each session, which is told, and of this process, by which sub-plans are sized.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, config_err};
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{Expr, Filter, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_plan::PhysicalExpr;
use parking_lot::Mutex;
use pithead_model::CallShare;

use crate::balanced::conjunction;

/// Nanoseconds of a core for a row of a function that nobody has measured yet.
const UNKNOWN_NS: f64 = 100.0;
/// Of so many rows older ones count half.
const ROWS_MAX: f64 = 1e6;
/// Functions that are known at most.
const FUNCTIONS_MAX: usize = 4_096;

/// Rows and nanoseconds of each function, by the name that says all that it is.
static KNOWN: LazyLock<Mutex<HashMap<String, (f64, f64)>>> = LazyLock::new(Mutex::default);

/// There is a user's function that plans call so.
pub fn announce_call(called: &str) {
    let mut known = KNOWN.lock();
    if known.len() >= FUNCTIONS_MAX && !known.contains_key(called) {
        known.clear();
    }
    known.entry(called.to_owned()).or_default();
}

/// What is known of a user's function; none: it is nobody's.
fn known(called: &str) -> Option<Known> {
    KNOWN.lock().get(called).map(|(rows, ns)| Known { ns_per_row: (*rows >= 1.0).then(|| ns / rows) })
}

/// A user's function.
struct Known {
    /// Nanoseconds of a core that a row takes; none: it was never measured.
    ns_per_row: Option<f64>,
}

/// Looks at each call of a function.
fn each_call(expr: &Expr, mut look: impl FnMut(&str)) {
    let _ = expr.apply(|part| {
        if let Expr::ScalarFunction(call) = part {
            look(call.func.name());
        }
        Ok(TreeNodeRecursion::Continue)
    });
}

fn calls_users(expr: &Expr) -> bool {
    let is_users = |part: &Expr| matches!(part, Expr::ScalarFunction(call) if known(call.func.name()).is_some());
    expr.exists(|part| Ok(is_users(part))).unwrap_or(true)
}

/// Nanoseconds that users' functions take for a row of an expression: as measured here, else as `told` by whoever asks, else a guess.
pub fn call_ns(expr: &Expr, told: &BTreeMap<String, f64>) -> f64 {
    let mut ns = 0.0;
    each_call(expr, |called| ns += ns_of(called, told));
    ns
}

/// The same of an expression that is about to run.
pub fn physical_call_ns(expr: &Arc<dyn PhysicalExpr>, told: &BTreeMap<String, f64>) -> f64 {
    let mut ns = 0.0;
    let _ = expr.apply(|part| {
        if let Some(call) = part.downcast_ref::<ScalarFunctionExpr>() {
            ns += ns_of(call.fun().name(), told);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    ns
}

fn ns_of(called: &str, told: &BTreeMap<String, f64>) -> f64 {
    let Some(known) = known(called) else { return 0.0 };
    known.ns_per_row.or_else(|| told.get(called).copied()).unwrap_or(UNKNOWN_NS)
}

/// Nanoseconds a row of the users' functions that a plan calls, as far as they were measured here.
pub fn measured_calls(plan: &LogicalPlan) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    let _ = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            each_call(expr, |called| {
                if let Some(ns) = known(called).and_then(|known| known.ns_per_row) {
                    found.insert(called.to_owned(), ns);
                }
            });
            Ok(TreeNodeRecursion::Continue)
        })
    });
    found
}

/// What users' functions took in one session, where they can find it.
#[derive(Clone, Debug, Default)]
pub struct SessionCalls(Arc<Mutex<BTreeMap<String, (u64, u64)>>>);

impl SessionCalls {
    /// Those that a session's settings carry; outside of any session, of nobody.
    pub fn of(options: &ConfigOptions) -> SessionCalls {
        options.extensions.get::<SessionCalls>().cloned().unwrap_or_default()
    }

    /// A call for so many rows took so long. `called`: how plans call the function that people know as `name`.
    pub fn took(&self, name: &str, called: &str, rows: usize, cpu: Duration) {
        let ns = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
        let mut all = self.0.lock();
        let sums = all.entry(name.to_owned()).or_default();
        *sums = (sums.0.saturating_add(rows as u64), sums.1.saturating_add(ns));
        drop(all);
        let mut known = KNOWN.lock();
        let Some((all_rows, all_ns)) = known.get_mut(called) else { return };
        if *all_rows > ROWS_MAX {
            (*all_rows, *all_ns) = (*all_rows / 2.0, *all_ns / 2.0);
        }
        (*all_rows, *all_ns) = (*all_rows + rows as f64, *all_ns + ns as f64);
    }

    /// The sums so far.
    pub fn sums(&self) -> Vec<CallShare> {
        let all = self.0.lock();
        all.iter()
            .map(|(function, (rows, cpu_ns))| CallShare { function: function.clone(), rows: *rows, cpu_ns: *cpu_ns })
            .collect()
    }
}

impl ConfigExtension for SessionCalls {
    const PREFIX: &'static str = "pithead_calls";
}

/// It has no settings.
impl ExtensionOptions for SessionCalls {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _value: &str) -> Result<()> {
        config_err!("there is no setting {key}")
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

/// Has conditions that call users' functions hold after all others: they cost a thousand times what a comparison does, and an AND looks
/// at the rest only where the first of its conditions hold.
#[derive(Debug)]
pub(crate) struct CallsLast;

impl OptimizerRule for CallsLast {
    fn name(&self) -> &'static str {
        "pithead_calls_last"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Filter(filter) if calls_users(&filter.predicate) => {
                let mut conditions = split_conjunction_owned(filter.predicate.clone());
                match (put_last(&mut conditions), conjunction(conditions)) {
                    (true, Some(predicate)) => {
                        Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?)))
                    }
                    _ => Ok(Transformed::no(LogicalPlan::Filter(filter))),
                }
            }
            LogicalPlan::TableScan(mut scan) => {
                let changed = put_last(&mut scan.filters);
                Ok(Transformed::new_transformed(LogicalPlan::TableScan(scan), changed))
            }
            plan => Ok(Transformed::no(plan)),
        }
    }
}

/// Whether that changed anything. Conditions of chance are asked of the rows that they were asked of.
fn put_last(conditions: &mut [Expr]) -> bool {
    let changes = !conditions.is_sorted_by_key(calls_users) && !conditions.iter().any(Expr::is_volatile);
    if changes {
        conditions.sort_by_key(calls_users);
    }
    changes
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;
    use datafusion::logical_expr::{ColumnarValue, LogicalPlanBuilder, ScalarUDF, Volatility, col, create_udf, lit};

    use super::*;

    fn function(name: &str) -> ScalarUDF {
        let same = Arc::new(|args: &[ColumnarValue]| Ok(args[0].clone()));
        create_udf(name, vec![DataType::Boolean], DataType::Boolean, Volatility::Immutable, same)
    }

    #[test]
    fn what_calls_take_is_known_and_they_come_last() {
        let (slow, other) = ("main.slow@1", function("other"));
        let call = function(slow).call(vec![col("a")]);
        assert_eq!((call_ns(&call, &BTreeMap::new()), calls_users(&call)), (0.0, false));
        announce_call(slow);
        assert_eq!(call_ns(&call, &BTreeMap::new()), UNKNOWN_NS);
        assert_eq!(call_ns(&call, &BTreeMap::from([(slow.to_owned(), 7.0)])), 7.0);
        let session = SessionCalls::default();
        session.took("main.slow", slow, 10, Duration::from_micros(1));
        session.took("main.slow", slow, 30, Duration::from_micros(7));
        assert_eq!(session.sums(), [CallShare { function: "main.slow".to_owned(), rows: 40, cpu_ns: 8_000 }]);
        assert_eq!(call_ns(&call, &BTreeMap::from([(slow.to_owned(), 7.0)])), 200.0);
        let cheap = other.call(vec![col("a")]);
        let condition = call.clone().and(cheap.clone()).and(col("a"));
        let values =
            LogicalPlanBuilder::values(vec![vec![lit(true)]]).unwrap().project(vec![col("column1").alias("a")]).unwrap();
        let plan = values.filter(condition).unwrap().build().unwrap();
        assert_eq!(measured_calls(&plan), BTreeMap::from([(slow.to_owned(), 200.0)]));
        let config = datafusion::optimizer::OptimizerContext::new();
        let rewritten = CallsLast.rewrite(plan, &config).unwrap();
        let LogicalPlan::Filter(filter) = &rewritten.data else { panic!("{}", rewritten.data) };
        assert!(rewritten.transformed);
        assert_eq!(split_conjunction_owned(filter.predicate.clone()), [cheap, col("a"), call]);
        assert!(!CallsLast.rewrite(rewritten.data, &config).unwrap().transformed);
    }
}
