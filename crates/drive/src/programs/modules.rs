//! Modules as key-values of the drive's store. A module and what is said of it are written in one batch, so that both are there
//! or neither, whenever the drive is killed.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use pithead_door::{DeclaredSsdlet, LoadModule, ReadsNothing, StoredModule, check_module, check_module_name};
use pithead_model::{Blame, Fault};
use pithead_program::{Declared, Module, Services};
use pithead_store::{Durability, Expected, Key, Put, Store, Version, Write};
use sha2::{Digest, Sha256};

use super::Programs;
use super::code::{delete_others, hex};
use super::faults::program_fault;
use super::services::DriveServices;

/// WebAssembly, by the module's name.
const MODULE_PREFIX: &str = "program/module/";
/// [`StoredModule`] as JSON, by the module's name.
const ABOUT_PREFIX: &str = "program/about/";
/// The most modules that are ready to run while nobody runs them.
pub(super) const MODULES_MAX: NonZeroUsize = NonZeroUsize::new(256).expect("it is not 0");

/// A module that is ready to run.
#[derive(Clone, Debug)]
pub(super) struct KnownModule {
    /// The hash of its bytes: its name may stand for another one by now.
    sha256: String,
    module: Arc<Module>,
}

impl Programs {
    /// Checks, compiles and keeps a module: see [`pithead_door::Door::load_module`].
    pub(crate) async fn load_module(&self, request: LoadModule) -> Result<StoredModule, Fault> {
        self.applications.shutdown().check()?;
        check_module(&request)?;
        let sha256 = hex(&Sha256::digest(&request.bytes));
        if let Some(same) = same_module(&request, &sha256, self.about(request.name.clone()).await?.as_ref())? {
            return Ok(same);
        }
        let module = self.compiled(&request.name, request.bytes.clone()).await?;
        // Compilation takes long, and the modules may have changed meanwhile.
        let _turn = self.changing.lock().await;
        let before = self.about(request.name.clone()).await?;
        if let Some(same) = same_module(&request, &sha256, before.as_ref())? {
            return Ok(same);
        }
        let version = before.as_ref().map_or(0, |before| before.version);
        let about = StoredModule {
            name: request.name,
            version: version + 1,
            bytes: request.bytes.len() as u64,
            sha256,
            loaded_s: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            ssdlets: module.declared().iter().map(described).collect(),
        };
        let batch = writes(&about, before.as_ref(), request.bytes)?;
        let store = Arc::clone(&self.storage.store);
        self.resources.workers.blocking(move || store.write(batch, Durability::Through)).await??;
        self.know(&about, module);
        self.sweep().await;
        tracing::info!(module = about.name, version = about.version, bytes = about.bytes, "a module was loaded");
        Ok(about)
    }

    /// The descriptions of all modules, by name.
    pub(crate) async fn modules(&self) -> Result<Vec<StoredModule>, Fault> {
        let store = Arc::clone(&self.storage.store);
        self.resources.workers.blocking(move || all_about(&*store)).await?
    }

    /// Deletes a module. Whether it was there.
    pub(crate) async fn remove_module(&self, name: String) -> Result<bool, Fault> {
        self.applications.shutdown().check()?;
        check_module_name(&name)?;
        let _turn = self.changing.lock().await;
        if self.about(name.clone()).await?.is_none() {
            return Ok(false);
        }
        let batch = vec![Write::delete(about_key(&name)), Write::delete(module_key(&name))];
        let store = Arc::clone(&self.storage.store);
        self.resources.workers.blocking(move || store.write(batch, Durability::Through)).await??;
        self.known.lock().remove(&*name);
        self.sweep().await;
        tracing::info!(module = name, "a module was removed");
        Ok(true)
    }

    /// A module that is kept, ready to run.
    pub(super) async fn module(&self, name: &str) -> Result<Arc<Module>, Fault> {
        let missing = || {
            Fault::new(Blame::User, format!("the drive has no module {name}"))
                .hint("`pithead program ls` shows those that there are, and `pithead program load` loads one")
        };
        let about = self.about(name.to_owned()).await?.ok_or_else(missing)?;
        let known = self.known.lock().get(name).filter(|known| known.sha256 == about.sha256);
        if let Some(KnownModule { module, .. }) = known {
            return Ok(module);
        }
        let (store, key) = (Arc::clone(&self.storage.store), module_key(name));
        let (bytes, _) = self.resources.workers.blocking(move || store.get(&key)).await??.ok_or_else(missing)?;
        if hex(&Sha256::digest(&bytes)) != about.sha256 {
            return Err(Fault::new(Blame::Conflict, format!("the module {name} was replaced meanwhile")).hint("try again"));
        }
        let module = self.compiled(name, bytes).await?;
        self.know(&about, Arc::clone(&module));
        Ok(module)
    }

