//! [`StoredCode`]: compiled code of modules in the drive's store, and the secret that seals it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use pithead_model::{Blame, Fault};
use pithead_program::{CodeStore, Secret, hex};
use pithead_store::{Durability, Key, Store, VALUE_BYTES_MAX, Write};

/// Compiled code of modules of SSDlets, by what it was made from; see [`pithead_program::Runtime::code_key`].
pub(super) const CODE_PREFIX: &str = "program/code/";
/// That of modules of functions; see [`pithead_program::FunctionEngine::code_key`].
pub(super) const FUNCTION_CODE_PREFIX: &str = "program/function-code/";
/// The file with the secret, in the drive's folder.
const SECRET_FILE: &str = "program.secret";

/// Code that outlives the process, under keys of the store.
pub(super) struct StoredCode {
    store: Arc<dyn Store>,
    prefix: &'static str,
}

impl StoredCode {
    pub(super) fn new(store: Arc<dyn Store>, prefix: &'static str) -> Self {
        Self { store, prefix }
    }
}

impl CodeStore for StoredCode {
    fn load(&self, key: &[u8; 32]) -> Option<Vec<u8>> {
        self.store.get(&code_key(self.prefix, key)).ok()?.map(|(value, _)| value.to_vec())
    }

    fn save(&self, key: &[u8; 32], sealed: &[u8]) {
        if sealed.len() > VALUE_BYTES_MAX {
            return;
        }
        let write = Write::put(code_key(self.prefix, key), sealed.to_vec());
        if let Err(error) = self.store.write(vec![write], Durability::Back) {
            tracing::warn!(%error, "compiled code was not kept: the next process compiles it again");
        }
    }
}

pub(super) fn code_key(prefix: &str, key: &[u8; 32]) -> Key {
    format!("{prefix}{}", hex(key)).into()
}

/// Deletes all code of a prefix but that of these keys. It blocks.
pub(super) fn delete_others(store: &dyn Store, prefix: &str, kept: &[[u8; 32]]) -> Result<(), Fault> {
    let kept: HashSet<Key> = kept.iter().map(|key| code_key(prefix, key)).collect();
    let others = store.list(prefix.as_bytes())?.into_iter().filter(|entry| !kept.contains(&entry.key));
    let deletes: Vec<Write> = others.map(|entry| Write::delete(entry.key)).collect();
    if !deletes.is_empty() {
        store.write(deletes, Durability::Back)?;
    }
    Ok(())
}

/// The secret of the drive in a folder, made where there is none. It blocks.
pub(super) fn secret(folder: &Path) -> Result<Secret, Fault> {
    let path = folder.join(SECRET_FILE);
    Secret::of_file(&path).map_err(|error| Fault::new(Blame::Device, format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use pithead_store::MemoryStore;

    use super::*;

    #[test]
    fn code_of_modules_that_are_gone_goes() {
        let store = Arc::new(MemoryStore::new());
        let code = StoredCode::new(Arc::clone(&store) as Arc<dyn Store>, CODE_PREFIX);
        let keys = [[1; 32], [2; 32], [3; 32]];
        keys.iter().for_each(|key| code.save(key, b"sealed"));
        store.write(vec![Write::put("program/module/m", "bytes")], Durability::Through).unwrap();
        delete_others(&*store, CODE_PREFIX, &keys[..1]).unwrap();
        assert_eq!(keys.map(|key| code.load(&key).is_some()), [true, false, false]);
        assert_eq!(store.list(b"").unwrap().len(), 2);
    }
}
