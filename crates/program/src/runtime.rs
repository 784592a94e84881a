//! [`Runtime`]: the sandbox of one drive: its engine, its host calls, and the modules that it knows.

use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};
use pithead_sched::{Class, Pool};
use wasmtime::Linker;

use crate::budget::{Budget, Meter};
use crate::cache::{Sealed, code_key, code_key_of};
use crate::engine::{Ticker, Ticking, engine};
use crate::guest::{Guest, Names};
use crate::module::{Code, compile};
use crate::run::describe;
use crate::{Application, CodeStore, File, Limits, Module, ProgramError, RuntimeOptions, Secret, Services, calls, wasi};

/// Runs SSDlets on the reactors of a pool.
pub struct Runtime {
    pool: Arc<Pool>,
    linker: Arc<Linker<Guest>>,
    ticker: Ticker,
    options: RuntimeOptions,
    sealed: Option<Sealed>,
    known: Mutex<LruCache<[u8; 32], Arc<Code>>>,
    /// One module is compiled at a time, so that the same module is compiled once.
    compiling: tokio::sync::Mutex<()>,
    /// Connections change two graphs, so they are made one after the other.
    connecting: Mutex<()>,
}

/// The most modules whose code is kept; their bytes are bounded by the options.
const MODULES_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("it is not 0");

impl Runtime {
    /// Fails if the system refuses the address space or the thread.
    pub fn new(pool: Arc<Pool>, options: RuntimeOptions) -> Result<Arc<Self>, ProgramError> {
        Self::with_code(pool, options, None)
    }

    /// A runtime that keeps compiled code in a store, sealed by a secret.
    pub fn with_code_store(
        pool: Arc<Pool>,
        options: RuntimeOptions,
        store: Arc<dyn CodeStore>,
        secret: Secret,
    ) -> Result<Arc<Self>, ProgramError> {
        Self::with_code(pool, options, Some(Sealed { store, secret }))
    }

    fn with_code(pool: Arc<Pool>, options: RuntimeOptions, sealed: Option<Sealed>) -> Result<Arc<Self>, ProgramError> {
        let engine = engine(&options)?;
        let mut linker = Linker::new(&engine);
        calls::link(&mut linker).map_err(ProgramError::engine)?;
        wasi::link(&mut linker).map_err(ProgramError::engine)?;
        let ticker = Ticker::start(engine)?;
        Ok(Arc::new(Self {
            pool,
            linker: Arc::new(linker),
            ticker,
            options,
            sealed,
            known: Mutex::new(LruCache::new(MODULES_MAX)),
            compiling: tokio::sync::Mutex::new(()),
            connecting: Mutex::new(()),
        }))
    }

    /// Checks and compiles a module, and asks it for its SSDlets. The same bytes are compiled once, whatever their names.
    pub async fn load(&self, name: &str, bytes: Bytes, services: &Arc<dyn Services>) -> Result<Arc<Module>, ProgramError> {
        let code = self.code(name, bytes).await?;
        let names = Names { application: "load".into(), module: name.into(), ssdlet: "pithead_describe".into() };
        let meter = Meter::new(Budget::new(Limits::describing()));
        let guest = Guest::new(names, meter, Arc::clone(services));
        let (asked, ticking) = (Arc::clone(&code), self.ticking());
        let describing = self.pool.spawn(Class::Foreground, async move {
            let _ticking = ticking;
            describe(asked, guest).await
        });
        let declared = describing.abort_on_drop().await.map_err(ProgramError::engine)?;
        let declared = declared.map_err(|error| match error {
            ProgramError::Guest { module, cause, .. } => {
                ProgramError::Module { module, cause: format!("while it declared its SSDlets, {cause}") }
            }
            other => other,
        })?;
        Ok(Arc::new(Module::new(name.into(), code, declared)))
    }

    /// The key under which a [`CodeStore`] has the code of a module, by the SHA-256 of the module.
    pub fn code_key(&self, module_sha256: &[u8; 32]) -> [u8; 32] {
        code_key_of(self.linker.engine(), module_sha256)
    }

    async fn code(&self, name: &str, bytes: Bytes) -> Result<Arc<Code>, ProgramError> {
        let key = code_key(self.linker.engine(), &bytes);
        let known = || self.known.lock().get(&key).map(Arc::clone);
        // What is known waits for nobody's compilation.
        if let Some(code) = known() {
            return Ok(code);
        }
        let _turn = self.compiling.lock().await;
        if let Some(code) = known() {
            return Ok(code);
        }
        let (linker, sealed) = (Arc::clone(&self.linker), self.sealed.clone());
        let compiled = self.pool.spawn_blocking(move || compile(&linker, &bytes, sealed.as_ref()));
        let cause = match compiled.await {
            Ok(Ok(code)) => return Ok(self.keep(key, code)),
            Ok(Err(cause)) => cause,
            Err(lost) => format!("the compiler cannot translate it: {lost}"),
        };
        Err(ProgramError::Module { module: name.to_owned(), cause })
    }

    /// Keeps code, and lets go of the longest unused while there is too much.
    fn keep(&self, key: [u8; 32], code: Code) -> Arc<Code> {
        let code = Arc::new(code);
        let mut known = self.known.lock();
        known.put(key, Arc::clone(&code));
        let bytes = |known: &LruCache<_, Arc<Code>>| known.iter().map(|(_, code)| code.code_bytes).sum::<usize>();
        while known.len() > 1 && bytes(&known) > self.options.code_bytes_max {
            known.pop_lru();
        }
        code
    }

    /// Reads a file from its beginning, on a reactor. Returns the bytes read.
    pub async fn read(&self, file: &Arc<dyn File>, bytes_max: usize) -> Result<Vec<u8>, ProgramError> {
        let file = Arc::clone(file);
        let reading = self.pool.spawn(Class::Foreground, async move {
            let mut bytes = vec![0; bytes_max];
            let length = file.read(0, &mut bytes).await?;
            bytes.truncate(length);
            Ok(bytes)
        });
        reading.abort_on_drop().await.map_err(ProgramError::engine)?
    }

    /// A new application for a caller whose rights are behind `services`.
    pub fn application(self: &Arc<Self>, name: &str, services: Arc<dyn Services>, limits: Limits) -> Application {
        Application::new(name, Arc::clone(self), services, limits)
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn ticking(&self) -> Ticking {
        self.ticker.enter()
    }

    pub(crate) fn connecting(&self) -> MutexGuard<'_, ()> {
        self.connecting.lock()
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("options", &self.options).finish_non_exhaustive()
    }
}
