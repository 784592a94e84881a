//! `FROM t` alone, which means `SELECT * FROM t`.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use crate::tokens::{is_gap, is_word, token_at};

/// Puts `SELECT *` before each FROM that begins a query without SELECT: by itself, in parentheses, after a CTE, and as a side of
/// UNION, INTERSECT or EXCEPT. The parser knows only the bare `FROM t`, which it gives no columns, and no WHERE after it.
pub(crate) fn add_select(tokens: &mut Vec<TokenWithSpan>) {
    let places: Vec<usize> = (0..tokens.len()).filter(|place| !is_gap(&tokens[*place])).collect();
    let words: Vec<&TokenWithSpan> = places.iter().map(|place| &tokens[*place]).collect();
    let bare: Vec<usize> = bare_queries(&words).into_iter().map(|word| places[word]).collect();
    // From the last to the first, so that places stay right.
    for index in bare.into_iter().rev() {
        let span = tokens[index].span;
        let select = Token::Word(Word { value: "SELECT".to_owned(), quote_style: None, keyword: Keyword::SELECT });
        tokens.splice(index..index, [token_at(select, span), token_at(Token::Mul, span)]);
    }
}

/// The innermost parentheses around a token.
#[derive(Clone, Copy)]
struct Level {
    /// Whether a query may begin here.
    expects_query: bool,
    /// Whether it is a WITH whose query has not begun.
    in_with: bool,
}

/// The tokens FROM that begin a query without SELECT.
fn bare_queries(tokens: &[&TokenWithSpan]) -> Vec<usize> {
    const BEGIN: Level = Level { expects_query: true, in_with: false };
    const PAST: Level = Level { expects_query: false, in_with: false };
    let mut found = Vec::new();
    let mut levels = vec![BEGIN];
    for (index, token) in tokens.iter().enumerate() {
        let Some(level) = levels.last().copied() else { break };
        let next = match &token.token {
            Token::SemiColon => {
                levels = vec![BEGIN];
                continue;
            }
            Token::LParen => {
                let of_function = index > 0 && is_one_of(tokens[index - 1], &["TRIM", "SUBSTRING", "EXTRACT", "OVERLAY"]);
                levels.push(if of_function { PAST } else { BEGIN });
                continue;
            }
            Token::RParen => {
                levels.pop();
                if let Some(outer) = levels.last_mut() {
                    outer.expects_query = outer.in_with;
                }
                continue;
            }
            _ if is_one_of(token, &["UNION", "INTERSECT", "EXCEPT"]) => BEGIN,
            _ if !level.expects_query => level,
            _ if is_one_of(token, &["FROM"]) => {
                if !selects(&tokens[index + 1..]) {
                    found.push(index);
                }
                PAST
            }
            _ if is_one_of(token, &["WITH"]) => Level { expects_query: false, in_with: true },
            _ if is_one_of(token, &["ALL", "DISTINCT", "BY", "NAME", "EXPLAIN", "ANALYZE", "VERBOSE", "PUSHDOWN"]) => level,
            // Another CTE, or the alias of one.
            _ if level.in_with && !is_one_of(token, &["SELECT", "VALUES", "TABLE"]) => Level { expects_query: false, ..level },
            _ => PAST,
        };
        if let Some(level) = levels.last_mut() {
            *level = next;
        }
    }
    found
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
        ] {
            assert_eq!(with_select(sql), written(&tokens(sql).unwrap()));
        }
    }
}
