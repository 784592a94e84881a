//! Counts memory, so that a case's peak can be judged.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// What [`LIVE`] may come to. Above it allocations fail, which ends the process: better than the machine's memory.
static LIVE_MAX: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The system's allocator, counted. To be the global one of a binary that fuzzes.
pub struct CountingAllocator;

impl CountingAllocator {
    fn take(bytes: usize) -> bool {
        let live = LIVE.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if live > LIVE_MAX.load(Ordering::Relaxed) {
            LIVE.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        PEAK.fetch_max(live, Ordering::Relaxed);
        true
    }

    fn give(bytes: usize) {
        LIVE.fetch_sub(bytes, Ordering::Relaxed);
    }
}

// SAFETY: all calls go to the system's allocator with the layouts that they came with; counting touches no memory of theirs.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !Self::take(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as the caller promises.
        let start = unsafe { System.alloc(layout) };
        if start.is_null() {
            Self::give(layout.size());
        }
        start
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !Self::take(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as the caller promises.
        let start = unsafe { System.alloc_zeroed(layout) };
        if start.is_null() {
            Self::give(layout.size());
        }
        start
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(start, layout) };
        Self::give(layout.size());
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // Both are there while the bytes move.
        if !Self::take(bytes) {
            return std::ptr::null_mut();
        }
        // SAFETY: as the caller promises.
        let moved = unsafe { System.realloc(start, layout, bytes) };
        Self::give(if moved.is_null() { bytes } else { layout.size() });
        moved
    }
}

/// Forgets the last peak. Allocations that would come to more than `more` beyond what is taken now will fail. Gives what is
/// taken now.
pub(crate) fn start(more: usize) -> usize {
    let live = LIVE.load(Ordering::Relaxed);
    PEAK.store(live, Ordering::Relaxed);
    LIVE_MAX.store(live.saturating_add(more), Ordering::Relaxed);
    live
}

/// The peak since [`start`], beyond what was taken then.
pub(crate) fn peak_since(before: usize) -> usize {
    LIVE_MAX.store(usize::MAX, Ordering::Relaxed);
    PEAK.load(Ordering::Relaxed).saturating_sub(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_counted_and_bounded() {
        let layout = |bytes| Layout::from_size_align(bytes, 8).unwrap();
        let before = start(1_000);
        // SAFETY: layouts are not empty, and what is taken is given back with its layout.
        unsafe {
            let small = CountingAllocator.alloc(layout(600));
            assert!(!small.is_null() && CountingAllocator.alloc(layout(600)).is_null());
            CountingAllocator.dealloc(small, layout(600));
            let again = CountingAllocator.alloc_zeroed(layout(300));
            let moved = CountingAllocator.realloc(again, layout(300), 500);
            CountingAllocator.dealloc(moved, layout(500));
        }
        assert_eq!(peak_since(before), 800);
        assert_eq!(start(0), before);
        peak_since(before);
    }
}
