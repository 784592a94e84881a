//! [`FunctionModule`]: a module of functions that was checked and compiled.

use std::sync::Arc;

use wasmtime::{ExternType, FuncType, InstancePre, Linker, Module, UnknownImportError, ValType};

use super::engine::FunctionEngine;
use super::run::Called;
use super::sets::{FREE, NEXT_BATCH};
use super::udf::{UDF_PREFIX, UDF_VERSION, UdfSignature};
use super::{ACCUMULATE_PREFIX, COMBINE_PREFIX, EXPORT_PREFIX, FINISH_PREFIX, FUNCTION_ABI_VERSION};
use crate::limits::MODULE_BYTES_MAX;
use crate::module::{Refused, code_bytes, translated};

/// Compiled functions whose imports and exports are right.
pub struct FunctionModule {
    pub(super) engine: Arc<FunctionEngine>,
    pub(super) instance: InstancePre<Called>,
    exported: Exported,
}

/// What a module exports, by the interface that it speaks.
pub(super) enum Exported {
    /// Ours: functions and aggregates by their names.
    Own { functions: Vec<String>, aggregates: Vec<String> },
    /// That of the crate `arrow-udf`: functions by their signatures.
    ArrowUdf(Vec<UdfSignature>),
}

impl std::fmt::Debug for FunctionModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FunctionModule").field("functions", &self.functions()).finish_non_exhaustive()
    }
}

impl FunctionModule {
    /// Its functions of one row: by their names, or by their signatures where one name may have several.
    pub fn functions(&self) -> Vec<String> {
        match &self.exported {
            Exported::Own { functions, .. } => functions.clone(),
            Exported::ArrowUdf(signatures) => signatures.iter().map(|signature| signature.text.clone()).collect(),
        }
    }

    /// The names of its aggregates.
    pub fn aggregates(&self) -> &[String] {
        match &self.exported {
            Exported::Own { aggregates, .. } => aggregates,
            Exported::ArrowUdf(_) => &[],
        }
    }

    /// Bytes of its compiled code.
    pub(super) fn code_bytes(&self) -> usize {
        code_bytes(self.code())
    }

    pub(super) fn exported(&self) -> &Exported {
        &self.exported
    }

    /// Its code.
    pub(super) fn code(&self) -> &Module {
        self.instance.module()
    }

    /// Compiles and checks a module. The errors are sentences without a name.
    pub(super) fn compile(engine: &Arc<FunctionEngine>, linker: &Linker<Called>, bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > MODULE_BYTES_MAX {
            return Err(format!("it has {} bytes; a module has at most {MODULE_BYTES_MAX}", bytes.len()));
        }
        if !bytes.starts_with(b"\0asm") {
            return Err("it is no WebAssembly module: it does not begin with \\0asm".to_owned());
        }
        let module = translated(linker.engine(), bytes).map_err(|why| match why {
            Refused::Bounds(cause) => cause,
            Refused::Compiler(error) => format!("it is no WebAssembly module that can run here: {error:#}"),
        })?;
        Self::new(engine, linker, &module)
    }

    /// Checks what a module exports and imports.
    pub(super) fn new(engine: &Arc<FunctionEngine>, linker: &Linker<Called>, module: &Module) -> Result<Self, String> {
        let exported = match module.exports().any(|export| export.name().starts_with(UDF_VERSION)) {
            true => Exported::ArrowUdf(arrow_udfs(module)?),
            false => own(module)?,
        };
        let instance = linker.instantiate_pre(module).map_err(|error| wrong_import(&error))?;
        Ok(Self { engine: Arc::clone(engine), instance, exported })
    }
}

/// Checks the exports of a module with our interface, and returns the functions and aggregates among them.
fn own(module: &Module) -> Result<Exported, String> {
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
        return Err(format!("{what}. hint: build it with sdk/rust, or with the crate arrow-udf"));
    }
    let one = FuncType::new(module.engine(), [ValType::I32], [ValType::I32]);
    check_memory(module)?;
    check(module, "pithead_allocate", &one)?;
    let named = |prefix: &str| -> Result<Vec<String>, String> {
        let names = names().filter(|name| *name != version && name.starts_with(prefix));
        names.map(|name| check(module, name, &one).map(|()| name[prefix.len()..].to_owned())).collect()
    };
    let (functions, aggregates) = (named(EXPORT_PREFIX)?, named(ACCUMULATE_PREFIX)?);
    for aggregate in &aggregates {
        check(module, &format!("{COMBINE_PREFIX}{aggregate}"), &one)?;
        check(module, &format!("{FINISH_PREFIX}{aggregate}"), &one)?;
        if functions.contains(aggregate) {
            return Err(format!("it has a function and an aggregate that are both named {aggregate}"));
        }
    }
    match functions.is_empty() && aggregates.is_empty() {
        true => Err(format!("it exports no function whose name begins with {EXPORT_PREFIX} or {ACCUMULATE_PREFIX}")),
        false => Ok(Exported::Own { functions, aggregates }),
    }
}

/// The same for the interface of the crate `arrow-udf`.
fn arrow_udfs(module: &Module) -> Result<Vec<UdfSignature>, String> {
    let versions: Vec<&str> =
        module.exports().map(|export| export.name()).filter(|name| name.starts_with(UDF_VERSION)).collect();
    let is_known = |version: &&str| version[UDF_VERSION.len()..].split('_').next() == Some("3");
    if !versions.iter().all(is_known) {
        return Err(format!("it exports {}; of the interface of arrow-udf versions 3.x are known", versions.join(", ")));
    }
    let numbers = |count: usize| std::iter::repeat_n(ValType::I32, count);
    check_memory(module)?;
    check(module, "alloc", &FuncType::new(module.engine(), numbers(2), numbers(1)))?;
    let call = FuncType::new(module.engine(), numbers(3), numbers(1));
    let mut signatures = Vec::new();
    for name in module.exports().map(|export| export.name()).filter(|name| name.starts_with(UDF_PREFIX)) {
        check(module, name, &call)?;
        signatures.push(UdfSignature::of(name)?);
    }
    if signatures.iter().any(UdfSignature::returns_set) {
        check(module, NEXT_BATCH, &FuncType::new(module.engine(), numbers(2), numbers(0)))?;
        check(module, FREE, &FuncType::new(module.engine(), numbers(3), numbers(0)))?;
    }
    match signatures.is_empty() {
        true => Err(format!("it exports no function whose name begins with {UDF_PREFIX}")),
        false => Ok(signatures),
    }
}

fn check_memory(module: &Module) -> Result<(), String> {
    if !matches!(module.get_export("memory"), Some(ExternType::Memory(_))) {
        return Err("it does not export its memory as `memory`".to_owned());
    }
    match module.get_export("_initialize") {
        Some(_) => check(module, "_initialize", &FuncType::new(module.engine(), [], [])),
        None => Ok(()),
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
