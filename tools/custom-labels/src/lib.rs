//! Stands in for the crate of the same name, which Vortex's I/O uses to label threads for an external profiler.
//!
//! The original compiles C++ and runs bindgen, so that a build needs g++ and libclang for labels that nothing here
//! reads. This one has the calls that Vortex makes, and they do nothing.

/// Labels on futures.
pub mod asynchronous {
    use std::future::Future;

    /// Carries the current labels into a future.
    pub trait Label: Sized {
        /// The future itself: there are no labels.
        fn with_current_labels(self) -> Self;
    }

    impl<F: Future> Label for F {
        fn with_current_labels(self) -> Self {
            self
        }
    }
}

/// A set of labels, always empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Labelset;

impl Labelset {
    /// The empty set.
    pub fn clone_from_current() -> Self {
        Labelset
    }

    /// Calls `run`.
    pub fn enter<Output>(&mut self, run: impl FnOnce() -> Output) -> Output {
        run()
    }
}
