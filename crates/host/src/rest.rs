//! [`Rest`]: statements that the parser does not know, or reads otherwise, word by word.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use pithead_model::{Fault, FaultKind};

use crate::statement::word;
use crate::tokens::{is_gap, is_word};

/// The places of the tokens that say something.
pub(crate) fn places(tokens: &[TokenWithSpan]) -> Vec<usize> {
    let is_part = |place: &usize| !is_gap(&tokens[*place]) && !matches!(tokens[*place].token, Token::SemiColon | Token::EOF);
    (0..tokens.len()).filter(is_part).collect()
}

/// The tokens that are not read yet.
pub(crate) struct Rest<'a> {
    pub(crate) tokens: &'a [TokenWithSpan],
    pub(crate) places: &'a [usize],
    /// The next one, of the places.
    pub(crate) at: usize,
}

impl<'a> Rest<'a> {
    /// All of them.
    pub(crate) fn new(tokens: &'a [TokenWithSpan], places: &'a [usize]) -> Self {
        Self { tokens, places, at: 0 }
    }

    pub(crate) fn token(&self, ahead: usize) -> Option<&TokenWithSpan> {
        self.places.get(self.at + ahead).map(|place| &self.tokens[*place])
    }

    pub(crate) fn is_over(&self) -> bool {
        self.at >= self.places.len()
    }

    /// Takes these words if they come next.
    pub(crate) fn take(&mut self, words: &[&str]) -> bool {
        let are_next = (0..).zip(words).all(|(ahead, wanted)| self.token(ahead).is_some_and(|token| is_word(token, wanted)));
        self.at += if are_next { words.len() } else { 0 };
        are_next
    }

    pub(crate) fn name(&mut self, what: &str) -> Result<String, Fault> {
        let name = self.token(0).and_then(word).ok_or_else(|| expected(what, "names are as in SQL"))?;
        self.at += 1;
        Ok(name)
    }

    /// The parts of a name, with points between them.
    pub(crate) fn names(&mut self) -> Result<Vec<String>, Fault> {
        let mut name = vec![self.name("a name")?];
        while self.token(0).is_some_and(|token| token.token == Token::Period) {
            self.at += 1;
            name.push(self.name("a name")?);
        }
        Ok(name)
    }
}

pub(crate) fn expected(what: &str, form: &str) -> Fault {
    Fault::invalid(format!("expected {what}")).of_kind(FaultKind::Syntax).hint(form)
}
