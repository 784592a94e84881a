//! Tokens of a statement, and the parts of names.

use datafusion::sql::sqlparser::ast::{ObjectName, ObjectNamePart};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer, TokenizerError, Whitespace};
use pithead_functions::fault_from_datafusion;
use pithead_model::{Blame, Fault, FaultKind};

use crate::large_texts::{counted, too_long};

/// Bytes of a text that are read first: a longer one may have too many tokens for its memory.
const PART_BYTES: usize = 1 << 20;

/// The tokens of a text, with the gaps between them: spaces and comments.
pub(crate) fn tokens(sql: &str) -> Result<Vec<TokenWithSpan>, Fault> {
    let tokens = read(sql)?.map_err(unread)?;
    Ok(with_bare_intervals(with_trimmed_spaces(with_joined_texts(with_whole_numbers(sql, tokens)))))
}

/// The tokens of a text as they are written, or why it cannot be read. A fault, before there are many more, where it has more tokens than
/// a statement may have.
pub(crate) fn read(sql: &str) -> Result<Result<Vec<TokenWithSpan>, TokenizerError>, Fault> {
    let mut bytes = PART_BYTES;
    loop {
        let part = &sql[..sql.floor_char_boundary(bytes)];
        let (tokens, outcome) = read_part(part);
        check_length(&tokens)?;
        if part.len() == sql.len() {
            return Ok(outcome.map(|()| tokens));
        }
        bytes *= 2;
    }
}

/// The tokens of a part of a text, up to where it cannot be read.
fn read_part(part: &str) -> (Vec<TokenWithSpan>, Result<(), TokenizerError>) {
    let mut tokens = Vec::new();
    let outcome = Tokenizer::new(&GenericDialect {}, part).tokenize_with_location_into_buf(&mut tokens);
    (tokens, outcome)
}

/// The fault of a statement that cannot be read.
pub(crate) fn unread(error: TokenizerError) -> Fault {
    fault_from_datafusion(ParserError::from(error).into())
}

/// A script's statements, without their semicolons; empty ones are left out. However long it is, no more of it is read at a time than a
/// statement may have.
pub(crate) fn split(sql: &str) -> Result<Vec<String>, Fault> {
    let (mut statements, mut rest, mut bytes) = (Vec::new(), sql, PART_BYTES);
    loop {
        let part = &rest[..rest.floor_char_boundary(bytes)];
        let is_whole = part.len() == rest.len();
        let (tokens, outcome) = read_part(part);
        let (mut from, mut after, mut holds_something) = (0, 0, false);
        let mut places = Places::new(part);
        for (place, token) in tokens.iter().enumerate() {
            match &token.token {
                Token::SemiColon => {
                    let at = places.byte(token.span.start);
                    if holds_something {
                        statements.push(part[from..at].trim().to_owned());
                    }
                    (from, after, holds_something) = (places.byte(token.span.end), place + 1, false);
                }
                Token::Whitespace(_) | Token::EOF => {}
                _ => holds_something = true,
            }
        }
        check_length(&tokens[after..])?;
        if is_whole {
            outcome.map_err(|error| Fault::invalid(format!("SQL cannot be read: {error}")).of_kind(FaultKind::Syntax))?;
            statements.extend(holds_something.then(|| part[from..].trim().to_owned()));
            return Ok(statements);
        }
        // What follows the last semicolon may go on, and what begins there may be longer than what was read.
        rest = &rest[from..];
        bytes = if from == 0 { bytes * 2 } else { PART_BYTES };
    }
}

/// A fault where there are more tokens than a statement may have.
fn check_length(tokens: &[TokenWithSpan]) -> Result<(), Fault> {
    let (tokens, gaps) = counted(tokens);
    too_long(tokens, gaps)
}

