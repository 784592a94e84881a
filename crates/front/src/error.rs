//! [`Complaint`]: an error or a notice as the protocol carries it.

use pithead_model::Fault;

use crate::reply::text;
use crate::sql_state::{SqlState, sql_state};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql_state::SYNTAX;

    #[test]
    fn places_are_counted_in_characters() {
        let fault = Fault::invalid("sql parser error: Expected: an expression, found: FROM at Line: 2, Column: 8");
        let complaint = Complaint::of(&fault, "-- é\nSELECT FROM t");
        assert_eq!((complaint.position, complaint.code), (Some(13), SYNTAX));
        assert_eq!(complaint.message, "sql parser error: Expected: an expression, found: FROM");
    }
}
