//! Faults of what users give.

use std::fmt::Display;

use pithead_matrix::Malformed;
use pithead_model::{Blame, Fault};

pub(crate) fn invalid(what: impl Display) -> Fault {
    Fault::new(Blame::User, what.to_string())
}

/// Of bytes that our own functions gave.
pub(crate) fn malformed(error: Malformed) -> Fault {
    Fault::new(Blame::Corrupt, error.to_string())
}

pub(crate) fn io(what: &str, error: std::io::Error) -> Fault {
    Fault::new(Blame::Device, format!("{what}: {error}"))
}

pub(crate) fn bug(what: impl Display) -> Fault {
    Fault::new(Blame::Bug, what.to_string())
}
