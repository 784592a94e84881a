//! The order that rows of a part come in, where its slices show that it holds over all of them.

use std::cmp::Ordering;

use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Schema};
use pithead_model::{ColumnSummary, SortKey, Value};

use crate::SliceRef;

/// The column by which all rows of a part are sorted, read slice by slice, and how; none where that is not certain.
///
/// Rows are sorted within each run. Over slices it holds where none begins before the one before it ends, which exact bounds tell.
/// Only the first column of the order is looked at. Floats have orders that differ over NaN and zeros, and NULLs no bounds.
pub(crate) fn order_of(schema: &Schema, sort: &[SortKey], slices: &[SliceRef]) -> Option<(usize, SortOptions)> {
    let key = sort.first()?;
    let column = schema.index_of(&key.column).ok()?;
    if !has_one_order(schema.field(column).data_type()) {
        return None;
    }
    let mut bounds: Vec<(&Value, &Value)> = Vec::with_capacity(slices.len());
    for slice in slices {
        let summary = slice.entry.columns.get(column).filter(|summary| summary.exact && has_no_nulls(summary))?;
        bounds.push((summary.min.as_ref()?, summary.max.as_ref()?));
    }
    let follows = |pair: &[(&Value, &Value)]| match (pair, key.descending) {
        ([(_, before), (after, _)], false) => before.compare(after).is_some_and(Ordering::is_le),
        ([(before, _), (_, after)], true) => before.compare(after).is_some_and(Ordering::is_ge),
        _ => false,
    };
    // NULL is the largest value; there is none here.
    let options = SortOptions { descending: key.descending, nulls_first: key.descending };
    bounds.windows(2).all(follows).then_some((column, options))
}

fn has_no_nulls(summary: &ColumnSummary) -> bool {
    summary.nulls == 0 && !summary.nulls_unknown
}

fn has_one_order(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(data_type, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) | DataType::Decimal128(..))
}
