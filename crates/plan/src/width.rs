//! [`narrowed`]: batches of very many columns have fewer rows.

use std::sync::Arc;

use datafusion::execution::config::SessionConfig;
use datafusion::physical_plan::ExecutionPlan;

/// Columns up to which batches have all their rows.
const COLUMNS: usize = 256;
/// Fewest rows of a batch, however many columns it has.
const ROWS_MIN: usize = 64;

/// A configuration for running a plan under which batches of very many columns have fewer rows. Operators that put batches together
/// make room for a whole one of each column at once: of 2,000 columns of 8,192 rows, a repartitioning made room for 200 MB for each of
/// its outputs, mostly for few rows. Operators that take their batches' size while they are planned, such as filters, keep theirs.
pub fn narrowed(config: SessionConfig, plan: &Arc<dyn ExecutionPlan>) -> SessionConfig {
    let (rows, columns) = (config.batch_size(), widest(plan));
    match columns > COLUMNS && rows > ROWS_MIN {
        true => config.with_batch_size((rows.saturating_mul(COLUMNS) / columns).max(ROWS_MIN)),
        false => config,
    }
}

/// The most columns that an operator puts out.
fn widest(plan: &Arc<dyn ExecutionPlan>) -> usize {
    plan.children().into_iter().map(widest).max().unwrap_or(0).max(plan.schema().fields().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
    use datafusion::physical_plan::empty::EmptyExec;

    #[test]
    fn batches_of_many_columns_have_fewer_rows() {
        let rows = |columns: usize, asked: usize| {
            let fields: Vec<Field> = (0..columns).map(|at| Field::new(at.to_string(), DataType::Int8, true)).collect();
            let plan: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(Arc::new(Schema::new(fields))));
            let above: Arc<dyn ExecutionPlan> = Arc::new(CoalescePartitionsExec::new(plan));
            narrowed(SessionConfig::new().with_batch_size(asked), &above).batch_size()
        };
        assert_eq!([0, 1, 256].map(|columns| rows(columns, 8_192)), [8_192; 3]);
        assert_eq!((rows(512, 8_192), rows(2_048, 8_192), rows(100_000, 8_192)), (4_096, 1_024, 64));
        assert_eq!((rows(100_000, 7), rows(100_000, usize::MAX)), (7, usize::MAX / 100_000));
    }
}
