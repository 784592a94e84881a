//! Summaries of a slice's columns: bounds, nulls and distinct values.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use pithead_model::{ColumnSummary, merge_columns};

use crate::ColumnSketches;
use crate::bounds::bounds;

/// The summary of each column over all the batches, which have the dataset's types: exact bounds (texts and bytes
/// longer than [`pithead_model::BOUND_BYTES_MAX`] are cut, outwards), the number of nulls, and an estimate of the
/// number of distinct values.
pub fn summarise(schema: &SchemaRef, batches: &[RecordBatch]) -> Vec<ColumnSummary> {
    let mut sketches = ColumnSketches::new(schema.fields().len());
    batches.iter().for_each(|batch| sketches.update(batch));
    let mut columns = bounds_of(schema, batches);
    with_distinct(&mut columns, &sketches);
    columns
}

/// The same without the number of distinct values.
pub fn bounds_of(schema: &SchemaRef, batches: &[RecordBatch]) -> Vec<ColumnSummary> {
    let parts: Vec<Vec<ColumnSummary>> = batches.iter().map(|batch| batch.columns().iter().map(bounds).collect()).collect();
    let mut columns = merge_columns(parts.iter().map(Vec::as_slice));
    columns.resize(schema.fields().len(), ColumnSummary { exact: true, ..Default::default() });
    columns
}

/// Fills in the distinct values.
pub(crate) fn with_distinct(columns: &mut [ColumnSummary], sketches: &ColumnSketches) {
    for (column, distinct) in columns.iter_mut().zip(sketches.estimates()) {
        column.distinct = distinct;
    }
}
