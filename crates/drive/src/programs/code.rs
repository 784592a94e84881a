//! [`StoredCode`]: compiled code of modules in the drive's store, and the secret that seals it.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use pithead_model::{Blame, Fault};
use pithead_program::{CodeStore, Secret};
use pithead_store::{Durability, Key, Store, VALUE_BYTES_MAX, Write};

/// Compiled code, by what it was made from; see [`pithead_program::Runtime::code_key`].
const CODE_PREFIX: &str = "program/code/";
/// The file with the secret, in the drive's folder.
const SECRET_FILE: &str = "program.secret";
const SECRET_BYTES: usize = 32;

/// Code that outlives the process, under keys of the store.
pub(super) struct StoredCode {
    store: Arc<dyn Store>,
}

impl StoredCode {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }
}

impl CodeStore for StoredCode {
    fn load(&self, key: &[u8; 32]) -> Option<Vec<u8>> {
        self.store.get(&code_key(key)).ok()?.map(|(value, _)| value.to_vec())
    }

    fn save(&self, key: &[u8; 32], sealed: &[u8]) {
        if sealed.len() > VALUE_BYTES_MAX {
            return;
        }
        let write = Write::put(code_key(key), sealed.to_vec());
        if let Err(error) = self.store.write(vec![write], Durability::Back) {
            tracing::warn!(%error, "compiled code was not kept: the next process compiles it again");
        }
    }
}

fn code_key(key: &[u8; 32]) -> Key {
    format!("{CODE_PREFIX}{}", hex(key)).into()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Deletes all code but that of these keys. It blocks.
pub(super) fn delete_others(store: &dyn Store, kept: &[[u8; 32]]) -> Result<(), Fault> {
    let kept: HashSet<Key> = kept.iter().map(code_key).collect();
    let others = store.list(CODE_PREFIX.as_bytes())?.into_iter().filter(|entry| !kept.contains(&entry.key));
    let deletes: Vec<Write> = others.map(|entry| Write::delete(entry.key)).collect();
    if !deletes.is_empty() {
        store.write(deletes, Durability::Back)?;
    }
    Ok(())
}

/// The secret of the drive in a folder, made where there is none. It blocks.
pub(super) fn secret(folder: &Path) -> Result<Secret, Fault> {
    let path = folder.join(SECRET_FILE);
    let made = match fs::read(&path) {
        Ok(bytes) if bytes.len() == SECRET_BYTES => Ok(bytes),
        Ok(_) => make_secret(folder, &path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => make_secret(folder, &path),
        Err(error) => Err(error),
    };
    let bytes = made.map_err(|error| Fault::new(Blame::Device, format!("{}: {error}", path.display())))?;
    let bytes = bytes.try_into().map_err(|_| Fault::new(Blame::Bug, "a secret of another length"))?;
    Ok(Secret(bytes))
}

/// The file appears whole or not at all. Code that another secret has sealed is compiled anew.
fn make_secret(folder: &Path, path: &Path) -> io::Result<Vec<u8>> {
    let secret: [u8; SECRET_BYTES] = rand::random();
    let new = folder.join(format!("{SECRET_FILE}.new"));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(&secret)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder)?.sync_all()?;
    Ok(secret.to_vec())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use pithead_store::MemoryStore;

    use super::*;

    #[test]
    fn a_secret_stays_the_same_and_is_nobody_elses_to_read() {
        let folder = tempfile::tempdir().unwrap();
        let first = secret(folder.path()).unwrap().0;
        assert_eq!(secret(folder.path()).unwrap().0, first);
        let path = folder.path().join(SECRET_FILE);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, b"short").unwrap();
        assert_ne!(secret(folder.path()).unwrap().0, first);
    }

    #[test]
    fn code_of_modules_that_are_gone_goes() {
        let store = Arc::new(MemoryStore::new());
        let code = StoredCode::new(Arc::clone(&store) as Arc<dyn Store>);
        let keys = [[1; 32], [2; 32], [3; 32]];
        keys.iter().for_each(|key| code.save(key, b"sealed"));
        store.write(vec![Write::put("program/module/m", "bytes")], Durability::Through).unwrap();
        delete_others(&*store, &keys[..1]).unwrap();
        assert_eq!(keys.map(|key| code.load(&key).is_some()), [true, false, false]);
        assert_eq!(store.list(b"").unwrap().len(), 2);
    }
}
