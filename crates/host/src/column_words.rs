//! Columns of a new table whose names begin a constraint elsewhere: `CREATE TABLE pairs (key TEXT, value TEXT)`.
//!
//! The parser reads KEY, INDEX, FULLTEXT and SPATIAL at the beginning of a column as MySQL does. In SQL as PostgreSQL and DuckDB have it
//! they are names like any other.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use crate::rest::{Rest, places};

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
