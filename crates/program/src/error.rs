//! [`ProgramError`]: what can go wrong between a host program and its SSDlets, by blame.

use std::sync::Arc;

use crate::ServiceError;

/// Why a module was not loaded, or an application was not built or ended early.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProgramError {
    /// The bytes are no module that this runtime can run.
    #[error("module {module}: {cause}")]
    Module { module: String, cause: String },
    /// An SSDlet failed, and its application ended with it.
    #[error("module {module}, SSDlet {ssdlet}: {cause}")]
    Guest { module: String, ssdlet: String, cause: String },
    /// The host program asked for what cannot be: an unknown SSDlet, ports of different types, a start without connections.
    #[error("{0}")]
    Usage(String),
    /// The runtime has no room at the moment.
    #[error("{0}")]
    Busy(String),
    /// The application was stopped before it ended.
    #[error("the application {0} was stopped")]
    Stopped(String),
    /// A file, a dataset or a key-value that an argument names could not be had.
    #[error("{0}")]
    Service(#[from] ServiceError),
    /// The sandbox itself failed; the fault is ours.
    #[error("the engine of SSDlets failed: {0}")]
    Engine(Arc<str>),
}

impl ProgramError {
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    pub(crate) fn engine(error: impl std::fmt::Display) -> Self {
        Self::Engine(error.to_string().into())
    }
}
