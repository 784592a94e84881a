//! [`ExtractedNames`]: no column gets the name of one that another engine extracted.
//!
//! DataFusion 55.2 computes fields of structs early, in columns that it numbers. It counts on from numbers that it finds in a plan's
//! own expressions, but not from those of columns that only come in: with a sub-plan that another engine has optimised before, or
//! with a table that was sent along. The rule comes before the one that extracts.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// What the names of columns start with that DataFusion 55.2 extracts.
pub const EXTRACTED_PREFIX: &str = "__datafusion_extracted_";

/// The rule.
#[derive(Debug)]
pub(crate) struct ExtractedNames;

impl OptimizerRule for ExtractedNames {
    fn name(&self) -> &'static str {
        "pithead_extracted_names"
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        plan.apply_with_subqueries(|node| {
            let names = node.schema().fields().iter().filter_map(|field| field.name().strip_prefix(EXTRACTED_PREFIX));
            names.filter_map(|number| number.parse().ok()).for_each(|number| config.alias_generator().update_min_id(number));
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(Transformed::no(plan))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StructArray};
    use arrow::datatypes::{DataType, Field};
    use datafusion::datasource::MemTable;
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    #[tokio::test]
    async fn columns_that_come_in_keep_their_names_to_themselves() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let of = |name: &str| {
            let fields = StructArray::from(vec![(Arc::new(Field::new("a", DataType::Int64, true)), Arc::clone(&numbers))]);
            let columns = [("id".to_owned(), Arc::clone(&numbers)), (name.to_owned(), Arc::clone(&numbers))];
            let columns = columns.into_iter().chain([("s".to_owned(), Arc::new(fields) as ArrayRef)]);
            let batch = RecordBatch::try_from_iter(columns).unwrap();
            Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap())
        };
        for number in 1..8 {
            let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
            context.register_table("t", of(&format!("__datafusion_extracted_{number}"))).unwrap();
            context.register_table("u", of("other")).unwrap();
            let sql = format!(
                "SELECT t.s['a'], u.s['a'], t.__datafusion_extracted_{number} FROM t FULL JOIN u ON t.id = u.id AND t.s['a'] = u.other \
                 WHERE u.s['a'] + t.s['a'] > 2"
            );
            let rows: usize = context.sql(&sql).await.unwrap().collect().await.unwrap().iter().map(RecordBatch::num_rows).sum();
            assert_eq!(rows, 2, "{number}");
        }
    }
}
