//! [`Answer`]: what a server gave, or why it gave nothing.

use std::io::Read;
use std::ops::Range;
use std::time::Duration;

use http::{HeaderMap, Response, StatusCode};
use pithead_model::{Blame, Fault};
use ureq::{Body, BodyReader};

use super::s3::S3Settings;
use super::trouble::{Trouble, odd};
use super::xml::element;

/// Bytes of an answer that says what is wrong.
const REASON_BYTES_MAX: u64 = 16 << 10;

/// A file, or some bytes of it.
pub(crate) struct Answer {
    /// Where the bytes lie that the server gives; none: it gives all.
    pub(crate) range: Option<Range<u64>>,
    /// Bytes of the whole file, as far as the server says.
    pub(crate) total: Option<u64>,
    /// What tells the file from another one that takes its place.
    pub(crate) version: Option<String>,
    pub(crate) body: BodyReader<'static>,
}

impl Answer {
    /// Takes a response for what it is. `s3`: the settings, if it is one of a server of buckets.
    pub(crate) fn of(response: Response<Body>, name: &str, s3: Option<&S3Settings>) -> Result<Answer, Trouble> {
        let status = response.status();
        let headers = response.headers();
        let version = text(headers, "etag").or_else(|| text(headers, "last-modified")).map(str::to_owned);
        let length = text(headers, "content-length").and_then(|length| length.parse().ok());
        let given = text(headers, "content-range").and_then(content_range);
        let (range, total) = match (status, given) {
            (StatusCode::OK, _) => (None, length),
            (StatusCode::PARTIAL_CONTENT, Some((Some(range), Some(total)))) if range.end <= total => (Some(range), Some(total)),
            (StatusCode::PARTIAL_CONTENT, _) => {
                return Err(Trouble::Lasting(odd(name, "the server gives some bytes, and does not say which")));
            }
            // What is empty has no first byte.
            (StatusCode::RANGE_NOT_SATISFIABLE, Some((None, Some(0)))) => (Some(0..0), Some(0)),
            _ => return Err(refused(response, name, s3)),
        };
        Ok(Answer { range, total, version, body: response.into_body().into_reader() })
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Takes `bytes 0-9/100` or `bytes */100` apart; the total may be `*`, too.
fn content_range(text: &str) -> Option<(Option<Range<u64>>, Option<u64>)> {
    let (range, total) = text.trim().strip_prefix("bytes")?.trim().split_once('/')?;
    let range = match range.split_once('-') {
        Some((first, last)) => {
            let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            Some(first..last.checked_add(1).filter(|end| *end > first)?)
        }
        None => None,
    };
    Some((range, total.trim().parse().ok()))
}

/// Why a server gives nothing, and what can be done.
pub(crate) fn refused(response: Response<Body>, name: &str, s3: Option<&S3Settings>) -> Trouble {
    let status = response.status();
    let headers = response.headers();
    let wait = text(headers, "retry-after").and_then(|wait| wait.parse().ok()).map(Duration::from_secs);
    let region = text(headers, "x-amz-bucket-region").filter(|region| is_word(region)).map(str::to_owned);
    let code = s3.and_then(|_| reason(response));
    let what = match &code {
        Some(code) => format!("the server answers {status} ({code})"),
        None => format!("the server answers {status}"),
    };
    let is_passing = matches!(status.as_u16(), 408 | 425 | 429 | 500 | 502 | 503 | 504);
    if is_passing {
        return Trouble::Passing(what, wait);
    }
    if let Some((blame, hint)) = code.as_deref().and_then(named) {
        return Trouble::Lasting(Fault::new(blame, format!("{name}: {what}")).hint(hint));
    }
    let (blame, hint) = match (status.as_u16(), s3) {
        (300..=400, Some(_)) if region.is_some() => {
            (Blame::User, format!("its bucket is elsewhere: set AWS_REGION={}", region.unwrap_or_default()))
        }
        (401 | 403, Some(settings)) => (Blame::Access, settings.access_hint().to_owned()),
        (401 | 403, None) => (Blame::Access, "a URL that is signed may be too old; a password goes before the host".to_owned()),
        (404 | 410, Some(_)) => {
            (Blame::User, "look at the names of the bucket and the key, and at AWS_ENDPOINT_URL".to_owned())
        }
        (404 | 410, None) => (Blame::User, "look at the URL: there is no such file".to_owned()),
        (300..400, _) => (Blame::User, "name the file where it is".to_owned()),
        _ => return Trouble::Lasting(odd(name, what)),
    };
    Trouble::Lasting(Fault::new(blame, format!("{name}: {what}")).hint(hint))
}

/// What can be done about some of the codes that servers of buckets give.
fn named(code: &str) -> Option<(Blame, &'static str)> {
    match code {
        "ExpiredToken" | "TokenRefreshRequired" => Some((
            Blame::Access,
            "the credentials are too old: set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN anew",
        )),
        "RequestTimeTooSkewed" => {
            Some((Blame::Access, "the clock of this machine is wrong, by a quarter of an hour or more: set it"))
        }
        "InvalidObjectState" => Some((Blame::User, "the object is archived: have it restored at the server first")),
        _ => None,
    }
}

/// The code that a server of buckets gives: one word, and never what it says beside it, which may have parts of a request.
fn reason(response: Response<Body>) -> Option<String> {
    let mut text = Vec::new();
    response.into_body().into_reader().take(REASON_BYTES_MAX).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    element(&text, "Code").filter(|code| is_word(code)).map(str::to_owned)
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.len() <= 64 && text.chars().all(|other| other.is_ascii_alphanumeric() || other == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_or_are_none() {
        assert_eq!(content_range("bytes 0-9/100"), Some((Some(0..10), Some(100))));
        assert_eq!(content_range("bytes */0"), Some((None, Some(0))));
        assert_eq!(content_range("bytes 5-5/*"), Some((Some(5..6), None)));
        for wrong in ["", "bytes", "bytes 9-3/100", "bytes 0-18446744073709551615/1", "items 0-1/2", "bytes a-b/c"] {
            assert_eq!(content_range(wrong), None, "{wrong}");
        }
    }
}
