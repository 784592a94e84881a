//! [`FunctionModule`]: a module of functions that was checked and compiled.

use std::sync::Arc;

use wasmtime::{ExternType, FuncType, InstancePre, Linker, Module, UnknownImportError, ValType};

use super::engine::FunctionEngine;
use super::run::Called;
use super::{EXPORT_PREFIX, FUNCTION_ABI_VERSION};
use crate::limits::MODULE_BYTES_MAX;

/// Compiled functions whose imports and exports are right.
pub struct FunctionModule {
    pub(super) engine: Arc<FunctionEngine>,
    pub(super) instance: InstancePre<Called>,
    functions: Vec<String>,
}

impl std::fmt::Debug for FunctionModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FunctionModule").field("functions", &self.functions).finish_non_exhaustive()
    }
}

impl FunctionModule {
    /// The names of its functions.
    pub fn functions(&self) -> &[String] {
        &self.functions
    }

    /// The errors are sentences without a name.
    pub(super) fn compile(engine: &Arc<FunctionEngine>, linker: &Linker<Called>, bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > MODULE_BYTES_MAX {
            return Err(format!("it has {} bytes; a module has at most {MODULE_BYTES_MAX}", bytes.len()));
        }
        if !bytes.starts_with(b"\0asm") {
            return Err("it is no WebAssembly module: it does not begin with \\0asm".to_owned());
        }
        let module = Module::new(linker.engine(), bytes)
            .map_err(|error| format!("it is no WebAssembly module that can run here: {error:#}"))?;
        let functions = functions(&module)?;
        let instance = linker.instantiate_pre(&module).map_err(|error| wrong_import(&error))?;
        Ok(Self { engine: Arc::clone(engine), instance, functions })
    }
}

/// Checks the exports, and returns the names of functions among them.
fn functions(module: &Module) -> Result<Vec<String>, String> {
    let version = format!("pithead_function_abi_{FUNCTION_ABI_VERSION}");
    let names = || module.exports().map(|export| export.name());
    if !names().any(|name| name == version) {
        let others: Vec<&str> = names().filter(|name| name.starts_with("pithead_function_abi_")).collect();
        let what = match others.is_empty() {
            true => format!("it holds no functions of SQL: it does not export {version}"),
            false => {
                format!("it was built for another version of the interface: it exports {}, not {version}", others.join(", "))
            }
        };
        return Err(format!("{what}. hint: build it with sdk/rust"));
    }
    if !matches!(module.get_export("memory"), Some(ExternType::Memory(_))) {
        return Err("it does not export its memory as `memory`".to_owned());
    }
    let one = FuncType::new(module.engine(), [ValType::I32], [ValType::I32]);
    check(module, "pithead_allocate", &one)?;
    if module.get_export("_initialize").is_some() {
        check(module, "_initialize", &FuncType::new(module.engine(), [], []))?;
    }
    let mut functions = Vec::new();
    for name in names().filter(|name| *name != version) {
        if let Some(function) = name.strip_prefix(EXPORT_PREFIX) {
            check(module, name, &one)?;
            functions.push(function.to_owned());
        }
    }
    match functions.is_empty() {
        true => Err(format!("it exports no function whose name begins with {EXPORT_PREFIX}")),
        false => Ok(functions),
    }
}

fn check(module: &Module, name: &str, expected: &FuncType) -> Result<(), String> {
    match module.get_export(name) {
        Some(ExternType::Func(of)) if of.matches(expected) => Ok(()),
        Some(ExternType::Func(of)) => Err(format!("its export {name} is {of}; {expected} was expected")),
        _ => Err(format!("it does not export the function {name}")),
    }
}

fn wrong_import(error: &wasmtime::Error) -> String {
    match error.downcast_ref::<UnknownImportError>() {
        Some(unknown) => format!(
            "it imports {}.{}, which functions do not have. They may import pithead.fail and what a language's runtime needs of \
             wasi_snapshot_preview1",
            unknown.module(),
            unknown.name()
        ),
        None => format!("it has an import of the wrong type: {error:#}"),
    }
}
