//! How a command ends: its exit code, and what a person reads when it failed.

use std::io;
use std::process::ExitCode;

use arrow::error::ArrowError;
use pithead_files::WriteError;
use pithead_model::{Blame, Fault};

use crate::terminal;

/// Part of `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    a drive, link, medium or stored value failed, or Pithead itself did
  2    wrong usage of the command line
  3    the request cannot be right or is not supported: SQL, names, files
  4    a bound was met or another change came first: try again, or with more
  5    not allowed: credentials are missing, wrong, or lack the right; or a drive is not trusted
  130  cancelled (Ctrl-C)
  143  ended by SIGTERM";

/// The exit code of a process that SIGTERM ended.
pub(crate) const TERMINATED_CODE: u8 = 143;

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// Anything with somebody to blame.
    #[error("{0}")]
    Fault(#[from] Fault),
    /// Whoever read our output has had enough.
    #[error("the reader of the output has gone")]
    BrokenPipe,
    /// All has been said already; only the exit code is left.
    #[error("failed")]
    Said(Blame),
    /// The process was told to end.
    #[error("terminated")]
    Terminated,
}

impl CliError {
    /// A request that cannot be right.
    pub(crate) fn user(message: impl Into<String>) -> Self {
        CliError::Fault(Fault::new(Blame::User, message))
    }

    /// A file that a person named.
    pub(crate) fn file(path: &std::path::Path, error: io::Error) -> Self {
        CliError::from(error).at(path.display())
    }

    /// The same, with where it happened put before the message.
    pub(crate) fn at(self, place: impl std::fmt::Display) -> Self {
        match self {
            CliError::Fault(fault) => CliError::Fault(fault.at(place)),
            other => other,
        }
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => CliError::BrokenPipe,
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::IsADirectory => {
                CliError::user(error.to_string())
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Fault::new(Blame::Limit, error.to_string()).into(),
            _ => Fault::new(Blame::Device, error.to_string()).into(),
        }
    }
}

impl From<ArrowError> for CliError {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::IoError(_, error) => error.into(),
            other => Fault::new(Blame::Unsupported, other.to_string()).into(),
        }
    }
}

impl From<WriteError> for CliError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Io(error) => error.into(),
            WriteError::Rows(what) => Fault::new(Blame::Unsupported, what).into(),
        }
    }
}

/// Says each fault. The first gives the process its exit code.
pub(crate) fn said(faults: Vec<Fault>) -> Result<(), CliError> {
    let Some(first) = faults.first() else { return Ok(()) };
    let blame = first.blame;
    faults.iter().for_each(say);
    Err(CliError::Said(blame))
}

/// Says what went wrong, and gives the process its exit code.
pub(crate) fn exit_code(result: Result<(), CliError>) -> ExitCode {
    match result {
        Ok(()) | Err(CliError::BrokenPipe) => ExitCode::SUCCESS,
        Err(CliError::Said(blame)) => ExitCode::from(code(blame)),
        Err(CliError::Terminated) => ExitCode::from(TERMINATED_CODE),
        Err(CliError::Fault(fault)) => {
            say(&fault);
            ExitCode::from(code(fault.blame))
        }
    }
}

/// The exit code of whoever is to blame; [`EXIT_CODES`] documents it.
pub(crate) fn code(blame: Blame) -> u8 {
    match blame {
        Blame::Device | Blame::Corrupt | Blame::Bug => 1,
        Blame::User | Blame::Unsupported => 3,
        Blame::Limit | Blame::Conflict => 4,
        Blame::Access => 5,
        Blame::Cancelled => 130,
    }
}

/// `error: …` and `hint: …` on stderr.
pub(crate) fn say(fault: &Fault) {
    let word = match fault.blame {
        Blame::Cancelled => "cancelled",
        _ => "error",
    };
    let kind = match fault.blame {
        Blame::Access | Blame::Corrupt | Blame::Bug | Blame::Unsupported => format!("{}: ", fault.blame),
        _ => String::new(),
    };
    let message = if fault.blame == Blame::Cancelled { String::new() } else { format!(": {kind}{}", fault.message) };
    terminal::tell(format_args!("{}{message}", terminal::red(word)));
    if let Some(hint) = &fault.hint {
        terminal::tell(format_args!("{}: {hint}", terminal::bold("hint")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_tell_who_has_to_act() {
        assert_eq!(code(Blame::User), 3);
        assert_eq!(code(Blame::Unsupported), 3);
        assert_eq!(code(Blame::Device), 1);
        assert_eq!(code(Blame::Bug), 1);
        assert_eq!(code(Blame::Limit), 4);
        assert_eq!(code(Blame::Access), 5);
        assert_eq!(code(Blame::Cancelled), 130);
        for blame in [Blame::User, Blame::Device, Blame::Limit, Blame::Access, Blame::Cancelled] {
            assert!(EXIT_CODES.contains(&format!("  {}", code(blame))), "{blame} is documented");
        }
        assert!(EXIT_CODES.contains(&format!("  {TERMINATED_CODE}")));
    }

    #[test]
    fn a_gone_reader_is_no_error_wherever_it_is_noticed() {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(matches!(CliError::from(gone()), CliError::BrokenPipe));
        assert!(matches!(CliError::from(ArrowError::from(gone())), CliError::BrokenPipe));
        assert!(matches!(CliError::from(WriteError::Io(gone())), CliError::BrokenPipe));
    }
}