/// The tokens with texts as one that stand on lines one after the other, as SQL has it.
fn with_joined_texts(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut joined: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    for token in tokens {
        if let Token::SingleQuotedString(text) = &token.token
            && let Some(before) = joined.iter().rposition(|before| !is_gap(before))
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
    let space = Token::SingleQuotedString(" ".to_owned());
    insert(&mut tokens, &bare, [space, Token::Whitespace(Whitespace::Space)]);
    tokens
}

/// Puts two tokens before each of those at places, which are in order. However many there are, the others move once.
pub(crate) fn insert(tokens: &mut Vec<TokenWithSpan>, places: &[usize], inserted: [Token; 2]) {
    if places.is_empty() {
        return;
    }
    let mut all = Vec::with_capacity(tokens.len() + 2 * places.len());
    let mut places = places.iter().copied().peekable();
    for (place, token) in tokens.drain(..).enumerate() {
        if places.next_if_eq(&place).is_some() {
            all.extend(inserted.clone().map(|new| token_at(new, token.span)));
        }
        all.push(token);
    }
    *tokens = all;
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
    let mut places = Places::new(sql);
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
            && sql[places.byte(token.span.start)..].starts_with("0x")
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

/// The bytes that places in a text are at. Those that come one after the other are found without beginning at their line's start.
pub(crate) struct Places<'a> {
    sql: &'a str,
    /// The bytes that lines begin at.
    starts: Vec<usize>,
    /// The place that was found last, and its byte.
    last: (Location, usize),
}

impl<'a> Places<'a> {
    pub(crate) fn new(sql: &'a str) -> Places<'a> {
        let starts = std::iter::once(0).chain(sql.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Places { sql, starts, last: (Location::new(1, 1), 0) }
    }

    /// The byte that a line and column (in characters, both from 1) are at.
    pub(crate) fn byte(&mut self, at: Location) -> usize {
        let start = self.starts.get((at.line as usize).saturating_sub(1)).copied().unwrap_or(self.sql.len());
        let (known, found) = self.last;
        let goes_on = known.line == at.line && known.column <= at.column;
        let (from, column) = if goes_on { (found, known.column) } else { (start, 1) };
        let characters = at.column.saturating_sub(column) as usize;
        let byte = self.sql[from..].char_indices().nth(characters).map_or(self.sql.len(), |(index, _)| from + index);
        self.last = (at, byte);
        byte
    }
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
    use pithead_model::TOKENS_MAX;

    use super::*;

    #[test]
    fn scripts_split_outside_quotes_and_comments() {
        let script = "select ';' as a; -- one; more\nselect 'é;';;\n select 3 /* ; */";
        assert_eq!(split(script).unwrap(), ["select ';' as a", "-- one; more\nselect 'é;'", "select 3 /* ; */"]);
        assert!(split("select 'open").is_err());
    }

    /// Scripts are longer than what is read of them at a time, and statements than that.
    #[test]
    fn long_scripts_split_as_short_ones_do() {
        let long = format!("SELECT 'é;{}', 1", "x;".repeat(PART_BYTES));
        let statements = [long.as_str(), "SELECT 2", long.as_str(), "SELECT '3'"];
        assert_eq!(split(&statements.join(";\n")).unwrap(), statements);
        let many = vec!["SELECT 0x1F;"; PART_BYTES / 4].concat();
        assert_eq!(split(&many).unwrap().len(), PART_BYTES / 4);
        assert!(split(&format!("{many} SELECT 'open")).is_err());
    }

    /// A regression: a text of 16 MiB took gigabytes before it was refused.
    #[test]
    fn what_has_too_many_tokens_is_not_read() {
        let list = |count: usize| format!("SELECT a IN ({}1)", "1,".repeat(count));
        assert!(split(&list(TOKENS_MAX / 2 - 10)).is_ok() && tokens(&list(TOKENS_MAX / 2 - 10)).is_ok());
        for long in [list(TOKENS_MAX / 2), format!("SELECT {}1", " ".repeat(2 * TOKENS_MAX + 10))] {
            for fault in [split(&long).unwrap_err(), tokens(&long).unwrap_err()] {
                assert!(fault.blame == Blame::Limit && fault.hint.is_some(), "{fault}");
            }
        }
    }

    #[test]
    fn places_are_found_in_any_order() {
        let mut places = Places::new("é a\n 0x1 b");
        let mut byte = |line, column| places.byte(Location::new(line, column));
        assert_eq!([byte(1, 3), byte(2, 2), byte(2, 6), byte(2, 2), byte(1, 1), byte(3, 1)], [3, 6, 10, 6, 0, 11]);
    }

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
