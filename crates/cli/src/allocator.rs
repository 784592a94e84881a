//! The process's allocator, how long it keeps memory that is free, and in which pages.

use std::ffi::c_long;
use std::ops::Range;

use libmimalloc_sys::{mi_collect, mi_option_set_default, mi_option_t};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` and `mi_option_allow_thp` in mimalloc's header.
const PURGE_DELAY: mi_option_t = 15;
const ALLOW_THP: mi_option_t = 43;
/// Milliseconds. Batches come and go within a query, and queries one after the other: memory that goes back to the kernel after
/// mimalloc's 10 ms is fetched again at once, and cleared on the way, which took up to a fifth of a query's time.
const KEEP_MS: c_long = 1000;

/// Lets free memory stay with the process for a second. The environment's `MIMALLOC_PURGE_DELAY` goes before.
pub(crate) fn keep_free_memory() {
    // SAFETY: sets a number in a table of mimalloc's own; any value is valid. No other thread runs yet.
    unsafe { mi_option_set_default(PURGE_DELAY, KEEP_MS) };
}

/// Takes pages of 4 KiB for blocks. Small ones lie so far apart in the allocator's memory that huge pages had seven times what all
/// blocks take after one query, and a tenth of the process's memory after many. Slices that are kept ask for huge pages themselves. The
/// environment's `MIMALLOC_ALLOW_THP` goes before, for memory that is taken from now on.
pub(crate) fn use_small_pages() {
    // SAFETY: as above.
    unsafe { mi_option_set_default(ALLOW_THP, 0) };
    let block = Box::new(0_u64);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    if let Some(mapping) = mapping_of(&maps, std::ptr::from_ref(&*block).addr()) {
        // SAFETY: the mapping is one of this process, and the advice changes nothing of what it holds. A kernel without huge pages
        // refuses it, which is as well.
        unsafe { libc::madvise(std::ptr::without_provenance_mut(mapping.start), mapping.len(), libc::MADV_NOHUGEPAGE) };
    }
}

/// Where the mapping lies that has this address, by what the kernel says of a process's mappings.
fn mapping_of(maps: &str, address: usize) -> Option<Range<usize>> {
    let range = |line: &str| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
    };
    maps.lines().filter_map(range).find(|range| range.contains(&address))
}

/// Gives back what is free on this thread, and what threads have left that are gone.
pub(crate) fn give_back_free_memory() {
    // SAFETY: frees nothing that is in use; any thread may call it at any time.
    unsafe { mi_collect(true) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_lies_in_a_mapping() {
        let maps = "1000-3000 r--p 00000000 fe:00 1  /bin/x\n5000-9000 rw-p 00000000 00:00 0 \n";
        assert_eq!(mapping_of(maps, 0x8fff), Some(0x5000..0x9000));
        assert_eq!((mapping_of(maps, 0x3000), mapping_of("no maps", 1)), (None, None));
        let block = Box::new(7_u8);
        let own = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(mapping_of(&own, std::ptr::from_ref(&*block).addr()).is_some());
    }
}
