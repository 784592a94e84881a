//! [`MemoryStore`]: a store without a medium, for tests and simulation.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::api::show_key;
use crate::bounds::{check_batch, check_copies_beside, check_key, check_value};
use crate::{
    Durability, Entry, Expected, Key, KeyRange, Put, Splice, Staged, Store, StoreError, StoreUse, Tag, Value, Version, Write,
};

/// A store in memory. Nothing outlives it, so every write is as durable as it can be as soon as it is made.
#[derive(Debug)]
pub struct MemoryStore {
    bytes_max: u64,
    state: Mutex<MemoryState>,
}

#[derive(Debug, Default)]
struct MemoryState {
    entries: BTreeMap<Key, MemoryEntry>,
    staged: HashMap<u64, Value>,
    last_file: u64,
    /// The bytes of the values in `entries`.
    value_bytes: u64,
    staged_bytes: u64,
}

/// The value of a key.
#[derive(Clone, Debug)]
struct MemoryEntry {
    value: Value,
    version: Version,
    tag: Tag,
}

impl MemoryStore {
    /// An empty store without a bound.
    pub fn new() -> Self {
        Self::bounded(u64::MAX)
    }

    /// An empty store that is full when its values have this many bytes.
    pub fn bounded(bytes_max: u64) -> Self {
        Self { bytes_max, state: Mutex::default() }
    }

    fn check_room(&self, held: u64, needed: u64) -> Result<(), StoreError> {
        if held.saturating_add(needed) <= self.bytes_max {
            return Ok(());
        }
        Err(StoreError::NoSpace { path: "memory".into(), needed })
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for MemoryStore {
    fn get(&self, key: &[u8]) -> Result<Option<(Value, Entry)>, StoreError> {
        let state = self.state.lock();
        Ok(state.entries.get_key_value(key).map(|(key, held)| (held.value.clone(), held.entry(key))))
    }

    fn get_resident(&self, key: &[u8]) -> Result<Option<(Value, Entry)>, StoreError> {
        self.get(key)
    }

    fn entry(&self, key: &[u8]) -> Result<Option<Entry>, StoreError> {
        Ok(self.state.lock().entries.get_key_value(key).map(|(key, held)| held.entry(key)))
    }

    fn range(&self, range: &KeyRange) -> Result<Vec<Entry>, StoreError> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let state = self.state.lock();
        let bounds: (Bound<Key>, Bound<Key>) = (range.start.clone(), range.end.clone());
        let found = state.entries.range(bounds).map(|(key, held)| held.entry(key));
        Ok(if range.reverse { found.rev().take(range.limit).collect() } else { found.take(range.limit).collect() })
    }

    fn write(&self, batch: Vec<Write>, _: Durability) -> Result<(), StoreError> {
        self.adopt(Vec::new(), batch)
    }

    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn stage(&self, value: Value) -> Result<Staged, StoreError> {
        check_value("a staged value", value.len())?;
        let mut state = self.state.lock();
        let bytes = value.len() as u64;
        self.check_room(state.held(), bytes)?;
        state.last_file += 1;
        state.staged_bytes += bytes;
        let file = state.last_file;
        let checksum = xxh3_64(&value);
        state.staged.insert(file, value);
        Ok(Staged { file, offset: 0, bytes, checksum })
    }

    fn adopt(&self, staged: Vec<(Key, Staged)>, batch: Vec<Write>) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let mut writes = Vec::with_capacity(staged.len() + batch.len());
        let mut claimed = check_copies_beside(&staged.iter().map(|(key, _)| key).collect::<Vec<_>>(), &batch);
        for (key, staged) in staged {
            claimed = claimed.and_then(|()| check_key(&key));
            match state.unstage(&staged) {
                Some(value) => writes.push(Write::put(key, value)),
                None => {
                    let what = "its value is not staged in this store".to_string();
                    claimed = claimed.and(Err(StoreError::Corrupt { key: show_key(&key), what }));
                }
            }
        }
        claimed?;
        check_batch(&batch)?;
        writes.extend(batch);
        let after = state.check(&writes)?;
        if writes.iter().any(|write| !matches!(write, Write::Delete { .. })) {
            self.check_room(state.held(), after.saturating_sub(state.value_bytes))?;
        }
        writes.into_iter().for_each(|write| state.apply(write));
        Ok(())
    }

