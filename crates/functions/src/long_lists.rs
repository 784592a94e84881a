//! Rows with long lists as several rows, each with a part of the lists, for an operator that makes rows of them.
//!
//! The engine makes all rows of a list at once, and repeats the other columns beside each (DataFusion 55.2): a list of a million numbers
//! beside a text of a megabyte would be a terabyte.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, GenericListArray, OffsetSizeTrait, RecordBatch};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::DataType;
use datafusion::common::{Result, internal_err};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::unnest::UnnestExec;
use futures::{StreamExt, TryStreamExt, stream};

/// Bytes of what is repeated beside the values of lists, at a time.
const REPEATED_BYTES_MAX: usize = 16 << 20;
/// Values of lists that become rows at a time.
const ROWS_MAX: usize = 64 << 10;

/// The columns of an operator's input whose lists it makes rows of, and may be handed in parts; none: they may not.
pub(crate) fn lists_in_parts(unnest: &UnnestExec) -> Option<Arc<[usize]>> {
    let lists = unnest.list_column_indices();
    // Parts of lists of lists would not be beside the same values of other lists.
    if lists.is_empty() || lists.iter().any(|list| list.depth != 1) {
        return None;
    }
    let mut columns: Vec<usize> = lists.iter().map(|list| list.index_in_input_schema).collect();
    columns.dedup();
    Some(columns.into())
}

/// The same rows in their order, those with long lists in these columns in parts.
pub(crate) fn in_parts(input: SendableRecordBatchStream, columns: Arc<[usize]>) -> SendableRecordBatchStream {
    let schema = input.schema();
    let parts = input.map_ok(move |batch| stream::iter(Parts::new(batch, Arc::clone(&columns)))).try_flatten();
    Box::pin(RecordBatchStreamAdapter::new(schema, parts.boxed()))
}

/// The rows of a batch as parts that do not become too much.
struct Parts {
    batch: RecordBatch,
    columns: Arc<[usize]>,
    /// The row that comes next.
    row: usize,
    /// How many values of its lists were handed on already.
    values: usize,
    /// Whether all rows may be handed on as they are.
    is_small: bool,
}

impl Parts {
    fn new(batch: RecordBatch, columns: Arc<[usize]>) -> Self {
        let longest = (0..batch.num_rows()).map(|row| longest(&batch, &columns, row)).max().unwrap_or_default();
        let is_small = longest <= ROWS_MAX && repeated_bytes(&batch, &columns).saturating_mul(longest) <= REPEATED_BYTES_MAX;
        Self { batch, columns, row: 0, values: 0, is_small }
    }

    /// Values that a row's lists have, the longest of them, and how many of these may be rows at once.
    fn of_row(&self, row: usize) -> (usize, usize) {
        let bytes = repeated_bytes(&self.batch.slice(row, 1), &self.columns).max(1);
        (longest(&self.batch, &self.columns, row), (REPEATED_BYTES_MAX / bytes).clamp(1, ROWS_MAX))
    }

    /// The part of the next row's lists that comes next.
    fn part(&mut self, all: usize, at_once: usize) -> Result<RecordBatch> {
        let row = self.batch.slice(self.row, 1);
        let mut arrays = row.columns().to_vec();
        for column in &*self.columns {
            arrays[*column] = part_of(&arrays[*column], self.values, at_once)?;
        }
        self.values += at_once;
        if self.values >= all {
            (self.row, self.values) = (self.row + 1, 0);
        }
        Ok(RecordBatch::try_new(row.schema(), arrays)?)
    }
}

impl Iterator for Parts {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let (first, rows) = (self.row, self.batch.num_rows());
        if self.is_small {
            self.row = rows;
            return (first < rows).then(|| Ok(self.batch.slice(first, rows - first)));
        }
        let mut bytes = 0_usize;
        while self.row < rows {
            let (all, at_once) = self.of_row(self.row);
            bytes = bytes.saturating_add(all.saturating_mul(REPEATED_BYTES_MAX / at_once));
            if bytes > REPEATED_BYTES_MAX {
                // A row that is too much by itself is handed on in parts, after those before it.
                return Some(match self.row == first {
                    true => self.part(all, at_once),
                    false => Ok(self.batch.slice(first, self.row - first)),
                });
            }
            self.row += 1;
        }
        (first < rows).then(|| Ok(self.batch.slice(first, rows - first)))
    }
}

/// The values of a row's longest list.
fn longest(batch: &RecordBatch, columns: &[usize], row: usize) -> usize {
    let values = columns.iter().map(|column| {
        let lists = batch.column(*column);
        match lists.data_type() {
            _ if lists.is_null(row) => 0,
            DataType::List(_) => lists.as_list::<i32>().value_length(row) as usize,
            DataType::LargeList(_) => lists.as_list::<i64>().value_length(row) as usize,
            // Others are as short as their type says, or have no part that is cheap to make.
            _ => 0,
        }
    });
    values.max().unwrap_or_default()
}

