//! Cursors of SQL: DECLARE, FETCH, MOVE and CLOSE. A cursor is a portal with a name: its rows are made as they are fetched.

use std::sync::Arc;

use pithead_host::{Deadline, Parameters};

use crate::connection::{Halt, Talk};
use crate::deadline::in_time;
use crate::error::Complaint;
use crate::kind::StatementKind;
use crate::lexer::{Token, TokenKind};
use crate::portal::{Hold, Portal, PortalState, Prepared, Started, Taking};
use crate::rows::{DataRows, NoRows};
use crate::sql_state::{NOT_SUPPORTED, SYNTAX, UNKNOWN_PORTAL};

/// What a cursor cannot do.
const WRONG_STATE: &str = "55000";

/// DECLARE.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Declare {
    pub(crate) name: String,
    /// Whether values come in binary.
    pub(crate) is_binary: bool,
    /// WITH HOLD: it outlives its transaction.
    pub(crate) is_held: bool,
    pub(crate) query: String,
}

/// FETCH and MOVE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) name: String,
    /// How many rows; `u64::MAX`: all.
    pub(crate) rows: u64,
    /// MOVE: the rows are not sent.
    pub(crate) is_move: bool,
}

impl Declare {
    /// Reads `DECLARE name [BINARY] [INSENSITIVE] [NO SCROLL] CURSOR [WITH HOLD] FOR query`; `sql` and its tokens follow
    /// the first word.
    pub(crate) fn read(sql: &str, rest: &[Token]) -> Result<Declare, Complaint> {
        let wrong = || Complaint::error(SYNTAX, "expected DECLARE name CURSOR FOR query");
        let [name, others @ ..] = rest else { return Err(wrong()) };
        let end = others.iter().position(|token| token.is("for")).ok_or_else(wrong)?;
        let (words, is_named) = (&others[..end], matches!(name.kind, TokenKind::Word(_) | TokenKind::Name(_)));
        let cursor = words.iter().position(|token| token.is("cursor")).ok_or_else(wrong)?;
        let has = |word: &str| words.iter().any(|token| token.is(word));
        let known = ["binary", "insensitive", "asensitive", "no", "scroll", "cursor", "with", "without", "hold"];
        if !is_named || !words.iter().all(|token| known.iter().any(|word| token.is(word))) {
            return Err(wrong());
        }
        if has("scroll") && !has("no") {
            return Err(Complaint::error(NOT_SUPPORTED, "cursors go forward only").hint("DECLARE … NO SCROLL CURSOR FOR …"));
        }
        let query = sql[rest[end + 1].end..].trim().trim_end_matches(';').to_owned();
        let is_held = words[cursor..].iter().any(|token| token.is("with"));
        Ok(Declare { name: name.text(), is_binary: has("binary"), is_held, query })
    }
}

pub(crate) fn not_a_query() -> Complaint {
    Complaint::error(SYNTAX, "DECLARE … CURSOR FOR needs a query that gives rows")
}

/// What fails of a cursor's query. Places in the query are not those in the statement.
pub(crate) fn without_place(halt: Halt, query: &str) -> Halt {
    match halt {
        Halt::Fault(fault) => Halt::Said(Complaint { position: None, ..Complaint::of(&fault, query) }),
        other => other,
    }
}

fn backward() -> Complaint {
    Complaint::error(WRONG_STATE, "cursors go forward only").hint("FETCH NEXT, FETCH FORWARD number, or FETCH ALL")
}

impl Fetch {
    /// Reads `FETCH [direction] [FROM | IN] name`; `rest` follows the first word.
    pub(crate) fn read(rest: &[Token], is_move: bool) -> Result<Fetch, Complaint> {
        let words: Vec<&Token> = rest.iter().filter(|token| !token.is_sign(';')).collect();
        let wrong = || Complaint::error(SYNTAX, "expected FETCH [FORWARD] [number | ALL] FROM cursor");
        let Some((name, direction)) = words.split_last() else { return Err(wrong()) };
        let direction = match direction.split_last() {
            Some((last, before)) if last.is("from") || last.is("in") => before,
            _ => direction,
        };
        if !matches!(name.kind, TokenKind::Word(_) | TokenKind::Name(_)) {
            return Err(wrong());
        }
        let texts: Vec<String> = direction.iter().map(|token| token.text()).collect();
        let rows = match texts.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            [] | ["next"] | ["forward"] => 1,
            ["all"] | ["forward", "all"] => u64::MAX,
            ["relative", "0"] => 0,
            ["backward" | "prior" | "first" | "last" | "absolute" | "relative", ..] | ["-", ..] | ["forward", "-", ..] => {
                return Err(backward());
            }
            // None of them is asked for by who wants to know the columns.
            ["+", number] | [number] | ["forward", number] => number.parse().map_err(|_| wrong())?,
            _ => return Err(wrong()),
        };
        Ok(Fetch { name: name.text(), rows, is_move })
    }

    /// What it is answered with.
    pub(crate) fn tag(&self, rows: u64) -> String {
        format!("{} {rows}", if self.is_move { "MOVE" } else { "FETCH" })
    }
}

