//! [`PinTurns`]: whose PIN is compared next.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// PINs are compared one after the other, and a wrong one holds up the next one, so that many connections guess no faster than
/// one. One address after the other has its turn, so that nobody waits for all connections of somebody who guesses.
#[derive(Debug, Default)]
pub(crate) struct PinTurns {
    all: Arc<AsyncMutex<()>>,
    by_address: Mutex<HashMap<IpAddr, Weak<AsyncMutex<()>>>>,
}

impl PinTurns {
    /// A turn, which lasts as long as both guards.
    pub(crate) async fn take(&self, address: IpAddr) -> [OwnedMutexGuard<()>; 2] {
        let own = self.of(address).lock_owned().await;
        [Arc::clone(&self.all).lock_owned().await, own]
    }

    fn of(&self, address: IpAddr) -> Arc<AsyncMutex<()>> {
        let mut known = self.by_address.lock();
        known.retain(|_, turn| turn.strong_count() > 0);
        let turn = known.get(&address).and_then(Weak::upgrade).unwrap_or_default();
        known.insert(address, Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_waits_for_one_turn_of_each_other_one() {
        let turns = Arc::new(PinTurns::default());
        let [one, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let order = Arc::new(Mutex::new(Vec::new()));
        let held = turns.take(one).await;
        let mut tasks = Vec::new();
        for address in [one, one, one, other] {
            let (turns, order) = (Arc::clone(&turns), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let _turn = turns.take(address).await;
                order.lock().push(address);
                tokio::task::yield_now().await;
            }));
            tokio::task::yield_now().await;
        }
        drop(held);
        for task in tasks {
            task.await.unwrap();
        }
        assert!(order.lock().iter().position(|address| *address == other) <= Some(1), "{:?}", order.lock());
        drop(turns.of(other));
        assert!(turns.by_address.lock().len() <= 1);
    }
}
