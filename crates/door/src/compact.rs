//! Batches that hold no more memory than their rows need.
//!
//! A filter or slice of a large batch shares the large batch's buffers. That keeps them alive for as long as the small
//! batch waits in a queue, and IPC writes all data buffers of a view array, used or not.

use std::collections::HashSet;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, BinaryViewArray, GenericByteArray, GenericListArray, MutableArrayData,
    OffsetSizeTrait, RecordBatch, RecordBatchOptions, StringViewArray, make_array,
};
use arrow::datatypes::{ByteArrayType, DataType};
use std::sync::Arc;

/// Waste that is not worth a copy, in bytes.
const SLACK_BYTES: usize = 16 << 10;

/// The same rows, in memory of their own where the batch holds clearly more (twice and 16 KiB) than its rows need.
/// Costs a look at each column's buffers, and a copy only where it helps.
///
/// ```
/// use std::sync::Arc;
///
/// use arrow::array::{Int64Array, RecordBatch};
/// use pithead_door::{batch_bytes, compact};
///
/// let numbers = Arc::new(Int64Array::from_iter_values(0..100_000));
/// let batch = RecordBatch::try_from_iter([("n", numbers as _)])?;
/// let few = batch.slice(500, 10);
/// assert_eq!((batch_bytes(&few), few.get_array_memory_size() > 800_000), (80, true));
/// let compacted = compact(&few);
/// assert!(compacted == few && compacted.get_array_memory_size() < 10_000);
/// # Ok::<(), arrow::error::ArrowError>(())
/// ```
pub fn compact(batch: &RecordBatch) -> RecordBatch {
    let batch = compact_views(batch);
    let needed: usize = batch.columns().iter().map(|column| needed_bytes(column)).sum();
    if held_bytes(&batch) <= 2 * needed + SLACK_BYTES {
        return batch;
    }
    with_columns(&batch, batch.columns().iter().map(copy).collect())
}

/// The same rows, view arrays without the data that no view of theirs refers to. Slices are left alone, since IPC
/// writes no more of them than their rows.
pub fn compact_views(batch: &RecordBatch) -> RecordBatch {
    if !batch.columns().iter().any(is_wasteful_view) {
        return batch.clone();
    }
    with_columns(
        batch,
        batch.columns().iter().map(|column| if is_wasteful_view(column) { collect(column) } else { column.clone() }).collect(),
    )
}

/// Bytes that a batch takes as Arrow, without what its buffers hold of other rows.
pub fn batch_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| needed_bytes(column.as_ref())).sum()
}

/// Bytes that an array's rows need in IPC, without padding. A dictionary's values count whole.
pub fn needed_bytes(array: &dyn Array) -> usize {
    let nulls = if array.null_count() > 0 { array.len().div_ceil(8) } else { 0 };
    let values = match array.data_type() {
        DataType::Utf8View => array.len() * 16 + array.as_string_view().total_buffer_bytes_used(),
        DataType::BinaryView => array.len() * 16 + array.as_binary_view().total_buffer_bytes_used(),
        DataType::Utf8 => text_bytes(array.as_string::<i32>()),
        DataType::LargeUtf8 => text_bytes(array.as_string::<i64>()),
        DataType::Binary => text_bytes(array.as_binary::<i32>()),
        DataType::LargeBinary => text_bytes(array.as_binary::<i64>()),
        DataType::List(_) => list_bytes(array.as_list::<i32>()),
        DataType::LargeList(_) => list_bytes(array.as_list::<i64>()),
        DataType::Map(_, _) => {
            let map = array.as_map();
            let (first, last) = ends(map.offsets());
            (array.len() + 1) * 4 + needed_bytes(&map.entries().slice(first, last - first))
        }
        DataType::FixedSizeList(_, _) => needed_bytes(AsArray::as_fixed_size_list(array).values()),
        DataType::Struct(_) => array.as_struct().columns().iter().map(|column| needed_bytes(column)).sum(),
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            needed_bytes(dictionary.keys()) + dictionary.values().get_buffer_memory_size()
        }
        _ => array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_buffer_memory_size()),
    };
    nulls + values
}

fn text_bytes<T: ByteArrayType>(array: &GenericByteArray<T>) -> usize {
    let (first, last) = ends(array.offsets());
    size_of_val(array.value_offsets()) + last - first
}

fn list_bytes<O: OffsetSizeTrait>(array: &GenericListArray<O>) -> usize {
    let (first, last) = ends(array.offsets());
    size_of_val(array.value_offsets()) + needed_bytes(&array.values().slice(first, last - first))
}

fn ends<O: OffsetSizeTrait>(offsets: &[O]) -> (usize, usize) {
    match (offsets.first(), offsets.last()) {
        (Some(first), Some(last)) => (first.as_usize(), last.as_usize()),
        _ => (0, 0),
    }
}

