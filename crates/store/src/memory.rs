//! [`MemoryStore`]: a store that forgets, for tests and simulation.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::bounds::{check_batch, check_key, check_value};
use crate::{Entry, Expected, Staged, Store, StoreError, StoreUse, Value, Version, Write};

/// A store in memory.
#[derive(Debug)]
pub struct MemoryStore {
    bytes_max: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: Entries,
    staged: HashMap<u64, Value>,
    last_file: u64,
}

#[derive(Clone, Debug, Default)]
struct Entries {
    map: BTreeMap<String, (Value, Version)>,
    last_version: Version,
}

impl MemoryStore {
    /// An empty store without a bound.
    pub fn new() -> Self {
        Self::bounded(u64::MAX)
    }

    /// An empty store that is full at so many bytes of values.
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
    fn get(&self, key: &str) -> Result<Option<(Value, Version)>, StoreError> {
        Ok(self.state.lock().entries.map.get(key).cloned())
    }

    fn entry(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        Ok(self.state.lock().entries.map.get_key_value(key).map(entry))
    }

    fn list(&self, prefix: &str) -> Result<Vec<Entry>, StoreError> {
        let state = self.state.lock();
        let from = state.entries.map.range(prefix.to_string()..);
        Ok(from.take_while(|(key, _)| key.starts_with(prefix)).map(entry).collect())
    }

    fn write(&self, batch: Vec<Write>) -> Result<(), StoreError> {
        self.adopt(Vec::new(), batch)
    }

    fn stage(&self, value: &[u8]) -> Result<Staged, StoreError> {
        check_value("a staged put", value.len())?;
        let mut state = self.state.lock();
        self.check_room(state.held(), value.len() as u64)?;
        state.last_file += 1;
        let file = state.last_file;
        state.staged.insert(file, Value::copy_from_slice(value));
        Ok(Staged { file, bytes: value.len() as u64, checksum: xxh3_64(value) })
    }

    fn adopt(&self, staged: Vec<(String, Staged)>, batch: Vec<Write>) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let taken: Vec<_> = staged.into_iter().map(|(key, staged)| (key, state.staged.remove(&staged.file))).collect();
        check_batch(&batch)?;
        let mut after = state.entries.clone();
        for (key, value) in taken {
            check_key(&key)?;
            match value {
                Some(value) => after.put(key, value),
                None => return Err(StoreError::Corrupt { key, what: "its value is not staged in this store".to_string() }),
            }
        }
        let puts = batch.iter().any(|write| matches!(write, Write::Put { .. }));
        batch.into_iter().try_for_each(|write| after.apply(write))?;
        let growth = after.value_bytes().saturating_sub(state.entries.value_bytes());
        if puts {
            self.check_room(state.held(), growth)?;
        }
        state.entries = after;
        Ok(())
    }

    fn unstage(&self, staged: Staged) {
        self.state.lock().staged.remove(&staged.file);
    }

    fn usage(&self) -> Result<StoreUse, StoreError> {
        let state = self.state.lock();
        let (keys, value_bytes) = (state.entries.map.len() as u64, state.entries.value_bytes());
        Ok(StoreUse { keys, value_bytes, free_bytes: self.bytes_max.saturating_sub(state.held()) })
    }
}

impl State {
    fn held(&self) -> u64 {
        self.entries.value_bytes() + self.staged.values().map(|value| value.len() as u64).sum::<u64>()
    }
}

impl Entries {
    fn apply(&mut self, write: Write) -> Result<(), StoreError> {
        let (key, value, expected) = match write {
            Write::Put { key, value, expected } => (key, Some(value), expected),
            Write::Delete { key, expected } => (key, None, expected),
        };
        let version = self.map.get(&key).map(|(_, version)| *version);
        let holds = match expected {
            Expected::Any => true,
            Expected::Absent => version.is_none(),
            Expected::Version(expected) => version == Some(expected),
        };
        match value {
            _ if !holds => return Err(StoreError::Conflict { key }),
            Some(value) => self.put(key, value),
            None => drop(self.map.remove(&key)),
        }
        Ok(())
    }

    fn put(&mut self, key: String, value: Value) {
        self.last_version += 1;
        self.map.insert(key, (value, self.last_version));
    }

    fn value_bytes(&self) -> u64 {
        self.map.values().map(|(value, _)| value.len() as u64).sum()
    }
}

fn entry((key, (value, version)): (&String, &(Value, Version))) -> Entry {
    Entry { key: key.clone(), version: *version, bytes: value.len() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_store_refuses_puts_and_takes_deletes() {
        let store = MemoryStore::bounded(10);
        let put = |key: &str, bytes| Write::Put { key: key.into(), value: vec![0; bytes].into(), expected: Expected::Any };
        store.write(vec![put("a", 8)]).unwrap();
        assert!(matches!(store.write(vec![put("b", 3)]), Err(StoreError::NoSpace { needed: 3, .. })));
        assert!(matches!(store.stage(&[0; 3]), Err(StoreError::NoSpace { .. })));
        store.write(vec![Write::Delete { key: "a".into(), expected: Expected::Any }]).unwrap();
        store.write(vec![put("b", 10)]).unwrap();
        assert_eq!(store.usage().unwrap().free_bytes, 0);
    }
}
