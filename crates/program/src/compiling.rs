//! [`Compiling`]: the turns of modules at the compiler, which takes one at a time.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// The most modules that wait for their turn, each with its bytes in memory.
const WAITING_MAX: usize = 16;

/// Who compiles, and which modules wait for that.
#[derive(Debug, Default)]
pub(crate) struct Compiling {
    turn: Arc<tokio::sync::Mutex<()>>,
    /// By their keys, how many wait for each.
    waiting: Mutex<HashMap<[u8; 32], usize>>,
}

/// The right to compile. It belongs to the compilation itself, which ends even if nobody waits for it any more.
pub(crate) type Turn = OwnedMutexGuard<()>;

impl Compiling {
    /// Waits for a turn. None: too many other modules wait already.
    pub async fn turn(&self, key: [u8; 32]) -> Option<Turn> {
        let _waiting = self.enter(key)?;
        Some(Arc::clone(&self.turn).lock_owned().await)
    }

    fn enter(&self, key: [u8; 32]) -> Option<Waiting<'_>> {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= WAITING_MAX && !waiting.contains_key(&key) {
            return None;
        }
        *waiting.entry(key).or_default() += 1;
        Some(Waiting { compiling: self, key })
    }
}

/// Somebody who waits for a module's turn.
struct Waiting<'a> {
    compiling: &'a Compiling,
    key: [u8; 32],
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.compiling.waiting.lock();
        if let Some(count) = waiting.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn few_modules_wait_and_who_gives_up_leaves_its_place() {
        let compiling = Compiling::default();
        let key = |number: usize| [number as u8; 32];
        let first = compiling.turn(key(0)).now_or_never().unwrap().unwrap();
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|number| Box::pin(compiling.turn(key(number)))).collect();
        assert!(waiting.iter_mut().all(|turn| turn.now_or_never().is_none()), "one compiles at a time");
        assert!(matches!(compiling.turn(key(WAITING_MAX)).now_or_never(), Some(None)), "too many modules wait");
        let mut same = Box::pin(compiling.turn(key(1)));
        assert!((&mut same).now_or_never().is_none(), "more wait for one of them");
        drop((waiting.pop(), same));
        let mut last = Box::pin(compiling.turn(key(WAITING_MAX)));
        assert!((&mut last).now_or_never().is_none(), "there is a place again");
        drop((waiting, first));
        assert!(matches!((&mut last).now_or_never(), Some(Some(_))), "its turn has come");
        assert!(compiling.waiting.lock().is_empty());
    }
}
