//! SSDlets at a drive: the modules that its store keeps, and the applications that run on its reactors.

mod code;
mod datasets;
mod faults;
mod feeding;
mod files;
mod flow;
mod functions;
mod modules;
mod running;
mod services;
mod session;
mod starting;
mod telling;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use pithead_cse::{Cause, SessionLimits, SessionTable, Shutdown};
use pithead_door::OpenSession;
use pithead_functions::Registry;
use pithead_model::{Fault, SessionId};
use pithead_program::{Compiling, Known, Runtime, RuntimeOptions};
use tokio::sync::OnceCell;

use crate::resources::Resources;
use crate::storage::Storage;
use code::{CODE_PREFIX, StoredCode, secret};
use faults::program_fault;
use functions::REGISTRIES_MAX;
use modules::{KnownModule, MODULES_MAX};
use session::Application;

pub(crate) use datasets::{plain, plain_schema};
pub use files::{FILE_PREFIX, are_together, part_name, part_number, stamped};

/// The modules and the applications of a drive.
#[derive(Debug)]
pub(crate) struct Programs {
    storage: Arc<Storage>,
    resources: Arc<Resources>,
    folder: PathBuf,
    /// Made for the first who needs it: it reserves address space, and most drives run no SSDlets.
    runtime: OnceCell<Arc<Runtime>>,
    /// Modules that were asked for their SSDlets, by their names.
    known: Mutex<Known<String, KnownModule>>,
    /// Held while the store's modules change.
    changing: tokio::sync::Mutex<()>,
    /// Modules of functions on their way through the compiler, by their hashes.
    compiling: Compiling<String>,
    applications: Arc<SessionTable<Application>>,
    applications_max: usize,
    /// Applications that are not among the others yet.
    starting: Mutex<usize>,
    /// Of functions of users, by what OPEN says of them.
    registries: Mutex<LruCache<Vec<String>, Arc<Registry>>>,
}

impl Programs {
    /// Over what a drive stores; what has to stay on this drive, and out of its store, goes to `folder`.
    pub(crate) fn new(
        storage: Arc<Storage>,
        resources: Arc<Resources>,
        folder: PathBuf,
        shutdown: Shutdown,
        applications_max: usize,
    ) -> Self {
        Self {
            storage,
            resources,
            folder,
            runtime: OnceCell::new(),
            known: Mutex::new(Known::new(MODULES_MAX, RuntimeOptions::default().code_bytes_max)),
            changing: tokio::sync::Mutex::default(),
            compiling: Compiling::default(),
            applications: Arc::new(SessionTable::new(shutdown)),
            applications_max,
            starting: Mutex::default(),
            registries: Mutex::new(LruCache::new(REGISTRIES_MAX)),
        }
    }

    /// The sandbox.
    async fn runtime(&self) -> Result<&Arc<Runtime>, Fault> {
        let make = || async {
            let (folder, pool) = (self.folder.clone(), Arc::clone(self.resources.workers.pool()));
            let code = Arc::new(StoredCode::new(Arc::clone(&self.storage.store), CODE_PREFIX));
            let options = RuntimeOptions::default();
            let made = move || Runtime::with_code_store(pool, options, code, secret(&folder)?).map_err(program_fault);
            self.resources.workers.blocking(made).await?
        };
        self.runtime.get_or_try_init(make).await
    }

    /// Applications that run.
    pub(crate) fn count(&self) -> usize {
        self.applications.count(|_| true)
    }

    /// What runs, as sessions.
    pub(crate) fn list(&self) -> Vec<OpenSession> {
        self.applications.list()
    }

    /// Ends somebody's application, who is told so. Whether it was there.
    pub(crate) async fn kill(&self, id: SessionId) -> bool {
        let Some(application) = self.applications.remove(id) else { return false };
        tracing::warn!(session = %id, "an operator has ended an application");
        self.end(&application, Cause::Killed);
        application.stopped().await;
        true
    }

    /// Ends the applications that last longer than they may.
    pub(crate) fn reap(&self, limits: &SessionLimits) {
        for (id, cause) in self.applications.overdue(limits) {
            if let Some(application) = self.applications.remove(id) {
                tracing::warn!(session = %id, cause = cause.word(), ?limits, "ended an application");
                self.end(&application, cause);
            }
        }
    }

    /// Ends all applications.
    pub(crate) fn close_all(&self) -> Vec<Arc<Application>> {
        let all = self.applications.remove_all();
        all.iter().for_each(|application| self.end(application, Cause::Stopped));
        all
    }

    fn end(&self, application: &Application, cause: Cause) {
        let shutdown = self.applications.shutdown();
        application.fail(cause.fault(shutdown.keeper()).unwrap_or_else(|| shutdown.fault()));
    }
}
