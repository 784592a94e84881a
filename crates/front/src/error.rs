//! [`Complaint`]: an error or a notice as the protocol carries it.

use pithead_model::{Blame, Fault, FaultKind};
use pithead_pg_catalog::NO_SETTING;

use crate::reply::text;

/// A code of the SQL standard, or of PostgreSQL, that drivers know.
pub(crate) type SqlState = &'static str;

pub(crate) const PROTOCOL_VIOLATION: SqlState = "08P01";
pub(crate) const TOO_LARGE: SqlState = "54000";
pub(crate) const NOT_SUPPORTED: SqlState = "0A000";
pub(crate) const WRONG_PASSWORD: SqlState = "28P01";
pub(crate) const NOT_AUTHORIZED: SqlState = "28000";
pub(crate) const TOO_MANY: SqlState = "53300";
pub(crate) const SHUTDOWN: SqlState = "57P01";
pub(crate) const FAILED_TRANSACTION: SqlState = "25P02";
pub(crate) const UNKNOWN_SETTING: SqlState = "42704";
pub(crate) const WRONG_SETTING: SqlState = "22023";
pub(crate) const FIXED_SETTING: SqlState = "55P02";
pub(crate) const UNKNOWN_STATEMENT: SqlState = "26000";
pub(crate) const UNKNOWN_PORTAL: SqlState = "34000";
pub(crate) const KNOWN_STATEMENT: SqlState = "42P05";
pub(crate) const WRONG_TEXT: SqlState = "22P02";
pub(crate) const WRONG_BINARY: SqlState = "22P03";
pub(crate) const WRONG_COPY: SqlState = "22P04";
pub(crate) const SYNTAX: SqlState = "42601";
pub(crate) const READ_ONLY: SqlState = "25006";
pub(crate) const WRONG_ENCODING: SqlState = "22021";

/// What is said to a client.
#[derive(Clone, Debug)]
pub(crate) struct Complaint {
    pub(crate) severity: &'static str,
    pub(crate) code: SqlState,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// Where in the statement, in characters from 1.
    pub(crate) position: Option<usize>,
    /// The routine of PostgreSQL's that says the same, where drivers look for it.
    pub(crate) routine: Option<&'static str>,
}

impl Complaint {
    /// An error of a statement.
    pub(crate) fn error(code: SqlState, message: impl Into<String>) -> Complaint {
        Complaint { severity: "ERROR", code, message: message.into(), hint: None, position: None, routine: None }
    }

    /// One after which the connection ends.
    pub(crate) fn fatal(code: SqlState, message: impl Into<String>) -> Complaint {
        Complaint { severity: "FATAL", ..Complaint::error(code, message) }
    }

    /// Something that is no error, and that a person should know.
    pub(crate) fn warning(code: SqlState, message: impl Into<String>) -> Complaint {
        Complaint { severity: "WARNING", ..Complaint::error(code, message) }
    }

    /// Something that a person may want to know.
    pub(crate) fn notice(message: impl Into<String>) -> Complaint {
        Complaint { severity: "NOTICE", ..Complaint::error("00000", message) }
    }

    pub(crate) fn in_routine(self, routine: &'static str) -> Complaint {
        Complaint { routine: Some(routine), ..self }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Complaint {
        Complaint { hint: Some(hint.into()), ..self }
    }

    /// The complaint of a fault of a statement.
    pub(crate) fn of(fault: &Fault, sql: &str) -> Complaint {
        let (message, place) = located(&fault.message, sql);
        let code = sql_state(fault, place.is_some());
        Complaint { severity: "ERROR", code, message, hint: fault.hint.clone(), position: place, routine: None }
    }

    /// Its fields, as they are sent.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let position = self.position.map(|position| position.to_string());
        let fields = [
            (b'S', Some(self.severity)),
            (b'V', Some(self.severity)),
            (b'C', Some(self.code)),
            (b'M', Some(self.message.as_str())),
            (b'H', self.hint.as_deref()),
            (b'P', position.as_deref()),
            (b'R', self.routine),
        ];
        for (kind, value) in fields {
            if let Some(value) = value {
                out.push(kind);
                text(out, value);
            }
        }
        out.push(0);
    }
}

