//! `FROM t` alone, which means `SELECT * FROM t`, and so does `TABLE t`.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use crate::tokens::{insert, is_gap, is_word};

/// Puts `SELECT *` before each FROM that begins a query without SELECT: by itself, in parentheses, after a CTE, as a side of UNION,
/// INTERSECT or EXCEPT, and in INSERT, CREATE TABLE AS and DESCRIBE. The parser knows only the bare `FROM t`, which it gives no columns,
/// and no WHERE after it.
pub(crate) fn add_select(tokens: &mut Vec<TokenWithSpan>) {
    let places: Vec<usize> = (0..tokens.len()).filter(|place| !is_gap(&tokens[*place])).collect();
    let words: Vec<&TokenWithSpan> = places.iter().map(|place| &tokens[*place]).collect();
    let bare: Vec<usize> = bare_queries(&words).into_iter().map(|word| places[word]).collect();
    for place in bare.iter().copied() {
        if is_word(&tokens[place], "TABLE") {
            tokens[place].token = Token::Word(Word { value: "FROM".to_owned(), quote_style: None, keyword: Keyword::FROM });
        }
    }
    let select = Token::Word(Word { value: "SELECT".to_owned(), quote_style: None, keyword: Keyword::SELECT });
    insert(tokens, &bare, [select, Token::Mul]);
}

/// What the innermost parentheses around a token have so far.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    /// A query, or a whole statement, may begin here.
    Begins,
    /// WITH. A query may begin after the parentheses of a CTE.
    With { is_after_cte: bool },
    /// INSERT, before the query whose rows are inserted.
    Insert,
    /// CREATE, before the AS that a query may follow.
    Create,
    /// No query begins here any more.
    Past,
}

impl Level {
    /// The level after a token that is no parenthesis.
    fn after(self, token: &TokenWithSpan) -> Level {
        const PREFIXES: [&str; 10] =
            ["ALL", "DISTINCT", "BY", "NAME", "EXPLAIN", "ANALYZE", "VERBOSE", "PUSHDOWN", "DESCRIBE", "DESC"];
        match self {
            _ if is_one_of(token, &["UNION", "INTERSECT", "EXCEPT"]) => Level::Begins,
            Level::Create if is_one_of(token, &["AS"]) => Level::Begins,
            Level::Past | Level::Create | Level::With { is_after_cte: false } => self,
            _ if is_one_of(token, &["FROM", "SELECT", "VALUES"]) => Level::Past,
            _ if is_one_of(token, &["INSERT"]) => Level::Insert,
            _ if is_one_of(token, &["WITH"]) => Level::With { is_after_cte: false },
            Level::Begins if is_one_of(token, &["CREATE"]) => Level::Create,
            Level::Begins if is_one_of(token, &PREFIXES) => self,
            // The name of the table, and of how its columns are found.
            Level::Insert => self,
            // Another CTE, or the alias of one.
            Level::With { .. } if !is_one_of(token, &["TABLE"]) => Level::With { is_after_cte: false },
            Level::Begins | Level::With { .. } => Level::Past,
        }
    }

    fn expects_query(self) -> bool {
        matches!(self, Level::Begins | Level::Insert | Level::With { is_after_cte: true })
    }
}

/// The tokens FROM that begin a query without SELECT.
fn bare_queries(tokens: &[&TokenWithSpan]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut levels = vec![Level::Begins];
    for (index, token) in tokens.iter().enumerate() {
        let Some(level) = levels.last_mut() else { break };
        match &token.token {
            Token::SemiColon => levels = vec![Level::Begins],
            Token::LParen => {
                let of_function = index > 0 && is_one_of(tokens[index - 1], &["TRIM", "SUBSTRING", "EXTRACT", "OVERLAY"]);
                levels.push(if of_function { Level::Past } else { Level::Begins });
            }
            Token::RParen => {
                levels.pop();
                match levels.last_mut() {
                    Some(Level::With { is_after_cte }) => *is_after_cte = true,
                    Some(outer @ Level::Begins) => *outer = Level::Past,
                    _ => {}
                }
            }
            _ => {
                let is_from = is_one_of(token, &["FROM"]) && level.expects_query();
                if is_from && !selects(&tokens[index + 1..]) || *level == Level::Begins && is_table_query(tokens, index) {
                    found.push(index);
                }
                *level = level.after(token);
            }
        }
    }
    found
}

/// Whether a token is the TABLE of `TABLE t`, and not that of `DESCRIBE TABLE t`.
fn is_table_query(tokens: &[&TokenWithSpan], index: usize) -> bool {
    let is_described = index > 0 && is_one_of(tokens[index - 1], &["DESCRIBE", "DESC"]);
    let has_name = tokens.get(index + 1).is_some_and(|next| matches!(next.token, Token::Word(_)));
    is_one_of(tokens[index], &["TABLE"]) && has_name && !is_described
}

