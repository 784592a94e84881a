//! Columns of a new table whose names begin a constraint elsewhere: `CREATE TABLE pairs (key TEXT, value TEXT)`.
//!
//! The parser reads KEY, INDEX, FULLTEXT and SPATIAL at the beginning of a column as MySQL does. In SQL as PostgreSQL and DuckDB have it
//! they are names like any other.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace, Word};

use crate::rest::{Rest, places};
use crate::tokens::{is_word, token_at};

/// The words that stand for names. UNIQUE, CHECK and others are constraints in all dialects.
const NAMES: [Keyword; 4] = [Keyword::KEY, Keyword::INDEX, Keyword::FULLTEXT, Keyword::SPATIAL];

/// Quotes such names in the columns of a CREATE TABLE.
pub(crate) fn name_columns(tokens: &mut [TokenWithSpan]) {
    let places = places(tokens);
    let Some(columns) = columns(tokens, &places) else { return };
    let (mut depth, mut begins) = (0_u32, false);
    for place in &places[columns..] {
        match &mut tokens[*place].token {
            Token::LParen => depth += 1,
            Token::RParen if depth <= 1 => return,
            Token::RParen => depth -= 1,
            Token::Word(word) if begins && word.quote_style.is_none() && NAMES.contains(&word.keyword) => {
                let value = word.value.to_lowercase();
                *word = Word { value, quote_style: Some('"'), keyword: Keyword::NoKeyword };
            }
            _ => {}
        }
        begins = depth == 1 && matches!(tokens[*place].token, Token::LParen | Token::Comma);
    }
}

/// `CREATE TABLE t (a, b) AS SELECT …`, whose columns have names alone: they become names of the query's columns.
pub(crate) fn name_columns_of_query(tokens: &mut Vec<TokenWithSpan>) {
    let places = places(tokens);
    let Some(begin) = columns(tokens, &places) else { return };
    let mut end = begin;
    loop {
        let [Some(name), Some(after)] =
            [places.get(end + 1), places.get(end + 2)].map(|place| place.map(|place| &tokens[*place].token))
        else {
            return;
        };
        end += 2;
        match (name, after) {
            (Token::Word(_), Token::Comma) => {}
            (Token::Word(_), Token::RParen) => break,
            _ => return,
        }
    }
    if !places.get(end + 1).is_some_and(|place| is_word(&tokens[*place], "AS")) {
        return;
    }
    let query_end = places.last().map_or(tokens.len(), |last| last + 1);
    let span = tokens[places[begin]].span;
    let word = |text: &str, keyword| Token::Word(Word { value: text.to_owned(), quote_style: None, keyword });
    let space = || Token::Whitespace(Whitespace::Space);
    let names: Vec<Token> = tokens[places[begin]..=places[end]].iter().map(|token| token.token.clone()).collect();
    let behind = [Token::RParen, space(), word("AS", Keyword::AS), space(), word("named", Keyword::NoKeyword), space()];
    let before =
        [word("SELECT", Keyword::SELECT), space(), Token::Mul, space(), word("FROM", Keyword::FROM), space(), Token::LParen];
    let placed = |token| token_at(token, span);
    tokens.splice(query_end..query_end, behind.into_iter().chain(names).map(placed));
    let query = places[end + 1] + 1;
    tokens.splice(query..query, std::iter::once(space()).chain(before).map(placed));
    tokens.drain(places[begin]..=places[end]);
}

/// Where the columns begin, as a place of `places`; none: the statement is another one, or has a query alone.
fn columns(tokens: &[TokenWithSpan], places: &[usize]) -> Option<usize> {
    let mut rest = Rest::new(tokens, places);
    if !rest.take(&["CREATE"]) {
        return None;
    }
    rest.take(&["OR", "REPLACE"]);
    let _ = rest.take(&["TEMP"]) || rest.take(&["TEMPORARY"]);
    if !rest.take(&["TABLE"]) {
        return None;
    }
    rest.take(&["IF", "NOT", "EXISTS"]);
    rest.names().ok()?;
    (rest.token(0)?.token == Token::LParen).then_some(rest.at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::{tokens, written};

    #[test]
    fn names_alone_are_of_the_querys_columns() {
        for (sql, expected) in [
            (
                "CREATE TABLE t (a, \"B\") AS SELECT 1, 2;",
                "CREATE TABLE t  AS SELECT * FROM ( SELECT 1, 2) AS named (a, \"B\");",
            ),
            ("CREATE TABLE t (key) AS (VALUES (1))", "CREATE TABLE t  AS SELECT * FROM ( (VALUES (1))) AS named (\"key\")"),
            ("CREATE TABLE t (a INT, b TEXT)", "CREATE TABLE t (a INT, b TEXT)"),
            ("CREATE TABLE t AS SELECT 1", "CREATE TABLE t AS SELECT 1"),
            ("CREATE TABLE t (a", "CREATE TABLE t (a"),
        ] {
            let mut named = tokens(sql).unwrap();
            name_columns(&mut named);
            name_columns_of_query(&mut named);
            assert_eq!(written(&named), written(&tokens(expected).unwrap()), "{sql}");
        }
    }

    #[test]
    fn words_that_begin_columns_are_their_names() {
        for (sql, expected) in [
            ("CREATE TABLE t (key TEXT, value TEXT)", "CREATE TABLE t (\"key\" TEXT, value TEXT)"),
            (
                "create or replace table if not exists a.\"T\" ( /* of rows */ Index DECIMAL(9, 2), fulltext TEXT, SPATIAL INT)",
                "create or replace table if not exists a.\"T\" ( /* of rows */ \"index\" DECIMAL(9, 2), \"fulltext\" TEXT, \"spatial\" INT)",
            ),
            (
                "CREATE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a), \"KEY\" INT)",
                "CREATE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a), \"KEY\" INT)",
            ),
            ("CREATE TABLE t (a INT) PARTITION BY hash(key, index)", "CREATE TABLE t (a INT) PARTITION BY hash(key, index)"),
            ("CREATE TABLE t AS SELECT (key, index) FROM u", "CREATE TABLE t AS SELECT (key, index) FROM u"),
            ("CREATE VIEW v (key) AS SELECT 1", "CREATE VIEW v (key) AS SELECT 1"),
            ("CREATE TABLE", "CREATE TABLE"),
        ] {
            let mut named = tokens(sql).unwrap();
            name_columns(&mut named);
            assert_eq!(written(&named), written(&tokens(expected).unwrap()), "{sql}");
        }
    }
}