fn is_wasteful_view(array: &ArrayRef) -> bool {
    let (buffers, used) = match array.data_type() {
        DataType::Utf8View => (array.as_string_view().data_buffers(), array.as_string_view().total_buffer_bytes_used()),
        DataType::BinaryView => (array.as_binary_view().data_buffers(), array.as_binary_view().total_buffer_bytes_used()),
        _ => return false,
    };
    let held: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    // Stricter than for memory: what is left over here travels.
    held > used + used / 4 + 512
}

fn collect(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Utf8View => Arc::new(StringViewArray::gc(array.as_string_view())),
        DataType::BinaryView => Arc::new(BinaryViewArray::gc(array.as_binary_view())),
        _ => Arc::clone(array),
    }
}

fn copy(array: &ArrayRef) -> ArrayRef {
    let data = array.to_data();
    let mut copy = MutableArrayData::new(vec![&data], false, data.len());
    copy.try_extend(0, 0, data.len()).expect("offsets of a part fit where those of the whole did");
    // Extending shares the data buffers of views.
    collect(&make_array(copy.freeze()))
}

/// Bytes of the allocations that a batch keeps alive, each counted once.
fn held_bytes(batch: &RecordBatch) -> usize {
    let mut seen = HashSet::new();
    batch.columns().iter().map(|column| held_by(&column.to_data(), &mut seen)).sum()
}

fn held_by(data: &ArrayData, seen: &mut HashSet<usize>) -> usize {
    let nulls = data.nulls().map(|nulls| nulls.buffer());
    let own: usize = data
        .buffers()
        .iter()
        .chain(nulls)
        .filter(|buffer| seen.insert(buffer.data_ptr().as_ptr() as usize))
        .map(|buffer| buffer.capacity())
        .sum();
    own + data.child_data().iter().map(|child| held_by(child, seen)).sum::<usize>()
}

fn with_columns(batch: &RecordBatch, columns: Vec<ArrayRef>) -> RecordBatch {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options).expect("columns keep their types and lengths")
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{DictionaryArray, FixedSizeListArray, Int64Array, ListArray};
    use arrow::datatypes::{Int32Type, Int64Type};

    fn batch(column: ArrayRef) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable([("a", column, true)]).unwrap()
    }

    fn views(rows: usize) -> ArrayRef {
        Arc::new(
            (0..rows)
                .map(|i| (i % 7 != 0).then(|| format!("a text that is not inline, number {i}")))
                .collect::<StringViewArray>(),
        )
    }

    #[test]
    fn a_small_slice_lets_go_of_large_buffers() {
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>((0..50_000).map(|i| Some(vec![Some(i), None])));
        for column in [views(50_000), Arc::new(Int64Array::from_iter(0..50_000)), Arc::new(lists)] {
            let slice = batch(column).slice(40_000, 10);
            let small = compact(&slice);
            assert_eq!(small, slice);
            assert!(
                held_bytes(&small) <= SLACK_BYTES,
                "{} still holds {} bytes",
                slice.column(0).data_type(),
                held_bytes(&small)
            );
        }
    }

    #[test]
    fn what_holds_no_waste_is_not_copied() {
        let column: ArrayRef = Arc::new(Int64Array::from_iter(0..50_000));
        let same = compact(&batch(Arc::clone(&column)));
        assert_eq!(same.column(0).to_data().buffers()[0].as_ptr(), column.to_data().buffers()[0].as_ptr());
    }

    #[test]
    fn rows_without_columns_are_kept() {
        let options = RecordBatchOptions::new().with_row_count(Some(9));
        let batch = RecordBatch::try_new_with_options(Arc::new(arrow::datatypes::Schema::empty()), vec![], &options).unwrap();
        assert_eq!(compact(&batch).num_rows(), 9);
    }

    #[test]
    fn a_dictionary_keeps_its_values() {
        let column: DictionaryArray<Int32Type> = (0..5_000).map(|i| if i % 3 == 0 { "fizz" } else { "buzz" }).collect();
        let slice = batch(Arc::new(column)).slice(4_000, 5);
        assert_eq!(compact(&slice), slice);
    }

    #[test]
    fn a_slice_of_lists_needs_only_its_own_values() {
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>((0..10_000).map(|i| Some(vec![Some(i); 4])));
        assert!(needed_bytes(&lists.slice(5_000, 10)) < 1_000);
        let fixed = FixedSizeListArray::from_iter_primitive::<Int64Type, _, _>((0..10_000).map(|i| Some(vec![Some(i); 4])), 4);
        assert!(needed_bytes(&fixed.slice(5_000, 10)) < 1_000);
    }
}
