//! [`StagedValue`]: a value on the medium that has no name yet; [`SliceValue`]: that, or what another name has, too.

use std::sync::Arc;

use pithead_store::{Key, Splice, Staged, Store, StoreError, Value};

/// A value that is on the medium, without a name. Dropping it gives up its room.
#[derive(Debug)]
pub(crate) struct StagedValue {
    store: Arc<dyn Store>,
    staged: Option<Staged>,
}

/// What a slice is to have.
#[derive(Debug)]
pub(crate) enum SliceValue {
    /// A value that was written for it.
    New(StagedValue),
    /// The value that a key has, which nothing deletes meanwhile, or a part of it.
    Copied { from: Key, splice: Option<Splice> },
}

impl StagedValue {
    /// Writes a value. Blocks.
    pub(crate) fn stage(store: &Arc<dyn Store>, value: Value) -> Result<Self, StoreError> {
        let staged = Some(store.stage(value)?);
        Ok(Self { store: Arc::clone(store), staged })
    }

    /// The value under a name, for [`Store::adopt`], which spends it.
    pub(crate) fn named(mut self, key: Key) -> Option<(Key, Staged)> {
        Some((key, self.staged.take()?))
    }
}

impl Drop for StagedValue {
    fn drop(&mut self) {
        if let Some(staged) = self.staged.take() {
            self.store.unstage(staged);
        }
    }
}
