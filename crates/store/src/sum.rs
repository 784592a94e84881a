//! [`Sum`]: the checksum of a value that is read in parts.

use std::fmt;

use xxhash_rust::xxh3::Xxh3;

/// XXH3 of what was added so far.
pub(crate) struct Sum(Box<Xxh3>);

impl Sum {
    pub fn new() -> Sum {
        Sum(Box::new(Xxh3::new()))
    }

    pub fn add(&mut self, part: &[u8]) {
        self.0.update(part);
    }

    pub fn digest(&self) -> u64 {
        self.0.digest()
    }
}

impl fmt::Debug for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sum").finish_non_exhaustive()
    }
}
