//! Signatures of requests, as "Authenticating Requests (AWS Signature Version 4)" of the API reference of Amazon S3 defines them.

use std::fmt;
use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

/// SHA-256 of no bytes: requests that read have no body.
const EMPTY_HASH: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// What requests are signed with.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) key_id: String,
    pub(crate) secret: String,
    /// Of credentials that hold for some time only.
    pub(crate) token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("credentials")
    }
}

/// A GET, as far as it is signed.
pub(crate) struct Signed<'a> {
    /// The host, with its port where that is not the usual one.
    pub(crate) host: &'a str,
    /// The path, encoded as it is sent.
    pub(crate) path: &'a str,
    /// Names and values, not encoded.
    pub(crate) query: &'a [(&'a str, &'a str)],
    pub(crate) region: &'a str,
}

/// The headers that make a GET one that is signed.
pub(crate) fn headers(signed: &Signed<'_>, credentials: &Credentials, now: DateTime<Utc>) -> Vec<(&'static str, String)> {
    let time = now.format("%Y%m%dT%H%M%SZ").to_string();
    let day = now.format("%Y%m%d").to_string();
    let mut headers =
        vec![("host", signed.host.to_owned()), ("x-amz-content-sha256", EMPTY_HASH.to_owned()), ("x-amz-date", time.clone())];
    headers.extend(credentials.token.iter().map(|token| ("x-amz-security-token", token.clone())));
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let listed = headers.iter().fold(String::new(), |mut listed, (name, value)| {
        let _ = writeln!(listed, "{name}:{}", value.trim());
        listed
    });
    let request = format!("GET\n{}\n{}\n{listed}\n{names}\n{EMPTY_HASH}", signed.path, query(signed.query));
    let scope = format!("{day}/{}/s3/aws4_request", signed.region);
    let text = format!("{ALGORITHM}\n{time}\n{scope}\n{}", hex(&Sha256::digest(request.as_bytes())));
    let mut key = keyed(format!("AWS4{}", credentials.secret).as_bytes(), &day);
    for part in [signed.region, "s3", "aws4_request"] {
        key = keyed(&key, part);
    }
    let signature = hex(&keyed(&key, &text));
    let authorization =
        format!("{ALGORITHM} Credential={}/{scope},SignedHeaders={names},Signature={signature}", credentials.key_id);
    headers.push(("authorization", authorization));
    headers
}

/// Names and values of a query as they are sent, in the order that a signature asks for.
pub(crate) fn query(pairs: &[(&str, &str)]) -> String {
    let mut encoded: Vec<String> = pairs.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    encoded.sort();
    encoded.join("&")
}

/// Part of a query, with all but letters, digits and `-._~` as `%XX`.
fn encode(text: &str) -> String {
    encode_but(text, b"-._~")
}

/// A path, whose parts are encoded in the same way.
pub(crate) fn encode_path(text: &str) -> String {
    encode_but(text, b"-._~/")
}

fn encode_but(text: &str, plain: &[u8]) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        match byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            true => encoded.push(char::from(byte)),
            false => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
        encoded
    })
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    // HMAC takes keys of every length: `new_from_slice` fails for other constructions only.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { unreachable!("HMAC takes keys of every length") };
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use chrono::TimeZone as _;

    use super::*;

    /// The credentials, the time and the bucket of the examples in the API reference of Amazon S3.
    fn example(path: &str, query: &[(&str, &str)]) -> String {
        let credentials = Credentials {
            key_id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            token: None,
        };
        let now = Utc.with_ymd_and_hms(2013, 5, 24, 0, 0, 0).unwrap();
        let signed = Signed { host: "examplebucket.s3.amazonaws.com", path, query, region: "us-east-1" };
        let headers = headers(&signed, &credentials, now);
        let (_, authorization) = headers.into_iter().find(|(name, _)| *name == "authorization").unwrap();
        authorization
    }

    #[test]
    fn the_examples_of_the_api_reference_are_signed_as_it_says() {
        let signed = example("/", &[("max-keys", "2"), ("prefix", "J")]);
        assert!(signed.ends_with("Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"), "{signed}");
        let signed = example("/", &[("lifecycle", "")]);
        assert!(signed.ends_with("Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"), "{signed}");
        assert!(signed.contains("Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request"), "{signed}");
    }

    #[test]
    fn what_a_url_cannot_have_is_encoded() {
        assert_eq!(encode_path("y=2026/São +1.csv"), "y%3D2026/S%C3%A3o%20%2B1.csv");
        assert_eq!(query(&[("prefix", "a/b"), ("list-type", "2")]), "list-type=2&prefix=a%2Fb");
    }
}
