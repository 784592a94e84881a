//! Names of columns that are words of other dialects, and types of arrays as the standard writes them.

use std::borrow::Cow;

use crate::lexer::{TokenKind, tokens};

/// Words that begin a definition of something else than a column in other dialects, and are names in PostgreSQL's.
const WORDS: [&str; 4] = ["index", "key", "fulltext", "spatial"];

/// CREATE TABLE with columns of these names in quotes, and with `type[]` for `type ARRAY`.
pub(crate) fn quoted(sql: &str) -> Cow<'_, str> {
    if !is_create_table(sql) {
        return Cow::Borrowed(sql);
    }
    match with_brackets(sql) {
        Some(written) => Cow::Owned(with_quotes(&written).into_owned()),
        None => with_quotes(sql),
    }
}

/// A table's columns with `type[]` for `type ARRAY` and `type ARRAY[3]`, whose number says nothing; none: there are none.
fn with_brackets(sql: &str) -> Option<String> {
    let (mut out, mut end, mut depth) = (String::new(), 0, 0_usize);
    // Words of the column so far: its name, and its type.
    let (mut words, mut is_default) = (0, false);
    let mut all = tokens(sql).peekable();
    while let Some(token) = all.next() {
        match &token.kind {
            TokenKind::Sign('(') => depth += 1,
            TokenKind::Sign(')') => depth = depth.saturating_sub(1),
            TokenKind::Word(word) if depth == 0 && word == "as" => break,
            _ => {}
        }
        if depth != 1 {
            continue;
        }
        if token.is_sign(',') || token.is_sign('(') {
            (words, is_default) = (0, false);
            continue;
        }
        is_default |= token.is("default") || token.is("check");
        if token.is("array") && words >= 2 && !is_default {
            out.push_str(&sql[end..token.start]);
            out.push_str("[]");
            end = token.end;
            if all.peek().is_some_and(|next| next.is_sign('[')) {
                end = all.find(|next| next.is_sign(']')).map_or(end, |close| close.end);
            }
        }
        words += usize::from(matches!(token.kind, TokenKind::Word(_) | TokenKind::Name(_)));
    }
    (end > 0).then(|| out + &sql[end..])
}

fn with_quotes(sql: &str) -> Cow<'_, str> {
    let (mut out, mut end, mut depth) = (String::new(), 0, 0_usize);
    let mut all = tokens(sql).peekable();
    let mut begins_after = false;
    while let Some(token) = all.next() {
        match token.kind {
            TokenKind::Sign('(') => depth += 1,
            TokenKind::Sign(')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        let begins = depth == 1 && begins_after;
        begins_after = token.is_sign('(') || token.is_sign(',');
        let has_type = all.peek().is_some_and(|next| matches!(next.kind, TokenKind::Word(_)));
        if begins && has_type && WORDS.iter().any(|word| token.is(word)) {
            out.push_str(&sql[end..token.start]);
            out.push_str(&format!("\"{}\"", token.text()));
            end = token.end;
        }
    }
    if end == 0 {
        return Cow::Borrowed(sql);
    }
    out.push_str(&sql[end..]);
    Cow::Owned(out)
}

fn is_create_table(sql: &str) -> bool {
    let mut first = tokens(sql);
    let words = ["temp", "temporary", "or", "replace", "unlogged"];
    first.next().is_some_and(|token| token.is("create"))
        && first.find(|token| !words.iter().any(|word| token.is(word))).is_some_and(|token| token.is("table"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_these_names_are_quoted() {
        for (sql, expected) in [
            ("CREATE TABLE t (index BIGINT, a int)", "CREATE TABLE t (\"index\" BIGINT, a int)"),
            ("create table t (a decimal(1, 2), KEY text)", "create table t (a decimal(1, 2), \"key\" text)"),
            ("CREATE TABLE index AS SELECT (index) FROM t", "CREATE TABLE index AS SELECT (index) FROM t"),
            ("SELECT (index BIGINT)", "SELECT (index BIGINT)"),
            ("CREATE TABLE q (a bigint ARRAY, b numeric(9, 2) array[3])", "CREATE TABLE q (a bigint [], b numeric(9, 2) [])"),
            ("create table q (array text, key text array)", "create table q (array text, \"key\" text [])"),
            ("create table q (\"a\" double precision array not null)", "create table q (\"a\" double precision [] not null)"),
            ("CREATE TABLE q AS SELECT (a b array[1])", "CREATE TABLE q AS SELECT (a b array[1])"),
            ("create table q (a text default array[1])", "create table q (a text default array[1])"),
        ] {
            assert_eq!(quoted(sql), expected);
        }
    }
}
