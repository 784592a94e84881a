//! CREATE FUNCTION and DROP FUNCTION: the module goes to the drives first, then the manifest names it.

use std::io::Read;

use bytes::Bytes;
use datafusion::execution::SessionState;
use futures::future::join_all;
use pithead_door::FunctionModule;
use pithead_fleet::Edit;
use pithead_model::{
    Blame, FUNCTION_MODULE_BYTES_MAX, FUNCTIONS_MAX, Fault, FaultKind, Function, FunctionKind, Manifest, RUNS_USER_FUNCTIONS,
};
use pithead_wasm_sql::{check, hash_of, kind_of};

use super::{Definition, Dropped, known};
use crate::{Commitment, Host};

/// The prefix of a module's bytes in a statement that brings them itself.
const DIGITS_PREFIX: &str = "\\x";

/// Makes a function. `may_read_files`: whether the statement may name a file of this machine.
pub(crate) async fn create(
    host: &Host,
    state: &SessionState,
    definition: &Definition,
    may_read_files: bool,
    commitment: &Commitment,
) -> Result<(), Fault> {
    let name = definition.name.resolve(&state.config_options().catalog.default_schema)?;
    let is_engines = state.scalar_functions().contains_key(&name.dataset)
        || state.aggregate_functions().contains_key(&name.dataset)
        || state.window_functions().contains_key(&name.dataset);
    if is_engines {
        return Err(
            Fault::new(Blame::User, format!("{} is a function of every engine", name.dataset)).hint("give it another name")
        );
    }
    let bytes = module_bytes(&definition.module, may_read_files).await?;
    let module = host.functions().compiled(bytes.clone()).await.map_err(|fault| of_file(fault, &definition.module))?;
    let export = definition.export.clone().unwrap_or_else(|| name.dataset.clone());
    let function = Function {
        arguments: definition.arguments.clone(),
        returns: definition.returns,
        volatility: definition.volatility,
        called_on_null: definition.called_on_null,
        module: hash_of(&bytes),
        kind: if definition.returns_set { FunctionKind::Table } else { kind_of(&module, &export) },
        export,
    };
    function.check(&name.dataset)?;
    let snapshot = host.fleet().snapshot().await?;
    let before = known(&snapshot, &name.domain).remove(&name.dataset);
    if before.is_some() && !definition.replaces {
        return Err(already_there(&name.to_string()));
    }
    let (of, called) = (function.clone(), name.to_string());
    let checking = tokio::task::spawn_blocking(move || check(&called, &of, &module));
    checking.await.map_err(Fault::bug)??;
    keep(host, &name.domain, &function.module, bytes).await?;
    let edit =
        FunctionEdit { domain: name.domain, name: name.dataset, function: Some(function), replaces: definition.replaces };
    commitment.commit(host.fleet(), &edit).await.map_err(|not| not.fault)?;
    Ok(())
}

/// A fault of a module that a file is, with the name of that.
fn of_file(fault: Fault, module: &str) -> Fault {
    match module.starts_with(DIGITS_PREFIX) {
        true => fault,
        false => Fault { message: format!("{module}: {}", fault.message), ..fault },
    }
}

/// Drops a function. Its module goes from the drives some time later.
pub(crate) async fn drop_function(
    host: &Host,
    state: &SessionState,
    dropped: &Dropped,
    commitment: &Commitment,
) -> Result<(), Fault> {
    let name = dropped.name.resolve(&state.config_options().catalog.default_schema)?;
    let snapshot = host.fleet().snapshot().await?;
    if dropped.if_exists && !known(&snapshot, &name.domain).contains_key(&name.dataset) {
        return Ok(());
    }
    let edit = FunctionEdit { domain: name.domain, name: name.dataset, function: None, replaces: false };
    match commitment.commit(host.fleet(), &edit).await {
        Err(not) if dropped.if_exists && not.certain && not.fault.kind == FaultKind::NoFunction => Ok(()),
        Err(not) => Err(not.fault),
        Ok(_) => Ok(()),
    }
}

/// Keeps a module on all drives that run functions. At one at least it has to be.
async fn keep(host: &Host, domain: &str, hash: &str, bytes: Bytes) -> Result<(), Fault> {
    let connected = host.fleet().connected();
    let runs = |extensions: &[String]| extensions.iter().any(|there| there == RUNS_USER_FUNCTIONS);
    let drives: Vec<_> = connected.all().iter().filter(|drive| runs(&drive.welcome.extensions)).collect();
    let module = FunctionModule { domain: domain.to_owned(), bytes };
    let kept = join_all(drives.iter().map(|drive| drive.door.keep_function(module.clone()))).await;
    let mut count = 0;
    for (drive, kept) in drives.into_iter().zip(kept) {
        if kept.map_err(|fault| fault.at_drive(drive.label()))? != hash {
            return Err(Fault::new(Blame::Device, format!("drive {} has kept another module", drive.label())));
        }
        host.functions().note(drive.id(), hash);
        count += 1;
    }
    match count {
        0 => Err(Fault::new(Blame::Unsupported, "no drive keeps functions of users").hint("start drives of this release")),
        _ => Ok(()),
    }
}

