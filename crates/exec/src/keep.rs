//! [`keep`]: the rows of a batch that a filter lets pass.

use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::compute::{concat, filter_record_batch};
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use pithead_functions::rows_at_once;

/// The rows for which the expression is true.
pub(crate) fn keep(batch: &RecordBatch, expr: &Arc<dyn PhysicalExpr>) -> Result<RecordBatch> {
    let mask = match rows_at_once(expr) {
        Some(rows) if rows < batch.num_rows() => {
            let pieces = (0..batch.num_rows()).step_by(rows).map(|first| {
                let piece = batch.slice(first, rows.min(batch.num_rows() - first));
                expr.evaluate(&piece)?.into_array(piece.num_rows())
            });
            let pieces = pieces.collect::<Result<Vec<_>>>()?;
            concat(&pieces.iter().map(AsRef::as_ref).collect::<Vec<_>>())?
        }
        _ => expr.evaluate(batch)?.into_array(batch.num_rows())?,
    };
    let Some(mask) = mask.as_boolean_opt() else {
        return datafusion::common::internal_err!("expected {expr} to be true or false, got {}", mask.data_type());
    };
    if keeps_all(mask) { Ok(batch.clone()) } else { Ok(filter_record_batch(batch, mask)?) }
}

fn keeps_all(mask: &BooleanArray) -> bool {
    mask.null_count() == 0 && mask.true_count() == mask.len()
}
