//! [`PoolError`].

/// Why a pool could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// A list of cores cannot be read.
    #[error("expected cores such as 0,2-3, got {0:?}")]
    CoreList(String),
    /// This process may not run on a core.
    #[error("no core {core}; the cores are {cores:?}")]
    NoCore {
        /// The core that was requested.
        core: usize,
        /// The cores on which the process may run.
        cores: Vec<usize>,
    },
    /// A reactor could not be started.
    #[error("reactor {name} did not start: {source}")]
    Start {
        /// The reactor's name.
        name: String,
        /// The system's message.
        source: std::io::Error,
    },
}