/// Bytes of what is repeated beside the values of lists.
fn repeated_bytes(batch: &RecordBatch, lists: &[usize]) -> usize {
    let others = batch.columns().iter().enumerate().filter(|(column, _)| !lists.contains(column));
    others.map(|(_, array)| array.to_data().get_slice_memory_size().unwrap_or_default()).sum()
}

/// The same list with a part of its values, or with none where it is not as long.
fn part_of(list: &ArrayRef, from: usize, values: usize) -> Result<ArrayRef> {
    fn part<O: OffsetSizeTrait>(list: &GenericListArray<O>, from: usize, values: usize) -> Result<ArrayRef> {
        let (DataType::List(field) | DataType::LargeList(field)) = list.data_type() else { return internal_err!("no list") };
        let all = list.value(0);
        let from = from.min(all.len());
        let part = all.slice(from, values.min(all.len() - from));
        let offsets = OffsetBuffer::<O>::from_lengths([part.len()]);
        Ok(Arc::new(GenericListArray::<O>::try_new(Arc::clone(field), offsets, part, list.nulls().cloned())?))
    }
    match list.data_type() {
        DataType::List(_) => part(list.as_list::<i32>(), from, values),
        DataType::LargeList(_) => part(list.as_list::<i64>(), from, values),
        _ => Ok(Arc::clone(list)),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, ListBuilder, StringArray, StringBuilder};
    use arrow::datatypes::{Field, Schema};
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::{EngineOptions, session_state};

    /// Rows of a text of so many bytes beside a list of so many texts; none: NULL.
    fn batch(rows: &[(usize, Option<usize>)]) -> RecordBatch {
        let texts: StringArray = rows.iter().map(|(bytes, _)| Some("x".repeat(*bytes))).collect();
        let mut lists = ListBuilder::new(StringBuilder::new());
        for (_, values) in rows {
            (0..values.unwrap_or_default()).for_each(|value| lists.values().append_value(value.to_string()));
            lists.append(values.is_some());
        }
        let numbers = Int64Array::from_iter_values(0..rows.len() as i64);
        let list = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
        let fields = [("text", DataType::Utf8), ("list", list), ("number", DataType::Int64)];
        let schema = Schema::new(fields.map(|(name, of)| Field::new(name, of, true)).to_vec());
        RecordBatch::try_new(Arc::new(schema), vec![Arc::new(texts), Arc::new(lists.finish()), Arc::new(numbers)]).unwrap()
    }

    /// Rows of each part, and the values of their lists.
    fn parts(rows: &[(usize, Option<usize>)]) -> Vec<(Vec<i64>, usize)> {
        let parts = Parts::new(batch(rows), [1].into()).map(|part| {
            let part = part.unwrap();
            let numbers = part.column(2).as_primitive::<arrow::datatypes::Int64Type>();
            let lists = part.column(1).as_list::<i32>();
            (numbers.values().to_vec(), (0..part.num_rows()).map(|row| lists.value_length(row) as usize).sum())
        });
        parts.collect()
    }

    #[test]
    fn rows_that_become_too_much_are_parted() {
        let mib = 1 << 20;
        assert_eq!(parts(&[]), []);
        assert_eq!(parts(&[(9, Some(3)), (9, None), (9, Some(0))]), [(vec![0, 1, 2], 3)]);
        let long = parts(&[(9, Some(3)), (1, Some(2 * ROWS_MAX + 1)), (9, None)]);
        assert_eq!(long, [(vec![0], 3), (vec![1], ROWS_MAX), (vec![1], ROWS_MAX), (vec![1], 1), (vec![2], 0)]);
        // 7 rows at once, of a little more than 2 MiB each; 7 of 8 together are one part.
        let wide = parts(&[(2 * mib, Some(8)), (2 * mib, Some(4)), (2 * mib, Some(3)), (2 * mib, Some(1)), (mib, None)]);
        assert_eq!(wide, [(vec![0], 7), (vec![0], 1), (vec![1, 2], 7), (vec![3, 4], 1)]);
    }

    #[test]
    fn shorter_lists_beside_a_long_one_end_before_it() {
        let lists = batch(&[(1, Some(5))]).column(1).clone();
        let values = |from| part_of(&lists, from, 3).unwrap().as_list::<i32>().value(0).len();
        assert_eq!([values(0), values(3), values(6)], [3, 2, 0]);
        let none = batch(&[(1, None)]).column(1).clone();
        assert!(part_of(&none, 6, 3).unwrap().is_null(0));
    }

    #[tokio::test]
    async fn rows_of_long_lists_are_the_same() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let sql = "SELECT count(*), sum(a), sum(b), count(b), sum(length(t)) FROM \
                   (SELECT repeat('x', 3000) AS t, unnest(range(0, 200000)) AS a, unnest(range(0, 70000)) AS b)";
        let found = context.sql(sql).await.unwrap().collect().await.unwrap();
        let values: Vec<i64> = found[0]
            .columns()
            .iter()
            .map(|column| arrow::compute::cast(column, &DataType::Int64).unwrap())
            .map(|column| column.as_primitive::<arrow::datatypes::Int64Type>().value(0))
            .collect();
        assert_eq!(values, [200_000, 19_999_900_000, 2_449_965_000, 70_000, 600_000_000]);
    }
}
