//! [`Known`]: compiled code that is kept in memory, by the hash of its module.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use crate::module::Code;

/// The most modules whose code is kept in memory; their bytes are bounded by the runtime's options.
const MODULES_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("it is not 0");

/// Code that is kept in memory.
#[derive(Debug)]
pub(crate) struct Known {
    codes: Mutex<LruCache<[u8; 32], Arc<Code>>>,
    bytes_max: usize,
}

impl Known {
    pub fn new(bytes_max: usize) -> Self {
        Self { codes: Mutex::new(LruCache::new(MODULES_MAX)), bytes_max }
    }

    pub fn get(&self, key: &[u8; 32]) -> Option<Arc<Code>> {
        self.codes.lock().get(key).map(Arc::clone)
    }

    /// Keeps code, and lets go of the longest unused while there is too much.
    pub fn keep(&self, key: [u8; 32], code: Code) -> Arc<Code> {
        let code = Arc::new(code);
        let mut codes = self.codes.lock();
        codes.put(key, Arc::clone(&code));
        let bytes = |codes: &LruCache<_, Arc<Code>>| codes.iter().map(|(_, code)| code.code_bytes).sum::<usize>();
        while codes.len() > 1 && bytes(&codes) > self.bytes_max {
            codes.pop_lru();
        }
        code
    }
}
