//! [`Token`]: a secret that says who calls.

use std::fmt;
use std::path::Path;

use pithead_model::{Blame, Fault};
use sha2::{Digest, Sha256};

use crate::watched::read_bounded;

/// What a token starts with, so that one that leaks can be recognised.
const TOKEN_PREFIX: &str = "pithead_";
/// What a token's hash starts with.
pub(crate) const HASH_PREFIX: &str = "sha256:";
/// Bytes of a token's text: fewer would be guessed, more are no token.
const TOKEN_BYTES: std::ops::RangeInclusive<usize> = 32..=512;

/// A secret that says who calls. It is sent with every call, and is shown to nobody else.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A new one, of 256 random bits.
    pub fn random() -> Token {
        Token(format!("{TOKEN_PREFIX}{}", hexadecimal(&rand::random::<[u8; 32]>())))
    }

    /// Reads a token as a person gives it; space around it does not count.
    pub fn parse(text: &str) -> Result<Token, Fault> {
        let text = text.trim();
        if TOKEN_BYTES.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(Token(text.to_owned()));
        }
        let (least, most) = (TOKEN_BYTES.start(), TOKEN_BYTES.end());
        let message = format!("not a token: expected {least} to {most} visible ASCII characters, got {} bytes", text.len());
        Err(Fault::new(Blame::User, message).hint("`pithead token NAME` makes one"))
    }

    /// Reads the token that is alone in a file.
    pub fn from_file(path: &Path) -> Result<Token, Fault> {
        let bytes = read_bounded(path)?;
        Token::parse(&String::from_utf8_lossy(&bytes)).map_err(|fault| fault.at(path.display()))
    }

    /// The secret itself.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// What an access file holds: from this nobody can find the token.
    pub fn hash(&self) -> String {
        format!("{HASH_PREFIX}{}", hexadecimal(&Sha256::digest(self.0.as_bytes())))
    }

    /// Reads [`Token::hash`].
    pub(crate) fn parse_hash(text: &str) -> Option<[u8; 32]> {
        let digits = text.strip_prefix(HASH_PREFIX)?.as_bytes();
        let (pairs, []) = digits.as_chunks::<2>() else { return None };
        let value = |digit: u8| char::from(digit).to_digit(16);
        let bytes: Option<Vec<u8>> =
            pairs.iter().map(|[high, low]| u8::try_from(value(*high)? * 16 + value(*low)?).ok()).collect();
        bytes?.try_into().ok()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_long_differ_and_are_not_shown() {
        let (one, other) = (Token::random(), Token::random());
        assert!(one != other && one.text().len() == 72);
        assert_eq!(Token::parse(&format!(" {}\n", one.text())).unwrap(), one);
        assert!(!format!("{one:?}").contains(&one.text()[8..]));
    }

    #[test]
    fn a_hash_is_that_of_sha256sum() {
        let token = Token::parse("0123456789abcdef0123456789abcdef").unwrap();
        // printf 0123456789abcdef0123456789abcdef | sha256sum
        assert_eq!(token.hash(), "sha256:3eb1bd439947eb762998e566ccc2e099c791118b2f40579cc4f7da2b5061b7f9");
        assert_eq!(Token::parse_hash(&token.hash()).unwrap(), <[u8; 32]>::from(Sha256::digest(token.text())));
        for text in
            ["", "sha256:", "sha256:zz", "sha256:é1", &"0".repeat(64), &token.hash()[..70], &format!("{}0", token.hash())]
        {
            assert_eq!(Token::parse_hash(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_token_is_refused_without_repeating_it() {
        for text in ["short", "with a space in it that is not at its end", &"x".repeat(513), "ünïcödeünïcödeünïcödeünïcöde"]
        {
            let fault = Token::parse(text).unwrap_err();
            assert!(fault.blame == Blame::User && !fault.to_string().contains(text), "{fault}");
        }
    }
}
