//! Whether a sub-plan's output is what was asked for, and rows under the names that were asked for.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use pithead_model::Fault;

use crate::ExecError;

/// Compares an output with what is expected, by position and type.
pub(crate) fn check(found: &Schema, expected: &Schema) -> Result<(), ExecError> {
    if found.fields().len() != expected.fields().len() {
        return Err(ExecError::Columns { found: found.fields().len(), expected: expected.fields().len() });
    }
    for (position, (found, expected)) in found.fields().iter().zip(expected.fields()).enumerate() {
        if found.data_type() != expected.data_type() {
            return Err(ExecError::Type {
                position,
                name: expected.name().clone(),
                found: found.data_type().to_string(),
                expected: expected.data_type().to_string(),
            });
        }
    }
    Ok(())
}

/// The same rows with the expected schema's names and nullability.
pub(crate) fn conform(rows: SendableRecordBatchStream, schema: &SchemaRef) -> SendableRecordBatchStream {
    let expected = Arc::clone(schema);
    let renamed = rows.map(move |batch| {
        let batch = batch?;
        rename(&batch, &expected).map_err(|error| DataFusionError::External(Box::new(Fault::from(error))))
    });
    Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), renamed))
}

pub(crate) fn rename(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ExecError> {
    check(batch.schema_ref(), schema)?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), batch.columns().to_vec(), &options)
        .map_err(|error| ExecError::Rows(error.to_string()))
}
