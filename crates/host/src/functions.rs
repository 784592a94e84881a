//! Functions of users at the host: which there are by the manifests, and their modules, here and at the drives that run them.

mod creating;
mod definition;

pub(crate) use creating::{create, drop_function};
pub(crate) use definition::{Definition, Dropped};

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use futures::future::join_all;
use lru::LruCache;
use parking_lot::Mutex;
use pithead_door::{FunctionAsk, FunctionModule};
use pithead_fleet::{ConnectedDrive, Fleet, Snapshot};
use pithead_functions::{Registry, fault_from_datafusion};
use pithead_model::{Blame, CalledFunction, DriveId, Fault, Function, RUNS_USER_FUNCTIONS};
use pithead_wasm_sql::{
    Code, CodeFolder, FunctionModule as Compiled, Sealed, UserFunction, WeakCode, called, compiled, extensions, hash_of,
};

use crate::HostOptions;
use crate::information::{Routine, routines_of};

/// Sets of functions that are kept at most.
const SETS_MAX: NonZeroUsize = NonZeroUsize::new(16).expect("it is not 0");

/// What a drive has said of a module is believed for so long. Then it is asked again, before a statement calls a function of it: a drive
/// whose store was put back, or emptied, lacks what it had.
const BELIEVED: Duration = Duration::from_secs(2);
/// How long a drive that had a module may take to say that it still has it.
const PATIENCE: Duration = Duration::from_millis(200);

/// The functions of a host's domains.
pub(crate) struct Functions {
    fleet: Fleet,
    own: Arc<Registry>,
    /// By the modules' hashes, as long as a function has them.
    codes: Mutex<HashMap<String, WeakCode>>,
    /// Which drives have which modules, as far as it is known, and since when.
    at_drives: Mutex<HashMap<(DriveId, String), Instant>>,
    sets: Mutex<LruCache<Vec<Named>, Arc<Set>>>,
    code_folder: Option<PathBuf>,
    /// Where compiled code is kept for the next process, once it was asked for.
    kept: OnceLock<Option<Sealed>>,
}

/// A function of a domain, and the other names by which statements call it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Named {
    domain: String,
    name: String,
    function: Function,
    aliases: Vec<String>,
}

/// All functions that one snapshot has.
pub(crate) struct Set {
    registry: Arc<Registry>,
    functions: Vec<UserFunction>,
}

impl Functions {
    pub(crate) fn new(fleet: Fleet, options: &HostOptions) -> Self {
        Self {
            fleet,
            own: Arc::clone(&options.functions),
            codes: Mutex::default(),
            at_drives: Mutex::default(),
            sets: Mutex::new(LruCache::new(SETS_MAX)),
            code_folder: options.code_folder.clone(),
            kept: OnceLock::new(),
        }
    }

    /// A module from its bytes, compiled by this process if nobody has before.
    async fn compiled(self: &Arc<Self>, bytes: Bytes) -> Result<Arc<Compiled>, Fault> {
        let functions = Arc::clone(self);
        let compiling = tokio::task::spawn_blocking(move || compiled(&bytes, functions.kept()));
        compiling.await.map_err(Fault::bug)?
    }

    /// It blocks.
    fn kept(&self) -> Option<&Sealed> {
        let open = |folder: &PathBuf| {
            let opened = CodeFolder::open(folder);
            opened.inspect_err(|error| tracing::debug!(%error, ?folder, "compiled functions are not kept")).ok()
        };
        self.kept.get_or_init(|| self.code_folder.as_ref().and_then(open)).as_ref()
    }

    /// Gives a statement's state the functions of a snapshot. Bare names are those of the state's domain, unless the engine has a
    /// function of that name. Functions of domains that the session may not read are left out. Whether there are any.
    pub(crate) fn put_into(
        &self,
        state: &mut SessionState,
        snapshot: &Snapshot,
        may_read: &dyn Fn(&str) -> bool,
    ) -> Result<bool, Fault> {
        let named = named(state, snapshot, may_read);
        if named.is_empty() {
            return Ok(false);
        }
        let set = self.set(named)?;
        for function in &set.functions {
            function.register(state).map_err(fault_from_datafusion)?;
        }
        state.config_mut().set_extension(Arc::clone(&set.registry));
        Ok(true)
    }

