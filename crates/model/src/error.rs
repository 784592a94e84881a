//! Who is to blame, said once for all crates. Each crate keeps a small error enum of its own; what crosses a door
//! between CSEs is a [`Fault`].

use std::fmt;

use serde::{Deserialize, Serialize};

/// Whose doing an error is, which decides the exit code and whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blame {
    /// The request cannot be right: bad SQL, an unknown name, a file that is not what it says.
    User,
    /// The thing asked for is right but this release cannot do it.
    Unsupported,
    /// A bound was met: memory, sessions, time. Trying later or with a larger bound helps.
    Limit,
    /// A medium, drive or link failed or is not there.
    Device,
    /// Two changes met; the loser changed nothing and may try again.
    Conflict,
    /// The caller may not do this: no credentials, wrong ones, or ones without the right.
    Access,
    /// The caller ended it.
    Cancelled,
    /// Bytes that should be ours are not what they say.
    Corrupt,
    /// Our mistake.
    Bug,
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Blame::User => "invalid request",
            Blame::Unsupported => "not supported",
            Blame::Limit => "limit reached",
            Blame::Device => "drive failure",
            Blame::Conflict => "conflict",
            Blame::Access => "not allowed",
            Blame::Cancelled => "cancelled",
            Blame::Corrupt => "corrupt data",
            Blame::Bug => "internal error",
        })
    }
}

/// An error as it travels between CSEs: who is to blame, what happened, what can be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub struct Fault {
    /// Whose doing it is.
    pub blame: Blame,
    /// What was expected and what there is.
    pub message: String,
    /// What to do about it, where something can be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Fault {
    /// A fault without a hint.
    pub fn new(blame: Blame, message: impl Into<String>) -> Self {
        Self { blame, message: message.into(), hint: None }
    }

    /// The same, with what to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same, with where it happened put before the message.
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}