    fn unstage(&self, staged: Staged) {
        self.state.lock().unstage(&staged);
    }

    fn usage(&self) -> Result<StoreUse, StoreError> {
        let state = self.state.lock();
        Ok(StoreUse {
            keys: state.entries.len() as u64,
            value_bytes: state.value_bytes,
            dead_bytes: 0,
            free_bytes: self.bytes_max.saturating_sub(state.held()),
            ..StoreUse::default()
        })
    }
}

impl MemoryState {
    fn held(&self) -> u64 {
        self.value_bytes + self.staged_bytes
    }

    fn unstage(&mut self, staged: &Staged) -> Option<Value> {
        let value = self.staged.remove(&staged.file)?;
        self.staged_bytes -= value.len() as u64;
        Some(value)
    }

    /// Whether all conditions hold, each write seeing those before it. Returns the bytes of all values afterwards.
    fn check(&self, writes: &[Write]) -> Result<u64, StoreError> {
        let unversioned = Version::new();
        let mut touched: HashMap<&Key, Option<(&Version, u64)>> = HashMap::new();
        let mut bytes = self.value_bytes;
        for write in writes {
            let stored = || self.entries.get(write.key()).map(|held| (&held.version, held.value.len() as u64));
            let before = touched.get(write.key()).copied().unwrap_or_else(stored);
            let (expected, after) = match write {
                Write::Put(put) => (&put.expected, Some((&put.version, put.value.len() as u64))),
                Write::Delete { expected, .. } => (expected, None),
                Write::Copy { from, splice, .. } => {
                    let bytes = self.copied(from, splice.as_ref()).map(|value| value.len() as u64);
                    let bytes = bytes.ok_or_else(|| StoreError::Conflict { key: show_key(from) })?;
                    (&Expected::Any, Some((&unversioned, bytes)))
                }
            };
            let holds = match expected {
                Expected::Any => true,
                Expected::Absent => before.is_none(),
                Expected::Version(version) => before.is_some_and(|(there, _)| there == version),
                Expected::Unversioned => before.is_none_or(|(there, _)| there.is_empty()),
            };
            if !holds {
                return Err(StoreError::Conflict { key: show_key(write.key()) });
            }
            bytes = bytes - before.map_or(0, |(_, bytes)| bytes) + after.map_or(0, |(_, bytes)| bytes);
            touched.insert(write.key(), after);
        }
        Ok(bytes)
    }

    /// What a copy of a key's value has; none: there is no such value.
    fn copied(&self, from: &Key, splice: Option<&Splice>) -> Option<Value> {
        let held = self.entries.get(from)?;
        splice.map_or_else(|| Some(held.value.clone()), |splice| splice.apply(&held.value))
    }

    fn apply(&mut self, write: Write) {
        let replaced = match write {
            Write::Put(Put { key, value, version, tag, .. }) => {
                self.value_bytes += value.len() as u64;
                self.entries.insert(key, MemoryEntry { value, version, tag })
            }
            Write::Delete { key, .. } => self.entries.remove(&key),
            Write::Copy { from, to, splice } => {
                let value = self.copied(&from, splice.as_ref()).unwrap_or_default();
                self.value_bytes += value.len() as u64;
                self.entries.insert(to, MemoryEntry { value, version: Version::new(), tag: Tag::default() })
            }
        };
        self.value_bytes -= replaced.map_or(0, |held| held.value.len() as u64);
    }
}

impl MemoryEntry {
    fn entry(&self, key: &Key) -> Entry {
        Entry { key: key.clone(), version: self.version.clone(), tag: self.tag.clone(), bytes: self.value.len() as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_store_refuses_puts_and_takes_deletes() {
        let store = MemoryStore::bounded(10);
        let put = |key: &'static str, bytes: usize| store.write(vec![Write::put(key, vec![0; bytes])], Durability::Through);
        put("a", 8).unwrap();
        assert!(matches!(put("b", 3), Err(StoreError::NoSpace { needed: 3, .. })));
        assert!(matches!(store.stage(vec![0; 3].into()), Err(StoreError::NoSpace { .. })));
        store.write(vec![Write::delete("a")], Durability::Through).unwrap();
        put("b", 10).unwrap();
        assert_eq!(store.usage().unwrap().free_bytes, 0);
    }
}
