//! [`with_codes`]: groups by few values, by their codes.
//!
//! The engine finds a row's group by a hash of the row's keys and by comparing them with those that it has seen. Where few groups
//! are expected, most rows have a group that was there a moment ago, and a look at the last ones finds it sooner.

mod aggregate;
mod combinations;
mod packed;

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, InputOrderMode};

use aggregate::CodedAggregateExec;
use combinations::KEYS_MAX;

/// Groups that are expected at most.
const GROUPS_MAX: usize = 256;
/// Rows that are expected at least.
const ROWS_MIN: usize = 10_000;

/// The plan with aggregates by codes where few groups are expected.
pub(crate) fn with_codes(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| match node.downcast_ref::<AggregateExec>() {
        Some(aggregate) if can_be_coded(aggregate) && has_few_groups(aggregate)? => {
            Ok(Transformed::yes(Arc::new(CodedAggregateExec::try_new(aggregate)?) as Arc<dyn ExecutionPlan>))
        }
        _ => Ok(Transformed::no(node)),
    })
    .data()
}

/// Whether the operator does no more than the coded one: all rows of one stream, in any order, to all groups by plain keys.
fn can_be_coded(aggregate: &AggregateExec) -> bool {
    let groups = aggregate.group_expr();
    let schema = aggregate.schema();
    let keys = schema.fields().iter().take(groups.expr().len());
    *aggregate.mode() == AggregateMode::Single
        && aggregate.input().output_partitioning().partition_count() == 1
        && groups.is_single()
        && !groups.has_grouping_set()
        && (1..=KEYS_MAX).contains(&groups.expr().len())
        && keys.map(|field| field.data_type()).all(is_codable)
        && aggregate.limit_options().is_none()
        && *aggregate.input_order_mode() == InputOrderMode::Linear
        && aggregate.required_input_ordering().iter().all(Option::is_none)
        && aggregate
            .aggr_expr()
            .iter()
            .all(|function| function.groups_accumulator_supported() && function.order_bys().is_empty())
}

fn is_codable(data_type: &DataType) -> bool {
    data_type.is_integer() || matches!(data_type, DataType::Utf8View | DataType::Date32)
}

/// Whether the statistics of the input promise few groups of many rows. One key of numbers has no need of codes.
fn has_few_groups(aggregate: &AggregateExec) -> Result<bool> {
    let groups = aggregate.group_expr().expr();
    let is_number = |index: usize| aggregate.schema().field(index).data_type() != &DataType::Utf8View;
    let columns: Option<Vec<usize>> = groups.iter().map(|(key, _)| key.downcast_ref::<Column>().map(Column::index)).collect();
    let Some(columns) = columns.filter(|columns| columns.len() > 1 || !is_number(0)) else { return Ok(false) };
    let statistics = StatisticsContext::new().compute(aggregate.input().as_ref(), &StatisticsArgs::new())?;
    let distinct = |column: &usize| statistics.column_statistics.get(*column)?.distinct_count.get_value().copied();
    let few = columns.iter().map(distinct).try_fold(1_usize, |all, some| some.map(|some| all.saturating_mul(some + 1)));
    let rows = statistics.num_rows.get_value().copied().unwrap_or(0);
    Ok(rows >= ROWS_MIN && few.is_some_and(|few| few <= GROUPS_MAX))
}
