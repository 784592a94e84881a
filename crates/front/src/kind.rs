//! What a statement is: what the server does itself, and what goes to the host.

use crate::copy::Copy;
use crate::cursor::{Declare, Fetch, closed};
use crate::drop_schema::DropSchema;
use crate::error::Complaint;
use crate::lexer::{Token, TokenKind, tokens};
use crate::mentioned::{Mentioned, of_comment, of_index, of_upkeep};
use crate::set::{characteristics, reset, set, show};
use crate::sql_prepared::{ExecutePrepared, Prepare};
use crate::sql_state::{NOT_SUPPORTED, SYNTAX};

/// What CREATE INDEX is answered with. Indexes change no answer, so there is nothing to do, and a warning says so.
pub(crate) const CREATE_INDEX: &str = "CREATE INDEX";
/// What CREATE SCHEMA is answered with. A domain is there with its first dataset.
pub(crate) const CREATE_SCHEMA: &str = "CREATE SCHEMA";
/// What COMMENT ON is answered with. Comments are not kept, and a notice says so.
pub(crate) const COMMENT: &str = "COMMENT";
/// What DROP TABLE is answered with, which may take as long as it needs.
pub(crate) const DROP_TABLE: &str = "DROP TABLE";
/// What DISCARD ALL is answered with, which forgets all that a connection has.
pub(crate) const DISCARD_ALL: &str = "DISCARD ALL";

/// What a block is to be, as far as BEGIN or SET TRANSACTION say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Characteristics {
    pub(crate) isolation: Option<&'static str>,
    pub(crate) read_only: Option<bool>,
}

