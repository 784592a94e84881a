//! [`Compiling`]: the turns of modules at a compiler, which takes one at a time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// The most modules that wait for their turn.
const MODULES_MAX: usize = 16;
/// The most who wait for a turn, several for one module among them. Each may have the bytes of its module in memory.
const WAITING_MAX: usize = 64;

/// Who compiles, and which modules wait for that, by their keys `K`.
#[derive(Debug)]
pub struct Compiling<K: Eq + Hash> {
    turn: Arc<tokio::sync::Mutex<()>>,
    /// How many wait for each.
    waiting: Mutex<HashMap<K, usize>>,
}

/// The right to compile. It belongs to the compilation itself, which ends even if nobody waits for it any more.
pub type Turn = OwnedMutexGuard<()>;

impl<K: Eq + Hash> Default for Compiling<K> {
    fn default() -> Self {
        Self { turn: Arc::default(), waiting: Mutex::default() }
    }
}

impl<K: Clone + Eq + Hash> Compiling<K> {
    /// Waits for a turn. None: too many wait already.
    pub async fn turn(&self, key: K) -> Option<Turn> {
        let _waiting = self.enter(key)?;
        Some(Arc::clone(&self.turn).lock_owned().await)
    }

    fn enter(&self, key: K) -> Option<Waiting<'_, K>> {
        let mut waiting = self.waiting.lock();
        let is_other = waiting.len() >= MODULES_MAX && !waiting.contains_key(&key);
        if is_other || waiting.values().sum::<usize>() >= WAITING_MAX {
            return None;
        }
        *waiting.entry(key.clone()).or_default() += 1;
        Some(Waiting { compiling: self, key })
    }
}

/// Somebody who waits for a module's turn.
struct Waiting<'a, K: Eq + Hash> {
    compiling: &'a Compiling<K>,
    key: K,
}

impl<K: Eq + Hash> Drop for Waiting<'_, K> {
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
        let mut waiting: Vec<_> = (0..MODULES_MAX).map(|number| Box::pin(compiling.turn(key(number)))).collect();
        assert!(waiting.iter_mut().all(|turn| turn.now_or_never().is_none()), "one compiles at a time");
        assert!(matches!(compiling.turn(key(MODULES_MAX)).now_or_never(), Some(None)), "too many modules wait");
        let mut same = Box::pin(compiling.turn(key(1)));
        assert!((&mut same).now_or_never().is_none(), "more wait for one of them");
        drop((waiting.pop(), same));
        let mut last = Box::pin(compiling.turn(key(MODULES_MAX)));
        assert!((&mut last).now_or_never().is_none(), "there is a place again");
        drop((waiting, first));
        assert!(matches!((&mut last).now_or_never(), Some(Some(_))), "its turn has come");
        assert!(compiling.waiting.lock().is_empty());
    }

    /// A thousand who waited for one module had its bytes a thousand times.
    #[test]
    fn few_wait_for_one_module() {
        let compiling = Compiling::default();
        let first = compiling.turn(0).now_or_never().unwrap().unwrap();
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| Box::pin(compiling.turn(0))).collect();
        assert!(waiting.iter_mut().all(|turn| turn.now_or_never().is_none()));
        for key in [0, 1] {
            assert!(matches!(compiling.turn(key).now_or_never(), Some(None)), "too many wait");
        }
        drop((waiting, first));
        assert!(compiling.turn(0).now_or_never().unwrap().is_some());
    }
}
