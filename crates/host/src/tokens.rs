//! Tokens of a statement, and the parts of names.

use datafusion::sql::sqlparser::ast::{ObjectName, ObjectNamePart};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer, Whitespace};
use pithead_functions::fault_from_datafusion;
use pithead_model::{Blame, Fault};

/// The tokens of a text, with the gaps between them: spaces and comments.
pub(crate) fn tokens(sql: &str) -> Result<Vec<TokenWithSpan>, Fault> {
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location();
    let tokens = tokens.map_err(|error| fault_from_datafusion(ParserError::from(error).into()))?;
    Ok(with_bare_intervals(with_trimmed_spaces(with_joined_texts(with_whole_numbers(sql, tokens)))))
}

/// The tokens with texts as one that stand on lines one after the other, as SQL has it.
fn with_joined_texts(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut joined: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    for token in tokens {
        let before = joined.iter().rposition(|before| !is_gap(before));
        if let (Token::SingleQuotedString(text), Some(before)) = (&token.token, before)
            && joined[before + 1..].iter().any(ends_line)
            && let Token::SingleQuotedString(first) = &mut joined[before].token
        {
            first.push_str(text);
            joined.truncate(before + 1);
            continue;
        }
        joined.push(token);
    }
    joined
}

fn ends_line(gap: &TokenWithSpan) -> bool {
    matches!(gap.token, Token::Whitespace(Whitespace::Newline | Whitespace::SingleLineComment { .. }))
}

/// The tokens with the space that `trim(LEADING FROM x)` takes away where it does not say what.
fn with_trimmed_spaces(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let words: Vec<usize> = (0..tokens.len()).filter(|place| !is_gap(&tokens[*place])).collect();
    let is_one = |place: usize, names: &[&str]| names.iter().any(|name| is_word(&tokens[place], name));
    let bare: Vec<usize> = words
        .windows(4)
        .filter(|four| {
            is_one(four[0], &["TRIM"])
                && tokens[four[1]].token == Token::LParen
                && is_one(four[2], &["LEADING", "TRAILING", "BOTH"])
                && is_one(four[3], &["FROM"])
        })
        .map(|four| four[3])
        .collect();
    for place in bare.into_iter().rev() {
        let span = tokens[place].span;
        let gap = token_at(Token::Whitespace(Whitespace::Space), span);
        tokens.splice(place..place, [token_at(Token::SingleQuotedString(" ".to_owned()), span), gap]);
    }
    tokens
}

/// Units of intervals.
const UNITS: [&str; 18] = [
    "YEAR",
    "YEARS",
    "QUARTER",
    "QUARTERS",
    "MONTH",
    "MONTHS",
    "WEEK",
    "WEEKS",
    "DAY",
    "DAYS",
    "HOUR",
    "HOURS",
    "MINUTE",
    "MINUTES",
    "SECOND",
    "SECONDS",
    "MILLISECOND",
    "MILLISECONDS",
];

/// The tokens with `INTERVAL (3) DAY` as `INTERVAL 3 DAY`: the parser takes the 3 for a precision, and forgets it.
fn with_bare_intervals(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let words: Vec<usize> = (0..tokens.len()).filter(|place| !is_gap(&tokens[*place])).collect();
    let is_bare = |five: &&[usize]| {
        is_word(&tokens[five[0]], "INTERVAL")
            && tokens[five[1]].token == Token::LParen
            && matches!(tokens[five[2]].token, Token::Number(..))
            && tokens[five[3]].token == Token::RParen
            && UNITS.iter().any(|unit| is_word(&tokens[five[4]], unit))
    };
    let parentheses: Vec<usize> = words.windows(5).filter(is_bare).flat_map(|five| [five[1], five[3]]).collect();
    for place in parentheses {
        tokens[place].token = Token::Whitespace(Whitespace::Space);
    }
    tokens
}

