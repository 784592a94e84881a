//! Bounds: what one module, one application and one runtime may take.

use std::time::Duration;

/// The version of the interface between modules and this runtime. A module names it by an export, `pithead_abi_1`.
pub const ABI_VERSION: u32 = 1;

/// The most bytes of a module.
pub const MODULE_BYTES_MAX: usize = 32 << 20;

/// The size, in bytes, to which guests fill batches and to which small batches of one port are joined.
pub const BATCH_BYTES: usize = 64 << 10;

/// The most bytes of one batch, and so of one row.
pub const BATCH_BYTES_MAX: usize = 16 << 20;

/// Guests give way to others after this time, and their run time is looked at as often.
pub(crate) const SLICE: Duration = Duration::from_millis(2);

/// The stack of a guest, in bytes.
pub(crate) const STACK_BYTES: usize = 1 << 20;

/// The most SSDlets that a module declares, and that an application has.
pub(crate) const SSDLETS_MAX: usize = 64;

/// The most ports and the most arguments of an SSDlet, each.
pub(crate) const PORTS_MAX: usize = 32;

/// The most columns of a port's rows.
pub(crate) const COLUMNS_MAX: usize = 64;

/// The most bytes of one declaration, of a name of a file or a dataset, of a key, and of the arguments of an SSDlet.
pub(crate) const DECLARATION_BYTES_MAX: usize = 4 << 10;
pub(crate) const NAME_BYTES_MAX: usize = 4 << 10;
pub(crate) const ARGUMENT_BYTES_MAX: usize = 1 << 20;

/// The most files and datasets that an SSDlet has open.
pub(crate) const FILES_MAX: usize = 64;

/// The most bytes of one line of the log; what is longer is cut.
pub(crate) const LOG_LINE_BYTES_MAX: usize = 4 << 10;

/// What a line of the log counts besides its bytes.
pub(crate) const LOG_LINE_BYTES: usize = 64;

/// The most bytes of a buffer, and the most lines, that one call takes for a standard stream; a guest calls again with the rest.
pub(crate) const LOG_CALL_BYTES_MAX: usize = 64 << 10;
pub(crate) const LOG_CALL_LINES_MAX: usize = 256;

/// The most bytes that one host call reads, writes or fills with random numbers.
pub(crate) const CALL_BYTES_MAX: usize = 16 << 20;

/// The most patterns of one search, and the most bytes of one.
pub(crate) const PATTERNS_MAX: usize = 16;
pub(crate) const PATTERN_BYTES_MAX: usize = 256;

/// How far reads are announced to the medium before a guest that reads a file in order asks for them.
pub(crate) const READ_AHEAD_BYTES: u64 = 1 << 20;

/// The most elements of a guest's table of functions.
pub(crate) const TABLE_ELEMENTS_MAX: usize = 128 << 10;

/// The bytes of one of them.
pub(crate) const TABLE_ELEMENT_BYTES: usize = 8;

/// What one application may take, over all of its SSDlets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Linear memories, tables of functions, batches that wait, and files that are open, in bytes.
    pub memory_bytes_max: u64,
    /// Processor time.
    pub run_time_max: Duration,
    /// Lines of the log, in bytes and 64 for each.
    pub log_bytes_max: u64,
    /// What waits in one connection, in bytes. One batch fits always.
    pub queue_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes_max: 256 << 20,
            run_time_max: Duration::from_secs(600),
            log_bytes_max: 1 << 20,
            queue_bytes_max: 256 << 10,
        }
    }
}

impl Limits {
    /// What a module may take while it declares its SSDlets.
    pub(crate) fn describing() -> Self {
        Self { memory_bytes_max: 128 << 20, run_time_max: Duration::from_secs(2), log_bytes_max: 16 << 10, queue_bytes_max: 0 }
    }
}

/// What one runtime may take.
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// The most SSDlets that are there at once.
    pub instances_max: u32,
    /// The most bytes of one SSDlet's memory, whatever its application may take; at most 4 GiB.
    pub instance_memory_bytes_max: usize,
    /// The most bytes of compiled code that are kept for modules that nobody uses.
    pub code_bytes_max: usize,
    /// Whether the only SSDlet of an application takes its first turn on the thread that starts it, which it so holds for a slice of
    /// 2 ms at the most: what ends by then wakes no reactor. It is for processes whose SSDlets are their own, and for no thread that
    /// serves others.
    pub starts_here: bool,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self { instances_max: 256, instance_memory_bytes_max: 1 << 30, code_bytes_max: 256 << 20, starts_here: false }
    }
}
