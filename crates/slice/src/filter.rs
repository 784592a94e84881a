//! [`ValueFilter`]: which values a column of a slice may have.
//!
//! A Bloom filter of blocks that fit in a cache line, as Parquet has it; the crate of that name computes it.

use arrow::array::Array;
use arrow::datatypes::*;
use parquet::bloom_filter::Sbbf;
use pithead_model::Value;
use xxhash_rust::xxh3::xxh3_64;

use crate::bounds::{for_integers, value_at};
use crate::{Compare, Predicate, SliceError};

/// The share of absent values that a filter takes for present ones.
const FALSE_SHARE: f64 = 0.01;
/// The first byte of a filter.
const FORMAT: u8 = 1;
/// Its format and its checksum.
const HEADER_BYTES: usize = 9;
/// A filter has whole blocks.
const BLOCK_BYTES: usize = 32;

/// The values of a column, more or less: none that is there is denied.
#[derive(Clone, Debug)]
pub struct ValueFilter {
    blocks: Sbbf,
}

impl ValueFilter {
    /// Whether there are filters of such columns. Floats have none, because two that differ may be equal.
    pub fn suits(data_type: &DataType) -> bool {
        macro_rules! integer {
            ($type:ty) => {
                true
            };
        }
        let is_bytes = matches!(
            data_type,
            DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Utf8View
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
        );
        for_integers!(data_type, integer, is_bytes)
    }

    /// A filter of no values, with room for as many distinct ones.
    pub fn with_room(values: u64) -> Result<ValueFilter, SliceError> {
        let blocks = Sbbf::new_with_ndv_fpp(values.max(1), FALSE_SHARE);
        Ok(ValueFilter { blocks: blocks.map_err(|error| SliceError::Schema(error.to_string()))? })
    }

    /// Adds the values of a column that [suits](ValueFilter::suits). NULL equals nothing, and is not added.
    pub fn insert(&mut self, column: &dyn Array) {
        for value in (0..column.len()).filter_map(|row| value_at(column, row)) {
            match &value {
                Value::Int(value) => self.blocks.insert(value.to_le_bytes().as_slice()),
                Value::Text(text) => self.blocks.insert(text.as_bytes()),
                Value::Bytes(bytes) => self.blocks.insert(bytes.as_slice()),
                Value::Float(_) => {}
            }
        }
    }

    /// Takes no more room than what it holds needs.
    pub fn shrink(&mut self) {
        self.blocks.fold_to_target_fpp(FALSE_SHARE);
    }

    /// Whether a row may have this value. `false` is certain.
    pub fn may_hold(&self, value: &Value) -> bool {
        match value {
            Value::Int(value) => self.blocks.check(value.to_le_bytes().as_slice()),
            Value::Text(text) => self.blocks.check(text.as_bytes()),
            Value::Bytes(bytes) => self.blocks.check(bytes.as_slice()),
            Value::Float(_) => true,
        }
    }

    /// It as it is stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT; HEADER_BYTES];
        // A vector takes all that is written to it.
        let _ = self.blocks.write_bitset(&mut bytes);
        let checksum = xxh3_64(&bytes[HEADER_BYTES..]);
        bytes[1..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// A filter that was stored. One bit that is lost could deny a value that is there, so a checksum tells.
    pub fn from_bytes(bytes: &[u8]) -> Result<ValueFilter, SliceError> {
        let damaged = |what: &str| SliceError::Corrupt(format!("filter of values: {what}"));
        let Some((header, blocks)) = bytes.split_at_checked(HEADER_BYTES) else { return Err(damaged("too short")) };
        if header[0] != FORMAT {
            return Err(damaged("another format"));
        }
        if blocks.is_empty() || !blocks.len().is_multiple_of(BLOCK_BYTES) {
            return Err(damaged("not of whole blocks"));
        }
        if header[1..] != xxh3_64(blocks).to_le_bytes() {
            return Err(damaged("wrong checksum"));
        }
        Ok(ValueFilter { blocks: Sbbf::new(blocks) })
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> u64 {
        (self.blocks.num_blocks() * BLOCK_BYTES) as u64
    }
}

impl Predicate {
    /// Whether a row may satisfy it, as far as filters of columns tell. `false` is certain.
    pub fn may_hold<'a>(&self, filter: &dyn Fn(usize) -> Option<&'a ValueFilter>) -> bool {
        match self {
            Predicate::Any(parts) => parts.iter().any(|part| part.may_hold(filter)),
            Predicate::All(parts) => parts.iter().all(|part| part.may_hold(filter)),
            Predicate::Compare { column, op: Compare::Eq, value } => {
                filter(*column).is_none_or(|filter| filter.may_hold(value))
            }
            Predicate::In { column, values } => {
                filter(*column).is_none_or(|filter| values.iter().any(|value| filter.may_hold(value)))
            }
            Predicate::Compare { .. } | Predicate::Like { .. } | Predicate::IsNull(_) | Predicate::IsNotNull(_) => true,
        }
    }

    /// The columns that it wants to equal something.
    pub fn equated(&self, into: &mut Vec<usize>) {
        match self {
            Predicate::Any(parts) | Predicate::All(parts) => parts.iter().for_each(|part| part.equated(into)),
            Predicate::Compare { column, op: Compare::Eq, .. } | Predicate::In { column, .. } => into.push(*column),
            Predicate::Compare { .. } | Predicate::Like { .. } | Predicate::IsNull(_) | Predicate::IsNotNull(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Decimal128Array, Int32Array, Int64Array, StringViewArray, TimestampMicrosecondArray};
    use proptest::prelude::*;

    use super::*;

    fn filter(column: &ArrayRef) -> ValueFilter {
        let mut filter = ValueFilter::with_room(column.len() as u64).unwrap();
        filter.insert(column);
        filter.shrink();
        ValueFilter::from_bytes(&filter.to_bytes()).unwrap()
    }

    #[test]
    fn most_values_that_are_not_there_are_denied() {
        let even: ArrayRef = Arc::new(Int64Array::from_iter_values((0..50_000).map(|value| value * 2)));
        let filter = filter(&even);
        let held = |first: i128| (0..50_000).filter(|value| filter.may_hold(&Value::Int(value * 2 + first))).count();
        assert_eq!(held(0), 50_000);
        assert!(held(1) < 1_000, "{}", held(1));
        assert!(filter.bytes() < 100_000, "{}", filter.bytes());
    }

    #[test]
    fn few_distinct_values_take_little_room() {
        let column: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..100_000).map(|row| format!("c{}", row % 10))));
        let filter = filter(&column);
        assert!(filter.bytes() < 100, "{}", filter.bytes());
        assert!(filter.may_hold(&Value::Text("c3".into())) && !filter.may_hold(&Value::Text("d".into())));
    }