    fn set(&self, named: Vec<Named>) -> Result<Arc<Set>, Fault> {
        if let Some(known) = self.sets.lock().get(&named) {
            return Ok(Arc::clone(known));
        }
        let (mut functions, mut found) = (Vec::new(), Vec::new());
        for Named { domain, name, function, aliases } in &named {
            let (called, code) = (called(domain, name, function), self.code(&function.module));
            functions.push(UserFunction::new(&called, &code, aliases.clone()));
            found.extend(extensions(&called, &code));
        }
        let set = Arc::new(Set { registry: Arc::new(self.own.with(found)?), functions });
        self.sets.lock().put(named, Arc::clone(&set));
        Ok(set)
    }

    /// The functions that OPEN names, ready to run, beside what every engine has.
    pub(crate) async fn of_extensions(self: &Arc<Self>, extensions: &[String]) -> Result<Arc<Registry>, Fault> {
        let wanted: Vec<CalledFunction> =
            extensions.iter().filter_map(|extension| CalledFunction::parse(extension)).collect::<Result<_, _>>()?;
        if wanted.is_empty() {
            return Ok(Arc::clone(&self.own));
        }
        let mut found = Vec::with_capacity(wanted.len());
        for called in &wanted {
            let code = self.code(&called.function.module);
            self.load(called, &code).await?;
            found.extend(pithead_wasm_sql::extensions(called, &code));
        }
        Ok(Arc::new(self.own.with(found)?))
    }

    /// Loads the modules of the functions that a plan calls, here and at the drives: to be done before it is optimised, since that
    /// computes constants.
    pub(crate) async fn ready(self: &Arc<Self>, state: &SessionState, plan: &LogicalPlan) -> Result<(), Fault> {
        let used = Registry::of(state).used_by(plan).map_err(fault_from_datafusion)?;
        for called in used.iter().filter_map(|extension| CalledFunction::parse(extension)) {
            let called = called?;
            // The place that the plan's function has.
            self.load(&called, &self.code(&called.function.module)).await?;
        }
        Ok(())
    }

