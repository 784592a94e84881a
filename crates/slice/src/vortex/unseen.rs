//! What lies under NULLs of decimals. Vortex stores decimals as integers that are as narrow as their digits allow, and its
//! encoder gives up at a value that does not fit, also where nobody can see it: under a NULL of the decimals themselves, or of
//! the struct or list around them. Arrow says nothing of such values, and its kernels leave many there.

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Decimal128Type, Decimal256Type, FieldRef};
use arrow::error::ArrowError;

use crate::nested::used;

/// The column with zeros under the NULLs of its decimals, also inside lists and structs. Decimals that have zeros there
/// already are not copied.
pub(super) fn zero_unseen(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match holds_decimal(column.data_type()) {
        true => zero_within(column, None),
        false => Ok(Arc::clone(column)),
    }
}

fn holds_decimal(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(fields) => fields.iter().any(|field| holds_decimal(field.data_type())),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => holds_decimal(item.data_type()),
        data_type => data_type.is_decimal(),
    }
}

/// `around`: which values are not under a NULL of what they are within; none: all.
fn zero_within(array: &ArrayRef, around: Option<&NullBuffer>) -> Result<ArrayRef, ArrowError> {
    let seen = NullBuffer::union(around, array.nulls()).filter(|seen| seen.null_count() > 0);
    match array.data_type() {
        DataType::Decimal128(..) => Ok(zeroed::<Decimal128Type>(array, seen)),
        DataType::Decimal256(..) => Ok(zeroed::<Decimal256Type>(array, seen)),
        DataType::List(item) => zero_items::<i32>(array.as_list(), item, seen),
        DataType::LargeList(item) => zero_items::<i64>(array.as_list(), item, seen),
        DataType::FixedSizeList(item, size) => {
            let (list, width) = (array.as_fixed_size_list(), *size as usize);
            let seen = seen.map(|seen| seen.expand(width));
            let items = zero_within(&list.values().slice(0, list.len() * width), seen.as_ref())?;
            Ok(Arc::new(FixedSizeListArray::try_new(Arc::clone(item), *size, items, list.nulls().cloned())?))
        }
        DataType::Struct(fields) => {
            let record = array.as_struct();
            let members = record.columns().iter().map(|member| zero_within(member, seen.as_ref()));
            let members = members.collect::<Result<_, _>>()?;
            let nulls = record.nulls().cloned();
            Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), members, nulls, record.len())?))
        }
        _ => Ok(Arc::clone(array)),
    }
}

/// `seen`: which lists can be seen; none: all.
fn zero_items<O: OffsetSizeTrait>(
    list: &GenericListArray<O>,
    item: &FieldRef,
    seen: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let (offsets, items) = used(list);
    let seen = seen.map(|seen| seen_items(&offsets, &seen));
    let items = zero_within(&items, seen.as_ref())?;
    Ok(Arc::new(GenericListArray::try_new(Arc::clone(item), offsets, items, list.nulls().cloned())?))
}

/// A list that is NULL may have items.
fn seen_items<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>, seen: &NullBuffer) -> NullBuffer {
    let mut items = BooleanBufferBuilder::new(offsets.last().map_or(0, |end| end.as_usize()));
    offsets.windows(2).zip(seen).for_each(|(pair, is_seen)| items.append_n((pair[1] - pair[0]).as_usize(), is_seen));
    NullBuffer::new(items.finish())
}