/// A message without `at Line: 1, Column: 8`, and that place in characters.
fn located(message: &str, sql: &str) -> (String, Option<usize>) {
    const LINE: &str = "at Line: ";
    let Some(start) = message.rfind(LINE) else { return (message.to_owned(), None) };
    let numbers = &message[start + LINE.len()..];
    let Some((line, rest)) = numbers.split_once(", Column: ") else { return (message.to_owned(), None) };
    let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
    let place = line.parse::<usize>().ok().zip(rest[..digits].parse::<usize>().ok());
    let Some((line, column)) = place.filter(|(line, column)| *line > 0 && *column > 0) else {
        return (message.to_owned(), None);
    };
    let before: usize = sql.split_inclusive('\n').take(line - 1).map(|line| line.chars().count()).sum();
    let text = format!("{}{}", message[..start].trim_end(), &rest[digits..]);
    (text, Some(before + column))
}

/// The code of a fault. Who is to blame says the class; of what users do wrong and of limits, the kind says which it is.
fn sql_state(fault: &Fault, located: bool) -> SqlState {
    match fault.blame {
        Blame::User if located => SYNTAX,
        Blame::User if fault.kind == FaultKind::Other && fault.message.contains(NO_SETTING) => UNKNOWN_SETTING,
        Blame::User => of_request(fault.kind),
        Blame::Unsupported => NOT_SUPPORTED,
        Blame::Limit => match fault.kind {
            FaultKind::Timeout => "57014",
            FaultKind::Memory => "53200",
            FaultKind::Busy => "53000",
            _ => TOO_LARGE,
        },
        Blame::Device => "58030",
        Blame::Conflict => "40001",
        Blame::Access => "42501",
        Blame::Cancelled => "57014",
        Blame::Corrupt => "XX001",
        Blame::Bug => "XX000",
    }
}

fn of_request(kind: FaultKind) -> SqlState {
    match kind {
        FaultKind::Syntax => SYNTAX,
        FaultKind::NoTable => "42P01",
        FaultKind::NoColumn => "42703",
        FaultKind::NoFunction => "42883",
        FaultKind::AmbiguousColumn => "42702",
        FaultKind::NotGrouped => "42803",
        FaultKind::Exists => "42P07",
        FaultKind::WrongName => "42602",
        FaultKind::WrongValue => WRONG_TEXT,
        FaultKind::OutOfRange => "22003",
        FaultKind::DivideByZero => "22012",
        FaultKind::NotNull => "23502",
        FaultKind::Timeout | FaultKind::Memory | FaultKind::Busy | FaultKind::Other => "42000",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_in_characters() {
        let fault = Fault::invalid("sql parser error: Expected: an expression, found: FROM at Line: 2, Column: 8");
        let complaint = Complaint::of(&fault, "-- é\nSELECT FROM t");
        assert_eq!((complaint.position, complaint.code), (Some(13), SYNTAX));
        assert_eq!(complaint.message, "sql parser error: Expected: an expression, found: FROM");
    }

    #[test]
    fn codes_are_those_that_drivers_know() {
        let code = |blame, kind| Complaint::of(&Fault::new(blame, "it is so").of_kind(kind), "").code;
        assert_eq!(code(Blame::User, FaultKind::NoTable), "42P01");
        assert_eq!(code(Blame::User, FaultKind::DivideByZero), "22012");
        assert_eq!(code(Blame::User, FaultKind::Other), "42000");
        let no_setting = Fault::invalid("current_setting: unrecognized configuration parameter \"nothing\"");
        assert_eq!(Complaint::of(&no_setting, "").code, UNKNOWN_SETTING);
        assert_eq!(code(Blame::Limit, FaultKind::Timeout), "57014");
        assert_eq!(code(Blame::Limit, FaultKind::Other), TOO_LARGE);
        assert_eq!(code(Blame::Access, FaultKind::NoTable), "42501");
    }
}
