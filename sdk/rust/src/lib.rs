//! SSDlets in Rust: tasks that run in a drive, in the shape of Biscuit's.
//!
//! An SSDlet is a type with the trait [`Ssdlet`], which [`register!`] makes known under a name. It takes values from typed input
//! ports and puts values into typed output ports; what it may read of the drive is in [`File`], [`value`] and [`Dataset`].
//! Functions and aggregates of SQL are listed in [`functions!`]. docs/reference/program-abi.md describes the calls underneath.

mod abi;
mod aggregate;
mod files;
mod function;
mod list;
mod ports;
mod rows;
mod task;

pub use aggregate::State;
#[doc(hidden)]
pub use aggregate::{accumulate as __accumulate, combine as __combine, finish as __finish};
#[doc(hidden)]
pub use function::allocate as __allocate;
pub use function::{Column as FunctionColumn, Frame, FunctionArgument, FunctionResult, Results};

pub use files::{Dataset, File, FileReader, Hit, value};
pub use ports::{Input, Output};
pub use rows::{ArrowBatch, Bytes, Column, Row};
pub use task::{Argument, Arguments, Inputs, Outputs, Ssdlet};

/// How much a line of the log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Debug,
    Info,
    Warning,
    Error,
}

/// Writes a line to the drive's log.
pub fn log(level: Level, text: &str) {
    // SAFETY: the host reads `text` only.
    unsafe { abi::log(level as u32, text.as_ptr(), text.len()) }
}

/// The time of day in nanoseconds since 1970.
pub fn now_ns() -> u64 {
    // SAFETY: the call takes no memory.
    unsafe { abi::time_ns() }
}

/// Ends the application with a message.
pub fn fail(message: &str) -> ! {
    // SAFETY: the host reads `message` only.
    unsafe { abi::fail(message.as_ptr(), message.len()) }
}

/// Makes SSDlets known under the names by which host programs ask for them: `register!(idMapper => Mapper, idReducer => Reducer)`.
/// A module has exactly one such list.
#[macro_export]
macro_rules! register {
    ($($name:ident => $ssdlet:ty),+ $(,)?) => {
        #[unsafe(no_mangle)]
        extern "C" fn pithead_abi_1() {}

        #[unsafe(no_mangle)]
        extern "C" fn pithead_describe() {
            $($crate::__declare::<$ssdlet>(stringify!($name));)+
        }

        #[unsafe(no_mangle)]
        extern "C" fn pithead_run(number: u32) -> i32 {
            let all: &[fn()] = &[$($crate::__run::<$ssdlet>),+];
            all[number as usize]();
            0
        }
    };
}

#[doc(hidden)]
pub use task::{declare as __declare, run as __run};