    async fn load(self: &Arc<Self>, called: &CalledFunction, code: &Code) -> Result<(), Fault> {
        let module = &called.function.module;
        let mut bytes = None;
        if code.get().is_none() {
            let found = self.fetch(called).await?;
            bytes = Some(found.clone());
            code.set(self.compiled(found).await?);
        }
        let connected = self.fleet.connected();
        let runs = |drive: &&ConnectedDrive| drive.welcome.extensions.iter().any(|there| there == RUNS_USER_FUNCTIONS);
        let unknown = connected.all().iter().filter(runs).filter(|drive| !self.was_at(drive.id(), module, BELIEVED));
        let unknown: Vec<&ConnectedDrive> = unknown.collect();
        let ask = |drive: &ConnectedDrive| {
            let door = Arc::clone(&drive.door);
            let ask = FunctionAsk { domain: called.domain().to_owned(), module: module.clone(), bytes: false };
            let patience = if self.is_at(drive.id(), module) { PATIENCE } else { Duration::MAX };
            async move { tokio::time::timeout(patience, door.function(ask)).await }
        };
        let asked = join_all(unknown.iter().map(|drive| ask(drive))).await;
        for (drive, answer) in unknown.into_iter().zip(asked) {
            match answer {
                Ok(Ok(Some(_))) => self.note(drive.id(), module),
                Ok(Ok(None)) if self.bring(drive, called, &mut bytes).await => self.note(drive.id(), module),
                Ok(Ok(None)) => self.forget(drive.id(), module),
                // What it had it may have still.
                Ok(Err(_)) | Err(_) if self.is_at(drive.id(), module) => self.note(drive.id(), module),
                Ok(Err(_)) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Brings a module to a drive that lacks it, such as one that has joined the domain. Where that is refused, the function runs at
    /// the host.
    async fn bring(&self, drive: &ConnectedDrive, called: &CalledFunction, bytes: &mut Option<Bytes>) -> bool {
        let found = match bytes.take() {
            Some(bytes) => Ok(bytes),
            None => self.fetch(called).await,
        };
        let Ok(found) = found else { return false };
        *bytes = Some(found.clone());
        let kept = drive.door.keep_function(FunctionModule { domain: called.domain().to_owned(), bytes: found }).await;
        if let Err(fault) = &kept {
            let (function, drive) = (called.name(), drive.label());
            tracing::debug!(function, drive, %fault, "the drive does not keep the module: the function runs at the host");
        }
        kept.is_ok()
    }

    /// A module from any drive that has it.
    async fn fetch(&self, called: &CalledFunction) -> Result<Bytes, Fault> {
        let module = &called.function.module;
        let mut why = None;
        for drive in self.fleet.connected().all() {
            let ask = FunctionAsk { domain: called.domain().to_owned(), module: module.clone(), bytes: true };
            match drive.door.function(ask).await {
                Ok(Some(bytes)) if hash_of(&bytes) == *module => return Ok(bytes),
                Ok(Some(_)) => why = Some(Fault::new(Blame::Corrupt, format!("drive {} has it damaged", drive.label()))),
                Ok(None) => {}
                Err(fault) => why = Some(fault.at_drive(drive.label())),
            }
        }
        let what = format!("no drive that is reached has the module of the function {}", called.name());
        let what = why.map_or(what.clone(), |why| format!("{what}: {}", why.message));
        Err(Fault::new(Blame::Device, what).hint("start the drives of its domain, or CREATE OR REPLACE FUNCTION again"))
    }

    fn code(&self, module: &str) -> Code {
        let mut codes = self.codes.lock();
        if let Some(code) = codes.get(module).and_then(WeakCode::upgrade) {
            return code;
        }
        codes.retain(|_, code| code.upgrade().is_some());
        let code = Code::default();
        codes.insert(module.to_owned(), code.downgrade());
        code
    }

    pub(crate) fn note(&self, drive: DriveId, module: &str) {
        self.at_drives.lock().insert((drive, module.to_owned()), Instant::now());
    }

    fn forget(&self, drive: DriveId, module: &str) {
        self.at_drives.lock().remove(&(drive, module.to_owned()));
    }

    fn is_at(&self, drive: DriveId, module: &str) -> bool {
        self.was_at(drive, module, Duration::MAX)
    }

    /// Whether the drive had it when it was asked last, and that was no longer ago than this.
    fn was_at(&self, drive: DriveId, module: &str, within: Duration) -> bool {
        self.at_drives.lock().get(&(drive, module.to_owned())).is_some_and(|since| since.elapsed() <= within)
    }

    /// Whether a drive can run what an extension names.
    pub(crate) fn runs(&self, drive: &ConnectedDrive, extension: &str) -> bool {
        let announces = |wanted: &str| drive.welcome.extensions.iter().any(|there| there == wanted);
        match CalledFunction::parse(extension) {
            Some(Ok(called)) => announces(RUNS_USER_FUNCTIONS) && self.is_at(drive.id(), &called.function.module),
            Some(Err(_)) => false,
            None => announces(extension),
        }
    }
}

/// The functions of all domains that can be read, in order.
fn named(state: &SessionState, snapshot: &Snapshot, may_read: &dyn Fn(&str) -> bool) -> Vec<Named> {
    let default = &state.config_options().catalog.default_schema;
    let engine_has = |name: &str| {
        state.scalar_functions().contains_key(name)
            || state.aggregate_functions().contains_key(name)
            || state.window_functions().contains_key(name)
    };
    let named = routines_of(snapshot, may_read).into_iter().map(|Routine { domain, name, function }| {
        let bare = (domain == *default && !engine_has(&name)).then(|| name.clone());
        let aliases = bare.into_iter().chain([format!("{domain}.{name}")]).collect();
        Named { domain, name, function, aliases }
    });
    named.collect()
}

/// By name, the functions of a snapshot's domain.
pub(crate) fn known(snapshot: &Snapshot, domain: &str) -> HashMap<String, Function> {
    let manifest = snapshot.domains().find(|(name, _)| *name == domain).and_then(|(_, manifest)| manifest.ok());
    manifest.map(|manifest| manifest.functions.clone().into_iter().collect()).unwrap_or_default()
}