    #[test]
    fn all_kinds_of_values_are_found() {
        let whole: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(vec![Some(-7), None])),
            Arc::new(Decimal128Array::from(vec![-7, 8])),
            Arc::new(TimestampMicrosecondArray::from(vec![-7])),
        ];
        for column in &whole {
            assert!(ValueFilter::suits(column.data_type()));
            let filter = filter(column);
            assert!(filter.may_hold(&Value::Int(-7)) && !filter.may_hold(&Value::Int(7)), "{}", column.data_type());
        }
        assert!(!ValueFilter::suits(&DataType::Float64) && !ValueFilter::suits(&DataType::Boolean));
        assert!(filter(&whole[0]).may_hold(&Value::Float(7.0)), "it cannot tell");
    }

    #[test]
    fn predicates_are_ruled_out_by_what_they_equal() {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let filter = filter(&column);
        let of = |column: usize| (column == 1).then_some(&filter);
        let equal = |column, value| Predicate::Compare { column, op: Compare::Eq, value: Value::Int(value) };
        let among = |values: &[i128]| Predicate::In { column: 1, values: values.iter().copied().map(Value::Int).collect() };
        let may = |predicate: Predicate| predicate.may_hold(&of);
        assert!(may(equal(1, 2)) && !may(equal(1, 4)) && may(equal(0, 4)));
        assert!(may(among(&[4, 3])) && !may(among(&[4, 5])) && !may(among(&[])));
        assert!(may(Predicate::Any(vec![equal(1, 4), equal(0, 4)])), "of the other column nothing is known");
        assert!(!may(Predicate::All(vec![equal(1, 4), equal(0, 4)])));
        assert!(may(Predicate::Compare { column: 1, op: Compare::Ne, value: Value::Int(4) }) && may(Predicate::IsNull(1)));
        let mut columns = Vec::new();
        Predicate::All(vec![equal(1, 4), Predicate::IsNull(2), Predicate::Any(vec![equal(0, 4)])]).equated(&mut columns);
        assert_eq!(columns, [1, 0]);
    }

    proptest! {
        #[test]
        fn none_that_is_there_is_denied(texts in prop::collection::vec(prop::option::of(".{0,20}"), 0..300)) {
            let column: ArrayRef = Arc::new(StringViewArray::from_iter(texts.iter()));
            let filter = filter(&column);
            for text in texts.into_iter().flatten() {
                prop_assert!(filter.may_hold(&Value::Text(text)));
            }
        }

        #[test]
        fn damaged_ones_are_refused(at in 0_usize..41, bit in 0_u32..8, cut in 0_usize..41) {
            let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
            let bytes = filter(&column).to_bytes();
            prop_assert_eq!(bytes.len(), 41);
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            prop_assert!(ValueFilter::from_bytes(&damaged).is_err());
            prop_assert!(ValueFilter::from_bytes(&bytes[..cut]).is_err());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(filter) = ValueFilter::from_bytes(&bytes) {
                filter.may_hold(&Value::Int(1));
            }
        }
    }
}
