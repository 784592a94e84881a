//! [`Runtime`]: the sandbox of one drive: its engine, its host calls, and the modules that it knows.

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use pithead_sched::{Class, Pool};
use tokio::runtime::Handle;
use wasmtime::Linker;

use crate::budget::{Budget, Meter};
use crate::cache::{Sealed, code_key, code_key_of};
use crate::compiling::Compiling;
use crate::engine::{Ticker, Ticking, engine};
use crate::guest::{Guest, Names};
use crate::known::Known;
use crate::module::{Code, compile};
use crate::run::describe;
use crate::{Application, CodeStore, File, Limits, Module, ProgramError, RuntimeOptions, Secret, Services, calls, wasi};

/// The most modules whose code is kept in memory.
const MODULES_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("it is not 0");

/// Runs SSDlets on the reactors of a pool.
pub struct Runtime {
    pool: Arc<Pool>,
    linker: Arc<Linker<Guest>>,
    ticker: Ticker,
    options: RuntimeOptions,
    sealed: Option<Sealed>,
    /// One of the pool's, once it has run a module's declarations.
    reactor: OnceLock<Handle>,
    /// Compiled code, by the hash of its module.
    known: Arc<Mutex<Known<[u8; 32], Arc<Code>>>>,
    /// One module is compiled at a time, so that the same module is compiled once.
    compiling: Compiling<[u8; 32]>,
}

/// Connections change two graphs, which may be of two runtimes, so they are made one after the other.
static CONNECTING: Mutex<()> = Mutex::new(());

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
        Self::with_code(pool, options, Some(Sealed::new(store, secret)))
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
            known: Arc::new(Mutex::new(Known::new(MODULES_MAX, options.code_bytes_max))),
            options,
            sealed,
            reactor: OnceLock::new(),
            compiling: Compiling::default(),
        }))
    }

    /// Checks and compiles a module, and asks it for its SSDlets. The same bytes are compiled once, whatever their names. A store of
    /// code keeps what was compiled.
    pub async fn load(&self, name: &str, bytes: Bytes, services: &Arc<dyn Services>) -> Result<Arc<Module>, ProgramError> {
        let code = self.code(name, bytes, self.sealed.clone()).await?;
        self.described(name, code, services).await
    }

    /// As [`Runtime::load`] does, for a module that nobody keeps: its code is in memory only.
    pub async fn load_once(&self, name: &str, bytes: Bytes, services: &Arc<dyn Services>) -> Result<Arc<Module>, ProgramError> {
        let code = self.code(name, bytes, None).await?;
        self.described(name, code, services).await
    }

    async fn described(&self, name: &str, code: Arc<Code>, services: &Arc<dyn Services>) -> Result<Arc<Module>, ProgramError> {
        let names = Names { application: "load".into(), module: name.into(), ssdlet: "pithead_describe".into() };
        let meter = Meter::new(Budget::new(Limits::describing()));
        let guest = Guest::new(names, meter, Arc::clone(services));
        let (asked, ticking) = (Arc::clone(&code), self.ticking());
        let describing = self.pool.spawn(Class::Foreground, async move {
            let _ticking = ticking;
            (Handle::current(), describe(asked, guest).await)
        });
        let (reactor, declared) = describing.abort_on_drop().await.map_err(ProgramError::engine)?;
        let _ = self.reactor.set(reactor);
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

    /// The code of a module, which goes to and comes from a store where there is one.
    async fn code(&self, name: &str, bytes: Bytes, sealed: Option<Sealed>) -> Result<Arc<Code>, ProgramError> {
        let key = code_key(self.linker.engine(), &bytes);
        let is_known = || self.known.lock().get(&key);
        // What is known waits for nobody's compilation.
        if let Some(code) = is_known() {
            return Ok(code);
        }
        let busy = || ProgramError::Busy("many modules wait to be compiled. hint: try again later".to_owned());
        let turn = self.compiling.turn(key).await.ok_or_else(busy)?;
        if let Some(code) = is_known() {
            return Ok(code);
        }
        let (linker, known) = (Arc::clone(&self.linker), Arc::clone(&self.known));
        let compiled = self.pool.spawn_lengthy(move || {
            // Nobody may wait for it any more: it goes on, with its turn, and its code is kept for who asks again.
            let _turn = turn;
            let code = Arc::new(compile(&linker, &bytes, sealed.as_ref())?);
            known.lock().put(key, Arc::clone(&code), code.code_bytes);
            Ok(code)
        });
        let cause: String = match compiled.await {
            Ok(Ok(code)) => return Ok(code),
            Ok(Err(cause)) => cause,
            Err(lost) => format!("the compiler cannot translate it: {lost}"),
        };
        Err(ProgramError::Module { module: name.to_owned(), cause })
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

    /// The reactor whose timers serve an SSDlet that takes its first turn where it is started, if that is wanted.
    pub(crate) fn starts_here(&self) -> Option<&Handle> {
        self.reactor.get().filter(|_| self.options.starts_here)
    }

    pub(crate) fn ticking(&self) -> Ticking {
        self.ticker.enter()
    }

    /// The turn of who connects ports, or starts what was connected.
    pub(crate) fn connecting() -> MutexGuard<'static, ()> {
        CONNECTING.lock()
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("options", &self.options).finish_non_exhaustive()
    }
}
