//! What a statement is: what the server does itself, and what goes to the host.

use crate::copy::Copy;
use crate::cursor::{Declare, Fetch, closed};
use crate::error::{Complaint, SYNTAX};
use crate::lexer::{Token, tokens};

/// What CREATE INDEX is answered with. Indexes change no answer, so there is nothing to do, and a warning says so.
pub(crate) const CREATE_INDEX: &str = "CREATE INDEX";
/// What CREATE SCHEMA is answered with. A domain is there with its first dataset.
pub(crate) const CREATE_SCHEMA: &str = "CREATE SCHEMA";

/// A statement, told apart by its first words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StatementKind {
    /// Nothing but spaces and comments.
    Empty,
    /// BEGIN and START TRANSACTION; `repeatable`: with an isolation that is not given here; `read_only`: if it says so.
    Begin {
        repeatable: bool,
        read_only: Option<bool>,
    },
    Commit,
    Rollback,
    /// SAVEPOINT and RELEASE, by their tags.
    Savepoint(&'static str),
    /// ROLLBACK TO a savepoint.
    RollbackTo,
    /// SET name = value; the name is in small letters. `local`: until the block ends.
    Set {
        name: String,
        value: String,
        local: bool,
    },
    /// SET TRANSACTION, or SET SESSION CHARACTERISTICS, which is for all later ones; `read_only`: if it says so.
    SetTransaction {
        later: bool,
        read_only: Option<bool>,
    },
    /// SHOW name; the name is in small letters.
    Show(String),
    /// RESET name, or of all.
    Reset(Option<String>),
    /// DISCARD ALL and the like; `all`: everything.
    Discard {
        all: bool,
    },
    /// DEALLOCATE of a statement, or of all.
    Deallocate(Option<String>),
    /// LISTEN, UNLISTEN and what else there is nothing to do for.
    Nothing(&'static str),
    CopyOut(Box<Copy>),
    CopyIn(Box<Copy>),
    Declare(Box<Declare>),
    Fetch(Fetch),
    /// CLOSE of a cursor, or of all.
    Close(Option<String>),
    /// What goes to the host. Its tag, where it does not give rows.
    Statement {
        tag: &'static str,
        writes: bool,
    },
}

/// Tells a statement apart.
pub(crate) fn kind(sql: &str) -> Result<StatementKind, Complaint> {
    let mut stream = tokens(sql);
    let Some(first) = stream.next() else { return Ok(StatementKind::Empty) };
    let rest = || tokens(&sql[first.end..]).collect::<Vec<Token>>();
    let verb = first.text();
    Ok(match verb.as_str() {
        "begin" | "start" => {
            let rest = rest();
            let repeatable = rest.iter().any(|token| token.is("repeatable") || token.is("serializable"));
            StatementKind::Begin { repeatable, read_only: access(&rest) }
        }
        "commit" | "end" => StatementKind::Commit,
        "abort" => StatementKind::Rollback,
        "rollback" if rest().iter().any(|token| token.is("to")) => StatementKind::RollbackTo,
        "rollback" => StatementKind::Rollback,
        "savepoint" => StatementKind::Savepoint("SAVEPOINT"),
        "release" => StatementKind::Savepoint("RELEASE"),
        "set" => set(&rest())?,
        "show" => show(&rest()),
        "reset" => {
            let name = rest().iter().map(Token::text).collect::<Vec<_>>().join("");
            StatementKind::Reset((name != "all").then_some(name))
        }
        "discard" => StatementKind::Discard { all: rest().iter().any(|token| token.is("all")) },
        "deallocate" => {
            let names = rest();
            let name = names.iter().find(|token| !token.is("prepare")).map(|token| (token.is("all"), token.text()));
            StatementKind::Deallocate(name.filter(|(all, _)| !all).map(|(_, name)| name))
        }
        "listen" | "unlisten" | "notify" | "checkpoint" | "vacuum" | "analyze" => nothing(&verb),
        "create" if rest().first().is_some_and(|token| token.is("index")) => StatementKind::Nothing(CREATE_INDEX),
        "create" if rest().first().is_some_and(|token| token.is("schema")) => StatementKind::Nothing(CREATE_SCHEMA),
        "copy" => copy(sql)?,
        "declare" => StatementKind::Declare(Box::new(Declare::read(&sql[first.end..], &rest())?)),
        "fetch" | "move" => StatementKind::Fetch(Fetch::read(&rest(), verb == "move")?),
        "close" => StatementKind::Close(closed(&rest().into_iter().filter(|token| !token.is_sign(';')).collect::<Vec<_>>())?),
        _ => statement(&verb, &rest),
    })
}

fn nothing(verb: &str) -> StatementKind {
    match verb {
        "unlisten" => StatementKind::Nothing("UNLISTEN"),
        "analyze" => StatementKind::Nothing("ANALYZE"),
        "vacuum" => StatementKind::Nothing("VACUUM"),
        "checkpoint" => StatementKind::Nothing("CHECKPOINT"),
        _ => StatementKind::Statement { tag: "", writes: false },
    }
}

fn copy(sql: &str) -> Result<StatementKind, Complaint> {
    let copy = Box::new(Copy::read(sql)?);
    Ok(if copy.is_in { StatementKind::CopyIn(copy) } else { StatementKind::CopyOut(copy) })
}

fn statement(verb: &str, rest: &impl Fn() -> Vec<Token>) -> StatementKind {
    let (tag, writes) = match verb {
        "insert" => ("INSERT", true),
        "update" => ("UPDATE", true),
        "delete" => ("DELETE", true),
        "merge" => ("MERGE", true),
        "restore" => ("RESTORE", true),
        "alter" => ("ALTER TABLE", true),
        "truncate" => ("TRUNCATE TABLE", true),
        "create" => ("CREATE TABLE", true),
        "drop" => ("DROP TABLE", true),
        "explain" => ("EXPLAIN", false),
        _ => ("SELECT", false),
    };
    let is_view = || rest().iter().take(4).any(|token| token.is("view"));
    // CREATE TABLE … AS has rows to count, as with PostgreSQL.
    let tag = match verb {
        "create" if is_view() => "CREATE VIEW",
        "drop" if is_view() => "DROP VIEW",
        "create" if rest().iter().any(|token| token.is("as")) => "SELECT",
        _ => tag,
    };
    StatementKind::Statement { tag, writes }
}

fn show(rest: &[Token]) -> StatementKind {
    let words: Vec<String> = rest.iter().map(Token::text).filter(|word| word != ";").collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["time", "zone"] => StatementKind::Show("timezone".to_owned()),
        ["transaction", "isolation", "level"] => StatementKind::Show("transaction_isolation".to_owned()),
        ["session", "authorization"] => StatementKind::Show("session_authorization".to_owned()),
        [name] if !matches!(*name, "tables" | "databases" | "schemas" | "functions" | "columns" | "all" | "log") => {
            StatementKind::Show((*name).to_owned())
        }
        // The host's: SHOW TABLES and the like.
        _ => StatementKind::Statement { tag: "SHOW", writes: false },
    }
}

