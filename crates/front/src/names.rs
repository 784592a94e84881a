//! Names of columns that are words of other dialects.

use std::borrow::Cow;

use crate::lexer::{TokenKind, tokens};

/// Words that begin a definition of something else than a column in other dialects, and are names in PostgreSQL's.
const WORDS: [&str; 4] = ["index", "key", "fulltext", "spatial"];

/// CREATE TABLE with columns of these names in quotes.
pub(crate) fn quoted(sql: &str) -> Cow<'_, str> {
    if !is_create_table(sql) {
        return Cow::Borrowed(sql);
    }
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
        ] {
            assert_eq!(quoted(sql), expected);
        }
    }
}
