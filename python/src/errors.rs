//! Faults as exceptions of the package.

use pithead_model::{Blame, Fault};
use pyo3::prelude::*;

/// The exception of `pithead` that a fault is raised as.
pub(crate) fn to_python(fault: Fault) -> PyErr {
    let class = match fault.blame {
        Blame::User => "UserError",
        Blame::Unsupported => "UnsupportedError",
        Blame::Limit => "LimitError",
        Blame::Device => "DriveError",
        Blame::Conflict => "ConflictError",
        Blame::Access => "AccessError",
        Blame::Cancelled => "Cancelled",
        Blame::Corrupt => "CorruptError",
        Blame::Bug => "InternalError",
    };
    let raised = Python::try_attach(|py| {
        let make = py.import("pithead._errors")?.getattr("of_engine")?;
        Ok::<_, PyErr>(PyErr::from_value(make.call1((class, &fault.message, &fault.hint))?))
    });
    match raised {
        Some(Ok(error) | Err(error)) => error,
        // The interpreter ends.
        None => pyo3::exceptions::PyRuntimeError::new_err(fault.message),
    }
}

/// The caller's mistake.
pub(crate) fn user(message: impl Into<String>, hint: &str) -> PyErr {
    to_python(Fault::new(Blame::User, message).hint(hint))
}
