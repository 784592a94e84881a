//! [`Counted`]: the memory of a function's result.

use arrow::array::ArrayRef;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use pithead_functions::{Holder, SessionMemory};

/// Bytes that are reserved at a time. Less is not counted.
const STEP_BYTES: usize = 1 << 18;

/// Reserves memory of the session for a result while it is made.
pub(crate) struct Counted {
    holder: Holder,
    /// Bytes that were made since some were reserved.
    more: usize,
}

impl Counted {
    pub(crate) fn of(function: &str, options: &ConfigOptions) -> Self {
        Self { holder: SessionMemory::of(options).holder(function), more: 0 }
    }

    /// So many bytes more.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<()> {
        self.more += bytes;
        if self.more < STEP_BYTES {
            return Ok(());
        }
        self.holder.grow(std::mem::take(&mut self.more) as u64)
    }

    /// The result, which holds its memory.
    pub(crate) fn held(self, result: ArrayRef) -> ArrayRef {
        self.holder.hold(&result)
    }
}