    fn know(&self, about: &StoredModule, module: Arc<Module>) {
        let bytes = module.code_bytes();
        self.known.lock().put(about.name.clone(), KnownModule { sha256: about.sha256.clone(), module }, bytes);
    }

    /// A module from its bytes, compiled unless the drive has compiled the same bytes before.
    pub(super) async fn compiled(&self, name: &str, bytes: Bytes) -> Result<Arc<Module>, Fault> {
        // What declares its SSDlets runs for nobody yet.
        let services: Arc<dyn Services> =
            Arc::new(DriveServices::new(Arc::clone(&self.storage), Arc::clone(&self.resources), Arc::new(ReadsNothing)));
        self.runtime().await?.load(name, bytes, &services).await.map_err(program_fault)
    }

    async fn about(&self, name: String) -> Result<Option<StoredModule>, Fault> {
        let store = Arc::clone(&self.storage.store);
        let read = move || store.get(&about_key(&name))?.map(|(value, _)| parse(&name, &value)).transpose();
        self.resources.workers.blocking(read).await?
    }

    /// Deletes compiled code that no module needs. A failure leaves it for the next time.
    async fn sweep(&self) {
        let swept = async {
            let runtime = Arc::clone(self.runtime().await?);
            let store = Arc::clone(&self.storage.store);
            let sweep = move || {
                let kept: Vec<[u8; 32]> =
                    all_about(&*store)?.iter().filter_map(|about| Some(runtime.code_key(&bytes_of(&about.sha256)?))).collect();
                delete_others(&*store, &kept)
            };
            self.resources.workers.blocking(sweep).await?
        };
        if let Err(fault) = swept.await {
            tracing::warn!(%fault, "compiled code of modules that are gone stays for now");
        }
    }
}

/// The module that is loaded by this name already, if it is the same. Another one has to be replaced on purpose.
fn same_module(request: &LoadModule, sha256: &str, before: Option<&StoredModule>) -> Result<Option<StoredModule>, Fault> {
    match before {
        Some(before) if before.sha256 == sha256 => Ok(Some(before.clone())),
        Some(_) if !request.replace => {
            let what = format!("another module is loaded as {}", request.name);
            Err(Fault::new(Blame::Conflict, what).hint("`pithead program load --replace` puts this one in its place"))
        }
        _ => Ok(None),
    }
}

fn about_key(name: &str) -> Key {
    format!("{ABOUT_PREFIX}{name}").into()
}

fn module_key(name: &str) -> Key {
    format!("{MODULE_PREFIX}{name}").into()
}

/// Both writes, if the module is still what it was before.
fn writes(about: &StoredModule, before: Option<&StoredModule>, bytes: Bytes) -> Result<Vec<Write>, Fault> {
    let json = serde_json::to_vec(about).map_err(|error| Fault::new(Blame::Bug, error.to_string()))?;
    let version = |version: u64| Version::from(version.to_string());
    let expected = before.map_or(Expected::Absent, |before| Expected::Version(version(before.version)));
    let put = |key, value: Bytes| {
        let version = version(about.version);
        Write::Put(Put { version, expected: expected.clone(), ..Put::forced(key, value) })
    };
    Ok(vec![put(about_key(&about.name), json.into()), put(module_key(&about.name), bytes)])
}

fn parse(name: &str, value: &[u8]) -> Result<StoredModule, Fault> {
    serde_json::from_slice(value)
        .map_err(|error| Fault::new(Blame::Corrupt, format!("what is said of the module {name} is damaged: {error}")))
}

/// The descriptions of all modules. It blocks.
fn all_about(store: &dyn Store) -> Result<Vec<StoredModule>, Fault> {
    let mut all = Vec::new();
    for entry in store.list(ABOUT_PREFIX.as_bytes())? {
        // A module that was deleted meanwhile is left out.
        let Some((value, _)) = store.get(&entry.key)? else { continue };
        all.push(parse(&String::from_utf8_lossy(&entry.key[ABOUT_PREFIX.len()..]), &value)?);
    }
    Ok(all)
}

fn described(declared: &Declared) -> DeclaredSsdlet {
    fn texts(all: &[impl ToString]) -> Vec<String> {
        all.iter().map(ToString::to_string).collect()
    }
    let Declared { name, inputs, outputs, arguments } = declared;
    DeclaredSsdlet { name: name.clone(), inputs: texts(inputs), outputs: texts(outputs), arguments: texts(arguments) }
}

/// 32 bytes from their hexadecimal digits.
fn bytes_of(digits: &str) -> Option<[u8; 32]> {
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..64).step_by(2).map(byte).collect();
    bytes?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_read_back() {
        let hash: [u8; 32] = Sha256::digest(b"module").into();
        assert_eq!(bytes_of(&hex(&hash)), Some(hash));
        assert_eq!(bytes_of("0"), None);
        assert_eq!(bytes_of(&"é".repeat(32)), None);
    }
}
