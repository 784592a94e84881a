//! How many tasks of each class a reactor has.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The class of a task. Background work gives way to foreground work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Client I/O and queries.
    Foreground,
    /// Deduplication, scrubbing, compaction, and the collection of orphans.
    Background,
}

/// The number of live tasks of one reactor, by class.
#[derive(Debug, Default)]
pub(crate) struct Load {
    foreground: AtomicUsize,
    background: AtomicUsize,
}

impl Load {
    pub fn live(&self, class: Class) -> usize {
        self.count(class).load(Ordering::Relaxed)
    }

    pub fn total(&self) -> usize {
        self.live(Class::Foreground) + self.live(Class::Background)
    }

    /// Counts a task until the returned value is dropped.
    pub fn enter(self: &Arc<Self>, class: Class) -> Live {
        self.count(class).fetch_add(1, Ordering::Relaxed);
        Live { load: Arc::clone(self), class }
    }

    fn count(&self, class: Class) -> &AtomicUsize {
        match class {
            Class::Foreground => &self.foreground,
            Class::Background => &self.background,
        }
    }
}

/// A task that is counted.
#[derive(Debug)]
pub(crate) struct Live {
    load: Arc<Load>,
    class: Class,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.load.count(self.class).fetch_sub(1, Ordering::Relaxed);
    }
}
