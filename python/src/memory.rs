//! [`Headroom`]: rows that pile up in this process end with a MemoryError, while there is still memory to say so.

use arrow::array::RecordBatch;
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;

/// What a result leaves free: enough for the engine's threads to finish what they are at. Where they get no memory, they end the
/// process.
const HEADROOM_BYTES: usize = 192 << 20;
/// Bytes of rows that are handed out before anything is looked at. Small results fit into any process that runs.
const SMALL_BYTES: usize = 32 << 20;

/// Watches what a result leaves of this process's memory.
#[derive(Default)]
pub(crate) struct Headroom {
    taken_bytes: usize,
}

impl Headroom {
    /// A MemoryError where one more batch may be too much.
    pub(crate) fn check(&mut self, batch: &RecordBatch) -> PyResult<()> {
        self.taken_bytes = self.taken_bytes.saturating_add(batch.get_array_memory_size());
        match self.taken_bytes <= SMALL_BYTES || is_there() {
            true => Ok(()),
            false => Err(PyMemoryError::new_err(
                "the rows do not fit into this process's memory; iterate over the result, or take it by reader()",
            )),
        }
    }
}

/// Whether the system would give that much more. Nothing of it is touched, so it costs two system calls.
fn is_there() -> bool {
    let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at a place of the system's choice, which nobody looks at, and which goes at once.
    unsafe {
        let place = libc::mmap(std::ptr::null_mut(), HEADROOM_BYTES, protection, kind, -1, 0);
        place != libc::MAP_FAILED && libc::munmap(place, HEADROOM_BYTES) == 0
    }
}
