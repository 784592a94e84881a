//! The process's allocator, and how long it keeps memory that is free.

use std::ffi::c_long;

use libmimalloc_sys::{mi_collect, mi_option_set_default, mi_option_t};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` in mimalloc's header.
const PURGE_DELAY: mi_option_t = 15;
/// Milliseconds. Batches come and go within a query, and queries one after the other: memory that goes back to the kernel after
/// mimalloc's 10 ms is fetched again at once, and cleared on the way, which took up to a fifth of a query's time.
const KEEP_MS: c_long = 1000;

/// Lets free memory stay with the process for a second. The environment's `MIMALLOC_PURGE_DELAY` goes before.
pub(crate) fn keep_free_memory() {
    // SAFETY: sets a number in a table of mimalloc's own; any value is valid. No other thread runs yet.
    unsafe { mi_option_set_default(PURGE_DELAY, KEEP_MS) };
}

/// Gives back what is free on this thread, and what threads have left that are gone.
pub(crate) fn give_back_free_memory() {
    // SAFETY: frees nothing that is in use; any thread may call it at any time.
    unsafe { mi_collect(true) };
}