fn zeroed<T: ArrowPrimitiveType>(array: &ArrayRef, seen: Option<NullBuffer>) -> ArrayRef {
    let Some(seen) = seen else { return Arc::clone(array) };
    let (decimals, unseen, zero) = (array.as_primitive::<T>(), !seen.inner(), T::Native::default());
    if unseen.set_indices().all(|row| decimals.values()[row] == zero) {
        return Arc::clone(array);
    }
    let mut values = decimals.values().to_vec();
    unseen.set_indices().for_each(|row| values[row] = zero);
    let zeroed = PrimitiveArray::<T>::new(values.into(), decimals.nulls().cloned());
    Arc::new(zeroed.with_data_type(array.data_type().clone()))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, Fields};

    use super::*;

    /// Seven decimals, the greatest of all integers among them, of which the third and the fifth are NULL.
    fn decimals() -> ArrayRef {
        let values = vec![i128::MAX, 2, i128::MIN, 4, 5, 6, 7];
        let nulls = NullBuffer::from(vec![true, true, false, true, false, true, true]);
        Arc::new(Decimal128Array::new(values.into(), Some(nulls)).with_precision_and_scale(8, 2).unwrap())
    }

    fn values(array: &ArrayRef) -> &[i128] {
        array.as_primitive::<Decimal128Type>().values()
    }

    #[test]
    fn what_is_under_nulls_is_zero_and_the_rest_stays() {
        let column = decimals();
        let zeroed = zero_unseen(&column).unwrap();
        assert_eq!((&zeroed, values(&zeroed)), (&column, &[i128::MAX, 2, 0, 4, 0, 6, 7][..]));
        let cut = zero_unseen(&column.slice(1, 4)).unwrap();
        assert_eq!((&cut, values(&cut)), (&column.slice(1, 4), &[2, 0, 4, 0][..]));
    }

    #[test]
    fn decimals_with_nothing_to_do_are_not_copied() {
        let valued = decimals().slice(0, 2);
        let zeroed = zero_unseen(&decimals()).unwrap();
        for column in [valued, zeroed] {
            assert!(Arc::ptr_eq(&zero_unseen(&column).unwrap(), &column));
        }
    }

    #[test]
    fn members_are_unseen_under_a_struct_that_is_null() {
        let fields: Fields = vec![Field::new("d", DataType::Decimal128(8, 2), true)].into();
        let nulls = NullBuffer::from(vec![false, true, true, true, true, false, true]);
        let column: ArrayRef = Arc::new(StructArray::new(fields, vec![decimals()], Some(nulls)));
        let zeroed = zero_unseen(&column).unwrap();
        assert_eq!((&zeroed, values(zeroed.as_struct().column(0))), (&column, &[0, 2, 0, 4, 0, 0, 7][..]));
        assert_eq!(zeroed.as_struct().column(0).null_count(), 2);
    }

    #[test]
    fn items_are_unseen_under_a_list_that_is_null() {
        let item = Arc::new(Field::new_list_field(DataType::Decimal128(8, 2), true));
        let lists = |lengths: [usize; 4], valid: [bool; 4]| -> ArrayRef {
            let nulls = NullBuffer::from(valid.to_vec());
            Arc::new(ListArray::new(Arc::clone(&item), OffsetBuffer::from_lengths(lengths), decimals(), Some(nulls)))
        };
        let column = lists([1, 0, 3, 3], [false, false, true, true]);
        let zeroed = zero_unseen(&column).unwrap();
        assert_eq!((&zeroed, values(zeroed.as_list::<i32>().values())), (&column, &[0, 2, 0, 4, 0, 6, 7][..]));
        let cut = lists([1, 1, 3, 2], [true, false, true, true]).slice(1, 2);
        let zeroed = zero_unseen(&cut).unwrap();
        assert_eq!((&zeroed, values(zeroed.as_list::<i32>().values())), (&cut, &[0, 0, 4, 0][..]));
    }

    #[test]
    fn items_are_unseen_under_a_list_of_fixed_size_that_is_null() {
        let item = Arc::new(Field::new_list_field(DataType::Decimal128(8, 2), true));
        let nulls = NullBuffer::from(vec![false, true, true]);
        let list = FixedSizeListArray::new(item, 2, decimals().slice(0, 6), Some(nulls));
        for (start, wanted) in [(0, &[0, 0, 0, 4, 0, 6][..]), (1, &[0, 4, 0, 6])] {
            let column: ArrayRef = Arc::new(list.slice(start, 3 - start));
            let zeroed = zero_unseen(&column).unwrap();
            assert_eq!((&zeroed, values(zeroed.as_fixed_size_list().values())), (&column, wanted));
        }
    }
}
