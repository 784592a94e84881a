//! How long versions are kept of domains that do not say it: whoever serves a drive decides, and the drive remembers it. A command
//! that opens the drive for a moment would otherwise end versions that the drive keeps for longer.

use std::time::Duration;

use bytes::Bytes;
use pithead_store::{Durability, Store, Write};

/// Milliseconds, as text.
const HISTORY_KEY: &str = "history/default";

/// How long a drive keeps versions whose domain does not say it. If `sets`, that is what was `said`, now and for later; otherwise it is
/// at least as long as was set last. Blocks for a look-up.
pub(crate) fn history_default(store: &dyn Store, said: Duration, sets: bool) -> Duration {
    let known = known(store);
    if !sets {
        return known.map_or(said, |known| known.max(said));
    }
    if known != Some(said)
        && let Err(error) = store.write(vec![Write::put(HISTORY_KEY, said.as_millis().to_string())], Durability::Reserved)
    {
        tracing::warn!(%error, "how long versions are kept was not written down: commands that open the drive may keep them shorter");
    }
    said
}

/// What was set last. Where that cannot be read, versions stay.
fn known(store: &dyn Store) -> Option<Duration> {
    let (value, _) = match store.get(HISTORY_KEY.as_bytes()) {
        Ok(found) => found?,
        Err(error) => {
            tracing::warn!(%error, "how long versions are kept cannot be read: they stay");
            return Some(Duration::MAX);
        }
    };
    Some(milliseconds(&value).map_or(Duration::MAX, Duration::from_millis))
}

fn milliseconds(value: &Bytes) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use pithead_store::MemoryStore;

    use super::*;

    #[test]
    fn who_serves_a_drive_decides_and_others_keep_at_least_as_long() {
        let store = MemoryStore::new();
        let days = |days: u64| Duration::from_secs(days * 86_400);
        assert_eq!(history_default(&store, days(1), false), days(1));
        assert_eq!(history_default(&store, days(30), true), days(30));
        assert_eq!(history_default(&store, days(1), false), days(30));
        assert_eq!(history_default(&store, days(2), true), days(2));
        assert_eq!((history_default(&store, days(1), false), history_default(&store, days(3), false)), (days(2), days(3)));
        store.write(vec![Write::put(HISTORY_KEY, "soon")], Durability::Through).unwrap();
        assert_eq!(history_default(&store, days(1), false), Duration::MAX);
        assert_eq!(history_default(&store, days(1), true), days(1));
        assert_eq!(history_default(&store, Duration::ZERO, false), days(1));
    }
}