/// The name of CLOSE; none: all.
pub(crate) fn closed(rest: &[Token]) -> Result<Option<String>, Complaint> {
    match rest {
        [all] if all.is("all") => Ok(None),
        [name] if !matches!(name.kind, TokenKind::Sign(_)) => Ok(Some(name.text())),
        _ => Err(Complaint::error(SYNTAX, "expected CLOSE cursor, or CLOSE ALL")),
    }
}

impl Talk {
    /// Begins a cursor's query, so that its rows are those of now.
    pub(crate) async fn declare(
        &mut self,
        declare: &Declare,
        prepared: Option<&Arc<Prepared>>,
        parameters: &Parameters,
    ) -> Result<Started, Halt> {
        if self.transaction.status() == b'I' && !declare.is_held {
            let what = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(Complaint::error("25P01", what).hint("BEGIN first, or declare it WITH HOLD").into());
        }
        if self.portals.contains_key(&declare.name) {
            return Err(Complaint::error("42P03", format!("cursor {:?} already exists", declare.name)).into());
        }
        self.check_portals()?;
        let (query, _) = self.told(declare.query.clone()).await?;
        let StatementKind::Statement { tag, writes: false } = query else { return Err(not_a_query().into()) };
        let statement = (declare.query.as_str(), tag, false);
        let started = self.start_at_host(statement, prepared, parameters, Taking::InParts).await;
        let started = started.map_err(|halt| without_place(halt, &declare.query))?;
        let Started::Rows(rows, schema, tag) = started else {
            return Err(not_a_query().into());
        };
        let binary = vec![declare.is_binary; schema.fields().len()];
        let prepared = match prepared {
            Some(prepared) => Arc::clone(prepared),
            None => Arc::new(Prepared { schema: Some(schema), ..Prepared::of(declare.query.clone(), query) }),
        };
        let state = PortalState::Running(rows, tag);
        let hold = match (declare.is_held, self.transaction.status()) {
            (false, _) => Hold::No,
            (true, b'I') => Hold::Kept,
            (true, _) => Hold::AtCommit,
        };
        let portal = Portal { prepared, parameters: parameters.clone(), bytes: 0, binary, state, hold };
        self.portals.insert(declare.name.clone(), portal);
        Ok(Started::Done("DECLARE CURSOR".to_owned()))
    }

    /// The formats of a cursor's columns, as it was declared.
    pub(crate) fn cursor(&self, name: &str) -> Result<&Portal, Halt> {
        let found = self.portals.get(name).filter(|portal| portal.prepared.schema.is_some());
        found.ok_or_else(|| Complaint::error(UNKNOWN_PORTAL, format!("cursor {name:?} does not exist")).into())
    }

