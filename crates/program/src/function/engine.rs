//! [`FunctionEngine`]: the sandbox of all functions of a process.

use std::num::NonZeroUsize;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use wasmtime::{Engine, Linker};

use super::imports;
use super::module::FunctionModule;
use super::run::Called;
use super::{INSTANCE_MEMORY_BYTES_MAX, INSTANCES_MAX};
use crate::cache::{Sealed, code_key_of};
use crate::engine::{Ticker, Ticking, engine};
use crate::known::Known;
use crate::module::{seal, unsealed};
use crate::{ProgramError, RuntimeOptions};

/// The most modules whose code is kept, and the bytes of all code together.
const MODULES_MAX: NonZeroUsize = NonZeroUsize::new(64).expect("it is not 0");
const CODE_BYTES_MAX: usize = 256 << 20;

/// Compiles modules of functions and runs them.
pub struct FunctionEngine {
    linker: Linker<Called>,
    ticker: Ticker,
    known: Mutex<Known<[u8; 32], Arc<FunctionModule>>>,
    /// One module is compiled at a time, so that the same module is compiled once, and a compiler's memory is needed once.
    compiling: Mutex<()>,
}

impl FunctionEngine {
    /// The one of this process: it reserves address space, so it is made for the first function.
    pub fn shared() -> Result<Arc<FunctionEngine>, ProgramError> {
        static SHARED: LazyLock<Result<Arc<FunctionEngine>, ProgramError>> =
            LazyLock::new(|| FunctionEngine::new().map(Arc::new));
        SHARED.clone()
    }

    fn new() -> Result<Self, ProgramError> {
        let options = RuntimeOptions {
            instances_max: INSTANCES_MAX,
            instance_memory_bytes_max: INSTANCE_MEMORY_BYTES_MAX,
            ..RuntimeOptions::default()
        };
        let engine: Engine = engine(&options)?;
        let mut linker = Linker::new(&engine);
        imports::link(&mut linker).map_err(ProgramError::engine)?;
        let ticker = Ticker::start(engine)?;
        Ok(Self { linker, ticker, known: Mutex::new(Known::new(MODULES_MAX, CODE_BYTES_MAX)), compiling: Mutex::default() })
    }

    /// Checks and compiles a module. The same bytes are compiled once while they are known, and by one process where their code is
    /// kept. It blocks.
    pub fn compile(self: &Arc<Self>, bytes: &[u8], kept: Option<&Sealed>) -> Result<Arc<FunctionModule>, ProgramError> {
        let key: [u8; 32] = Sha256::digest(bytes).into();
        let known = || self.known.lock().get(&key);
        // What is known waits for nobody's compilation.
        if let Some(module) = known() {
            return Ok(module);
        }
        let _turn = self.compiling.lock();
        if let Some(module) = known() {
            return Ok(module);
        }
        let before = kept.and_then(|kept| unsealed(self.linker.engine(), kept, &self.code_key(&key)));
        let made = match &before {
            Some(module) => FunctionModule::new(self, &self.linker, module),
            None => FunctionModule::compile(self, &self.linker, bytes),
        };
        let module = Arc::new(made.map_err(|cause| ProgramError::Usage(format!("the module of a function: {cause}")))?);
        if let (None, Some(kept)) = (before, kept) {
            self.keep(&module, &key, kept);
        }
        self.known.lock().put(key, Arc::clone(&module), module.code_bytes());
        Ok(module)
    }

    /// Keeps the code of a module, whose SHA-256 this is, for the next process. It blocks.
    pub fn keep(&self, module: &FunctionModule, module_sha256: &[u8; 32], kept: &Sealed) {
        seal(module.code(), kept, &self.code_key(module_sha256));
    }

    /// The key under which a [`crate::CodeStore`] has the code of a module.
    pub fn code_key(&self, module_sha256: &[u8; 32]) -> [u8; 32] {
        code_key_of(self.linker.engine(), module_sha256)
    }

    pub(super) fn ticking(&self) -> Ticking {
        self.ticker.enter()
    }
}

impl std::fmt::Debug for FunctionEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FunctionEngine").field("known", &*self.known.lock()).finish_non_exhaustive()
    }
}
