//! The wall in the store's key space: clients' keys have a prefix of their own, and so nothing of ours can be named by one.

use std::ops::Bound;

use pithead_store::{Key, KeyRange};

/// Comes before every key of a client. No other key of a drive begins with it.
pub const CLIENT_PREFIX: &[u8] = b"kinetic/key/";
/// The key of the protocol's own state: identities, PINs, the cluster version.
pub const STATE_KEY: &[u8] = b"kinetic/state";

/// Where the store has a client's key.
pub fn stored(key: &[u8]) -> Key {
    [CLIENT_PREFIX, key].concat().into()
}

/// The client's key that the store has there; none if it is no client's.
pub fn of_client(stored: &Key) -> Option<Key> {
    stored.starts_with(CLIENT_PREFIX).then(|| stored.slice(CLIENT_PREFIX.len()..))
}

/// Clients' keys between two bounds, as the store has them. Beyond the wall there is nothing, whatever the bounds are.
pub fn stored_range(start: &Bound<Key>, end: &Bound<Key>, reverse: bool, limit: usize) -> KeyRange {
    let all = KeyRange::prefix(CLIENT_PREFIX);
    let start = match start {
        Bound::Unbounded => all.start,
        bound => bound.as_ref().map(|key| stored(key)),
    };
    let end = match end {
        Bound::Unbounded => all.end,
        bound => bound.as_ref().map(|key| stored(key)),
    };
    KeyRange { start, end, reverse, limit }
}

#[cfg(test)]
mod tests {
    use pithead_store::{Durability, MemoryStore, Store as _, Write};

    use super::*;

    #[test]
    fn no_name_of_a_client_is_one_of_ours() {
        for name in [&b""[..], b"slice/main/t", b"../manifest/main", b"\0", &[0xff; 4_096]] {
            let key = stored(name);
            assert!(key.starts_with(CLIENT_PREFIX) && key != STATE_KEY);
            assert_eq!(of_client(&key).as_deref(), Some(name));
        }
        assert_eq!(of_client(&Key::from_static(STATE_KEY)), None);
        assert_eq!(of_client(&Key::from_static(b"slice/main")), None);
    }

    #[test]
    fn a_range_ends_at_the_wall() {
        let store = MemoryStore::new();
        let ours = ["claim/a", "kinetic/kez", "kinetic/state", "manifest/main", "slice/a"].map(|key| Write::put(key, ""));
        let theirs = [&b""[..], b"a", b"\xff\xff"].map(|key| Write::put(stored(key), ""));
        store.write(ours.into_iter().chain(theirs).collect(), Durability::Through).unwrap();
        let keys = |range: KeyRange| -> Vec<Key> {
            store.range(&range).unwrap().iter().filter_map(|entry| of_client(&entry.key)).collect()
        };
        let all = stored_range(&Bound::Unbounded, &Bound::Unbounded, false, 100);
        assert_eq!(store.range(&all).unwrap().len(), 3);
        assert_eq!(keys(all), [&b""[..], b"a", b"\xff\xff"]);
        let above = stored_range(&Bound::Excluded(Key::from_static(b"a")), &Bound::Unbounded, true, 100);
        assert_eq!(keys(above), [&b"\xff\xff"[..]]);
    }
}
