//! SET, RESET and SHOW, read.

use crate::error::Complaint;
use crate::kind::{Characteristics, StatementKind};
use crate::lexer::{Token, TokenKind};
use crate::sql_state::SYNTAX;

/// Reads SHOW; `rest` follows that word.
pub(crate) fn show(rest: &[Token]) -> StatementKind {
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

/// Reads RESET; `rest` follows that word.
pub(crate) fn reset(rest: &[Token]) -> StatementKind {
    let words: Vec<String> = rest.iter().filter(|token| !token.is_sign(';')).map(Token::text).collect();
    StatementKind::Reset(match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["all"] => None,
        ["time", "zone"] => Some("timezone".to_owned()),
        ["session", "authorization"] => Some("session_authorization".to_owned()),
        _ => Some(words.concat()),
    })
}

/// Reads SET; `rest` follows that word.
pub(crate) fn set(rest: &[Token]) -> Result<StatementKind, Complaint> {
    let mut rest = rest;
    let local = rest.first().is_some_and(|first| first.is("local"));
    let is_of_user = rest.get(1).is_some_and(|second| second.is("authorization"));
    if let [first, others @ ..] = rest
        && (first.is("session") && !is_of_user || first.is("local"))
    {
        rest = others;
    }
    let of = |name: &str, value: &[Token]| StatementKind::Set { name: name.to_owned(), value: joined(value), local };
    Ok(match rest {
        [first, ..] if first.is("transaction") || first.is("characteristics") => {
            StatementKind::SetTransaction { later: first.is("characteristics"), to: characteristics(rest) }
        }
        [session, user, value @ ..] if session.is("session") && user.is("authorization") && !value.is_empty() => {
            of("session_authorization", value)
        }
        [role, value @ ..] if role.is("role") && !value.is_empty() => of("role", without_sign(value)),
        [time, zone, value @ ..] if time.is("time") && zone.is("zone") => of("timezone", without_sign(value)),
        [names, value @ ..] if names.is("names") => of("client_encoding", value),
        [name, sign, value @ ..] if (sign.is("to") || sign.is_sign('=')) && !value.is_empty() => {
            let name = name.text().to_lowercase();
            let value = if name == "search_path" { names(value) } else { joined(value) };
            StatementKind::Set { name, value, local }
        }
        _ => return Err(Complaint::error(SYNTAX, "expected SET name = value").hint("SHOW ALL lists the names")),
    })
}

fn without_sign(value: &[Token]) -> &[Token] {
    if value.first().is_some_and(|token| token.is("to") || token.is_sign('=')) { &value[1..] } else { value }
}

/// What BEGIN or SET TRANSACTION say of a block; where they say something twice, the last counts.
pub(crate) fn characteristics(words: &[Token]) -> Characteristics {
    let is = |place: usize, word: &str| words.get(place).is_some_and(|token| token.is(word));
    let mut found = Characteristics::default();
    for place in 0..words.len() {
        if is(place, "read") && is(place + 1, "only") {
            found.read_only = Some(true);
        } else if is(place, "read") && is(place + 1, "write") {
            found.read_only = Some(false);
        } else if is(place, "level") {
            let second = |word: &str| is(place + 2, word);
            found.isolation = match words.get(place + 1).map(Token::text).as_deref() {
                Some("serializable") => Some("serializable"),
                Some("repeatable") if second("read") => Some("repeatable read"),
                Some("read") if second("committed") => Some("read committed"),
                Some("read") if second("uncommitted") => Some("read uncommitted"),
                _ => found.isolation,
            };
        }
    }
    found
}

/// A value as it was written, without quotes and with one space for a gap.
fn joined(value: &[Token]) -> String {
    written(value, Token::text)
}

/// The names of a list, in quotes where they were.
fn names(value: &[Token]) -> String {
    let is_list = |text: &str| text.contains([',', '"']);
    let in_quotes = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    written(value, |token| match &token.kind {
        TokenKind::Name(name) => in_quotes(name),
        TokenKind::Text(name) if !is_list(name) && !name.is_empty() => in_quotes(name),
        _ => token.text(),
    })
}

fn written(value: &[Token], text_of: impl Fn(&Token) -> String) -> String {
    let (mut text, mut end) = (String::new(), None);
    for token in value.iter().filter(|token| !token.is_sign(';')) {
        if end.is_some_and(|end| token.start > end) {
            text.push(' ');
        }
        text.push_str(&text_of(token));
        end = Some(token.end);
    }
    text
}
