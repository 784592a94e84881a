//! Functions of users as functions of the engine: their definitions are in manifests ([`pithead_model::Function`]), and their modules
//! run in the sandbox of [`pithead_program`].
//!
//! A plan calls such a function by a name with a hash of its definition and its module, so plans that call two versions are two
//! plans, wherever plans are compared, kept or sent. What people see is the name without the hash.

mod aggregate;
mod aggregator;
mod code;
mod external;
mod finish;
mod fit;
mod function;
mod groups;
#[cfg(test)]
mod tests;
mod user;

pub use code::{Code, WeakCode, check, code_key, compiled, hash_of, keep, kind_of, known};
pub use function::{called, returns_set};
pub use pithead_program::{CodeFolder, FunctionModule, Sealed};
pub use user::{UserFunction, extensions};
