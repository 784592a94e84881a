//! [`bearer`]: the token that a call over HTTP brings.

use pithead_model::Fault;

use crate::not_known;

/// The token of the header `Authorization: Bearer TOKEN`, of whose value these are the bytes; none where there is no such header.
/// Refuses a header of any other form.
pub fn bearer(authorization: Option<&[u8]>) -> Result<Option<&[u8]>, Fault> {
    let Some(value) = authorization else { return Ok(None) };
    let space = value.iter().position(|byte| *byte == b' ').unwrap_or(value.len());
    let (scheme, token) = value.split_at(space);
    let token = token.trim_ascii();
    match scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty() {
        true => Ok(Some(token)),
        false => Err(not_known("expected `Bearer` and a token")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_and_nothing_else() {
        assert_eq!(bearer(None), Ok(None));
        for good in [&b"Bearer abc"[..], b"bearer  abc ", b"BEARER abc"] {
            assert_eq!(bearer(Some(good)), Ok(Some(&b"abc"[..])));
        }
        assert_eq!(bearer(Some(b"Bearer \xff a")), Ok(Some(&b"\xff a"[..])));
        for wrong in [&b""[..], b"Bearer", b"Bearer ", b"Basic abc", b"abc", b" abc", b"Bearerabc"] {
            assert!(bearer(Some(wrong)).unwrap_err().message.contains("Bearer"), "{wrong:?}");
        }
    }
}