/// The tokens with `1_000` and `0x1F` as numbers. The tokenizer takes them for `1` under the name `_000`, and for a text of bytes.
fn with_whole_numbers(sql: &str, tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_rest = |word: &str| word.starts_with('_') && word[1..].split('_').all(is_digits);
    let starts = line_starts(sql);
    let mut whole: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut had_rest = false;
    for mut token in tokens {
        let last = whole.last_mut().and_then(|last| match &mut last.token {
            Token::Number(digits, false) => Some((digits, &mut last.span)),
            _ => None,
        });
        let rest = match (&token.token, last) {
            (Token::Word(word), Some(last)) if word.quote_style.is_none() && is_rest(&word.value) => {
                Some((word.value.clone(), last))
            }
            (Token::Number(fraction, false), Some(last)) if had_rest && fraction.starts_with('.') => {
                Some((fraction.clone(), last))
            }
            _ => None,
        };
        had_rest = rest.is_some();
        if let Some((rest, (digits, span))) = rest {
            digits.extend(rest.chars().filter(|digit| *digit != '_'));
            span.end = token.span.end;
            continue;
        }
        if let Token::HexStringLiteral(digits) = &token.token
            && sql[offset(sql, &starts, token.span.start)..].starts_with("0x")
            && let Ok(number) = u64::from_str_radix(digits, 16)
        {
            token.token = Token::Number(number.to_string(), false);
        }
        whole.push(token);
    }
    whole
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a token is a space or a comment.
pub(crate) fn is_gap(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_))
}

/// The bytes that lines begin at.
pub(crate) fn line_starts(sql: &str) -> Vec<usize> {
    std::iter::once(0).chain(sql.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

/// The byte that a line and column (in characters, both from 1) are at.
pub(crate) fn offset(sql: &str, starts: &[usize], at: Location) -> usize {
    let start = starts.get((at.line as usize).saturating_sub(1)).copied().unwrap_or(sql.len());
    let column = (at.column as usize).saturating_sub(1);
    sql[start..].char_indices().nth(column).map_or(sql.len(), |(index, _)| start + index)
}

/// Tokens as text, gaps aside.
#[cfg(test)]
pub(crate) fn written(tokens: &[TokenWithSpan]) -> String {
    tokens.iter().filter(|token| !is_gap(token)).map(|token| token.token.to_string()).collect::<Vec<_>>().join(" ")
}

/// A token that stands for one that was written there.
pub(crate) fn token_at(token: Token, span: Span) -> TokenWithSpan {
    TokenWithSpan { token, span }
}

/// Whether a token is this word, and no name in quotes.
pub(crate) fn is_word(token: &TokenWithSpan, word: &str) -> bool {
    matches!(&token.token, Token::Word(found) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
}

/// The parts of a name, in small letters where they are not quoted.
pub(crate) fn parts(name: &ObjectName) -> Result<Vec<String>, Fault> {
    let part = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(ident) if ident.quote_style.is_some() => Ok(ident.value.clone()),
        ObjectNamePart::Identifier(ident) => Ok(ident.value.to_lowercase()),
        other => Err(Fault::new(Blame::User, format!("expected [domain.]dataset, got {other}"))),
    };
    name.0.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_on_lines_are_one() {
        for (sql, expected) in [
            ("SELECT 'a'\n  'b' -- c\n 'c'", "SELECT 'abc'"),
            ("SELECT 'a' 'b'", "SELECT 'a' 'b'"),
            (
                "SELECT trim(TRAILING FROM a), trim(LEADING 'x' FROM b)",
                "SELECT trim ( TRAILING ' ' FROM a ) , trim ( LEADING 'x' FROM b )",
            ),
        ] {
            assert_eq!(written(&tokens(sql).unwrap()), expected, "{sql}");
        }
    }

    #[test]
    fn intervals_of_numbers_need_no_parentheses() {
        for (sql, expected) in [
            ("SELECT INTERVAL (3) DAY, INTERVAL(2)months", "SELECT INTERVAL 3 DAY , INTERVAL 2 months"),
            ("SELECT INTERVAL(3) '1 day', INTERVAL (n) DAY", "SELECT INTERVAL ( 3 ) '1 day' , INTERVAL ( n ) DAY"),
        ] {
            assert_eq!(written(&tokens(sql).unwrap()), expected, "{sql}");
        }
    }

    #[test]
    fn numbers_are_whole() {
        for (sql, expected) in [
            ("SELECT 1_000_000, 1_000.5 AS a", "SELECT 1000000 , 1000.5 AS a"),
            ("SELECT 1 _000, 1 AS _1, a_1, 1_a", "SELECT 1 _000 , 1 AS _1 , a_1 , 1 _a"),
            ("SELECT\n 0x1F, X'1F'", "SELECT 31 , X'1F'"),
        ] {
            assert_eq!(written(&tokens(sql).unwrap()), expected, "{sql}");
        }
    }
}
