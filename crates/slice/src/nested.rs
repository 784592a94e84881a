//! Rebuilding arrays from the inside: leaves are replaced, and then lists and structs are built around them again.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, OffsetSizeTrait, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, FieldRef};
use arrow::error::ArrowError;

/// A function that replaces a leaf, given the type that the leaf must have.
pub(crate) type Leaf<'a> = &'a dyn Fn(&ArrayRef, &DataType) -> Result<ArrayRef, ArrowError>;

/// `array` with the nested types of `to`, and with leaves made by `leaf`. Lists keep only the items that they refer to.
pub(crate) fn rebuild(array: &ArrayRef, to: &DataType, leaf: Leaf<'_>) -> Result<ArrayRef, ArrowError> {
    match (array.data_type(), to) {
        (DataType::List(_), DataType::List(item)) => rebuild_list::<i32>(array.as_list(), item, leaf),
        (DataType::LargeList(_), DataType::LargeList(item)) => rebuild_list::<i64>(array.as_list(), item, leaf),
        (DataType::FixedSizeList(..), DataType::FixedSizeList(item, size)) => {
            let list = array.as_fixed_size_list();
            let items = rebuild(list.values(), item.data_type(), leaf)?;
            FixedSizeListArray::try_new(item.clone(), *size, items, list.nulls().cloned()).map(wrap)
        }
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let record = array.as_struct();
            let members = record.columns().iter().zip(fields);
            let members = members.map(|(member, field)| rebuild(member, field.data_type(), leaf)).collect::<Result<_, _>>()?;
            StructArray::try_new_with_length(fields.clone(), members, record.nulls().cloned(), record.len()).map(wrap)
        }
        _ => leaf(array, to),
    }
}

fn rebuild_list<O: OffsetSizeTrait>(
    list: &GenericListArray<O>,
    item: &FieldRef,
    leaf: Leaf<'_>,
) -> Result<ArrayRef, ArrowError> {
    let (offsets, items) = used(list);
    let items = rebuild(&items, item.data_type(), leaf)?;
    GenericListArray::try_new(item.clone(), offsets, items, list.nulls().cloned()).map(wrap)
}

/// The items that lists refer to, and where each list is among them.
pub(crate) fn used<O: OffsetSizeTrait>(list: &GenericListArray<O>) -> (OffsetBuffer<O>, ArrayRef) {
    let offsets = list.offsets();
    let (start, end) = (offsets[0].as_usize(), offsets[list.len()].as_usize());
    let items = list.values().slice(start, end - start);
    let lengths = offsets.windows(2).map(|pair| (pair[1] - pair[0]).as_usize());
    (if start == 0 { offsets.clone() } else { OffsetBuffer::from_lengths(lengths) }, items)
}

fn wrap(array: impl Array + 'static) -> ArrayRef {
    Arc::new(array)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, ListArray, StringViewArray};
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn a_cut_list_keeps_its_items_only() {
        let item = Arc::new(Field::new("item", DataType::Utf8View, true));
        let items: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..100).map(|item| format!("item number {item}"))));
        let list: ArrayRef = Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([50, 3, 47]), items, None));
        let cut = list.slice(1, 1);
        let rebuilt = rebuild(&cut, list.data_type(), &|leaf, _| Ok(Arc::new(leaf.as_string_view().gc()))).unwrap();
        assert_eq!(&rebuilt, &cut);
        let items = rebuilt.as_list::<i32>().values().as_string_view();
        assert_eq!((items.len(), items.total_buffer_bytes_used()), (3, 3 * "item number 50".len()));
    }

    #[test]
    fn leaves_take_their_new_types() {
        let record: ArrayRef = Arc::new(StructArray::from(vec![(
            Arc::new(Field::new("a", DataType::Int32, false)),
            Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef,
        )]));
        let to = DataType::Struct(vec![Field::new("a", DataType::Date32, false)].into());
        let rebuilt = rebuild(&record, &to, &|leaf, to| arrow::compute::cast(leaf, to)).unwrap();
        assert_eq!(rebuilt.data_type(), &to);
    }
}