/// Whether SELECT follows in the same query.
fn selects(tokens: &[&TokenWithSpan]) -> bool {
    let mut depth = 0;
    for token in tokens {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 0 => return false,
            Token::RParen => depth -= 1,
            Token::SemiColon => return false,
            _ if depth > 0 => {}
            _ if is_one_of(token, &["SELECT"]) => return true,
            _ if is_one_of(token, &["UNION", "INTERSECT", "EXCEPT"]) => return false,
            _ => {}
        }
    }
    false
}

fn is_one_of(token: &TokenWithSpan, words: &[&str]) -> bool {
    words.iter().any(|word| is_word(token, word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::{tokens, written};

    fn with_select(sql: &str) -> String {
        let mut tokens = tokens(sql).unwrap();
        add_select(&mut tokens);
        written(&tokens)
    }

    #[test]
    fn a_bare_from_selects_everything() {
        for (sql, expected) in [
            ("FROM t", "SELECT * FROM t"),
            ("from t where a > 1 order by b", "SELECT * from t where a > 1 order by b"),
            ("(FROM t)", "(SELECT * FROM t)"),
            ("SELECT * FROM (FROM t) AS s, (SELECT 1)", "SELECT * FROM (SELECT * FROM t) AS s, (SELECT 1)"),
            (
                "WITH a AS (FROM t), b(x) AS (SELECT 1) FROM a, b",
                "WITH a AS (SELECT * FROM t), b(x) AS (SELECT 1) SELECT * FROM a, b",
            ),
            ("FROM t UNION ALL FROM s", "SELECT * FROM t UNION ALL SELECT * FROM s"),
            ("EXPLAIN ANALYZE FROM t", "EXPLAIN ANALYZE SELECT * FROM t"),
            ("DESCRIBE FROM t", "DESCRIBE SELECT * FROM t"),
            ("insert into s from t", "insert into s SELECT * from t"),
            ("INSERT INTO s (a, b) FROM t WHERE a > 1", "INSERT INTO s (a, b) SELECT * FROM t WHERE a > 1"),
            ("INSERT INTO s BY NAME FROM t", "INSERT INTO s BY NAME SELECT * FROM t"),
            ("INSERT INTO s WITH u AS (FROM t) FROM u", "INSERT INTO s WITH u AS (SELECT * FROM t) SELECT * FROM u"),
            ("CREATE TABLE s AS FROM t", "CREATE TABLE s AS SELECT * FROM t"),
            ("table t", "SELECT * FROM t"),
            ("TABLE lab.t ORDER BY a LIMIT 1", "SELECT * FROM lab.t ORDER BY a LIMIT 1"),
            ("SELECT 1 WHERE 1 IN (TABLE t) UNION TABLE s", "SELECT 1 WHERE 1 IN (SELECT * FROM t) UNION SELECT * FROM s"),
            ("CREATE TABLE s AS TABLE t", "CREATE TABLE s AS SELECT * FROM t"),
            (
                "CREATE OR REPLACE TABLE s WITH (a = 1) AS (FROM t)",
                "CREATE OR REPLACE TABLE s WITH (a = 1) AS (SELECT * FROM t)",
            ),
            ("CREATE TABLE s WITH (a = 1) AS FROM t", "CREATE TABLE s WITH (a = 1) AS SELECT * FROM t"),
            ("SELECT 1 WHERE 1 IN (FROM t) -- FROM\n", "SELECT 1 WHERE 1 IN (SELECT * FROM t) -- FROM\n"),
        ] {
            assert_eq!(with_select(sql), written(&tokens(expected).unwrap()));
        }
    }

    #[test]
    fn every_other_from_stays() {
        for sql in [
            "SELECT a FROM t",
            "FROM t SELECT a",
            "FROM (SELECT 1) AS t SELECT *",
            "SELECT (a) FROM t WHERE extract(year FROM b) = 1 AND trim(FROM c) = ''",
            "WITH a AS (SELECT 1) SELECT (1) FROM a",
            "SELECT \"from\" FROM t UNION SELECT 'x' FROM s",
            "SHOW COLUMNS FROM t",
            "DESCRIBE TABLE t",
            "DROP TABLE t",
            "SELECT count(table) FROM t",
            "DELETE FROM t WHERE a = 1",
            "INSERT INTO s SELECT a FROM t",
            "INSERT INTO s (a) VALUES ((SELECT 1 FROM t))",
            "INSERT INTO s FROM t SELECT a",
            "CREATE TABLE s AS SELECT a FROM t",
            "CREATE TABLE s AS WITH u AS (SELECT 1) SELECT * FROM u",
            "UPDATE s SET a = b FROM t",
        ] {
            assert_eq!(with_select(sql), written(&tokens(sql).unwrap()));
        }
    }
}
