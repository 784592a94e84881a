//! An INSERT of a row of placeholders, as one of many rows at a time.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};
use pithead_model::Fault;

use crate::statement::quoted;
use crate::tokens::{is_gap, is_word, tokens};
use crate::{Session, parameters};

/// Longest text that is taken for an INSERT of one row of placeholders.
const ROW_BYTES_MAX: usize = 256 << 10;

impl Session {
    /// `INSERT INTO t VALUES (…)` of one row with placeholders, as an INSERT of one such row for each row of a table, whose columns stand
    /// in the place of `$1`, `$2` and so on. None: the statement is none of these.
    pub fn insert_from(sql: &str, table: &str, columns: &[String]) -> Result<Option<String>, Fault> {
        // A text of which nobody knows yet whether there is memory for it.
        if sql.len() > ROW_BYTES_MAX {
            return Ok(None);
        }
        let mut tokens = tokens(sql)?;
        parameters::number(&mut tokens)?;
        Ok(rewritten(&tokens, table, columns))
    }
}

fn rewritten(tokens: &[TokenWithSpan], table: &str, columns: &[String]) -> Option<String> {
    let words: Vec<usize> = (0..tokens.len()).filter(|place| !is_gap(&tokens[*place])).collect();
    words.first().filter(|place| is_word(&tokens[**place], "INSERT"))?;
    let values = words.iter().position(|place| is_word(&tokens[*place], "VALUES"))?;
    let open = *words.get(values + 1).filter(|place| tokens[**place].token == Token::LParen)?;
    let close = closing(tokens, open)?;
    let is_end = |place: &&usize| !matches!(tokens[**place].token, Token::SemiColon | Token::EOF);
    if words.iter().filter(|place| **place > close).any(|place| is_end(&place)) {
        return None;
    }
    let mut text: String = tokens[..words[values]].iter().map(|token| spelled(&token.token)).collect();
    text.push_str("SELECT ");
    for token in &tokens[open + 1..close] {
        match &token.token {
            Token::Placeholder(name) => {
                let number: usize = name.get(1..)?.parse().ok()?;
                text.push_str(&quoted(columns.get(number.checked_sub(1)?)?));
            }
            // What a subquery's names mean would change, and a column's default stands in VALUES alone.
            Token::Word(_) if is_word(token, "SELECT") || is_word(token, "DEFAULT") => return None,
            other => text.push_str(&spelled(other)),
        }
    }
    let before_values = tokens[..words[values]].iter().any(|token| matches!(token.token, Token::Placeholder(_)));
    text.push_str(&format!(" FROM {}", quoted(table)));
    (!before_values).then_some(text)
}

/// The parenthesis that closes another one.
fn closing(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (place, token) in tokens.iter().enumerate().skip(open) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(place);
        }
    }
    None
}

/// A token as text that is read as the same token again. Texts and names in quotes do not have their escapes any more.
fn spelled(token: &Token) -> String {
    let text = |text: &str| format!("'{}'", text.replace('\'', "''"));
    match token {
        Token::SingleQuotedString(said) | Token::EscapedStringLiteral(said) | Token::UnicodeStringLiteral(said) => text(said),
        Token::NationalStringLiteral(said) => format!("N{}", text(said)),
        Token::Word(Word { value, quote_style: Some(_), .. }) => quoted(value),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_placeholders_become_a_table() {
        let columns = ["1".to_owned(), "2".to_owned()];
        let insert = |sql: &str| Session::insert_from(sql, "rows", &columns).unwrap();
        assert_eq!(
            insert("INSERT INTO t (a, b) VALUES (?, upper(?) || 'x');").as_deref(),
            Some("INSERT INTO t (a, b) SELECT \"1\", upper(\"2\") || 'x' FROM \"rows\"")
        );
        for (said, expected) in [
            ("'it''s'", "'it''s'"),
            ("'a'' || ''b'", "'a'' || ''b'"),
            ("E'C:\\\\temp\\n''\\''", "'C:\\temp\n'''''"),
            ("U&'d\\0061t''a'", "'dat''a'"),
            ("N'it''s'", "N'it''s'"),
            ("X'1F' || $$it's$$", "X'1F' || $$it's$$"),
            ("r'a\\b'", "R'a\\b'"),
        ] {
            let rewritten = insert(&format!("INSERT INTO \"odd\"\"name\" VALUES (?, {said})"));
            let expected = format!("INSERT INTO \"odd\"\"name\" SELECT \"1\", {expected} FROM \"rows\"");
            assert_eq!(rewritten, Some(expected), "{said}");
        }
        assert_eq!(insert("insert into t values ($2,$1)").as_deref(), Some("insert into t SELECT \"2\",\"1\" FROM \"rows\""));
        for other in [
            "INSERT INTO t VALUES (?, ?), (1, 2)",
            "INSERT INTO t SELECT ?, ?",
            "UPDATE t SET a = ? WHERE b = ?",
            "INSERT INTO t VALUES (?, default)",
            "INSERT INTO t VALUES (?, (SELECT max(b) FROM u WHERE b < ?))",
            "INSERT INTO t VALUES (?, ?, ?)",
            "INSERT INTO t VALUES (?",
            "",
        ] {
            assert_eq!(insert(other), None, "{other}");
        }
        assert!(Session::insert_from("INSERT INTO t VALUES (?, $1)", "rows", &columns).is_err());
    }
}
