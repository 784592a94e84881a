//! How large the values of an argument are, and how many parts they have: groups of patterns, and elements of lists.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::ColumnarValue;

/// The bytes of a list's value where its type does not determine them.
pub(super) const VALUE_BYTES: u64 = 16;

/// Bytes of an argument's values, or how many parts they have.
pub(super) enum Sizes {
    Same(u64),
    Each(Vec<u64>),
}

impl Sizes {
    pub(super) fn of(argument: &ColumnarValue, rows: usize) -> Result<Sizes> {
        Ok(match argument {
            ColumnarValue::Scalar(value) => Sizes::Same(match value.try_as_str() {
                Some(text) => text.map_or(0, |text| text.len() as u64),
                None => value.size() as u64,
            }),
            ColumnarValue::Array(array) => Sizes::Each(match array.data_type() {
                DataType::Utf8View => array.as_string_view().lengths().map(u64::from).collect(),
                DataType::BinaryView => array.as_binary_view().lengths().map(u64::from).collect(),
                DataType::Utf8 => array.as_string::<i32>().offsets().lengths().map(|length| length as u64).collect(),
                DataType::LargeUtf8 => array.as_string::<i64>().offsets().lengths().map(|length| length as u64).collect(),
                DataType::List(_) => {
                    let list = array.as_list::<i32>();
                    let one = mean_bytes(list.values())?;
                    list.offsets().lengths().map(|length| (length as u64).saturating_mul(one)).collect()
                }
                _ => vec![mean_bytes(array)?; rows],
            }),
        })
    }

    pub(super) fn at(&self, row: usize) -> u64 {
        match self {
            Sizes::Same(size) => *size,
            Sizes::Each(sizes) => sizes.get(row).copied().unwrap_or(0),
        }
    }
}

/// The mean bytes of a value, rounded up.
fn mean_bytes(array: &ArrayRef) -> Result<u64> {
    if let Some(text) = array.as_string_view_opt() {
        return Ok(text.lengths().map(u64::from).sum::<u64>().div_ceil(array.len().max(1) as u64).max(VALUE_BYTES));
    }
    let bytes = array.to_data().get_slice_memory_size()?;
    Ok(bytes.div_ceil(array.len().max(1)) as u64)
}

/// The most groups of an argument's patterns.
pub(super) fn groups(patterns: &ColumnarValue, rows: usize) -> Result<Sizes> {
    Ok(match patterns {
        ColumnarValue::Scalar(pattern) => {
            let pattern = pattern.try_as_str().flatten().unwrap_or_default();
            Sizes::Same(pattern.bytes().filter(|byte| *byte == b'(').count() as u64)
        }
        ColumnarValue::Array(_) => Sizes::of(patterns, rows)?,
    })
}

/// The elements of an argument's lists, and of lists in them.
pub(super) fn elements(lists: &ColumnarValue, rows: usize) -> Result<Sizes> {
    Ok(match lists {
        ColumnarValue::Scalar(_) => Sizes::Same(leaves(&lists.to_array(1)?).first().copied().unwrap_or(0)),
        ColumnarValue::Array(array) => Sizes::Each(leaves(&array.slice(0, rows.min(array.len())))),
    })
}

fn leaves(array: &ArrayRef) -> Vec<u64> {
    let of = |values: &ArrayRef, ends: Vec<[usize; 2]>| {
        let inner = leaves(values);
        let sum = |[from, to]: [usize; 2]| inner.get(from..to).unwrap_or_default().iter().map(|leaves| (*leaves).max(1)).sum();
        ends.into_iter().map(sum).collect()
    };
    match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            of(list.values(), list.offsets().windows(2).map(|ends| [ends[0] as usize, ends[1] as usize]).collect())
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            of(list.values(), list.offsets().windows(2).map(|ends| [ends[0] as usize, ends[1] as usize]).collect())
        }
        DataType::FixedSizeList(_, size) => {
            let size = *size as usize;
            let list = array.as_fixed_size_list();
            of(list.values(), (0..list.len()).map(|row| [row * size, (row + 1) * size]).collect())
        }
        _ => vec![1; array.len()],
    }
}
