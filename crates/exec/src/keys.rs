//! Keys of joins, known once their build side is there: the other side's scan decodes them first, and nothing else of rows that no
//! key wants.
//!
//! The engine's own filters of joins are bounds, short lists, and otherwise its hash table, which costs as much to ask as the join.

use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray, downcast_integer_array};
use arrow::datatypes::{DataType, Date32Type, Schema};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{NullEquality, Result, Statistics, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::execution_plan::{CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::{StreamExt, stream};
use pithead_slice::KeySet;

use crate::scan::SliceScanExec;

/// Rows of a build side whose keys are collected at most.
const ROWS_MAX: usize = 4 << 20;

/// The plan, to be executed once, in which scans learn the keys of joins above them.
pub(crate) fn with_keys(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| match node.downcast_ref::<HashJoinExec>().map(taught).transpose()?.flatten() {
        Some(children) => {
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            Ok(Transformed::yes(node.replace_children(children, options)?))
        }
        None => Ok(Transformed::no(node)),
    })
    .data()
}

/// The join's inputs, the first of which tells its keys to scans of the second; none if no scan can use them.
fn taught(join: &HashJoinExec) -> Result<Option<Vec<Arc<dyn ExecutionPlan>>>> {
    let [filter] = &join.dynamic_expressions_produced()[..] else { return Ok(None) };
    let is_plain = join.null_equality() == NullEquality::NullEqualsNothing && !join.null_aware;
    let Some(filter) = filter.expression_id().filter(|_| is_plain) else { return Ok(None) };
    if join.left().output_partitioning().partition_count() != 1 {
        return Ok(None);
    }
    let schema = join.left().schema();
    let keys: Vec<Key> = join.on().iter().enumerate().filter_map(|(place, (key, _))| Key::of(place, key, &schema)).collect();
    let right = Arc::clone(join.right()).transform_up(|node| {
        let scan = node.downcast_ref::<SliceScanExec>().and_then(|scan| scan.with_keys(filter, &keys));
        Ok(match scan {
            Some(scan) => Transformed::yes(Arc::new(scan) as Arc<dyn ExecutionPlan>),
            None => Transformed::no(node),
        })
    })?;
    let left = KeysExec { input: Arc::clone(join.left()), keys };
    Ok(right.transformed.then(|| vec![Arc::new(left) as _, right.data]))
}

/// One of a join's keys.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    /// Its place among the join's keys.
    pub(crate) place: usize,
    /// Its column in the build side's rows.
    column: usize,
    pub(crate) data_type: DataType,
    pub(crate) keys: Arc<BuildKeys>,
}

impl Key {
    /// None: the key is no column of whole numbers.
    fn of(place: usize, key: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Self> {
        let column = key.downcast_ref::<Column>()?.index();
        let data_type = schema.field(column).data_type().clone();
        let is_whole = data_type.is_integer() || data_type == DataType::Date32;
        is_whole.then(|| Self { place, column, data_type, keys: Arc::default() })
    }
}

/// The keys of a join's build side, once all are there.
#[derive(Debug, Default)]
pub(crate) struct BuildKeys {
    known: OnceLock<Option<(Arc<KeySet>, MemoryReservation)>>,
}

impl BuildKeys {
    /// The keys; none: they are not there yet, or too many.
    pub(crate) fn known(&self) -> Option<Arc<KeySet>> {
        self.known.get()?.as_ref().map(|(keys, _)| Arc::clone(keys))
    }
}

/// Keys that come in.
struct Collected {
    /// None: they are too many, or memory is short.
    numbers: Option<Vec<i64>>,
    reservation: MemoryReservation,
}

impl Collected {
    fn add(&mut self, column: &ArrayRef) {
        let Some(numbers) = &mut self.numbers else { return };
        let is_room =
            numbers.len() + column.len() <= ROWS_MAX && self.reservation.try_grow(column.len() * size_of::<i64>()).is_ok();
        if !is_room || !push(numbers, column) {
            self.numbers = None;
            self.reservation.free();
        }
    }

    fn finish(mut self, keys: &BuildKeys) {
        let set = self.numbers.take().and_then(|numbers| KeySet::of(&numbers));
        // The set is smaller than the numbers it was made of, or as small as makes no difference.
        let known = set.filter(|set| self.reservation.try_resize(set.bytes()).is_ok());
        let _ = keys.known.set(known.map(|set| (Arc::new(set), self.reservation)));
    }
}

/// Adds a column's numbers, the low 64 bits of each, and no NULL. False: it has none.
fn push(numbers: &mut Vec<i64>, column: &ArrayRef) -> bool {
    macro_rules! push {
        ($array:expr) => {
            match $array.null_count() {
                0 => numbers.extend($array.values().iter().map(|number| *number as i64)),
                _ => numbers.extend($array.iter().flatten().map(|number| number as i64)),
            }
        };
    }
    downcast_integer_array!(
        column => push!(column),
        DataType::Date32 => push!(column.as_primitive::<Date32Type>()),
        _ => return false,
    );
    true
}

/// Hands on the rows of a join's build side, and tells their keys.
#[derive(Clone, Debug)]
struct KeysExec {
    input: Arc<dyn ExecutionPlan>,
    keys: Vec<Key>,
}

impl DisplayAs for KeysExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let schema = self.input.schema();
        let names: Vec<&str> = self.keys.iter().map(|key| schema.field(key.column).name().as_str()).collect();
        write!(f, "KeysExec: {}", names.join(", "))
    }
}

impl ExecutionPlan for KeysExec {
    fn name(&self) -> &str {
        "KeysExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([input]) = <[_; 1]>::try_from(children) else { return internal_err!("KeysExec has one child") };
        Ok(Arc::new(Self { input, ..Self::clone(&self) }))
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let collected = |key: &Key| {
            let reservation = MemoryConsumer::new("keys of a join").register(context.memory_pool());
            (key.clone(), Collected { numbers: Some(Vec::new()), reservation })
        };
        let collected: Vec<(Key, Collected)> = self.keys.iter().map(collected).collect();
        let rows = self.input.execute(partition, context)?;
        let rows = stream::unfold((rows, collected), |(mut rows, mut collected)| async move {
            match rows.next().await {
                Some(Ok(batch)) => {
                    collected.iter_mut().for_each(|(key, collected)| collected.add(batch.column(key.column)));
                    Some((Ok(batch), (rows, collected)))
                }
                Some(Err(error)) => Some((Err(error), (rows, Vec::new()))),
                None => {
                    collected.into_iter().for_each(|(key, collected)| collected.finish(&key.keys));
                    None
                }
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(&self, input_stats: &[Arc<Statistics>], _args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        Ok(Arc::clone(&input_stats[0]))
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}
