//! How large keys and values may be.

use pithead_model::{Bytes, SLICE_BYTES_MAX};

use crate::{StoreError, Write};

/// Longest key. The empty key is legal.
pub const KEY_BYTES_MAX: usize = 4_096;
/// Largest value.
pub const VALUE_BYTES_MAX: usize = SLICE_BYTES_MAX;
/// Values of at least so many bytes get a segment file of their own; smaller ones lie in the index.
pub(crate) const SEGMENT_BYTES_MIN: usize = 64 << 10;

/// Refuses a batch that holds a key or value over its bound.
pub(crate) fn check_batch(batch: &[Write]) -> Result<(), StoreError> {
    batch.iter().try_for_each(|write| match write {
        Write::Put { key, value, .. } => check_key(key).and_then(|()| check_value(key, value.len())),
        Write::Delete { key, .. } => check_key(key),
    })
}

pub(crate) fn check_key(key: &str) -> Result<(), StoreError> {
    if key.len() <= KEY_BYTES_MAX {
        return Ok(());
    }
    let start: String = key.chars().take(40).collect();
    Err(StoreError::TooLarge(format!("the key {start:?}… has {} bytes; a key has at most {KEY_BYTES_MAX}", key.len())))
}

/// `what` names the value in the error.
pub(crate) fn check_value(what: &str, bytes: usize) -> Result<(), StoreError> {
    if bytes <= VALUE_BYTES_MAX {
        return Ok(());
    }
    let (bytes, bytes_max) = (Bytes(bytes as u64), Bytes(VALUE_BYTES_MAX as u64));
    Err(StoreError::TooLarge(format!("the value of {what} has {bytes}; a value has at most {bytes_max}")))
}
