//! [`Erasures`]: batches that were opened before all keys were erased put none after it, and neither does who is known no more.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

/// How often keys were erased since the drive was started.
#[derive(Debug, Default)]
pub(crate) struct Erasures {
    count: AtomicU64,
    /// Shared by commits and other writes, so that one which began before an erasure has ended before keys are looked for.
    commits: RwLock<()>,
}

impl Erasures {
    /// What a batch notes that is opened now.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// No batch that has been opened so far is committed any more, once this returns.
    pub fn note(&self) {
        let _none = self.commits.write();
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// Writes; an erasure that is noted meanwhile waits for that, and takes what was written with it.
    pub fn during<T>(&self, write: impl FnOnce() -> T) -> T {
        let _running = self.commits.read();
        write()
    }

    /// Commits a batch that was opened at `opened`; none: keys were erased since.
    pub fn commit<T>(&self, opened: u64, commit: impl FnOnce() -> T) -> Option<T> {
        let _running = self.commits.read();
        (self.count() == opened).then(commit)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_erasure_waits_for_commits_and_refuses_those_that_come_later() {
        let erasures = Erasures::default();
        let opened = erasures.count();
        let erased = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let during = erasures.commit(opened, || {
                scope.spawn(|| {
                    erasures.note();
                    erased.store(1, Ordering::Release);
                });
                std::thread::sleep(Duration::from_millis(50));
                erased.load(Ordering::Acquire)
            });
            assert_eq!(during, Some(0), "it was erased in the midst of a commit");
        });
        assert_eq!(erasures.commit(opened, || ()), None);
        assert_eq!(erasures.commit(erasures.count(), || ()), Some(()));
    }
}
