//! [`Known`]: modules that are ready to run, kept by name for who asks for them again.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;

/// The most modules that are kept.
const MODULES_MAX: NonZeroUsize = NonZeroUsize::new(256).expect("it is not 0");

/// A bounded number of modules `M`, and of the bytes of their code. The longest unused go first.
#[derive(Debug)]
pub(super) struct Known<M> {
    all: LruCache<String, Entry<M>>,
    bytes_max: usize,
}

#[derive(Debug)]
struct Entry<M> {
    /// The hash of the module: a name may stand for another one by now.
    sha256: String,
    module: Arc<M>,
    bytes: usize,
}

impl<M> Known<M> {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { all: LruCache::new(MODULES_MAX), bytes_max }
    }

    /// The module of a name, if it has this hash.
    pub(super) fn get(&mut self, name: &str, sha256: &str) -> Option<Arc<M>> {
        self.all.get(name).filter(|entry| entry.sha256 == sha256).map(|entry| Arc::clone(&entry.module))
    }

    /// Keeps a module whose code has so many bytes.
    pub(super) fn put(&mut self, name: String, sha256: String, module: Arc<M>, bytes: usize) {
        self.all.put(name, Entry { sha256, module, bytes });
        while self.all.len() > 1 && self.all.iter().map(|(_, entry)| entry.bytes).sum::<usize>() > self.bytes_max {
            self.all.pop_lru();
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.all.pop(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_known_by_its_hash() {
        let mut known = Known::new(100);
        known.put("m".into(), "new".into(), Arc::new(2), 1);
        assert_eq!(known.get("m", "new").as_deref(), Some(&2));
        // A run that began before the module was replaced comes late.
        known.put("m".into(), "old".into(), Arc::new(1), 1);
        assert_eq!((known.get("m", "new"), known.get("m", "old").as_deref()), (None, Some(&1)));
        known.remove("m");
        assert_eq!(known.get("m", "old"), None);
    }

    #[test]
    fn the_longest_unused_go_while_there_is_too_much_code() {
        let mut known = Known::new(100);
        for name in ["a", "b", "c"] {
            known.put(name.into(), "h".into(), Arc::new(()), 40);
            assert!(known.get("a", "h").is_some(), "a is used");
        }
        assert!(known.get("b", "h").is_none() && known.get("c", "h").is_some());
        known.put("large".into(), "h".into(), Arc::new(()), 1000);
        assert!(known.get("large", "h").is_some() && known.get("a", "h").is_none(), "what runs now is kept");
    }
}
