//! The tables and columns of statements for which nothing is done: that they are there is all that is looked at.

use std::sync::Arc;

use pithead_host::{Deadline, Parameters};

use crate::connection::{Halt, Talk, during};
use crate::cursor::without_place;
use crate::deadline::{STATEMENT, in_time_of};
use crate::lexer::{Token, TokenKind};
use crate::work::in_own_task;

/// A table that a statement names, with columns of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mentioned {
    /// Its parts, such as a schema and a name.
    table: Vec<String>,
    columns: Vec<String>,
}

impl Mentioned {
    /// A query that cannot be planned unless they are there.
    fn query(&self) -> String {
        let quoted = |name: &String| format!("\"{}\"", name.replace('"', "\"\""));
        let columns: Vec<String> = self.columns.iter().map(quoted).collect();
        let columns = if columns.is_empty() { "1".to_owned() } else { columns.join(", ") };
        format!("SELECT {columns} FROM {}", self.table.iter().map(quoted).collect::<Vec<_>>().join("."))
    }
}

/// Those of `CREATE INDEX … ON table (column, …)`; `rest` follows INDEX. Expressions there are not looked at.
pub(crate) fn of_index(rest: &[Token]) -> Vec<Mentioned> {
    let Some(on) = rest.iter().position(|token| token.is("on")) else { return Vec::new() };
    let rest = &rest[on + 1..];
    let Some((table, rest)) = name(if is_word(rest, &["only"]) { &rest[1..] } else { rest }) else { return Vec::new() };
    let columns = rest.iter().position(|token| token.is_sign('(')).map_or(Vec::new(), |open| columns(&rest[open..]));
    vec![Mentioned { table, columns }]
}

/// Those of ANALYZE and VACUUM; `rest` follows that word.
pub(crate) fn of_upkeep(rest: &[Token]) -> Vec<Mentioned> {
    let mut rest = rest;
    while is_word(rest, &["full", "freeze", "verbose", "analyze"]) {
        rest = &rest[1..];
    }
    if rest.first().is_some_and(|open| open.is_sign('(')) {
        rest = &rest[closed(rest)..];
    }
    let one = |tokens: &[Token]| name(tokens).map(|(table, rest)| Mentioned { table, columns: columns(rest) });
    listed(rest).into_iter().filter_map(one).collect()
}

/// Those of COMMENT ON TABLE, VIEW and COLUMN; `rest` follows ON.
pub(crate) fn of_comment(rest: &[Token]) -> Vec<Mentioned> {
    let is_column = is_word(rest, &["column"]);
    let named = rest.get(1..).filter(|_| is_column || is_word(rest, &["table", "view"])).and_then(name);
    let Some((mut table, _)) = named else { return Vec::new() };
    let columns = if is_column && table.len() > 1 { table.pop().into_iter().collect() } else { Vec::new() };
    if is_column && columns.is_empty() { Vec::new() } else { vec![Mentioned { table, columns }] }
}

fn is_word(tokens: &[Token], words: &[&str]) -> bool {
    tokens.first().is_some_and(|token| words.iter().any(|word| token.is(word)))
}

/// The parts of the name that comes first, and what follows it. None: it is no name.
fn name(tokens: &[Token]) -> Option<(Vec<String>, &[Token])> {
    let is_part = |token: &Token| matches!(token.kind, TokenKind::Word(_) | TokenKind::Name(_));
    let first =
        tokens.first().filter(|token| is_part(token) && !token.text().starts_with(|first: char| first.is_ascii_digit()))?;
    let (mut parts, mut end, mut length) = (Vec::new(), first.start, 0);
    for token in tokens.iter().take_while(|token| is_part(token)) {
        if token.start != end {
            break;
        }
        match &token.kind {
            TokenKind::Word(word) => parts.extend(word.split('.').filter(|part| !part.is_empty()).map(str::to_owned)),
            _ => parts.push(token.text()),
        }
        (end, length) = (token.end, length + 1);
    }
    (!parts.is_empty()).then(|| (parts, &tokens[length..]))
}

