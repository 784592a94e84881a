//! Who is to blame for an error, in one type for all crates. Each crate has a small error enum of its own; what crosses
//! a door between CSEs is a [`Fault`].

use std::fmt;

use serde::{Deserialize, Serialize};

/// Who or what caused an error. This decides the exit code, and whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blame {
    /// The request cannot be right: bad SQL, an unknown name, a file that is not of the kind that it claims to be.
    User,
    /// The request is right, but this release cannot fulfil it.
    Unsupported,
    /// The request met a bound: memory, sessions or time. Trying later or with a larger bound helps.
    Limit,
    /// A medium, drive or link failed or is not there.
    Device,
    /// Two changes were in conflict. The one that failed changed nothing, and its caller may try again.
    Conflict,
    /// The caller may not do this: it has no credentials, wrong ones, or ones without the right.
    Access,
    /// The caller cancelled the request.
    Cancelled,
    /// Stored bytes that Pithead wrote are damaged.
    Corrupt,
    /// A bug of Pithead.
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

/// What a fault is about, where a client tells it from others: servers make a protocol's code of the blame and of this.
///
/// A peer of an older release sends none, and one of a newer release may send what this one does not know; both are
/// [`FaultKind::Other`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// SQL that cannot be parsed.
    Syntax,
    /// A table, or a dataset, that is not there.
    NoTable,
    /// A column that is not there.
    NoColumn,
    /// A function that is not there, or none that takes such arguments.
    NoFunction,
    /// A column that may be one of several.
    AmbiguousColumn,
    /// A column outside of aggregates that the rows are not grouped by.
    NotGrouped,
    /// A table or a function whose name is taken.
    Exists,
    /// A text that cannot be a name.
    WrongName,
    /// A value that is none of the type it is read as.
    WrongValue,
    /// A number or a time that its type does not reach.
    OutOfRange,
    /// A division by zero.
    DivideByZero,
    /// A NULL in a column that has none.
    NotNull,
    /// More time than `statement_timeout` allows.
    Timeout,
    /// More memory than there is.
    Memory,
    /// A place that others had for longer than one waits.
    Busy,
    /// None of these.
    #[default]
    #[serde(other)]
    Other,
}

impl FaultKind {
    fn is_other(&self) -> bool {
        *self == FaultKind::Other
    }
}

/// An error as it travels between CSEs: who is to blame, what happened, and what can be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub struct Fault {
    /// Who or what caused it.
    pub blame: Blame,
    /// What it is about.
    #[serde(default, skip_serializing_if = "FaultKind::is_other")]
    pub kind: FaultKind,
    /// What was expected and what there is instead.
    pub message: String,
    /// What the user can do about it, where there is something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Fault {
    /// A fault without a hint.
    pub fn new(blame: Blame, message: impl Into<String>) -> Self {
        Self { blame, kind: FaultKind::Other, message: message.into(), hint: None }
    }

    /// A fault of the request: what was expected, and what there is instead.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Blame::User, message)
    }

    /// Something that our own code or a library should not have done.
    pub fn bug(what: impl fmt::Display) -> Self {
        Self::new(Blame::Bug, what.to_string())
    }

    /// The same fault, of a kind.
    pub fn of_kind(self, kind: FaultKind) -> Self {
        Self { kind, ..self }
    }

    /// The same fault, with a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same fault, with the place where it happened put before the message.
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// The same fault, with the drive named where it happened, unless it already is.
    pub fn at_drive(self, label: &str) -> Self {
        match self.message.contains(label) {
            true => self,
            false => self.at(format_args!("drive {label}")),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_other_releases_are_understood() {
        let read = |json: &str| serde_json::from_str::<Fault>(json).unwrap();
        let fault = Fault::invalid("no dataset main.t");
        assert_eq!(read(r#"{"blame": "user", "message": "no dataset main.t"}"#), fault);
        assert_eq!(read(r#"{"blame": "user", "kind": "of_tomorrow", "message": "no dataset main.t"}"#), fault);
        assert_eq!(serde_json::to_string(&fault).unwrap(), r#"{"blame":"user","message":"no dataset main.t"}"#);
        let fault = fault.of_kind(FaultKind::NoTable);
        assert_eq!(read(&serde_json::to_string(&fault).unwrap()), fault);
    }
}
