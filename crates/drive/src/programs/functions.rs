//! Functions of users: their modules as key-values of the store, by the hash of their bytes, and the functions themselves for the
//! sessions that call them.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use pithead_cse::Manifests;
use pithead_door::{FunctionAsk, FunctionModule, check_function};
use pithead_functions::Registry;
use pithead_model::{Blame, CalledFunction, Fault};
use pithead_program::FunctionModule as Compiled;
use pithead_store::{Durability, Key, Store, Write};
use pithead_wasm_sql::{Code, Sealed, compiled, extensions, hash_of, known};

use super::Programs;
use super::code::{FUNCTION_CODE_PREFIX, StoredCode, code_key, delete_others, secret};
use super::faults::task_fault;

/// When a module was kept last, in seconds since 1970 as 8 bytes, and its bytes; by their SHA-256.
const FUNCTION_PREFIX: &str = "program/function/";
const KEPT_BYTES: usize = 8;
/// A module that no manifest names stays for so long after it was kept: the manifest that is to name it may be on its way.
const UNNAMED_WAIT: Duration = Duration::from_secs(24 * 3600);
/// Sets of functions whose registries are kept at most.
pub(super) const REGISTRIES_MAX: NonZeroUsize = NonZeroUsize::new(64).expect("it is not 0");

impl Programs {
    /// Checks, compiles and keeps a module: see [`pithead_door::Door::keep_function`].
    pub(crate) async fn keep_function(&self, module: FunctionModule) -> Result<String, Fault> {
        self.applications.shutdown().check()?;
        check_function(&module)?;
        let (hash, bytes) = (hash_of(&module.bytes), module.bytes.clone());
        let compiled = self.compiled_function(&hash, async { Ok(bytes) }).await?;
        let _turn = self.changing.lock().await;
        let (store, manifests) = (Arc::clone(&self.storage.store), self.storage.manifests.clone());
        let code = self.function_code();
        let keep = move || {
            let value = [&now_s().to_le_bytes(), module.bytes.as_ref()].concat();
            store.write(vec![Write::put(function_key(&hash), value)], Durability::Through)?;
            // A host of this process may have compiled it, which keeps nothing.
            if !has_code(&*store, &hash)? {
                code().iter().try_for_each(|code| pithead_wasm_sql::keep(&compiled, &hash, code))?;
            }
            if let Err(fault) = sweep(&*store, &manifests, &hash) {
                tracing::warn!(%fault, "modules of functions that are gone stay for now");
            }
            Ok::<_, Fault>(hash)
        };
        let hash = self.resources.workers.blocking(keep).await??;
        tracing::info!(module = hash, "a module of functions was kept");
        Ok(hash)
    }

    /// A module's bytes: see [`pithead_door::Door::function`].
    pub(crate) async fn function(&self, ask: FunctionAsk) -> Result<Option<Bytes>, Fault> {
        match ask.bytes {
            true => {
                let bytes = self.kept(ask.module.clone()).await?;
                self.warm(&ask.module, bytes.as_ref()).await?;
                Ok(bytes)
            }
            false => Ok(self.is_kept(ask.module).await?.then(Bytes::new)),
        }
    }

    /// Whoever asks for a module's bytes is about to call it: a host of this process, which then has it compiled, or one elsewhere,
    /// whose session follows. Nobody waits for a compilation here.
    async fn warm(&self, hash: &str, bytes: Option<&Bytes>) -> Result<(), Fault> {
        let Some(bytes) = bytes.filter(|_| known(hash).is_none()).cloned() else { return Ok(()) };
        let (store, of) = (Arc::clone(&self.storage.store), hash.to_owned());
        if self.resources.workers.blocking(move || has_code(&*store, &of)).await?? {
            self.compiled_function(hash, async { Ok(bytes) }).await?;
        }
        Ok(())
    }