/// The columns in the parentheses that come first.
fn columns(tokens: &[Token]) -> Vec<String> {
    if !tokens.first().is_some_and(|open| open.is_sign('(')) {
        return Vec::new();
    }
    let inner = &tokens[1..closed(tokens).saturating_sub(1).max(1)];
    let column = |tokens: &[Token]| {
        let (mut parts, rest) = name(tokens)?;
        let is_one = parts.len() == 1 && !rest.first().is_some_and(|next| next.is_sign('('));
        parts.pop().filter(|_| is_one)
    };
    listed(inner).into_iter().filter_map(column).collect()
}

/// How many tokens there are until the parenthesis is closed that comes first.
fn closed(tokens: &[Token]) -> usize {
    let mut depth = 0_usize;
    let is_last = |token: &Token| {
        depth = (depth + usize::from(token.is_sign('('))).saturating_sub(usize::from(token.is_sign(')')));
        depth == 0
    };
    tokens.iter().position(is_last).map_or(tokens.len(), |last| last + 1)
}

/// The parts between commas that are in no parentheses.
fn listed(tokens: &[Token]) -> Vec<&[Token]> {
    let mut depth = 0_usize;
    let parts = tokens.split(|token| {
        depth = (depth + usize::from(token.is_sign('('))).saturating_sub(usize::from(token.is_sign(')')));
        depth == 0 && token.is_sign(',')
    });
    parts.collect()
}

impl Talk {
    /// An error where a table is not there, or one of its columns.
    pub(crate) async fn find(&mut self, mentioned: &Mentioned) -> Result<(), Halt> {
        let query = mentioned.query();
        self.before_statement(&query).await?;
        let (session, asked) = (Arc::clone(&self.session), query.clone());
        let planning =
            in_own_task(&self.entrance.work, async move { session.prepare(&asked, &Parameters::default()).await.map(|_| ()) });
        let deadline = Deadline::after(self.session.statement_timeout());
        let planned = in_time_of(deadline, STATEMENT, during(&mut self.link, &self.place.cancel, planning)).await?;
        planned.map_err(|fault| without_place(Halt::Fault(fault), &query))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexer::tokens;

    #[test]
    fn tables_and_columns_are_found() {
        type Reader = fn(&[Token]) -> Vec<Mentioned>;
        for (reader, rest, expected) in [
            (of_index as Reader, "ON t (a)", "SELECT \"a\" FROM \"t\""),
            (
                of_index,
                "concurrently if not exists \"on\" on only Lab.T using btree (A desc, \"B c\" text_ops)",
                "SELECT \"a\", \"B c\" FROM \"lab\".\"t\"",
            ),
            (
                of_index,
                "i on \"My D\".\"a\"\"b\" (lower(a), (a + b), c) include (d) where e",
                "SELECT \"c\" FROM \"My D\".\"a\"\"b\"",
            ),
            (of_index, "i on t (lower(a))", "SELECT 1 FROM \"t\""),
            (of_index, "i on t", "SELECT 1 FROM \"t\""),
            (of_index, "i on", ""),
            (of_upkeep, "", ""),
            (of_upkeep, ";", ""),
            (of_upkeep, "verbose t;", "SELECT 1 FROM \"t\""),
            (of_upkeep, "full analyze main.t (a, b), u", "SELECT \"a\", \"b\" FROM \"main\".\"t\"; SELECT 1 FROM \"u\""),
            (of_upkeep, "(analyze, parallel 2) t", "SELECT 1 FROM \"t\""),
            (of_upkeep, "(verbose)", ""),
            (of_upkeep, "(", ""),
            (of_comment, "TABLE t IS 'x'", "SELECT 1 FROM \"t\""),
            (of_comment, "view lab.v is null", "SELECT 1 FROM \"lab\".\"v\""),
            (of_comment, "column main.t.\"A\" is 'x'", "SELECT \"A\" FROM \"main\".\"t\""),
            (of_comment, "column t is 'x'", ""),
            (of_comment, "schema main is 'x'", ""),
        ] {
            let found = reader(&tokens(rest).collect::<Vec<_>>());
            assert_eq!(found.iter().map(Mentioned::query).collect::<Vec<_>>().join("; "), expected, "{rest}");
        }
    }
}
