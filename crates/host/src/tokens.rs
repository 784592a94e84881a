//! Tokens of a statement, and the parts of names.

use datafusion::sql::sqlparser::ast::{ObjectName, ObjectNamePart};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer};
use pithead_functions::fault_from_datafusion;
use pithead_model::{Blame, Fault};

/// The tokens of a text, with the gaps between them: spaces and comments.
pub(crate) fn tokens(sql: &str) -> Result<Vec<TokenWithSpan>, Fault> {
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location();
    tokens.map_err(|error| fault_from_datafusion(ParserError::from(error).into()))
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
