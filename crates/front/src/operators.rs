//! Operators that are written with their schema, as `pg_dump` writes them.

use std::borrow::Cow;

use crate::control::mentions;
use crate::lexer::{Token, TokenKind, tokens};

/// A text with `= ANY` for `OPERATOR(pg_catalog.=) ANY`, which the engine's parser does not read. Spaces keep all places as
/// they are.
pub(crate) fn bare(sql: &str) -> Cow<'_, str> {
    if !mentions(sql, "operator") {
        return Cow::Borrowed(sql);
    }
    let (all, mut out) = (tokens(sql).collect::<Vec<Token>>(), String::new());
    let mut end = 0;
    for (at, token) in all.iter().enumerate().filter(|(_, token)| token.is("operator")) {
        let Some((sign, last)) = operator(sql, &all[at + 1..]) else { continue };
        let of_list = all.get(at + 2 + last).is_some_and(|next| ["any", "all", "some"].iter().any(|word| next.is(word)));
        if of_list {
            let close = all[at + 1 + last].end;
            out.push_str(&sql[end..token.start]);
            out.push_str(&format!("{sign:<width$}", width = close - token.start));
            end = close;
        }
    }
    if end == 0 { Cow::Borrowed(sql) } else { Cow::Owned(out + &sql[end..]) }
}

/// The operator of PostgreSQL's own in the parentheses that come first, and where these are closed.
fn operator<'a>(sql: &'a str, rest: &[Token]) -> Option<(&'a str, usize)> {
    let [open, schema, signs @ ..] = rest else { return None };
    let is_own = open.is_sign('(') && matches!(&schema.kind, TokenKind::Word(word) if word == "pg_catalog.");
    let length = signs.iter().position(|token| token.is_sign(')')).filter(|length| is_own && *length > 0)?;
    let is_sign = |token: &Token| matches!(token.kind, TokenKind::Sign(_));
    let sign = &sql[signs[0].start..signs[length - 1].end];
    (signs[..length].iter().all(is_sign) && !sign.contains(char::is_whitespace)).then_some((sign, length + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_before_lists_are_bare() {
        for (sql, expected) in [
            ("a OPERATOR(pg_catalog.=) ANY (b)", "a =                      ANY (b)"),
            ("a operator ( pg_catalog.!~* ) all(b), 'é'", "a !~*                         all(b), 'é'"),
        ] {
            assert_eq!(bare(sql), expected);
            assert_eq!(sql.len(), expected.len(), "places stay");
        }
        for same in [
            "a OPERATOR(pg_catalog.=) b",
            "SELECT 'OPERATOR(pg_catalog.=) ANY'",
            "a OPERATOR(mine.=) ANY (b)",
            "a OPERATOR(pg_catalog.=",
            "operator() any",
            "a = ANY (b)",
        ] {
            assert_eq!(bare(same), same);
        }
    }
}
