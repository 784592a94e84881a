//! What can go wrong with a plan.

use datafusion::error::DataFusionError;
use pithead_model::{Blame, Fault};

/// A plan that cannot be decomposed, sent or read.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A sub-plan from outside that cannot be read as one.
    #[error("not a sub-plan: {0}")]
    Malformed(String),
    /// A sub-plan from outside whose annotation cannot be true.
    #[error("the sub-plan's annotation {0}")]
    Annotation(String),
    /// A sub-plan with an extension that changes its meaning.
    #[error("the sub-plan has the enhancement {name:?}, which must not be ignored; this release knows {known}")]
    Enhanced {
        /// The extension.
        name: String,
        /// The one that is known.
        known: &'static str,
    },
    /// A sub-plan that exceeds a bound.
    #[error("{what} is over the bound of {max}")]
    TooLarge {
        /// What exceeds it.
        what: String,
        /// The bound.
        max: usize,
    },
    /// A sub-plan that calls a function which a drive does not have.
    #[error("{drive} does not have the function {function}")]
    Lacking {
        /// The drive's label.
        drive: String,
        /// The function, `name/version`.
        function: String,
    },
    /// The engine's library returned an error.
    #[error(transparent)]
    Engine(#[from] DataFusionError),
}

impl From<PlanError> for Fault {
    fn from(error: PlanError) -> Fault {
        match error {
            PlanError::Malformed(_) | PlanError::Annotation(_) => Fault::new(Blame::User, error.to_string()),
            PlanError::Lacking { .. } | PlanError::Enhanced { .. } => Fault::new(Blame::Unsupported, error.to_string()),
            PlanError::TooLarge { .. } => Fault::new(Blame::Limit, error.to_string()),
            PlanError::Engine(inner) => pithead_functions::fault_from_datafusion(inner),
        }
    }
}
