//! The words of a statement, as far as the server has to know them before the host reads it.

/// A token, and where it is in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A word or a number, in small letters.
    Word(String),
    /// A name in quotes.
    Name(String),
    /// A text.
    Text(String),
    /// Any other character.
    Sign(char),
}

impl Token {
    /// Whether it is this word.
    pub(crate) fn is(&self, word: &str) -> bool {
        matches!(&self.kind, TokenKind::Word(found) if found == word)
    }

    pub(crate) fn is_sign(&self, sign: char) -> bool {
        self.kind == TokenKind::Sign(sign)
    }

    /// What it says, without quotes.
    pub(crate) fn text(&self) -> String {
        match &self.kind {
            TokenKind::Word(text) | TokenKind::Name(text) | TokenKind::Text(text) => text.clone(),
            TokenKind::Sign(sign) => sign.to_string(),
        }
    }
}

/// Reads tokens one after the other, so that the first words of a long statement cost no more than they are long.
pub(crate) struct Tokens<'a> {
    sql: &'a str,
    at: usize,
}

/// The tokens of a text. Comments and spaces are left out.
pub(crate) fn tokens(sql: &str) -> Tokens<'_> {
    Tokens { sql, at: 0 }
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        self.skip();
        let (start, rest) = (self.at, &self.sql[self.at..]);
        let first = rest.chars().next()?;
        let kind = match first {
            '\'' => TokenKind::Text(self.quoted('\'', false)),
            '"' => TokenKind::Name(self.quoted('"', false)),
            'e' | 'E' if rest[1..].starts_with('\'') => {
                self.at += 1;
                TokenKind::Text(self.quoted('\'', true))
            }
            first if is_word(first) => {
                let length = rest.find(|character| !is_word(character)).unwrap_or(rest.len());
                self.at += length;
                TokenKind::Word(rest[..length].to_lowercase())
            }
            sign => {
                self.at += sign.len_utf8();
                TokenKind::Sign(sign)
            }
        };
        Some(Token { kind, start, end: self.at })
    }
}

impl Tokens<'_> {
    fn skip(&mut self) {
        loop {
            let rest = &self.sql[self.at..];
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if trimmed.starts_with("--") {
                self.at += trimmed.find('\n').unwrap_or(trimmed.len());
            } else if trimmed.starts_with("/*") {
                self.at += comment(trimmed);
            } else {
                return;
            }
        }
    }

    /// A text in quotes, in which the quote is doubled; `escaped`: a backslash stands before what it would not be without.
    fn quoted(&mut self, quote: char, escaped: bool) -> String {
        let mut text = String::new();
        self.at += 1;
        let mut rest = self.sql[self.at..].char_indices().peekable();
        while let Some((place, character)) = rest.next() {
            match character {
                '\\' if escaped => match rest.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, 'r')) => text.push('\r'),
                    Some((_, other)) => text.push(other),
                    None => {}
                },
                character if character == quote => {
                    if rest.peek().is_none_or(|(_, next)| *next != quote) {
                        self.at += place + 1;
                        return text;
                    }
                    rest.next();
                    text.push(quote);
                }
                other => text.push(other),
            }
        }
        self.at = self.sql.len();
        text
    }
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_' || character == '.' || character == '$'
}

/// Bytes of a comment, in which there may be others.
fn comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    let bytes = text.as_bytes();
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => {
                depth += 1;
                at += 2;
            }
            b"*/" => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_texts_and_names_are_told_apart() {
        let sql = "/* a /* b */ */ COPY \"My T\" -- to\n FROM 'it''s' E'\\t' (x.y)";
        let found: Vec<_> = tokens(sql).map(|token| token.kind).collect();
        let word = |text: &str| TokenKind::Word(text.into());
        assert_eq!(
            found,
            [
                word("copy"),
                TokenKind::Name("My T".into()),
                word("from"),
                TokenKind::Text("it's".into()),
                TokenKind::Text("\t".into()),
                TokenKind::Sign('('),
                word("x.y"),
                TokenKind::Sign(')'),
            ]
        );
        assert_eq!(tokens("'open").count(), 1);
        assert_eq!(tokens("/* open").count(), 0);
        assert_eq!(tokens("é'ü").count(), 2);
    }
}