fn set(rest: &[Token]) -> Result<StatementKind, Complaint> {
    let mut rest = rest;
    let local = rest.first().is_some_and(|first| first.is("local"));
    if let [first, others @ ..] = rest
        && (first.is("session") || first.is("local"))
    {
        rest = others;
    }
    match rest {
        [first, ..] if first.is("transaction") || first.is("characteristics") => {
            Ok(StatementKind::SetTransaction { later: first.is("characteristics"), read_only: access(rest) })
        }
        [time, zone, value @ ..] if time.is("time") && zone.is("zone") => {
            let value =
                if value.first().is_some_and(|token| token.is("to") || token.is_sign('=')) { &value[1..] } else { value };
            Ok(StatementKind::Set { name: "timezone".to_owned(), value: joined(value), local })
        }
        [names, value @ ..] if names.is("names") => {
            Ok(StatementKind::Set { name: "client_encoding".to_owned(), value: joined(value), local })
        }
        [name, sign, value @ ..] if (sign.is("to") || sign.is_sign('=')) && !value.is_empty() => {
            Ok(StatementKind::Set { name: name.text().to_lowercase(), value: joined(value), local })
        }
        _ => Err(Complaint::error(SYNTAX, "expected SET name = value").hint("SHOW ALL lists the names")),
    }
}