    /// Where code of functions outlives the process; none without a secret to seal it with. It blocks.
    fn function_code(&self) -> impl Fn() -> Option<Sealed> + Send + 'static {
        let (store, folder) = (Arc::clone(&self.storage.store), self.folder.clone());
        move || {
            let secret = secret(&folder).inspect_err(|fault| tracing::warn!(%fault, "compiled functions are not kept"));
            Some(Sealed::new(Arc::new(StoredCode::new(Arc::clone(&store), FUNCTION_CODE_PREFIX)), secret.ok()?))
        }
    }

    async fn is_kept(&self, hash: String) -> Result<bool, Fault> {
        let store = Arc::clone(&self.storage.store);
        let entry = move || Ok::<_, Fault>(store.entry(&function_key(&hash))?);
        let entry = self.resources.workers.blocking(entry).await??;
        Ok(entry.is_some_and(|entry| entry.bytes > KEPT_BYTES as u64))
    }

    async fn kept(&self, hash: String) -> Result<Option<Bytes>, Fault> {
        let store = Arc::clone(&self.storage.store);
        let read = move || Ok::<_, Fault>(store.get(&function_key(&hash))?.map(|(value, _)| value));
        let value = self.resources.workers.blocking(read).await??;
        Ok(value.filter(|value| value.len() > KEPT_BYTES).map(|value| value.slice(KEPT_BYTES..)))
    }

    /// The functions that a session may call: the drive's own, and the functions of users that its OPEN names.
    pub(crate) async fn registry(&self, wanted: &[String], own: &Arc<Registry>) -> Result<Arc<Registry>, Fault> {
        let wanted: Vec<&String> = wanted.iter().filter(|extension| CalledFunction::is(extension)).collect();
        if wanted.is_empty() {
            return Ok(Arc::clone(own));
        }
        let key: Vec<String> = wanted.iter().map(ToString::to_string).collect();
        if let Some(known) = self.registries.lock().get(&key) {
            return Ok(Arc::clone(known));
        }
        let mut found = Vec::with_capacity(wanted.len());
        for one in wanted.into_iter().filter_map(|extension| CalledFunction::parse(extension)) {
            let called = one?;
            found.extend(extensions(&called, &self.code(&called).await?));
        }
        let registry = Arc::new(own.with(found)?);
        self.registries.lock().put(key, Arc::clone(&registry));
        Ok(registry)
    }

    async fn code(&self, called: &CalledFunction) -> Result<Code, Fault> {
        let missing = || {
            let what = format!("the drive lacks the module of the function {}", called.name());
            Fault::new(Blame::Unsupported, what).hint("run the query again, and the host brings it")
        };
        let hash = &called.function.module;
        if !self.is_kept(hash.clone()).await? {
            return Err(missing());
        }
        let module = self.compiled_function(hash, async { self.kept(hash.clone()).await?.ok_or_else(missing) }).await?;
        let code = Code::default();
        code.set(module);
        Ok(code)
    }

    /// A module by its hash, compiled where no call of the store waits for that. Its bytes are asked for once it is its turn, which
    /// is the compilation's: that ends even if nobody waits for it any more.
    async fn compiled_function(
        &self,
        hash: &str,
        bytes: impl Future<Output = Result<Bytes, Fault>>,
    ) -> Result<Arc<Compiled>, Fault> {
        if let Some(module) = known(hash) {
            return Ok(module);
        }
        let turn =
            self.compiling.turn(hash.to_owned()).await.ok_or_else(|| {
                Fault::new(Blame::Limit, "many modules of functions wait to be compiled").hint("try again later")
            })?;
        if let Some(module) = known(hash) {
            return Ok(module);
        }
        let bytes = bytes.await?;
        let code = self.function_code();
        let compiling = self.resources.workers.pool().spawn_lengthy(move || {
            let _turn = turn;
            compiled(&bytes, code().as_ref())
        });
        compiling.await.map_err(task_fault)?
    }
}

fn function_key(hash: &str) -> Key {
    format!("{FUNCTION_PREFIX}{hash}").into()
}

/// Whether the compiled code of a module is kept for this release.
fn has_code(store: &dyn Store, hash: &str) -> Result<bool, Fault> {
    Ok(store.entry(&code_key(FUNCTION_CODE_PREFIX, &pithead_wasm_sql::code_key(hash)?))?.is_some())
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Deletes modules, with their code, that no manifest of this drive names, and that were kept long ago. It blocks.
fn sweep(store: &dyn Store, manifests: &Manifests, kept: &str) -> Result<(), Fault> {
    let mut named = HashSet::from([function_key(kept)]);
    for domain in manifests.domains()? {
        // A manifest that cannot be read might name any module, so its fault ends the sweep.
        let manifest = manifests.read(&domain.name)?;
        named.extend(manifest.iter().flat_map(|it| it.functions.values()).map(|function| function_key(&function.module)));
    }
    let mut deletes = Vec::new();
    for entry in store.list(FUNCTION_PREFIX.as_bytes())?.into_iter().filter(|entry| !named.contains(&entry.key)) {
        let Some((value, _)) = store.get(&entry.key)? else { continue };
        let kept_s = value.get(..KEPT_BYTES).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
        if now_s().saturating_sub(kept_s) > UNNAMED_WAIT.as_secs() {
            deletes.push(Write::delete(entry.key));
        }
    }
    if !deletes.is_empty() {
        store.write(deletes, Durability::Back)?;
    }
    let there = store.list(FUNCTION_PREFIX.as_bytes())?;
    let hashes = there.iter().filter_map(|entry| str::from_utf8(&entry.key[FUNCTION_PREFIX.len()..]).ok());
    let kept: Vec<[u8; 32]> = hashes.map(pithead_wasm_sql::code_key).collect::<Result<_, _>>()?;
    delete_others(store, FUNCTION_CODE_PREFIX, &kept)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pithead_model::{DriveId, Function, FunctionKind, FunctionType, Manifest, Volatility};
    use pithead_store::MemoryStore;

    use super::*;

    #[test]
    fn modules_go_once_no_manifest_names_them_and_they_are_old() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let manifests = Manifests::new(Arc::clone(&store), DriveId(1));
        let hash = |digit: &str| digit.repeat(64);
        let code = |digit: &str| code_key(FUNCTION_CODE_PREFIX, &pithead_wasm_sql::code_key(&hash(digit)).unwrap());
        let put = |digit: &str, kept_s: u64| {
            let value = [&kept_s.to_le_bytes()[..], b"module"].concat();
            let batch = vec![Write::put(function_key(&hash(digit)), value), Write::put(code(digit), "code")];
            store.write(batch, Durability::Through).unwrap();
        };
        put("a", 0);
        put("b", 0);
        put("c", now_s());
        put("d", 0);
        let function = Function {
            arguments: vec![],
            returns: FunctionType::Bigint,
            volatility: Volatility::Immutable,
            called_on_null: false,
            module: hash("a"),
            export: "one".into(),
            kind: FunctionKind::Scalar,
        };
        let functions = BTreeMap::from([("one".to_owned(), function)]);
        let manifest = Manifest { version: 1, functions, ..Manifest::empty("lab", vec![DriveId(1)]) };
        manifests.replace(0, manifest).unwrap();
        sweep(&*store, &manifests, &hash("d")).unwrap();
        let there = ["a", "b", "c", "d"].map(|digit| store.get(&function_key(&hash(digit))).unwrap().is_some());
        assert_eq!(there, [true, false, true, true], "named, neither, new, just kept");
        let codes = ["a", "b", "c", "d"].map(|digit| store.get(&code(digit)).unwrap().is_some());
        assert_eq!(codes, there);
    }
}
