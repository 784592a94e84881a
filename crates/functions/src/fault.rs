//! [`fault_from_datafusion`]: finds out who is to blame for an error of DataFusion.

use std::error::Error;
use std::sync::Arc;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;
use pithead_model::{Blame, Fault, FaultKind};

use crate::call_fault::of_call;
use crate::fault_kind::kind;

/// Errors that are wrapped deeper than this are reported by their text.
const DEPTH_MAX: usize = 64;
/// What the engine and its libraries set before the text of an error: kinds of theirs, which tell a user nothing. `Internal error: `
/// stays, since it tells that the fault is not the user's.
const KINDS: [&str; 17] = [
    "Error during planning: ",
    "Execution error: ",
    "Schema error: ",
    "External error: ",
    "Arrow error: ",
    "This feature is not implemented: ",
    "Invalid or Unsupported Configuration: ",
    "Resources exhausted: ",
    "Substrait error: ",
    "Cast error: ",
    "Parser error: ",
    "Csv error: ",
    "Json error: ",
    "Compute error: ",
    "Invalid argument error: ",
    "Not yet implemented: ",
    "sql parser error: ",
];

/// The fault that represents an error. A [`Fault`] that went through DataFusion comes back unchanged.
pub fn fault_from_datafusion(error: DataFusionError) -> Fault {
    if let Some(fault) = wrapped_fault(&error) {
        return fault;
    }
    let root = error.find_root();
    let text = match root {
        DataFusionError::SQL(error, _) if **error == ParserError::RecursionLimitExceeded => {
            "the statement is nested too deeply".into()
        }
        // By itself it is shown as it would be debugged.
        DataFusionError::SQL(error, _) => error.to_string(),
        _ => root.strip_backtrace(),
    };
    let message = first_line(&text);
    if is_of_regex(&error, message) {
        return regex_fault(message);
    }
    if let Some(fault) = of_call(&text).or_else(|| of_outer_column(&text)) {
        return fault;
    }
    let fault = Fault::new(blame(root), without_kinds(message)).of_kind(kind(root, message));
    match root {
        DataFusionError::ResourcesExhausted(_) => fault.hint("give the session more memory, or let fewer run at a time"),
        _ => fault,
    }
}

/// An overflow that our own code finds, as an error of the engine.
pub(crate) fn overflow(message: String) -> DataFusionError {
    DataFusionError::External(Box::new(Fault::invalid(message).of_kind(FaultKind::OutOfRange)))
}

/// Whether a regular expression cannot be read or is too large. The engine reports this in texts, around errors of
/// third-party crates, or as errors of its own.
fn is_of_regex(error: &DataFusionError, message: &str) -> bool {
    const TEXTS: [&str; 2] = ["Regular expression did not compile", "Compiled regex exceeds size limit"];
    let noted = match error {
        DataFusionError::Context(note, inner) => note == "Invalid regex" || is_of_regex(inner, ""),
        DataFusionError::Shared(inner) => is_of_regex(inner, ""),
        _ => false,
    };
    noted || TEXTS.iter().any(|text| message.contains(text))
}

/// A column of the query around a subquery, where no rule has made a join of the two.
fn of_outer_column(text: &str) -> Option<Fault> {
    let told = text.split_once("does not support logical expression OuterReferenceColumn")?.1;
    let (_, name) = told.rsplit_once("name: \"")?;
    let name = name.split_once('"')?.0;
    let what = format!("a subquery reads the column {name} of the query around it in a way that is not supported");
    Some(Fault::new(Blame::Unsupported, what).hint("join its tables, and compare columns in WHERE"))
}

/// The limit of a regular expression, for the message.
fn regex_fault(message: &str) -> Fault {
    let is_large = ["CompiledTooBig", "exceeds size limit"].iter().any(|text| message.contains(text));
    match is_large {
        true => Fault::new(Blame::User, "a regular expression is too large once it is compiled").hint("write smaller repeats"),
        false => Fault::new(Blame::User, without_kinds(message)),
    }
}

