//! [`SqlReception`]: how a call says whose it is, and how it is told no.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{Extensions, HeaderMap};
use http_body::{Body as HttpBody, Frame, SizeHint};
use pithead_entry::{Identity, not_known};
use pithead_model::Fault;
use pithead_wire::Reception;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::error::to_status;

/// What is said to those whom nobody knows.
const HOW: &str = "hint: give the token of an identity of the access file, as `Authorization: Bearer TOKEN`, or as the password of a \
                   user that is named as the identity";

/// What a user and a token are written in. ADBC's driver leaves out what fills the last group up.
const BASIC: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent));

/// What a call says of its caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// As whom it wants to be known, where it says so.
    pub(crate) user: Option<String>,
    /// The secret.
    pub(crate) token: Option<Vec<u8>>,
}

impl Credentials {
    /// Those of a call's headers: `Bearer TOKEN`, or `Basic` with a user and a token as its password.
    fn read(headers: &HeaderMap) -> Result<Credentials, Fault> {
        let Some(header) = headers.get(AUTHORIZATION) else { return Ok(Credentials::default()) };
        let wrong = || not_known("expected `Bearer` and a token, or `Basic` with a user and a token");
        let (scheme, rest) = header.to_str().ok().and_then(|text| text.split_once(' ')).ok_or_else(wrong)?;
        match scheme.to_ascii_lowercase().as_str() {
            "bearer" => Ok(Credentials { user: None, token: Some(rest.trim().as_bytes().to_vec()) }),
            "basic" => {
                let decoded =
                    BASIC.decode(rest.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(wrong)?;
                let (user, token) = decoded.split_once(':').ok_or_else(wrong)?;
                let user = Some(user.to_owned()).filter(|user| !user.is_empty());
                Ok(Credentials { user, token: Some(token.as_bytes().to_vec()) })
            }
            _ => Err(wrong()),
        }
    }
}

/// The reception of this server.
#[derive(Clone, Copy)]
pub(crate) struct SqlReception;

impl Reception for SqlReception {
    type Credentials = Credentials;

    fn credentials(&self, headers: &HeaderMap) -> Result<Credentials, Fault> {
        Credentials::read(headers)
    }

    fn token<'a>(&self, credentials: &'a Credentials) -> Option<&'a [u8]> {
        credentials.token.as_deref()
    }

    fn introduce(&self, caller: Arc<Identity>, credentials: Credentials, extensions: &mut Extensions) -> Result<(), Fault> {
        let is_other = |name: &str| credentials.user.as_ref().is_some_and(|user| user != name);
        if caller.number().is_some() && is_other(&caller.name) {
            return Err(not_known("the user is not the one that the credentials belong to"));
        }
        extensions.insert(caller);
        extensions.insert(credentials);
        Ok(())
    }

    fn status(&self, fault: &Fault) -> Status {
        to_status(fault)
    }

    fn not_known(&self, fault: &Fault) -> Status {
        let what = fault.message.replace("this drive", "this server").replace("the drive", "the server");
        Status::unauthenticated(format!("{what}\n{HOW}"))
    }

    fn body(&self, body: Body) -> Body {
        Body::new(Whole(body))
    }
}

/// A body that was broken off fails. Tonic takes a caller that cancels for one that has sent all, and a put of Flight SQL has no
/// message that says so: rows that are being loaded would become visible in part.
struct Whole(Body);

impl HttpBody for Whole {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.0).poll_frame(context).map_err(|status| match status.code() {
            Code::Cancelled => Status::aborted("the client broke it off"),
            _ => status,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(header: &[u8]) -> Result<Credentials, Fault> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, http::HeaderValue::from_bytes(header).unwrap());
        Credentials::read(&headers)
    }

    #[test]
    fn both_kinds_of_credentials_are_read() {
        let told = |user: Option<&str>, token: &str| Credentials { user: user.map(str::to_owned), token: Some(token.into()) };
        assert_eq!(read(b"Bearer abc").unwrap(), told(None, "abc"));
        assert_eq!(read(b"bearer abc").unwrap(), told(None, "abc"));
        assert_eq!(read(b"Basic bWU6YTpi").unwrap(), told(Some("me"), "a:b"));
        assert_eq!(read(b"Basic OmFi").unwrap(), told(None, "ab"));
        for padded in [&b"Basic bWU6eA=="[..], b"Basic bWU6eA"] {
            assert_eq!(read(padded).unwrap(), told(Some("me"), "x"));
        }
        for wrong in [&b"Bearer"[..], b"Digest a", b"Basic ?", b"Basic bWU=", b"Basic /w==", b"\xff\xff x"] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(Credentials::read(&HeaderMap::new()).unwrap(), Credentials::default());
    }
}