/// READ ONLY or READ WRITE, the last one.
fn access(words: &[Token]) -> Option<bool> {
    let read_only = |pair: &[Token]| match pair {
        [read, only] if read.is("read") && only.is("only") => Some(true),
        [read, write] if read.is("read") && write.is("write") => Some(false),
        _ => None,
    };
    words.windows(2).filter_map(read_only).next_back()
}

/// A value as it was written, without quotes and with one space for a gap.
fn joined(value: &[Token]) -> String {
    let (mut text, mut end) = (String::new(), None);
    for token in value.iter().filter(|token| !token.is_sign(';')) {
        if end.is_some_and(|end| token.start > end) {
            text.push(' ');
        }
        text.push_str(&token.text());
        end = Some(token.end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_told_apart() {
        let set = |name: &str, value: &str| StatementKind::Set { name: name.into(), value: value.into(), local: false };
        for (sql, expected) in [
            (" -- nothing\n ;", StatementKind::Statement { tag: "SELECT", writes: false }),
            ("/* x */", StatementKind::Empty),
            ("BEGIN", StatementKind::Begin { repeatable: false, read_only: None }),
            ("start transaction isolation level repeatable read", StatementKind::Begin { repeatable: true, read_only: None }),
            ("SET LOCAL work_mem = 1", StatementKind::Set { name: "work_mem".into(), value: "1".into(), local: true }),
            ("CREATE SCHEMA IF NOT EXISTS lab", StatementKind::Nothing(CREATE_SCHEMA)),
            ("BEGIN READ ONLY", StatementKind::Begin { repeatable: false, read_only: Some(true) }),
            ("SET TRANSACTION READ WRITE", StatementKind::SetTransaction { later: false, read_only: Some(false) }),
            (
                "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
                StatementKind::SetTransaction { later: true, read_only: Some(true) },
            ),
            ("SET search_path TO lab, \"Public\"", set("search_path", "lab, Public")),
            ("SET SESSION extra_float_digits = 3", set("extra_float_digits", "3")),
            ("set time zone 'Europe/Berlin'", set("timezone", "Europe/Berlin")),
            ("SET TimeZone = '+02:00'", set("timezone", "+02:00")),
            ("SET x = -1", set("x", "-1")),
            ("show transaction isolation level", StatementKind::Show("transaction_isolation".into())),
            ("SHOW TABLES", StatementKind::Statement { tag: "SHOW", writes: false }),
            ("DEALLOCATE PREPARE s", StatementKind::Deallocate(Some("s".into()))),
            ("deallocate all", StatementKind::Deallocate(None)),
            ("CREATE INDEX i ON t (a)", StatementKind::Nothing(CREATE_INDEX)),
            ("CREATE OR REPLACE VIEW v AS SELECT 1", StatementKind::Statement { tag: "CREATE VIEW", writes: true }),
            ("drop view v", StatementKind::Statement { tag: "DROP VIEW", writes: true }),
            ("CREATE UNIQUE INDEX i ON t (a)", StatementKind::Statement { tag: "CREATE TABLE", writes: true }),
            ("INSERT INTO t VALUES (1)", StatementKind::Statement { tag: "INSERT", writes: true }),
            ("create table t as select 1", StatementKind::Statement { tag: "SELECT", writes: true }),
        ] {
            assert_eq!(kind(sql).unwrap(), expected, "{sql}");
        }
        assert!(kind("SET x").is_err());
    }
}
