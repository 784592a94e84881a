//! [`MemoryPool`]: memory for large values that is reused.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};

use memmap2::{Advice, MmapMut};
use parking_lot::Mutex;

use super::ALIGNMENT;

/// The most memory that is kept for later reads. Without it, clearing fresh pages took half of all processor time of
/// cold reads.
const SPARE_BYTES_MAX: usize = 128 << 20;
/// Memory of at least this many bytes asks for huge pages, which the kernel then pins hundreds at a time.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Sizes are rounded up to a sixteenth of the next power of two, so that memory fits later values.
const CLASSES: usize = 16;

/// Memory of values that nobody uses any more, up to a bound.
#[derive(Debug, Default)]
pub(super) struct MemoryPool {
    spare: Mutex<Spare>,
}

#[derive(Debug, Default)]
struct Spare {
    /// In the order in which it came back.
    memory: VecDeque<MmapMut>,
    bytes: usize,
}

/// Memory that starts at a multiple of [`ALIGNMENT`]. At first it contains zeros, or an earlier value.
#[derive(Debug)]
pub(super) struct Memory {
    /// None only while it is dropped.
    map: Option<MmapMut>,
    pool: Weak<MemoryPool>,
}

impl MemoryPool {
    /// At least `bytes`, rounded up to [`ALIGNMENT`] or more.
    pub fn take(self: &Arc<Self>, bytes: usize) -> io::Result<Memory> {
        let bytes = class_of(bytes);
        let pool = Arc::downgrade(self);
        if let Some(map) = self.spare.lock().take(bytes) {
            return Ok(Memory { map: Some(map), pool });
        }
        let map = MmapMut::map_anon(bytes)?;
        if bytes >= HUGE_PAGE_BYTES {
            // This is only advice: a kernel without huge pages refuses it.
            let _ = map.advise(Advice::HugePage);
        }
        Ok(Memory { map: Some(map), pool })
    }
}

impl Spare {
    /// The smallest piece of memory that fits `bytes` and is not more than a quarter larger.
    fn take(&mut self, bytes: usize) -> Option<MmapMut> {
        let fits = self.memory.iter().enumerate().filter(|(_, map)| (bytes..=bytes + bytes / 4).contains(&map.len()));
        let (at, _) = fits.min_by_key(|(_, map)| map.len())?;
        let map = self.memory.remove(at)?;
        self.bytes -= map.len();
        Some(map)
    }

    /// Keeps memory, and returns the memory that exceeds the bound.
    fn put(&mut self, map: MmapMut) -> Vec<MmapMut> {
        self.bytes += map.len();
        self.memory.push_back(map);
        let mut over = Vec::new();
        while self.bytes > SPARE_BYTES_MAX {
            let Some(oldest) = self.memory.pop_front() else { break };
            self.bytes -= oldest.len();
            over.push(oldest);
        }
        over
    }
}

impl Memory {
    /// The start address, which stays the same as long as the memory lives, even if this value is moved.
    pub fn start(&mut self) -> *mut u8 {
        self.map.as_mut().map_or(std::ptr::null_mut(), |map| map.as_mut_ptr())
    }
}

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}

impl AsMut<[u8]> for Memory {
    fn as_mut(&mut self) -> &mut [u8] {
        self.map.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let (Some(map), Some(pool)) = (self.map.take(), self.pool.upgrade()) {
            // The memory is unmapped after the lock is released.
            let over = pool.spare.lock().put(map);
            drop(over);
        }
    }
}

fn class_of(bytes: usize) -> usize {
    let step = (bytes.next_power_of_two() / CLASSES).max(ALIGNMENT as usize);
    bytes.max(1).next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again() {
        let pool = Arc::new(MemoryPool::default());
        let mut first = pool.take(100_000).unwrap();
        let start = first.start();
        first.as_mut()[0] = 7;
        let other = pool.take(100_000).unwrap();
        drop(first);
        let mut again = pool.take(100_001).unwrap();
        assert_eq!((again.start(), again.as_ref()[0]), (start, 7));
        assert!(again.as_ref().len() >= 100_001 && start.addr().is_multiple_of(ALIGNMENT as usize));
        drop((again, other));
        assert_eq!(pool.spare.lock().memory.len(), 2);
        assert!(pool.take(200_000).unwrap().as_ref().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        let pool = Arc::new(MemoryPool::default());
        let taken: Vec<Memory> = (0..6).map(|part| pool.take((20 << 20) + (part << 22)).unwrap()).collect();
        drop(taken);
        let spare = pool.spare.lock();
        assert!(spare.bytes <= SPARE_BYTES_MAX && spare.memory.len() >= 3);
        assert_eq!(spare.bytes, spare.memory.iter().map(|map| map.len()).sum::<usize>());
        drop(spare);
        let huge = pool.take(SPARE_BYTES_MAX + 1).unwrap();
        drop(huge);
        assert_eq!(pool.spare.lock().bytes, 0);
    }

    #[test]
    fn memory_outlives_its_pool() {
        let pool = Arc::new(MemoryPool::default());
        let mut memory = pool.take(1).unwrap();
        drop(pool);
        memory.as_mut()[0] = 1;
        assert_eq!(memory.as_ref()[0], 1);
    }

    #[test]
    fn classes_waste_an_eighth_at_most() {
        for bytes in [0, 1, 4_096, 4_097, 65_536, 65_537, 1 << 20, (1 << 20) + 1, 63 << 20, 64 << 20] {
            let class = class_of(bytes);
            assert!(class >= bytes && class > 0 && class.is_multiple_of(ALIGNMENT as usize));
            assert!(class - bytes <= (bytes / 8).max(ALIGNMENT as usize), "{bytes} {class}");
        }
    }
}
