//! [`Code`]: the compiled module of a function, which is there before the function runs.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

use arrow::datatypes::DataType;
use parking_lot::Mutex;
use pithead_model::{Blame, Fault, Function, FunctionKind, FunctionType};
use pithead_program::{AggregateCall, FunctionCall, FunctionEngine, FunctionModule, GuestMemory, Sealed, hex, sha256_of_hex};
use sha2::{Digest, Sha256};

/// The memory of a function that is called to see whether its types are right.
const CHECKED_BYTES_MAX: usize = 64 << 20;

/// A place for a function's module. Plans are made before it is filled, and run after.
#[derive(Clone, Debug, Default)]
pub struct Code(Arc<OnceLock<Arc<FunctionModule>>>);

/// A place that goes with its last function.
#[derive(Clone, Debug, Default)]
pub struct WeakCode(Weak<OnceLock<Arc<FunctionModule>>>);

impl WeakCode {
    /// The place; none: no function has it any more.
    pub fn upgrade(&self) -> Option<Code> {
        self.0.upgrade().map(Code)
    }
}

impl Code {
    /// The same place, as long as a function has it.
    pub fn downgrade(&self) -> WeakCode {
        WeakCode(Arc::downgrade(&self.0))
    }

    /// The module; none: it was not loaded yet.
    pub fn get(&self) -> Option<&Arc<FunctionModule>> {
        self.0.get()
    }

    /// Puts the module there. The first one stays.
    pub fn set(&self, module: Arc<FunctionModule>) {
        let _ = self.0.set(module);
    }
}

/// The name of a module: the SHA-256 of its bytes.
pub fn hash_of(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The modules of this process, by their names, as long as anybody has them.
static KNOWN: Mutex<BTreeMap<String, Weak<FunctionModule>>> = Mutex::new(BTreeMap::new());

/// A module that was compiled, by its name: who knows it waits for nobody's compilation.
pub fn known(hash: &str) -> Option<Arc<FunctionModule>> {
    KNOWN.lock().get(hash).and_then(Weak::upgrade)
}

/// A module from its bytes, compiled unless it was before, here or by who has put its code where `kept` is. It blocks.
pub fn compiled(bytes: &[u8], kept: Option<&Sealed>) -> Result<Arc<FunctionModule>, Fault> {
    let module = engine()?.compile(bytes, kept).map_err(|error| Fault::new(Blame::User, error.to_string()))?;
    let hash = hash_of(bytes);
    let mut known = KNOWN.lock();
    known.retain(|_, module| module.strong_count() > 0);
    known.insert(hash, Arc::downgrade(&module));
    Ok(module)
}

/// Keeps the code of a module of this name for the next process. It blocks.
pub fn keep(module: &FunctionModule, hash: &str, kept: &Sealed) -> Result<(), Fault> {
    engine()?.keep(module, &digest(hash)?, kept);
    Ok(())
}

/// The key under which code of a module of this name is kept.
pub fn code_key(hash: &str) -> Result<[u8; 32], Fault> {
    Ok(engine()?.code_key(&digest(hash)?))
}

fn engine() -> Result<Arc<FunctionEngine>, Fault> {
    FunctionEngine::shared().map_err(|error| Fault::new(Blame::Device, error.to_string()))
}

fn digest(hash: &str) -> Result<[u8; 32], Fault> {
    sha256_of_hex(hash).ok_or_else(|| Fault::new(Blame::Bug, format!("{hash} is no name of a module")))
}

/// How a module's function of this name goes over rows, if it gives one result. What the module does not have is taken for a scalar
/// function, which [`check`] then refuses.
pub fn kind_of(module: &FunctionModule, export: &str) -> FunctionKind {
    match module.aggregates().iter().any(|aggregate| aggregate == export) {
        true => FunctionKind::Aggregate,
        false => FunctionKind::Scalar,
    }
}

/// Refuses a definition that its module does not bear out: the module lacks the function, or takes other types. It blocks.
pub fn check(name: &str, function: &Function, module: &FunctionModule) -> Result<(), Fault> {
    let returns = &result_type(function);
    let arguments: Vec<DataType> = function.arguments.iter().map(|argument| data_type(argument.of)).collect();
    let memory = || Box::new(AtMost::new(CHECKED_BYTES_MAX)) as Box<dyn GuestMemory>;
    let (export, called_on_null) = (function.export.as_str(), function.called_on_null);
    let checked = match function.kind {
        FunctionKind::Scalar | FunctionKind::Table => {
            FunctionCall { module, export, returns, called_on_null }.check(&arguments, &memory)
        }
        FunctionKind::Aggregate => AggregateCall { module, export, returns }.check(&arguments, &memory),
    };
    checked.map_err(|cause| failed(name, &cause))
}

/// The fault of a function that ended its query.
pub(crate) fn failed(name: &str, cause: &str) -> Fault {
    Fault::new(Blame::User, format!("function {name}: {cause}"))
}

/// What a function gives, as the engine has it.
pub(crate) fn result_type(function: &Function) -> DataType {
    let of = data_type(function.returns);
    match function.kind {
        FunctionKind::Scalar | FunctionKind::Aggregate => of,
        FunctionKind::Table => DataType::new_list(of, true),
    }
}

/// A type as the engine has it.
pub(crate) fn data_type(of: FunctionType) -> DataType {
    match of {
        FunctionType::Boolean => DataType::Boolean,
        FunctionType::Integer => DataType::Int32,
        FunctionType::Bigint => DataType::Int64,
        FunctionType::Double => DataType::Float64,
        FunctionType::Text => DataType::Utf8View,
    }
}

/// So many bytes, which are no session's.
pub(crate) struct AtMost {
    left: usize,
    most: usize,
}

impl AtMost {
    pub(crate) fn new(most: usize) -> AtMost {
        AtMost { left: most, most }
    }
}

impl GuestMemory for AtMost {
    fn grow(&mut self, bytes: usize) -> Result<(), String> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(format!("{} bytes are there for this call", self.most)),
        }
    }
}
