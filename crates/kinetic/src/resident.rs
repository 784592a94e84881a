//! [`ResidentLooks`]: whether values in memory are looked for on the threads of the network.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A look that took longer has waited for the medium: the store keeps small values beside their keys, and those not in memory alone.
const SLOW: Duration = Duration::from_millis(1);
/// Looks that are left out after a slow one.
const LEFT_OUT: u32 = 100;

/// Looks for values in memory, which need no turn. Once such a look is slow, the next requests wait for their turns.
#[derive(Debug, Default)]
pub(crate) struct ResidentLooks {
    left_out: AtomicU32,
}

impl ResidentLooks {
    /// Looks, unless the last looks were slow.
    pub fn look<T>(&self, look: impl FnOnce() -> Option<T>) -> Option<T> {
        let one_less = |left: u32| left.checked_sub(1);
        if self.left_out.load(Ordering::Relaxed) > 0
            && self.left_out.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
        {
            return None;
        }
        let began = Instant::now();
        let found = look();
        if began.elapsed() > SLOW {
            self.left_out.store(LEFT_OUT, Ordering::Relaxed);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_slow_look_the_next_ones_are_left_out() {
        let looks = ResidentLooks::default();
        let mut slow = 0;
        for _ in 0..202 {
            let looked = looks.look(|| {
                slow += 1;
                std::thread::sleep(SLOW * 2);
                Some(())
            });
            assert_eq!(looked.is_some(), slow > 0 && looks.left_out.load(Ordering::Relaxed) == LEFT_OUT);
        }
        assert_eq!(slow, 2);
    }
}
