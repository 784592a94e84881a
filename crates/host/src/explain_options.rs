//! Options of EXPLAIN that the parser does not know.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::tokens::{is_gap, is_word};

/// Takes FORMAT SUBSTRAIT out of `EXPLAIN [ANALYZE] FORMAT SUBSTRAIT query` and `EXPLAIN (ANALYZE, FORMAT SUBSTRAIT) query`, which the
/// parser does not know. Whether it was there.
pub(crate) fn take_substrait(tokens: &mut Vec<TokenWithSpan>) -> bool {
    const OPTIONS: [&str; 6] = ["ANALYZE", "VERBOSE", "TRUE", "FALSE", "ON", "OFF"];
    let places: Vec<usize> = (0..tokens.len()).filter(|place| !is_gap(&tokens[*place])).collect();
    let token = |at: usize| places.get(at).map(|place| &tokens[*place]);
    let is = |at: usize, word: &str| token(at).is_some_and(|token| is_word(token, word));
    if !is(0, "EXPLAIN") {
        return false;
    }
    let is_token = |at: usize, wanted: Token| token(at).is_some_and(|token| token.token == wanted);
    let is_in_list = is_token(1, Token::LParen);
    let mut at = 1 + usize::from(is_in_list);
    // Options stand before the query, which begins with another word.
    while token(at).is_some() && !is(at, "FORMAT") {
        let is_comma = is_in_list && is_token(at, Token::Comma);
        if !is_comma && !OPTIONS.iter().any(|option| is(at, option)) {
            return false;
        }
        at += 1;
    }
    let is_named = token(at + 1).is_some_and(|token| match &token.token {
        Token::Word(word) => word.value.eq_ignore_ascii_case("substrait"),
        Token::SingleQuotedString(text) => text.eq_ignore_ascii_case("substrait"),
        _ => false,
    });
    if !is_named {
        return false;
    }
    let taken = match (is_in_list, is_token(at - 1, Token::Comma), is_token(at + 2, Token::Comma)) {
        (false, ..) => at..=at + 1,
        (true, true, _) => at - 1..=at + 1,
        (true, false, true) => at..=at + 2,
        // The only option: the list goes with it.
        (true, false, false) if is_token(at + 2, Token::RParen) => at - 1..=at + 2,
        (true, false, false) => return false,
    };
    let Some((first, last)) = places.get(*taken.start()).zip(places.get(*taken.end())) else { return false };
    tokens.drain(*first..=*last);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::{tokens, written};

    #[test]
    fn the_format_is_taken_out_wherever_it_stands() {
        for (sql, rest) in [
            ("EXPLAIN FORMAT SUBSTRAIT SELECT 1", "EXPLAIN SELECT 1"),
            ("explain analyze format 'substrait' from t", "explain analyze from t"),
            ("EXPLAIN (FORMAT substrait) SELECT 1", "EXPLAIN SELECT 1"),
            ("EXPLAIN (ANALYZE, FORMAT SUBSTRAIT) SELECT 1", "EXPLAIN ( ANALYZE ) SELECT 1"),
            ("EXPLAIN (FORMAT SUBSTRAIT, ANALYZE) SELECT 1", "EXPLAIN ( ANALYZE ) SELECT 1"),
            ("EXPLAIN (VERBOSE, FORMAT SUBSTRAIT, ANALYZE) SELECT 1", "EXPLAIN ( VERBOSE , ANALYZE ) SELECT 1"),
        ] {
            let mut found = tokens(sql).unwrap();
            assert!(take_substrait(&mut found), "{sql}");
            assert_eq!(written(&found), rest, "{sql}");
        }
        for sql in [
            "EXPLAIN SELECT 1",
            "EXPLAIN FORMAT TREE SELECT 1",
            "SELECT format, substrait FROM t",
            "EXPLAIN SELECT format substrait FROM t",
            "EXPLAIN (SELECT 1)",
            "EXPLAIN",
            "EXPLAIN (",
            "EXPLAIN FORMAT",
        ] {
            let mut found = tokens(sql).unwrap();
            assert!(!take_substrait(&mut found), "{sql}");
            assert_eq!(written(&found), written(&tokens(sql).unwrap()));
        }
    }
}