    /// Sends the next rows of a cursor, at most `limit`. How many there were. Where it fails, the cursor is gone.
    pub(crate) async fn fetch(&mut self, fetch: &Fetch, limit: u64, binary: Vec<bool>) -> Result<u64, Halt> {
        self.transaction.check(false, false)?;
        let cursor = self.cursor(&fetch.name)?;
        if limit == 0 {
            // FETCH 0 asks for the row that the cursor is on once more, and MOVE 0 counts it.
            return match &cursor.state {
                PortalState::Running(rows, _) if rows.sent > 0 && fetch.is_move => Ok(1),
                PortalState::Running(rows, _) if rows.sent > 0 => Err(backward().into()),
                _ => Ok(0),
            };
        }
        let Some(mut portal) = self.portals.remove(&fetch.name) else { return Ok(0) };
        // A message has bound it, and nothing has taken a row of it yet.
        if matches!(portal.state, PortalState::New) {
            let begun = self.begin_portal(&mut portal, Taking::InParts).await;
            begun.map_err(|halt| without_place(halt, &portal.prepared.sql))?;
        }
        let mut sent = 0;
        if let PortalState::Running(rows, _) = &mut portal.state {
            let (before, cancel) = (rows.sent, &self.place.cancel);
            // Each FETCH has the time that a statement may take, and what its client does in between takes none of it.
            let deadline = Deadline::after(self.session.statement_timeout());
            let mut writer = DataRows { binary, zone: self.settings.zone().1 };
            let ended = match fetch.is_move {
                true => in_time(deadline, rows.send(&mut self.link, cancel, limit, &mut NoRows)).await,
                false => in_time(deadline, rows.send(&mut self.link, cancel, limit, &mut writer)).await,
            };
            let ended = ended.map_err(|halt| without_place(halt, &portal.prepared.sql))?;
            sent = rows.sent - before;
            if ended {
                portal.state = PortalState::Done("SELECT 0".to_owned());
            }
        }
        self.portals.insert(fetch.name.clone(), portal);
        Ok(sent)
    }

    /// CLOSE of a cursor, or of all.
    pub(crate) fn close_cursor(&mut self, name: Option<&str>) -> Result<Started, Halt> {
        match name {
            Some(name) => {
                self.cursor(name)?;
                self.portals.remove(name);
                Ok(Started::Done("CLOSE CURSOR".to_owned()))
            }
            None => {
                self.portals.clear();
                Ok(Started::Done("CLOSE CURSOR ALL".to_owned()))
            }
        }
    }

    /// Cursors and portals end whose rows have not all been sent: who has them may have lost the right to these rows.
    pub(crate) fn end_running(&mut self) {
        self.portals.retain(|_, portal| !matches!(portal.state, PortalState::Running(..)));
    }

    /// The end of a transaction: portals end with it, but for cursors that are held.
    pub(crate) fn end_portals(&mut self, is_committed: bool) {
        if is_committed {
            self.portals
                .values_mut()
                .filter(|portal| portal.hold == Hold::AtCommit)
                .for_each(|portal| portal.hold = Hold::Kept);
        }
        self.portals.retain(|_, portal| portal.hold == Hold::Kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::kind;

    #[test]
    fn cursors_are_read() {
        let Ok(StatementKind::Declare(declare)) = kind("declare \"C 1\" binary no scroll cursor with hold for select 1 for;")
        else {
            panic!("it is no DECLARE")
        };
        let expected = Declare { name: "C 1".into(), is_binary: true, is_held: true, query: "select 1 for".into() };
        assert_eq!(*declare, expected);
        let fetch = |sql: &str| match kind(sql) {
            Ok(StatementKind::Fetch(fetch)) => Ok((fetch.name, fetch.rows, fetch.is_move)),
            other => Err(other.err().map(|complaint| complaint.code)),
        };
        assert_eq!(fetch("FETCH FORWARD 10 FROM \"c\";"), Ok(("c".into(), 10, false)));
        assert_eq!(fetch("fetch all in c"), Ok(("c".into(), u64::MAX, false)));
        assert_eq!(fetch("FETCH c"), Ok(("c".into(), 1, false)));
        assert_eq!(fetch("MOVE FORWARD ALL FROM c"), Ok(("c".into(), u64::MAX, true)));
        assert_eq!(fetch("FETCH 3 c"), Ok(("c".into(), 3, false)));
        assert_eq!(fetch("FETCH 0 FROM c"), Ok(("c".into(), 0, false)));
        for sql in ["FETCH PRIOR FROM c", "FETCH -1 FROM c", "FETCH ABSOLUTE 1 FROM c", "FETCH RELATIVE 2 FROM c"] {
            assert_eq!(fetch(sql), Err(Some(WRONG_STATE)), "{sql}");
        }
        for sql in ["FETCH", "FETCH x y FROM c", "CLOSE", "DECLARE c CURSOR", "DECLARE c SCROLL CURSOR FOR SELECT 1"] {
            assert!(kind(sql).is_err(), "{sql}");
        }
        assert_eq!(kind("CLOSE ALL").unwrap(), StatementKind::Close(None));
    }
}
