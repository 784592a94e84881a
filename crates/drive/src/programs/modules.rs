//! Modules as key-values of the drive's store. A module and what is said of it are written in one batch, so that both are there
//! or neither, whenever the drive is killed.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use pithead_door::{DeclaredSsdlet, LoadModule, ReadsNothing, StoredModule, check_module, check_module_name};
use pithead_model::{Blame, Fault};
use pithead_program::{Declared, Module, Services, hex, sha256_of_hex};
use pithead_store::{Durability, Expected, Key, Put, Store, Version, Write};
use sha2::{Digest, Sha256};

use super::Programs;
use super::code::{CODE_PREFIX, delete_others};
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

/// What becomes of the compiled code of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// The store has it for the next process.
    Stored,
    /// It is in memory only: the drive does not keep the module, so that nothing would ever delete its code.
    Nothing,
}

impl Programs {
    /// Checks, compiles and keeps a module: see [`pithead_door::Door::load_module`].
    pub(crate) async fn load_module(&self, request: LoadModule) -> Result<StoredModule, Fault> {
        self.applications.shutdown().check()?;
        check_module(&request)?;
        let sha256 = hex(&Sha256::digest(&request.bytes));
        if let Some(same) = self.before(&request.name).await?.same(&request, &sha256)? {
            return Ok(same);
        }
        let module = self.compiled(&request.name, request.bytes.clone(), Keep::Stored).await?;
        // Compilation takes long, and the modules may have changed meanwhile.
        let _turn = self.changing.lock().await;
        let before = self.before(&request.name).await?;
        if let Some(same) = before.same(&request, &sha256)? {
            return Ok(same);
        }
        let about = StoredModule {
            name: request.name,
            version: before.version + 1,
            bytes: request.bytes.len() as u64,
            sha256,
            loaded_s: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            ssdlets: module.declared().iter().map(described).collect(),
        };
        let batch = writes(&about, before, request.bytes)?;
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
        if !self.before(&name).await?.is_there() {
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
        let module = self.compiled(name, bytes, Keep::Stored).await?;
        self.know(&about, Arc::clone(&module));
        Ok(module)
    }

    fn know(&self, about: &StoredModule, module: Arc<Module>) {
        let bytes = module.code_bytes();
        self.known.lock().put(about.name.clone(), KnownModule { sha256: about.sha256.clone(), module }, bytes);
    }

    /// A module from its bytes, compiled unless the drive has compiled the same bytes before.
    pub(super) async fn compiled(&self, name: &str, bytes: Bytes, keep: Keep) -> Result<Arc<Module>, Fault> {
        // What declares its SSDlets runs for nobody yet.
        let services: Arc<dyn Services> =
            Arc::new(DriveServices::new(Arc::clone(&self.storage), Arc::clone(&self.resources), Arc::new(ReadsNothing)));
        let runtime = self.runtime().await?;
        let loaded = match keep {
            Keep::Stored => runtime.load(name, bytes, &services).await,
            Keep::Nothing => runtime.load_once(name, bytes, &services).await,
        };
        loaded.map_err(program_fault)
    }

    async fn before(&self, name: &str) -> Result<Before, Fault> {
        let (store, name) = (Arc::clone(&self.storage.store), name.to_owned());
        self.resources.workers.blocking(move || Before::read(&*store, &name)).await?
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
                let kept: Vec<[u8; 32]> = all_about(&*store)?
                    .iter()
                    .filter_map(|about| Some(runtime.code_key(&sha256_of_hex(&about.sha256)?)))
                    .collect();
                delete_others(&*store, CODE_PREFIX, &kept)
            };
            self.resources.workers.blocking(sweep).await?
        };
        if let Err(fault) = swept.await {
            tracing::warn!(%fault, "compiled code of modules that are gone stays for now");
        }
    }
}

/// What the store has under a module's name.
struct Before {
    about_version: Option<Version>,
    module_version: Option<Version>,
    /// The number of the one that is there; 0: none is.
    version: u64,
    /// None: there is none, or it is damaged.
    about: Option<StoredModule>,
    /// Of the bytes that are there; none where they are damaged.
    sha256: Option<String>,
}