fn blame(error: &DataFusionError) -> Blame {
    match error {
        DataFusionError::ArrowError(error, _) => blame_arrow(error),
        DataFusionError::SQL(..)
        | DataFusionError::Plan(_)
        | DataFusionError::SchemaError(..)
        | DataFusionError::Configuration(_)
        | DataFusionError::Execution(_) => Blame::User,
        DataFusionError::NotImplemented(_) | DataFusionError::Substrait(_) => Blame::Unsupported,
        DataFusionError::ResourcesExhausted(_) => Blame::Limit,
        DataFusionError::IoError(_) | DataFusionError::ObjectStore(_) => Blame::Device,
        DataFusionError::ExecutionJoin(error) if error.is_cancelled() => Blame::Cancelled,
        DataFusionError::Collection(errors) => errors.first().map_or(Blame::Bug, blame),
        _ => Blame::Bug,
    }
}

fn blame_arrow(error: &ArrowError) -> Blame {
    match error {
        ArrowError::CastError(_)
        | ArrowError::ParseError(_)
        | ArrowError::ComputeError(_)
        | ArrowError::DivideByZero
        | ArrowError::ArithmeticOverflow(_)
        | ArrowError::InvalidArgumentError(_)
        | ArrowError::CsvError(_)
        | ArrowError::JsonError(_) => Blame::User,
        ArrowError::NotYetImplemented(_) => Blame::Unsupported,
        ArrowError::MemoryError(_)
        | ArrowError::OffsetOverflowError(_)
        | ArrowError::DictionaryKeyOverflowError
        | ArrowError::RunEndIndexOverflowError => Blame::Limit,
        ArrowError::IoError(..) => Blame::Device,
        _ => Blame::Bug,
    }
}

