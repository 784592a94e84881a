//! Modules of functions of SQL: keeping one, and asking for it.

use bytes::Bytes;
use pithead_model::{Blame, FUNCTION_MODULE_BYTES_MAX, Fault};
use serde::{Deserialize, Serialize};

/// A module to keep.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionModule {
    /// The domain whose functions it holds.
    pub domain: String,
    /// WebAssembly.
    pub bytes: Bytes,
}

/// Which module is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionAsk {
    /// The domain whose function it holds.
    pub domain: String,
    /// The SHA-256 of its bytes, in hexadecimal digits.
    pub module: String,
    /// Whether its bytes are wanted. Otherwise the answer has none, and only says that it is there.
    pub bytes: bool,
}

/// Refuses a module that can be refused without a look at its code.
pub fn check_function(module: &FunctionModule) -> Result<(), Fault> {
    match module.bytes.len() {
        0..=FUNCTION_MODULE_BYTES_MAX => Ok(()),
        bytes => Err(Fault::new(
            Blame::Limit,
            format!("the module has {bytes} bytes; a module of functions has at most {FUNCTION_MODULE_BYTES_MAX}"),
        )),
    }
}
