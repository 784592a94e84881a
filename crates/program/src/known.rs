//! [`Known`]: code that is kept in memory for who asks for it again.

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::num::NonZeroUsize;

use lru::LruCache;

/// A bounded number of values, and of the bytes of their code. The longest unused go first.
pub struct Known<K: Eq + Hash, V> {
    all: LruCache<K, Entry<V>>,
    bytes_max: usize,
}

struct Entry<V> {
    value: V,
    bytes: usize,
}

impl<K: Eq + Hash, V: Clone> Known<K, V> {
    /// With room for so many of them, whose code has so many bytes together.
    pub fn new(count_max: NonZeroUsize, bytes_max: usize) -> Self {
        Self { all: LruCache::new(count_max), bytes_max }
    }

    /// What is kept under a key.
    pub fn get<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.all.get(key).map(|entry| entry.value.clone())
    }

    /// Keeps a value whose code has so many bytes, however many these are.
    pub fn put(&mut self, key: K, value: V, bytes: usize) {
        self.all.put(key, Entry { value, bytes });
        while self.all.len() > 1 && self.all.iter().map(|(_, entry)| entry.bytes).sum::<usize>() > self.bytes_max {
            self.all.pop_lru();
        }
    }

    /// Lets go of what is kept under a key.
    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        self.all.pop(key);
    }
}

impl<K: Eq + Hash, V> fmt::Debug for Known<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").field("count", &self.all.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_go_while_there_is_too_much_code() {
        let mut known = Known::new(NonZeroUsize::new(4).unwrap(), 100);
        for name in ["a", "b", "c"] {
            known.put(name, (), 40);
            assert!(known.get("a").is_some(), "a is used");
        }
        assert!(known.get("b").is_none() && known.get("c").is_some());
        known.remove("c");
        assert!(known.get("c").is_none());
        known.put("large", (), 1000);
        assert!(known.get("large").is_some() && known.get("a").is_none(), "what runs now is kept");
    }
}
