//! What a request has to be like before anybody looks at what it asks for, and what browsers are told with every answer.
//!
//! A page of somebody else's in the same browser must not ask this server for anything. It cannot read answers, since no header allows
//! it to, and what it sends is refused by where it comes from. Where nothing says who calls, a name that somebody else's DNS gives
//! this machine (rebinding) is refused as well: then the browser takes that page and this one for the same.

use std::net::IpAddr;

use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use pithead_model::{Blame, Fault};

use crate::refused::Refused;

/// Headers of every answer.
const SAFE: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];
const FETCH_SITE: &str = "sec-fetch-site";

/// Adds what browsers are told with every answer.
pub(crate) fn make_safe(headers: &mut HeaderMap) {
    for (name, value) in SAFE {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

/// Refuses a request that names this server as nobody does who means it. `is_open`: nothing says who calls.
pub(crate) fn check_host(headers: &HeaderMap, is_open: bool) -> Result<(), Refused> {
    let host = text(headers, HOST.as_str()).ok_or_else(|| Refused::malformed("expected one header Host"))?;
    let name = without_port(host);
    if !is_open || is_own(name) {
        return Ok(());
    }
    let fault = Fault::new(Blame::Access, format!("{name:?} is not how a console is called that anybody may use"));
    Err(Refused::forbidden(
        fault.hint("use localhost or the address in numbers; with --access or TLS, any name of the machine does"),
    ))
}

/// Refuses what another site's page sends.
pub(crate) fn check_site(headers: &HeaderMap) -> Result<(), Refused> {
    let is_other_site = headers.get(FETCH_SITE).is_some_and(|site| site != "same-origin" && site != "none");
    let is_other_origin = headers.get(ORIGIN).is_some_and(|_| {
        let origin = text(headers, ORIGIN.as_str()).and_then(|origin| origin.split_once("://"));
        origin.map(|(_, host)| host) != text(headers, HOST.as_str())
    });
    if is_other_site || is_other_origin {
        let fault = Fault::new(Blame::Access, "the request comes from a page of another site");
        return Err(Refused::forbidden(fault));
    }
    Ok(())
}

/// Refuses a body that a form of another site could send.
pub(crate) fn check_json(headers: &HeaderMap) -> Result<(), Refused> {
    let kind = text(headers, CONTENT_TYPE.as_str()).and_then(|kind| kind.split(';').next()).unwrap_or_default();
    match kind.trim().eq_ignore_ascii_case("application/json") {
        true => Ok(()),
        false => Err(Refused::malformed("expected a body of the type application/json")),
    }
}

/// A header that is there once, as text.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.next().is_some() { None } else { first.to_str().ok() }
}

fn without_port(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

/// Whether no DNS has a say in what a name means.
fn is_own(name: &str) -> bool {
    name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn names_of_others_are_refused_where_anybody_may_call() {
        for own in ["127.0.0.1:8080", "localhost:8080", "LOCALHOST", "[::1]:8080", "10.0.0.7"] {
            assert!(check_host(&headers(&[("host", own)]), true).is_ok(), "{own}");
        }
        for other in ["evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "[evil]:1", ""] {
            assert!(check_host(&headers(&[("host", other)]), true).is_err(), "{other}");
            assert!(check_host(&headers(&[("host", other)]), false).is_ok(), "{other}");
        }
        assert!(check_host(&HeaderMap::new(), false).is_err());
        let mut two = headers(&[("host", "localhost")]);
        two.append(HOST, HeaderValue::from_static("evil.example"));
        assert!(check_host(&two, true).is_err());
    }

    #[test]
    fn pages_of_others_are_refused() {
        let own = [("host", "a:1"), ("origin", "http://a:1"), ("sec-fetch-site", "same-origin")];
        assert!(check_site(&headers(&own)).is_ok());
        assert!(check_site(&headers(&own[..1])).is_ok());
        for other in ["http://b:1", "http://a:2", "null", "http://a"] {
            assert!(check_site(&headers(&[("host", "a:1"), ("origin", other)])).is_err(), "{other}");
        }
        for site in ["cross-site", "same-site"] {
            assert!(check_site(&headers(&[("host", "a:1"), ("sec-fetch-site", site)])).is_err(), "{site}");
        }
    }

    #[test]
    fn forms_are_no_json() {
        for (kind, is_json) in [("application/json", true), ("Application/JSON; charset=utf-8", true), ("text/plain", false)] {
            assert_eq!(check_json(&headers(&[("content-type", kind)])).is_ok(), is_json, "{kind}");
        }
        assert!(check_json(&HeaderMap::new()).is_err());
    }
}
