//! The hash that places rows. It is part of the stored format: the same on every machine and in every release, since
//! rows of co-partitioned datasets must meet.
//!
//! A value's hash is xxh3-64 of its canonical bytes: integers, booleans and times as 8 bytes of two's complement, low
//! byte first (16 where 8 do not hold it); decimals without the zeros that end their fraction, unscaled, seeded with
//! the scale that is left, so that a whole number hashes as the integer does; floats as 64-bit with one NaN and one zero;
//! texts and bytes as they are. NULL has a hash of its own. So values that are equal hash equal across widths of one kind.

use arrow::array::ArrayRef;
use pithead_model::Fault;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::keys::Keys;

/// NULL's hash.
const NULL_HASH: u64 = 0x6e75_6c6c_9e37_79b9;
/// Odd, so that multiplying loses nothing: 2^64 over the golden ratio.
const COMBINE: u64 = 0x9e37_79b9_7f4a_7c15;

/// One hash a row over the key's columns.
pub(super) fn hash_rows<'a>(columns: impl IntoIterator<Item = &'a ArrayRef>) -> Result<Vec<u64>, Fault> {
    let mut rows: Vec<u64> = Vec::new();
    for column in columns {
        let hashes = hash_column(&Keys::of(column)?);
        if rows.is_empty() {
            rows = hashes;
        } else {
            rows.iter_mut().zip(hashes).for_each(|(row, hash)| *row = row.wrapping_mul(COMBINE) ^ hash);
        }
    }
    Ok(rows)
}

/// The partition of a hash: its place in the range of all hashes, cut in equal parts.
pub(super) fn place(hash: u64, partitions: usize) -> u32 {
    ((u128::from(hash) * partitions as u128) >> 64) as u32
}

fn hash_column(keys: &Keys) -> Vec<u64> {
    let mut hashes: Vec<u64> = match keys {
        Keys::Int(array) => array.values().iter().map(|value| hash_int(*value)).collect(),
        Keys::Wide(array) => array.values().iter().map(|value| hash_decimal(*value, array.scale())).collect(),
        Keys::Float(array) => array.values().iter().map(|value| hash_float(*value)).collect(),
        Keys::Text(array) => array.iter().map(|text| text.map_or(NULL_HASH, |text| xxh3_64(text.as_bytes()))).collect(),
        Keys::Bytes(array) => array.iter().map(|bytes| bytes.map_or(NULL_HASH, xxh3_64)).collect(),
    };
    if let Some(nulls) = keys.array().nulls().filter(|nulls| nulls.null_count() > 0) {
        hashes.iter_mut().zip(nulls.iter()).filter(|(_, valid)| !valid).for_each(|(hash, _)| *hash = NULL_HASH);
    }
    hashes
}

fn hash_int(value: i64) -> u64 {
    xxh3_64(&value.to_le_bytes())
}

fn hash_decimal(value: i128, scale: i8) -> u64 {
    let (value, scale) = match i64::try_from(value) {
        Ok(value) => without_zeros(value, scale),
        Err(_) => {
            let (value, scale) = without_zeros_wide(value, scale);
            match i64::try_from(value) {
                Ok(value) => (value, scale),
                Err(_) => return xxh3_64_with_seed(&value.to_le_bytes(), u64::from(scale.unsigned_abs())),
            }
        }
    };
    xxh3_64_with_seed(&value.to_le_bytes(), u64::from(scale.unsigned_abs()))
}

fn without_zeros(mut value: i64, mut scale: i8) -> (i64, i8) {
    while scale > 0 && value % 10 == 0 {
        (value, scale) = (value / 10, scale - 1);
    }
    (value, scale)
}

fn without_zeros_wide(mut value: i128, mut scale: i8) -> (i128, i8) {
    while scale > 0 && value % 10 == 0 {
        (value, scale) = (value / 10, scale - 1);
    }
    (value, scale)
}

fn hash_float(value: f64) -> u64 {
    let canonical = match value {
        value if value.is_nan() => f64::NAN.to_bits(),
        0.0 => 0,
        value => value.to_bits(),
    };
    xxh3_64(&canonical.to_le_bytes())
}