impl Before {
    /// It blocks.
    fn read(store: &dyn Store, name: &str) -> Result<Self, Fault> {
        let version = |key: Key| Ok::<_, Fault>(store.entry(&key)?.map(|entry| entry.version));
        let (about_version, module_version) = (version(about_key(name))?, version(module_key(name))?);
        let about = store.get(&about_key(name)).map_err(Fault::from);
        let about = undamaged(about.and_then(|found| found.map(|(value, _)| parse(name, &value)).transpose()))?;
        let module = undamaged(store.get(&module_key(name)).map_err(Fault::from))?;
        let sha256 = module.map(|(bytes, _)| hex(&Sha256::digest(&bytes)));
        let number = |version: &Version| std::str::from_utf8(version).ok().and_then(|text| text.parse().ok());
        let numbers = [&about_version, &module_version].into_iter().flatten().filter_map(number);
        let version = numbers.max().unwrap_or(0);
        Ok(Self { about_version, module_version, version, about, sha256 })
    }

    fn is_there(&self) -> bool {
        self.about_version.is_some() || self.module_version.is_some()
    }

    /// The module that is loaded by this name already, if it is the same and whole. Another one has to be replaced on purpose.
    fn same(&self, request: &LoadModule, sha256: &str) -> Result<Option<StoredModule>, Fault> {
        match &self.about {
            Some(about) if about.sha256 == sha256 => Ok(Some(about.clone()).filter(|_| self.sha256.as_deref() == Some(sha256))),
            _ if !self.is_there() || request.replace => Ok(None),
            about => {
                let what = match about {
                    Some(_) => format!("another module is loaded as {}", request.name),
                    None => format!("a module is loaded as {}, and what is said of it is damaged", request.name),
                };
                Err(Fault::new(Blame::Conflict, what).hint("`pithead program load --replace` puts this one in its place"))
            }
        }
    }
}

/// Nothing where there is only something damaged.
fn undamaged<T>(read: Result<Option<T>, Fault>) -> Result<Option<T>, Fault> {
    match read {
        Err(fault) if fault.blame == Blame::Corrupt => Ok(None),
        read => read,
    }
}

fn about_key(name: &str) -> Key {
    format!("{ABOUT_PREFIX}{name}").into()
}

fn module_key(name: &str) -> Key {
    format!("{MODULE_PREFIX}{name}").into()
}

/// Both writes, if the module is still what it was before.
fn writes(about: &StoredModule, before: Before, bytes: Bytes) -> Result<Vec<Write>, Fault> {
    let json = serde_json::to_vec(about).map_err(|error| Fault::new(Blame::Bug, error.to_string()))?;
    let put = |key, value: Bytes, before: Option<Version>| {
        let version = Version::from(about.version.to_string());
        Write::Put(Put { version, expected: before.map_or(Expected::Absent, Expected::Version), ..Put::forced(key, value) })
    };
    let about_put = put(about_key(&about.name), json.into(), before.about_version);
    Ok(vec![about_put, put(module_key(&about.name), bytes, before.module_version)])
}

fn parse(name: &str, value: &[u8]) -> Result<StoredModule, Fault> {
    serde_json::from_slice(value)
        .map_err(|error| Fault::new(Blame::Corrupt, format!("what is said of the module {name} is damaged: {error}")))
        .map_err(|fault| fault.hint("load it again: `pithead program load --replace`"))
}

/// The descriptions of all modules, without those that are damaged. It blocks.
fn all_about(store: &dyn Store) -> Result<Vec<StoredModule>, Fault> {
    let mut all = Vec::new();
    for entry in store.list(ABOUT_PREFIX.as_bytes())? {
        let name = String::from_utf8_lossy(&entry.key[ABOUT_PREFIX.len()..]);
        let read = store.get(&entry.key).map_err(Fault::from);
        match read.and_then(|found| found.map(|(value, _)| parse(&name, &value)).transpose()) {
            // One that was deleted meanwhile is left out.
            Ok(about) => all.extend(about),
            Err(fault) if fault.blame == Blame::Corrupt => tracing::warn!(%fault, "a module is left out"),
            Err(fault) => return Err(fault),
        }
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