/// A statement, told apart by its first words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StatementKind {
    /// Nothing but spaces and comments.
    Empty,
    /// BEGIN and START TRANSACTION, by their tags.
    Begin(&'static str, Characteristics),
    /// `chain`: another block begins, as this one was.
    Commit {
        chain: bool,
    },
    Rollback {
        chain: bool,
    },
    /// SAVEPOINT, by its name.
    Savepoint(String),
    /// RELEASE of one.
    Release(String),
    /// ROLLBACK TO one.
    RollbackTo(String),
    /// SET name = value; the name is in small letters. `local`: until the block ends.
    Set {
        name: String,
        value: String,
        local: bool,
    },
    /// SET TRANSACTION, or SET SESSION CHARACTERISTICS, which is for all later ones.
    SetTransaction {
        later: bool,
        to: Characteristics,
    },
    /// SHOW name; the name is in small letters.
    Show(String),
    /// RESET name, or of all.
    Reset(Option<String>),
    /// DISCARD ALL and the like, by their tags.
    Discard(&'static str),
    /// PREPARE of a statement by its name.
    Prepare(Box<Prepare>),
    /// EXECUTE of one.
    Execute(Box<ExecutePrepared>),
    /// DEALLOCATE of a statement, or of all.
    Deallocate(Option<String>),
    /// SELECT of no columns, which has one row.
    NoColumns,
    /// UNLISTEN, VACUUM and what else there is nothing to do for, and the tables that it names.
    Nothing(&'static str, Vec<Mentioned>),
    /// DROP SCHEMA, of one or several.
    DropSchema(DropSchema),
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

impl StatementKind {
    /// Whether it does nothing but end what is open, which may be done, too, by who is not known any more.
    pub(crate) fn is_an_end(&self) -> bool {
        matches!(self, StatementKind::Commit { .. } | StatementKind::Rollback { .. } | StatementKind::Close(_))
    }
}

/// Tells a statement apart.
pub(crate) fn kind(sql: &str) -> Result<StatementKind, Complaint> {
    let mut stream = tokens(sql);
    let Some(first) = stream.next() else { return Ok(StatementKind::Empty) };
    // The first words of a long statement cost no more than they are long.
    let next = |word: &str| tokens(&sql[first.end..]).next().is_some_and(|token| token.is(word));
    let rest = || tokens(&sql[first.end..]).collect::<Vec<Token>>();
    let through = |word: &str| {
        let mut is_before = true;
        let before = tokens(&sql[first.end..]).take_while(|token| std::mem::replace(&mut is_before, !token.is(word)));
        before.collect::<Vec<Token>>()
    };
    let verb = first.text();
    Ok(match verb.as_str() {
        "begin" => StatementKind::Begin("BEGIN", characteristics(&rest())),
        "start" => StatementKind::Begin("START TRANSACTION", characteristics(&rest())),
        "commit" | "rollback" if next("prepared") => {
            let what = format!("{} PREPARED: there are no transactions that are prepared", verb.to_uppercase());
            return Err(
                Complaint::error(NOT_SUPPORTED, what).hint("a transaction is one statement, and is committed by its end")
            );
        }
        "commit" | "end" => StatementKind::Commit { chain: chains(&rest()) },
        "rollback" if rest().iter().any(|token| token.is("to")) => {
            StatementKind::RollbackTo(savepoint(rest().into_iter().skip_while(|token| !token.is("to")).skip(1))?)
        }
        "rollback" | "abort" => StatementKind::Rollback { chain: chains(&rest()) },
        "savepoint" => StatementKind::Savepoint(savepoint(rest().into_iter())?),
        "release" => StatementKind::Release(savepoint(rest().into_iter())?),
        "set" => set(&rest())?,
        "show" => show(&rest()),
        "reset" => reset(&rest()),
        "discard" => discard(&rest()),
        "prepare" => StatementKind::Prepare(Box::new(Prepare::read(&sql[first.end..], &through("as"))?)),
        "execute" => StatementKind::Execute(Box::new(ExecutePrepared::read(&sql[first.end..], &rest())?)),
        "deallocate" => {
            let names = rest();
            let name = names.iter().find(|token| !token.is("prepare")).map(|token| (token.is("all"), token.text()));
            StatementKind::Deallocate(name.filter(|(all, _)| !all).map(|(_, name)| name))
        }
        "select" if tokens(&sql[first.end..]).all(|token| token.is_sign(';')) => StatementKind::NoColumns,
        "listen" | "notify" => {
            let what = format!("{}: connections tell each other nothing here", verb.to_uppercase());
            return Err(Complaint::error(NOT_SUPPORTED, what));
        }
        "unlisten" => StatementKind::Nothing("UNLISTEN", Vec::new()),
        "analyze" => StatementKind::Nothing("ANALYZE", of_upkeep(&rest())),
        "vacuum" => StatementKind::Nothing("VACUUM", of_upkeep(&rest())),
        "checkpoint" => StatementKind::Nothing("CHECKPOINT", Vec::new()),
        "create" if next("index") => StatementKind::Nothing(CREATE_INDEX, of_index(&rest()[1..])),
        "create" if next("schema") => StatementKind::Nothing(CREATE_SCHEMA, Vec::new()),
        "drop" if next("index") => StatementKind::Nothing("DROP INDEX", Vec::new()),
        "drop" if next("schema") => StatementKind::DropSchema(DropSchema::read(rest().get(1..).unwrap_or_default())?),
        "comment" if next("on") => StatementKind::Nothing(COMMENT, of_comment(&rest()[1..])),
        "copy" => copy(sql)?,
        "declare" => StatementKind::Declare(Box::new(Declare::read(&sql[first.end..], &through("for"))?)),
        "fetch" | "move" => StatementKind::Fetch(Fetch::read(&rest(), verb == "move")?),
        "close" => StatementKind::Close(closed(&rest().into_iter().filter(|token| !token.is_sign(';')).collect::<Vec<_>>())?),
        _ => statement(&verb, &sql[first.end..]),
    })
}

/// The name of a savepoint, before which the word may stand.
fn savepoint(rest: impl Iterator<Item = Token>) -> Result<String, Complaint> {
    let rest: Vec<Token> = rest.filter(|token| !token.is_sign(';')).collect();
    let named = match rest.as_slice() {
        [name] => Some(name),
        [word, name] if word.is("savepoint") => Some(name),
        _ => None,
    };
    let named = named.filter(|name| matches!(name.kind, TokenKind::Word(_) | TokenKind::Name(_)));
    named.map(Token::text).ok_or_else(|| Complaint::error(SYNTAX, "expected the name of a savepoint"))
}

fn copy(sql: &str) -> Result<StatementKind, Complaint> {
    let copy = Box::new(Copy::read(sql)?);
    Ok(if copy.is_in { StatementKind::CopyIn(copy) } else { StatementKind::CopyOut(copy) })
}

fn statement(verb: &str, rest: &str) -> StatementKind {
    let behind = if verb == "with" { behind_with(rest) } else { None };
    let (tag, writes) = match behind.as_deref().unwrap_or(verb) {
        "insert" => ("INSERT", true),
        "update" => ("UPDATE", true),
        "delete" => ("DELETE", true),
        "merge" => ("MERGE", true),
        "restore" => ("RESTORE", true),
        "alter" => ("ALTER TABLE", true),
        "truncate" => ("TRUNCATE TABLE", true),
        "create" => ("CREATE TABLE", true),
        "drop" => (DROP_TABLE, true),
        "explain" => ("EXPLAIN", false),
        _ => ("SELECT", false),
    };
    let is_of = |what: &str| tokens(rest).take(4).any(|token| token.is(what));
    // CREATE TABLE … AS has rows to count, as with PostgreSQL.
    let tag = match verb {
        "create" if is_of("view") => "CREATE VIEW",
        "alter" if is_of("view") => "ALTER VIEW",
        "drop" if is_of("view") => "DROP VIEW",
        "create" if is_of("function") => "CREATE FUNCTION",
        "drop" if is_of("function") => "DROP FUNCTION",
        "create" if tokens(rest).any(|token| token.is("as")) => "SELECT",
        _ => tag,
    };
    StatementKind::Statement { tag, writes }
}

/// The verb of a statement behind the queries of its WITH, each of which ends with a parenthesis.
fn behind_with(rest: &str) -> Option<String> {
    let (mut depth, mut ends) = (0_u32, false);
    for token in tokens(rest) {
        if token.is_sign('(') {
            depth += 1;
        }
        let is_verb = ["insert", "update", "delete", "merge", "select", "values"].iter().any(|verb| token.is(verb));
        if depth == 0 && ends && is_verb {
            return Some(token.text());
        }
        ends = token.is_sign(')');
        if ends {
            depth = depth.saturating_sub(1);
        }
    }
    None
}

fn chains(rest: &[Token]) -> bool {
    let is_no = rest.windows(2).any(|pair| pair[0].is("no") && pair[1].is("chain"));
    !is_no && rest.iter().any(|token| token.is("chain"))
}

fn discard(rest: &[Token]) -> StatementKind {
    let has = |word: &str| rest.iter().any(|token| token.is(word));
    StatementKind::Discard(match (has("all"), has("plans"), has("sequences")) {
        (true, ..) => DISCARD_ALL,
        (_, true, _) => "DISCARD PLANS",
        (_, _, true) => "DISCARD SEQUENCES",
        _ => "DISCARD TEMP",
    })
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
            ("BEGIN", StatementKind::Begin("BEGIN", Characteristics::default())),
            (
                "start transaction isolation level repeatable read, read only",
                StatementKind::Begin(
                    "START TRANSACTION",
                    Characteristics { isolation: Some("repeatable read"), read_only: Some(true) },
                ),
            ),
            ("SELECT -- nothing\n;", StatementKind::NoColumns),
            ("SELECT 1", StatementKind::Statement { tag: "SELECT", writes: false }),
            ("COMMIT AND CHAIN", StatementKind::Commit { chain: true }),
            ("abort and no chain", StatementKind::Rollback { chain: false }),
            ("SAVEPOINT \"My S\";", StatementKind::Savepoint("My S".into())),
            ("release savepoint S", StatementKind::Release("s".into())),
            ("RELEASE savepoint", StatementKind::Release("savepoint".into())),
            ("ROLLBACK WORK TO SAVEPOINT s", StatementKind::RollbackTo("s".into())),
            ("rollback to S;", StatementKind::RollbackTo("s".into())),
            ("ALTER VIEW v RENAME TO w", StatementKind::Statement { tag: "ALTER VIEW", writes: true }),
            ("ALTER TABLE t RENAME TO \"view\"", StatementKind::Statement { tag: "ALTER TABLE", writes: true }),
            ("DISCARD PLANS", StatementKind::Discard("DISCARD PLANS")),
            ("SET ROLE NONE", set("role", "none")),
            ("SET SESSION AUTHORIZATION \"Me\"", set("session_authorization", "Me")),
            ("reset session authorization", StatementKind::Reset(Some("session_authorization".into()))),
            ("RESET ROLE;", StatementKind::Reset(Some("role".into()))),
            ("RESET ALL", StatementKind::Reset(None)),
            ("DROP INDEX IF EXISTS i", StatementKind::Nothing("DROP INDEX", Vec::new())),
            ("COMMENT ON SCHEMA s IS 'x'", StatementKind::Nothing(COMMENT, Vec::new())),
            ("VACUUM", StatementKind::Nothing("VACUUM", Vec::new())),
            (
                "CREATE OR REPLACE FUNCTION f(a INT) RETURNS INT AS 'x'",
                StatementKind::Statement { tag: "CREATE FUNCTION", writes: true },
            ),
            ("SET LOCAL work_mem = 1", StatementKind::Set { name: "work_mem".into(), value: "1".into(), local: true }),
            ("CREATE SCHEMA IF NOT EXISTS lab", StatementKind::Nothing(CREATE_SCHEMA, Vec::new())),
            (
                "SET TRANSACTION READ WRITE",
                StatementKind::SetTransaction { later: false, to: Characteristics { isolation: None, read_only: Some(false) } },
            ),
            (
                "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
                StatementKind::SetTransaction {
                    later: true,
                    to: Characteristics { isolation: Some("serializable"), read_only: None },
                },
            ),
            ("SET search_path TO lab, \"Public\", 'My D'", set("search_path", "lab, \"Public\", \"My D\"")),
            ("SET search_path = '\"$user\", public'", set("search_path", "\"$user\", public")),
            ("SET SESSION extra_float_digits = 3", set("extra_float_digits", "3")),
            ("set time zone 'Europe/Berlin'", set("timezone", "Europe/Berlin")),
            ("SET TimeZone = '+02:00'", set("timezone", "+02:00")),
            ("SET x = -1", set("x", "-1")),
            ("show transaction isolation level", StatementKind::Show("transaction_isolation".into())),
            ("SHOW TABLES", StatementKind::Statement { tag: "SHOW", writes: false }),
            ("DEALLOCATE PREPARE s", StatementKind::Deallocate(Some("s".into()))),
            ("deallocate all", StatementKind::Deallocate(None)),
            ("CREATE OR REPLACE VIEW v AS SELECT 1", StatementKind::Statement { tag: "CREATE VIEW", writes: true }),
            ("drop view v", StatementKind::Statement { tag: "DROP VIEW", writes: true }),
            ("CREATE UNIQUE INDEX i ON t (a)", StatementKind::Statement { tag: "CREATE TABLE", writes: true }),
            ("INSERT INTO t VALUES (1)", StatementKind::Statement { tag: "INSERT", writes: true }),
            ("create table t as select 1", StatementKind::Statement { tag: "SELECT", writes: true }),
            ("WITH x AS (SELECT 1), y (a) AS (SELECT 2) SELECT 3", StatementKind::Statement { tag: "SELECT", writes: false }),
            ("with x as (values (1)) Delete from t", StatementKind::Statement { tag: "DELETE", writes: true }),
            (
                "WITH x AS (SELECT (1) FROM \"update\") INSERT INTO t SELECT * FROM x",
                StatementKind::Statement { tag: "INSERT", writes: true },
            ),
        ] {
            assert_eq!(kind(sql).unwrap(), expected, "{sql}");
        }
        assert!(kind("SET x").is_err());
        for (sql, tag) in
            [("CREATE INDEX i ON t (a)", CREATE_INDEX), ("COMMENT ON TABLE t IS 'x'", COMMENT), ("analyze t", "ANALYZE")]
        {
            assert!(
                matches!(kind(sql).unwrap(), StatementKind::Nothing(found, named) if found == tag && named.len() == 1),
                "{sql}"
            );
        }
        for sql in ["SAVEPOINT", "RELEASE;", "ROLLBACK TO", "SAVEPOINT 's'", "SAVEPOINT a b"] {
            assert_eq!(kind(sql).unwrap_err().code, SYNTAX, "{sql}");
        }
        assert!(matches!(kind("drop schema lab").unwrap(), StatementKind::DropSchema(_)));
        // A regression: they ended the block that was open.
        for sql in ["COMMIT PREPARED 'x'", "rollback /* of */ prepared 'x'"] {
            assert_eq!(kind(sql).unwrap_err().code, NOT_SUPPORTED, "{sql}");
        }
    }
}