/// Looks through every kind of wrapper for a [`Fault`].
fn wrapped_fault(error: &DataFusionError) -> Option<Fault> {
    let mut current: &(dyn Error + 'static) = error;
    for _ in 0..DEPTH_MAX {
        if let Some(fault) = current.downcast_ref::<Fault>() {
            return Some(fault.clone());
        }
        current = match current.downcast_ref::<Arc<DataFusionError>>() {
            Some(shared) => shared.as_ref(),
            None => current.source()?,
        };
    }
    None
}

/// The message without the invitations to report a bug that DataFusion adds on separate lines.
fn first_line(message: &str) -> &str {
    message.split("\nThis issue was likely caused by").next().unwrap_or(message).trim_end_matches('.')
}

/// The message without the kinds of error that stand before it.
fn without_kinds(mut message: &str) -> &str {
    while let Some(rest) = KINDS.iter().find_map(|kind| message.strip_prefix(kind)) {
        message = rest;
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::execution::context::SessionContext;

    #[test]
    fn faults_pass_through_unchanged() {
        let fault = Fault::new(Blame::Corrupt, "damaged").hint("load it again");
        let wrapped = DataFusionError::External(Box::new(fault.clone())).context("scan");
        let wrapped = DataFusionError::Shared(Arc::new(wrapped));
        let wrapped = DataFusionError::ArrowError(Box::new(ArrowError::ExternalError(Box::new(wrapped))), None);
        assert_eq!(fault_from_datafusion(wrapped), fault);
    }

    #[test]
    fn blame_falls_on_who_can_help() {
        let arrow = |error| DataFusionError::ArrowError(Box::new(error), None);
        for (error, blame) in [
            (arrow(ArrowError::DivideByZero), Blame::User),
            (arrow(ArrowError::CastError("'x' is no number".into())).context("cast"), Blame::User),
            (DataFusionError::Execution("overflow in sum: too large".into()), Blame::User),
            (DataFusionError::ResourcesExhausted("no memory".into()), Blame::Limit),
            (DataFusionError::NotImplemented("that".into()), Blame::Unsupported),
            (DataFusionError::Internal("index".into()), Blame::Bug),
        ] {
            assert_eq!(fault_from_datafusion(error).blame, blame);
        }
    }

    #[tokio::test]
    async fn a_subquery_that_is_no_join_is_refused_with_its_column() {
        let context = SessionContext::new_with_state(crate::session_state(&crate::EngineOptions::default()));
        let sql = "SELECT (SELECT sum(x) FROM unnest(range(t.k)) AS u(x)) FROM (SELECT value AS k FROM range(3)) AS t";
        let error = context.sql(sql).await.unwrap().collect().await.unwrap_err();
        let fault = fault_from_datafusion(error);
        assert_eq!(fault.blame, Blame::Unsupported);
        let expected = "a subquery reads the column k of the query around it in a way that is not supported";
        assert_eq!(fault.message, expected);
    }

    #[tokio::test]
    async fn regular_expressions_that_cannot_be_are_the_users() {
        let context = SessionContext::new_with_state(crate::session_state(&crate::EngineOptions::default()));
        for sql in [
            "SELECT regexp_like(s, 'a{1000}{1000}{1000}') FROM (VALUES ('x'), ('y')) AS t(s)",
            "SELECT s ~ 'a{1000}{1000}{1000}' FROM (VALUES ('x'), ('y')) AS t(s)",
            "SELECT s ~ p FROM (VALUES ('x', 'a{1000}{1000}{1000}'), ('y', 'z')) AS t(s, p)",
            "SELECT regexp_replace(s, p, '') FROM (VALUES ('x', 'a{1000}{1000}{1000}'), ('y', 'z')) AS t(s, p)",
            "SELECT regexp_count(s, 'a{1000}{1000}{1000}') FROM (VALUES ('x'), ('y')) AS t(s)",
            "SELECT regexp_match(s, 'a{1000}{1000}{1000}') FROM (VALUES ('x'), ('y')) AS t(s)",
            "SELECT s ~ '(' FROM (VALUES ('x'), ('y')) AS t(s)",
            "SELECT regexp_like('x', 'a{1000}{1000}{1000}')",
        ] {
            let result = match context.sql(sql).await {
                Ok(frame) => frame.collect().await.map(drop),
                Err(error) => Err(error),
            };
            let fault = fault_from_datafusion(result.expect_err(sql));
            assert_eq!(fault.blame, Blame::User, "{sql}: {fault}");
        }
    }

    #[tokio::test]
    async fn messages_say_what_is_wrong_and_no_kind() {
        let context = SessionContext::new_with_state(crate::session_state(&crate::EngineOptions::default()));
        for (sql, said) in [
            ("SELECT CAST(a AS INT) FROM (VALUES ('x'), ('y')) AS t(a)", "Cannot cast string 'x' to value of Int32 type"),
            ("SELECT 1 / (a - a) FROM (VALUES (1), (2)) AS t(a)", "Divide by zero error"),
            ("SELECT b FROM (VALUES (1)) AS t(a)", "No field named b"),
            ("SELECT s ~ '(' FROM (VALUES ('x'), ('y')) AS t(s)", "regex parse error"),
            ("SELEC 1", "Expected: an SQL statement, found: SELEC at Line: 1, Column: 1"),
        ] {
            let result = match context.sql(sql).await {
                Ok(frame) => frame.collect().await.map(drop),
                Err(error) => Err(error),
            };
            let message = fault_from_datafusion(result.expect_err(sql)).message;
            assert!(
                message.starts_with(said) || message.starts_with(&format!("Regular expression did not compile: {said}")),
                "{message}"
            );
        }
        let nested = DataFusionError::External("External error: Arrow error: no such day".into());
        assert_eq!(fault_from_datafusion(nested).message, "no such day");
        let internal = DataFusionError::Internal("Cast error: odd".into());
        assert_eq!(fault_from_datafusion(internal).message, "Internal error: Cast error: odd");
    }

    #[test]
    fn messages_are_those_of_the_root() {
        let error = DataFusionError::Internal("no column 7".into()).context("while planning");
        let fault = fault_from_datafusion(error);
        assert!(fault.message.ends_with("no column 7"), "{}", fault.message);
    }
}
