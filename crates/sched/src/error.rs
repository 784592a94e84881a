//! [`PoolError`].

/// Why there is no pool.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// A list of cores that cannot be read.
    #[error("expected cores such as 0,2-3, got {0:?}")]
    CoreList(String),
    /// A core that this process may not run on.
    #[error("no core {core}; the cores are {cores:?}")]
    NoCore {
        /// The core asked for.
        core: usize,
        /// Those that there are.
        cores: Vec<usize>,
    },
    /// A reactor that could not be started.
    #[error("reactor {name} did not start: {source}")]
    Start {
        /// Its name.
        name: String,
        /// What the system said.
        source: std::io::Error,
    },
}
