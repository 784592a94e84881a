//! SSDlets: users' own programs as WebAssembly modules, run in a sandbox as graphs of tasks that typed ports connect.
//!
//! The model is Biscuit's (Gu et al., *Biscuit: A Framework for Near-Data Processing of Big Data Workloads*, ISCA 2016). A
//! [`Module`] declares SSDlets. A host program makes an [`Application`] of them: it gives arguments, connects ports, starts,
//! exchanges data, waits. Each SSDlet is a cooperative fibre with an address space of its own on the reactors of
//! [`pithead_sched`]. Nothing here trusts a guest, opens a socket or knows plans; what a guest may read comes from
//! [`Services`]. A [`FunctionModule`] holds functions of SQL, which reach nothing at all. docs/reference/program-abi.md describes
//! what modules import and export.

mod application;
mod arrow_port;
mod bounds;
mod budget;
mod cache;
mod calls;
mod channel;
mod code_folder;
mod compiling;
mod declared;
mod engine;
mod error;
mod folder;
mod function;
mod graph;
mod guest;
mod host_port;
mod known;
mod last_words;
mod limits;
mod links;
mod module;
mod row;
mod run;
mod runtime;
mod services;
mod signature;
#[cfg(test)]
mod tests;
mod wasi;

pub use application::{Application, Argument, Input, Output, Ssdlet};
pub use arrow_port::{from_ipc, to_ipc};
pub use budget::{Held, thread_time};
pub use cache::{CodeStore, Sealed, Secret, hex, sha256_of_hex};
pub use code_folder::CodeFolder;
pub use compiling::Compiling;
pub use declared::{ArgumentType, Declared};
pub use error::ProgramError;
pub use folder::FolderServices;
pub use function::{
    AggregateCall, FUNCTION_ABI_VERSION, FunctionCall, FunctionEngine, FunctionModule, GroupStates, GuestMemory,
    STATE_BYTES_MAX,
};
pub use host_port::{HostQueue, HostReader, HostWriter};
pub use known::Known;
pub use limits::{ABI_VERSION, BATCH_BYTES, BATCH_BYTES_MAX, Limits, MODULE_BYTES_MAX, RuntimeOptions};
pub use module::Module;
pub use row::{Value, decode_rows, encode_row};
pub use runtime::Runtime;
pub use services::{Dataset, File, Level, LogLine, ServiceError, Services};
pub use signature::{Signature, Type};
