//! Functions of SQL as WebAssembly: a module's functions are called with Arrow's buffers in the guest's memory, a batch at a time.
//! Modules of the crate `arrow-udf`, which take batches as Arrow IPC, are called by their own interface.
//!
//! Each call has an instance of its own, with an empty memory: nothing goes from one batch to the next, so that a result hangs on its
//! rows only, wherever and in whichever order batches are computed. A function reaches nothing but its memory. Its clock stands
//! still, and its random numbers are always the same. docs/reference/program-abi.md describes what a module exports.

mod aggregate;
mod batch;
mod engine;
mod frame;
mod imports;
mod module;
mod run;
mod sets;
mod udf;

pub use aggregate::{AggregateCall, GroupStates, STATE_BYTES_MAX};
pub use batch::FunctionCall;
pub use engine::FunctionEngine;
pub use module::FunctionModule;
pub use run::GuestMemory;

use std::time::Duration;

/// The version of the interface between functions and this runtime. A module names it by an export, `pithead_function_abi_1`.
pub const FUNCTION_ABI_VERSION: u32 = 1;

/// What stands before a function's name in the names of exports.
const EXPORT_PREFIX: &str = "pithead_function_";
/// The same for the three parts of an aggregate.
const ACCUMULATE_PREFIX: &str = "pithead_accumulate_";
const COMBINE_PREFIX: &str = "pithead_combine_";
const FINISH_PREFIX: &str = "pithead_finish_";

/// The most bytes of one instance's memory, whatever its session may take.
const INSTANCE_MEMORY_BYTES_MAX: usize = 512 << 20;

/// The most calls that run at once in a process. Each takes a thread.
const INSTANCES_MAX: u32 = 256;

/// The processor time that one call may take: so much, and so much more for each row. It runs on a thread that serves others, too,
/// and that has to give way within a second or so.
const CALL_TIME: Duration = Duration::from_millis(500);
const ROW_TIME: Duration = Duration::from_micros(100);

/// When a call ends in any case, however little of the processor it got.
const WALL_MAX: Duration = Duration::from_secs(60);

/// The most rows of one call, and the bytes of their texts at which a batch is halved.
const CALL_ROWS_MAX: usize = 8_192;
const CALL_TEXT_BYTES_MAX: usize = 16 << 20;
