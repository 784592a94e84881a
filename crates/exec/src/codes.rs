//! [`with_codes`]: groups by few values, or by whole numbers, by their codes.
//!
//! The engine finds a row's group by a hash of the row's keys and by comparing them with those that it has seen. Where few groups
//! are expected, most rows have a group that was there a moment ago, and a look at the last ones finds it sooner. Where the key is one
//! whole number, a table of 32 bits a group is enough, and the engine keeps four times as many.

mod aggregate;
mod combinations;
mod groups;
mod numbers;
mod overflow;
mod packed;

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
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

/// The plan with aggregates by codes where few groups are expected, or the key is one whole number.
pub(crate) fn with_codes(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| match node.downcast_ref::<AggregateExec>() {
        Some(aggregate) if can_be_coded(aggregate) && is_worth_it(aggregate)? => {
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

/// Whether the statistics of the input promise many rows, and few groups where the key is not one whole number.
fn is_worth_it(aggregate: &AggregateExec) -> Result<bool> {
    let groups = aggregate.group_expr().expr();
    let statistics = StatisticsContext::new().compute(aggregate.input().as_ref(), &StatisticsArgs::new())?;
    let rows = statistics.num_rows.get_value().copied();
    if is_whole_number(&aggregate.schema(), groups.len()) {
        return Ok(rows.is_none_or(|rows| rows >= ROWS_MIN));
    }
    let columns: Option<Vec<usize>> = groups.iter().map(|(key, _)| key.downcast_ref::<Column>().map(Column::index)).collect();
    let Some(columns) = columns else { return Ok(false) };
    let distinct = |column: &usize| statistics.column_statistics.get(*column)?.distinct_count.get_value().copied();
    let few = columns.iter().map(distinct).try_fold(1_usize, |all, some| some.map(|some| all.saturating_mul(some + 1)));
    Ok(rows.is_some_and(|rows| rows >= ROWS_MIN) && few.is_some_and(|few| few <= GROUPS_MAX))
}

/// Whether the first columns of a schema, which are the keys, are one of whole numbers or days.
fn is_whole_number(schema: &Schema, keys: usize) -> bool {
    keys == 1 && schema.field(0).data_type() != &DataType::Utf8View
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringViewArray};
    use arrow::compute::concat_batches;
    use arrow::util::pretty::pretty_format_batches;
    use datafusion::datasource::MemTable;
    use datafusion::execution::context::SessionContext;
    use datafusion::execution::memory_pool::FairSpillPool;
    use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
    use datafusion::physical_plan::{collect, displayable};
    use pithead_functions::{EngineOptions, session_state};

    use super::*;

    /// 120,000 rows of 60,000 numbers and NULL, of which the last are as wide as a decimal can be.
    fn rows() -> MemTable {
        let batches = (0..12_i64).map(|batch| {
            let rows = (0..10_000_i64).map(move |row| batch * 10_000 + row);
            let keys: Int64Array = rows.clone().map(|row| (row % 997 != 0).then_some(row * 7_919 % 60_000)).collect();
            let wide = |row: i64| if row > 110_000 && row % 3 == 0 { i128::from(i64::MAX) * 9 } else { i128::from(row % 100) };
            let prices: Decimal128Array = rows.clone().map(|row| (row % 13 != 0).then(|| wide(row))).collect();
            let texts: StringViewArray = rows.map(|row| Some(format!("text number {}", row * 31 % 1_009))).collect();
            RecordBatch::try_from_iter([
                ("k", Arc::new(keys) as ArrayRef),
                ("p", Arc::new(prices.with_precision_and_scale(30, 2).unwrap())),
                ("t", Arc::new(texts)),
            ])
            .unwrap()
        });
        let batches: Vec<RecordBatch> = batches.collect();
        MemTable::try_new(batches[0].schema(), vec![batches]).unwrap()
    }

    /// The rows in order, and whether groups have codes.
    async fn answer(sql: &str, runtime: Arc<RuntimeEnv>, coded: bool) -> Result<String> {
        let context = SessionContext::new_with_state(session_state(&EngineOptions { runtime, ..EngineOptions::default() }));
        context.register_table("t", Arc::new(rows())).unwrap();
        let mut plan = context.sql(sql).await?.create_physical_plan().await?;
        if coded {
            plan = with_codes(plan)?;
            assert!(displayable(plan.as_ref()).indent(false).to_string().contains("CodedAggregateExec"), "{sql}");
        }
        let schema = plan.schema();
        let found = collect(plan, context.task_ctx()).await?;
        let found = concat_batches(&schema, &found)?;
        let text = pretty_format_batches(&[found])?.to_string();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        Ok(lines.join("\n"))
    }

    #[tokio::test]
    async fn groups_that_do_not_fit_are_merged() {
        // With less than 2 MB, the engine's own aggregate fails, too.
        for (key, memory) in
            [("k", 4_000_000), ("k", 2_000_000), ("arrow_cast(k, 'UInt32')", 2_500_000), ("arrow_cast(k, 'Date32')", 3_000_000)]
        {
            let sql = format!(
                "SELECT {key} AS g, count(*) AS n, sum(p) AS s, min(p) AS low, avg(p) AS mean, sum(k) FILTER (WHERE p > 50) AS some \
                 FROM t GROUP BY g"
            );
            let engine = answer(&sql, Arc::new(RuntimeEnv::default()), false).await.unwrap();
            assert!(engine.lines().count() > 50_000, "{}", engine.lines().count());
            let pool = || Arc::new(FairSpillPool::new(memory));
            let small = RuntimeEnvBuilder::new().with_memory_pool(pool()).build_arc().unwrap();
            assert!(engine == answer(&sql, Arc::new(RuntimeEnv::default()), true).await.unwrap(), "{sql} in memory");
            assert!(engine == answer(&sql, small, true).await.unwrap(), "{sql} within {memory} bytes");
        }
    }

    #[tokio::test]
    async fn groups_by_texts_that_do_not_fit_are_merged() {
        let sql = "SELECT t, k % 3 AS m, count(*) AS n, sum(p) AS s FROM t GROUP BY t, m";
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        context.register_table("t", Arc::new(rows())).unwrap();
        let plan = context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let mut node = &plan;
        while node.downcast_ref::<AggregateExec>().is_none() {
            node = node.children()[0];
        }
        let aggregate = node.downcast_ref::<AggregateExec>().unwrap();
        assert!(can_be_coded(aggregate));
        let coded = Arc::new(CodedAggregateExec::try_new(aggregate).unwrap());
        let rows = async |memory: usize| {
            let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(FairSpillPool::new(memory))).build_arc().unwrap();
            let context = SessionContext::new_with_config_rt(Default::default(), runtime);
            let found = collect(Arc::clone(&coded) as Arc<dyn ExecutionPlan>, context.task_ctx()).await.unwrap();
            let mut lines: Vec<String> =
                pretty_format_batches(&found).unwrap().to_string().lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        let whole = rows(usize::MAX / 4).await;
        assert!(whole.len() > 3_000);
        assert_eq!(whole, rows(700_000).await);
    }
}