/// The module's bytes: a file's, or those in the statement.
async fn module_bytes(module: &str, may_read_files: bool) -> Result<Bytes, Fault> {
    if let Some(digits) = module.strip_prefix(DIGITS_PREFIX) {
        let bytes = from_digits(digits).ok_or_else(|| Fault::new(Blame::User, "expected hexadecimal digits after \\x"))?;
        return within_bound(bytes);
    }
    if !may_read_files {
        let what = "the module is a file of the machine where statements are run, which this connection may not read";
        return Err(Fault::new(Blame::Access, what).hint("give its bytes instead: AS '\\x0061736d…'"));
    }
    let path = module.to_owned();
    let read = tokio::task::spawn_blocking(move || {
        let wrong = |error: std::io::Error| Fault::new(Blame::User, format!("the module {path:?} cannot be read: {error}"));
        if !std::fs::metadata(&path).map_err(wrong)?.is_file() {
            return Err(Fault::new(Blame::User, format!("the module {path:?} is no file")));
        }
        // One byte more than a module may have says that it is too large, whatever size the file tells.
        let mut bytes = Vec::new();
        let file = std::fs::File::open(&path).map_err(wrong)?;
        file.take(FUNCTION_MODULE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(wrong)?;
        within_bound(bytes)
    });
    read.await.map_err(Fault::bug)?
}

fn within_bound(bytes: Vec<u8>) -> Result<Bytes, Fault> {
    match bytes.len() > FUNCTION_MODULE_BYTES_MAX {
        true => Err(Fault::new(Blame::Limit, format!("a module of functions has at most {FUNCTION_MODULE_BYTES_MAX} bytes"))
            .hint("build it with optimisation, and strip it")),
        false => Ok(bytes.into()),
    }
}

fn from_digits(digits: &str) -> Option<Vec<u8>> {
    let nibble = |digit: u8| (digit as char).to_digit(16).map(|value| value as u8);
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| Some(nibble(*pair.first()?)? << 4 | nibble(*pair.get(1)?)?)).collect()
}

fn already_there(name: &str) -> Fault {
    Fault::new(Blame::User, format!("function {name} exists already"))
        .of_kind(FaultKind::Exists)
        .hint("CREATE OR REPLACE FUNCTION puts this one in its place")
}

/// A change of a domain's functions.
struct FunctionEdit {
    domain: String,
    name: String,
    /// None: it goes.
    function: Option<Function>,
    replaces: bool,
}

impl FunctionEdit {
    fn missing(&self, manifest: &Manifest) -> Fault {
        let known: Vec<&str> = manifest.functions.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Fault::new(Blame::User, format!("there is no function {} in domain {}; it has {known}", self.name, self.domain))
            .of_kind(FaultKind::NoFunction)
    }
}

impl Edit for FunctionEdit {
    type Output = ();

    fn domain(&self) -> &str {
        &self.domain
    }

    fn subject(&self) -> String {
        format!("function {}.{}", self.domain, self.name)
    }

    fn apply(&self, manifest: &mut Manifest) -> Result<(), Fault> {
        let Some(function) = &self.function else {
            return match manifest.functions.remove(&self.name) {
                Some(_) => Ok(()),
                None => Err(self.missing(manifest)),
            };
        };
        if !self.replaces && manifest.functions.contains_key(&self.name) {
            return Err(already_there(&format!("{}.{}", self.domain, self.name)));
        }
        if manifest.functions.len() >= FUNCTIONS_MAX && !manifest.functions.contains_key(&self.name) {
            let what = format!("domain {} has {FUNCTIONS_MAX} functions, and may not have more", self.domain);
            return Err(Fault::new(Blame::Limit, what).hint("DROP FUNCTION removes one"));
        }
        manifest.functions.insert(self.name.clone(), function.clone());
        Ok(())
    }

    fn is_in(&self, manifest: &Manifest) -> bool {
        manifest.functions.get(&self.name) == self.function.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_bytes() {
        assert_eq!(from_digits("0061736D"), Some(b"\0asm".to_vec()));
        assert_eq!(from_digits(""), Some(vec![]));
        assert!(from_digits("006").is_none() && from_digits("0g").is_none() && from_digits("é0").is_none());
    }
}
