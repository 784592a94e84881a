//! [`Module`]: bytes that were checked, compiled, and asked what SSDlets they hold.

use std::sync::Arc;

use parking_lot::Mutex;
use wasmtime::{Engine, ExternType, FuncType, InstancePre, Linker, UnknownImportError, ValType};

use crate::bounds;
use crate::cache::{Sealed, code_key};
use crate::guest::Guest;
use crate::limits::{ABI_VERSION, MODULE_BYTES_MAX};
use crate::{Declared, ProgramError};

/// A module that can be run.
#[derive(Debug)]
pub struct Module {
    name: Arc<str>,
    code: Arc<Code>,
    declared: Vec<Declared>,
}

impl Module {
    pub(crate) fn new(name: Arc<str>, code: Arc<Code>, declared: Vec<Declared>) -> Self {
        Self { name, code, declared }
    }

    /// The name under which it was loaded.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its SSDlets, in the order of their declarations.
    pub fn declared(&self) -> &[Declared] {
        &self.declared
    }

    /// The size of its compiled code.
    pub fn code_bytes(&self) -> usize {
        self.code.code_bytes
    }

    pub(crate) fn code(&self) -> &Arc<Code> {
        &self.code
    }

    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    /// The number of an SSDlet, by its name.
    pub(crate) fn find(&self, ssdlet: &str) -> Result<usize, ProgramError> {
        self.declared.iter().position(|declared| declared.name == ssdlet).ok_or_else(|| {
            let names: Vec<_> = self.declared.iter().map(|declared| declared.name.as_str()).collect();
            ProgramError::usage(format!("the module {} has no SSDlet {ssdlet}; it has {}", self.name, names.join(", ")))
        })
    }
}

/// Compiled code whose imports and exports are right.
pub(crate) struct Code {
    pub instance: InstancePre<Guest>,
    pub code_bytes: usize,
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Code").field("code_bytes", &self.code_bytes).finish_non_exhaustive()
    }
}

/// Checks and compiles a module. The errors are sentences without the module's name.
pub(crate) fn compile(linker: &Linker<Guest>, bytes: &[u8], sealed: Option<&Sealed>) -> Result<Code, String> {
    let engine = linker.engine();
    if bytes.len() > MODULE_BYTES_MAX {
        return Err(format!("it has {} bytes; a module has at most {MODULE_BYTES_MAX}", bytes.len()));
    }
    if !bytes.starts_with(b"\0asm") {
        return Err("it is no WebAssembly module: it does not begin with \\0asm".to_owned());
    }
    let module = translate(engine, bytes, sealed)?;
    check_exports(&module)?;
    let instance = linker.instantiate_pre(&module).map_err(|error| wrong_import(&error))?;
    Ok(Code { instance, code_bytes: code_bytes(&module) })
}

/// Bytes of a module's compiled code.
pub(crate) fn code_bytes(module: &wasmtime::Module) -> usize {
    let image = module.image_range();
    image.end as usize - image.start as usize
}

/// Compiles, or takes code that this drive itself has compiled and sealed.
fn translate(engine: &Engine, bytes: &[u8], sealed: Option<&Sealed>) -> Result<wasmtime::Module, String> {
    let key = code_key(engine, bytes);
    if let Some(module) = sealed.and_then(|sealed| unsealed(engine, sealed, &key)) {
        return Ok(module);
    }
    let module = translated_alone(engine, bytes).map_err(|why| match why {
        Refused::Bounds(cause) => cause,
        Refused::Compiler(error) => format!("it is no WebAssembly module that this drive runs: {error:#}"),
    })?;
    if let Some(sealed) = sealed {
        seal(&module, sealed, &key);
    }
    Ok(module)
}

/// Code from a store that whoever has its secret has compiled and sealed.
pub(crate) fn unsealed(engine: &Engine, sealed: &Sealed, key: &[u8; 32]) -> Option<wasmtime::Module> {
    let code = sealed.load(key)?;
    // SAFETY: the seal proves that the code came from `serialize` of a compatible engine that this secret's owner has run.
    unsafe { wasmtime::Module::deserialize(engine, &code) }.ok()
}

/// Puts code into a store for the next process.
pub(crate) fn seal(module: &wasmtime::Module, sealed: &Sealed, key: &[u8; 32]) {
    if let Ok(code) = module.serialize() {
        sealed.save(key, &code);
    }
}

/// Compiles a module of SSDlets, one at a time for all drives of a process.
fn translated_alone(engine: &Engine, bytes: &[u8]) -> Result<wasmtime::Module, Refused> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    translated(engine, bytes)
}

/// Why a module is not compiled.
pub(crate) enum Refused {
    /// It would take too much: a sentence.
    Bounds(String),
    Compiler(wasmtime::Error),
}

/// Compiles a module that is within its bounds. A process does so for one module of SSDlets and one of functions at a time: what
/// a compiler takes at the most is theirs.
pub(crate) fn translated(engine: &Engine, bytes: &[u8]) -> Result<wasmtime::Module, Refused> {
    bounds::check(bytes).map_err(Refused::Bounds)?;
    wasmtime::Module::new(engine, bytes).map_err(Refused::Compiler)
}

fn check_exports(module: &wasmtime::Module) -> Result<(), String> {
    let marks = module.exports().filter_map(|export| export.name().strip_prefix("pithead_abi_"));
    let versions: Vec<_> = marks.map(str::to_owned).collect();
    if versions.is_empty() {
        return Err(format!(
            "it holds no SSDlets: it does not export pithead_abi_{ABI_VERSION}. hint: build it with one of the libraries in sdk/"
        ));
    }
    if !versions.contains(&ABI_VERSION.to_string()) {
        return Err(format!(
            "it was built for version {} of the interface, and this drive speaks version {ABI_VERSION}. hint: build it with the \
             sdk/ of this drive's release",
            versions.join(", ")
        ));
    }
    if !matches!(module.get_export("memory"), Some(ExternType::Memory(_))) {
        return Err("it does not export its memory as `memory`".to_owned());
    }
    let engine = module.engine();
    let nothing = FuncType::new(engine, [], []);
    check_function(module, "pithead_describe", &nothing, false)?;
    check_function(module, "pithead_run", &FuncType::new(engine, [ValType::I32], [ValType::I32]), false)?;
    check_function(module, "_initialize", &nothing, true)
}

fn check_function(module: &wasmtime::Module, name: &str, expected: &FuncType, optional: bool) -> Result<(), String> {
    match module.get_export(name) {
        None if optional => Ok(()),
        Some(ExternType::Func(of)) if of.matches(expected) => Ok(()),
        Some(ExternType::Func(of)) => Err(format!("its export {name} is {of}; {expected} was expected")),
        _ => Err(format!("it does not export the function {name}")),
    }
}

fn wrong_import(error: &wasmtime::Error) -> String {
    match error.downcast_ref::<UnknownImportError>() {
        Some(unknown) => {
            let hint = match unknown.module() {
                "env" => ". hint: a function was not found when it was linked; C++ needs -fno-exceptions",
                _ => "",
            };
            format!(
                "it imports {}.{}, which does not exist. Modules may import from pithead and wasi_snapshot_preview1; \
                 docs/reference/program-abi.md lists the calls{hint}",
                unknown.module(),
                unknown.name()
            )
        }
        None => format!("it has an import of the wrong type: {error:#}"),
    }
}
