//! The bounds on keys, versions, tags and values.

use std::collections::BTreeSet;

use pithead_model::{Bytes, SLICE_BYTES_MAX};

use crate::api::show_key;
use crate::recipe::is_own;
use crate::{Key, Put, Splice, StoreError, Write};

/// The longest key. The empty key is legal. Kinetic's clients name keys of up to 4,096 bytes, and a prefix comes before them.
pub const KEY_BYTES_MAX: usize = 4_160;
/// The longest version.
pub const VERSION_BYTES_MAX: usize = 2_048;
/// The longest tag.
pub const TAG_BYTES_MAX: usize = 2_048;
/// The largest value.
pub const VALUE_BYTES_MAX: usize = SLICE_BYTES_MAX;
/// Values of at least this many bytes are stored in a segment file, and smaller ones in the index.
pub(crate) const SEGMENT_BYTES_MIN: usize = 64 << 10;

/// Refuses a batch that exceeds a bound.
pub(crate) fn check_batch(batch: &[Write]) -> Result<(), StoreError> {
    batch.iter().try_for_each(|write| match write {
        Write::Put(put) => check_put(put),
        Write::Delete { key, .. } => check_key(key),
        Write::Copy { from, to, splice } => {
            check_key(from).and_then(|()| check_key(to))?;
            splice.as_ref().map_or(Ok(()), |splice| check_splice(to, splice))
        }
    })?;
    check_copies(batch)
}

/// A copied value is what a key has before the batch and after it.
fn check_copies(batch: &[Write]) -> Result<(), StoreError> {
    check_copies_beside(&[], batch)
}

/// The same where keys get staged values before the batch.
pub(crate) fn check_copies_beside(staged: &[&Key], batch: &[Write]) -> Result<(), StoreError> {
    let copied: BTreeSet<&Key> =
        batch.iter().filter_map(|write| if let Write::Copy { from, .. } = write { Some(from) } else { None }).collect();
    if copied.is_empty() {
        return Ok(());
    }
    let mut written = BTreeSet::new();
    match staged.iter().copied().chain(batch.iter().map(Write::key)).find(|key| copied.contains(*key) || !written.insert(*key))
    {
        None => Ok(()),
        Some(key) => Err(StoreError::TooLarge(format!("the key {} is written twice in a batch with copies", show_key(key)))),
    }
}

pub(crate) fn check_key(key: &[u8]) -> Result<(), StoreError> {
    if is_own(key) {
        let what = format!("the key {} is one of the store's own, as it begins with eight bytes 255", show_key(key));
        return Err(StoreError::TooLarge(what));
    }
    if key.len() <= KEY_BYTES_MAX {
        return Ok(());
    }
    let start = key[..40].escape_ascii();
    Err(StoreError::TooLarge(format!("the key {start}… has {} bytes; a key has at most {KEY_BYTES_MAX}", key.len())))
}

/// `what` names the value in the error.
pub(crate) fn check_value(what: &str, bytes: usize) -> Result<(), StoreError> {
    if bytes <= VALUE_BYTES_MAX {
        return Ok(());
    }
    let (bytes, bytes_max) = (Bytes(bytes as u64), Bytes(VALUE_BYTES_MAX as u64));
    Err(StoreError::TooLarge(format!("the value of {what} has {bytes}; a value has at most {bytes_max}")))
}

fn check_splice(to: &Key, splice: &Splice) -> Result<(), StoreError> {
    check_value(&show_key(to), usize::try_from(splice.bytes()).unwrap_or(usize::MAX))
}

fn check_put(put: &Put) -> Result<(), StoreError> {
    check_key(&put.key)?;
    check_value(&show_key(&put.key), put.value.len())?;
    let (version, tag) = (put.version.len(), put.tag.bytes.len());
    if version > VERSION_BYTES_MAX {
        let what =
            format!("a version of {} has {version} bytes; a version has at most {VERSION_BYTES_MAX}", show_key(&put.key));
        return Err(StoreError::TooLarge(what));
    }
    if tag > TAG_BYTES_MAX {
        let what = format!("a tag of {} has {tag} bytes; a tag has at most {TAG_BYTES_MAX}", show_key(&put.key));
        return Err(StoreError::TooLarge(what));
    }
    Ok(())
}
