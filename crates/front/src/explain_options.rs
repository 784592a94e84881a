//! The options of EXPLAIN, as PostgreSQL's clients write them.

use std::borrow::Cow;

use crate::error::Complaint;
use crate::lexer::{Token, TokenKind, tokens};
use crate::settings::truth;
use crate::sql_state::{NOT_SUPPORTED, SYNTAX};

/// Options that are the host's to read.
const OF_HOST: [&str; 8] = ["analyze", "verbose", "costs", "timing", "summary", "format", "metrics", "level"];
/// Options that are on or off, and about which a plan here says nothing either way.
const WITHOUT_MEANING: [&str; 4] = ["buffers", "settings", "wal", "memory"];
/// Forms of PostgreSQL's that a plan does not have here.
const OTHER_FORMS: [&str; 3] = ["json", "xml", "yaml"];
/// What begins a query in parentheses, which are no options.
const QUERIES: [&str; 4] = ["select", "with", "values", "table"];

/// A statement without those options of its EXPLAIN that say nothing here. Spaces keep all places as they are. An error: one of
/// them is not known, or asks for what there is not.
pub(crate) fn without_idle(sql: &str) -> Result<Cow<'_, str>, Complaint> {
    let mut words = tokens(sql);
    let is_explain = words.next().is_some_and(|first| first.is("explain"));
    let Some(open) = words.next().filter(|open| is_explain && open.is_sign('(')) else { return Ok(Cow::Borrowed(sql)) };
    let inner: Vec<Token> = words.by_ref().take_while(|token| !token.is_sign(')') && !token.is_sign('(')).collect();
    let is_query = inner.first().is_none_or(|first| QUERIES.iter().any(|word| first.is(word)));
    let close = inner.last().and_then(|last| tokens(&sql[last.end..]).next().map(|close| last.end + close.start));
    let Some(close) = close.filter(|close| !is_query && sql[*close..].starts_with(')')) else { return Ok(Cow::Borrowed(sql)) };
    let mut kept = Vec::new();
    for option in inner.split(|token| token.is_sign(',')) {
        if is_kept(option)?
            && let [first, .., last] | [first @ last] = option
        {
            kept.push(&sql[first.start..last.end]);
        }
    }
    let options = if kept.is_empty() { String::new() } else { format!("({})", kept.join(",")) };
    let width = close + 1 - open.start;
    // Texts are as wide as their characters are many.
    let spaces = " ".repeat(width.saturating_sub(options.len()));
    Ok(Cow::Owned(format!("{}{options}{spaces}{}", &sql[..open.start], &sql[close + 1..])))
}

/// Whether an option is one for the host.
fn is_kept(option: &[Token]) -> Result<bool, Complaint> {
    let wrong = || Complaint::error(SYNTAX, "expected EXPLAIN (option [value], …) statement");
    let [Token { kind: TokenKind::Word(name), .. }, value @ ..] = option else { return Err(wrong()) };
    let value = match value {
        [] => None,
        [value] => Some(value.text().to_lowercase()),
        _ => return Err(wrong()),
    };
    match (name.as_str(), value.as_deref()) {
        ("format", Some("text")) => Ok(false),
        ("format", Some(form)) if OTHER_FORMS.contains(&form) => {
            let what = format!("EXPLAIN has no plans as {} here, but as lines of text", form.to_uppercase());
            Err(Complaint::error(NOT_SUPPORTED, what).hint("EXPLAIN, EXPLAIN ANALYZE and EXPLAIN (FORMAT TEXT) run here"))
        }
        (name, _) if OF_HOST.contains(&name) => Ok(true),
        (name, value) if WITHOUT_MEANING.contains(&name) => match value.is_none_or(|value| truth(value).is_some()) {
            true => Ok(false),
            false => Err(Complaint::error(SYNTAX, format!("{name} requires a Boolean value"))),
        },
        (name, _) => {
            let known = OF_HOST.iter().chain(&WITHOUT_MEANING).map(|known| known.to_uppercase()).collect::<Vec<_>>();
            let what = format!("unrecognized EXPLAIN option {name:?}");
            Err(Complaint::error(SYNTAX, what).hint(format!("those that are known are {}", known.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_nothing_is_left_out() {
        for (sql, expected) in [
            ("EXPLAIN (ANALYZE, BUFFERS) SELECT 1", "EXPLAIN (ANALYZE)          SELECT 1"),
            ("explain(buffers off,format 'TEXT')select (1)", "explain                           select (1)"),
            ("explain (analyze , wal, costs off) select 1", "explain (analyze,costs off)        select 1"),
            ("/* é */ explain ( verbose ) select 1", "/* é */ explain (verbose)   select 1"),
            ("explain (analyze, format substrait) select 1", "explain (analyze,format substrait)  select 1"),
        ] {
            let found = without_idle(sql).unwrap();
            assert_eq!(found, expected);
            assert_eq!(found.len(), sql.len(), "places stay");
        }
        for same in [
            "explain select 1",
            "explain (select 1)",
            "explain ((select 1) union select 2)",
            "explain (values (1, 2))",
            "explain analyze (select 1)",
            "select (buffers)",
            "explain (",
            "explain (analyze",
            "explain ()",
        ] {
            assert_eq!(without_idle(same).unwrap(), same);
        }
    }

    #[test]
    fn what_is_not_there_is_named() {
        for (sql, code, word) in [
            ("explain (format json) select 1", NOT_SUPPORTED, "JSON"),
            ("explain (analyze, format 'XML') select 1", NOT_SUPPORTED, "XML"),
            ("explain (nothing) select 1", SYNTAX, "nothing"),
            ("explain (buffers maybe) select 1", SYNTAX, "buffers"),
            ("explain (analyze on off) select 1", SYNTAX, "option"),
            ("explain (analyze,) select 1", SYNTAX, "option"),
        ] {
            let error = without_idle(sql).unwrap_err();
            assert_eq!(error.code, code, "{sql}");
            assert!(error.message.contains(word), "{}", error.message);
        }
    }
}
