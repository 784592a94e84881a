//! [`Address`]: what a text says that a file is, if it is one that lies at a server.

use std::fmt;

use http::Uri;
use pithead_model::{Blame, Fault};

/// A file, or several, at a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    /// `http://…` or `https://…`.
    Web(WebAddress),
    /// `s3://bucket/key`; the key may be a pattern.
    S3(S3Address),
}

/// A URL as it was given, which may have a secret in it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct WebAddress {
    pub(crate) url: String,
    /// The same without what may be secret: a user with a password, and what follows `?`.
    pub(crate) name: String,
    pub(crate) is_tls: bool,
}

/// A bucket and a key, or the pattern of keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct S3Address {
    pub(crate) bucket: String,
    pub(crate) key: String,
}

impl Address {
    /// Takes a text apart; none: it is the path of a file of this machine.
    pub(crate) fn parse(text: &str) -> Result<Option<Address>, Fault> {
        Address::parse_with(text, S3Address::parse)
    }

    /// The same of a place that may be a bucket or a folder of one, whose key then ends without `/`.
    pub(crate) fn parse_place(text: &str) -> Result<Option<Address>, Fault> {
        Address::parse_with(text, S3Address::parse_folder)
    }

    fn parse_with(text: &str, s3: impl FnOnce(&str) -> Result<S3Address, Fault>) -> Result<Option<Address>, Fault> {
        let Some((scheme, rest)) = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else { return Ok(None) };
        match scheme.to_ascii_lowercase().as_str() {
            scheme @ ("http" | "https") => WebAddress::parse(text, scheme == "https").map(|web| Some(Address::Web(web))),
            "s3" | "s3a" => s3(rest).map(|s3| Some(Address::S3(s3))),
            other => Err(Fault::new(Blame::Unsupported, format!("files at {other}:// cannot be read"))
                .hint("expected a file of this machine, http://, https:// or s3://")),
        }
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|other| other.is_ascii_alphanumeric() || "+-.".contains(other))
}

impl WebAddress {
    fn parse(text: &str, is_tls: bool) -> Result<WebAddress, Fault> {
        let uri = text.parse::<Uri>().ok().filter(|uri| uri.host().is_some_and(|host| !host.is_empty()));
        let Some(uri) = uri else {
            // The text itself may have a password in it.
            let fault = Fault::invalid("a URL of a file cannot be read: expected https://HOST/PATH");
            return Err(fault.hint("write a blank in it as %20"));
        };
        let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
        let scheme = if is_tls { "https" } else { "http" };
        let name = format!("{scheme}://{}{port}{}", uri.host().unwrap_or_default(), uri.path());
        Ok(WebAddress { url: text.to_owned(), name, is_tls })
    }
}

impl fmt::Debug for WebAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl S3Address {
    fn parse(rest: &str) -> Result<S3Address, Fault> {
        let address = S3Address::parse_any(rest)?;
        let S3Address { bucket, key } = &address;
        if key.is_empty() || key.ends_with('/') {
            let fault = Fault::invalid(format!("s3://{rest} is a bucket or a folder"));
            return Err(fault.hint(format!("name its files, as in 's3://{bucket}/{key}*.parquet'")));
        }
        Ok(address)
    }

    fn parse_folder(rest: &str) -> Result<S3Address, Fault> {
        let mut address = S3Address::parse_any(rest)?;
        if address.is_pattern() {
            let fault = Fault::invalid(format!("{address} is a pattern, and cannot be attached"));
            return Err(fault.hint("name a bucket, a folder of it, or one object"));
        }
        address.key.truncate(address.key.trim_end_matches('/').len());
        Ok(address)
    }

    fn parse_any(rest: &str) -> Result<S3Address, Fault> {
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        let is_bucket =
            !bucket.is_empty() && bucket.chars().all(|other| other.is_ascii_alphanumeric() || ".-_".contains(other));
        if !is_bucket || bucket.starts_with('.') {
            return Err(Fault::invalid(format!("s3://{rest} names no bucket: expected s3://BUCKET/KEY")));
        }
        Ok(S3Address { bucket: bucket.to_owned(), key: key.to_owned() })
    }

    /// Whether the key stands for several.
    pub(crate) fn is_pattern(&self) -> bool {
        self.key.contains(['*', '?', '['])
    }

    /// What all keys that the pattern may match begin with.
    pub(crate) fn prefix(&self) -> &str {
        self.key.split(['*', '?', '[']).next().unwrap_or_default()
    }
}

impl fmt::Display for S3Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_urls_and_keys_are_told_apart() {
        for path in ["a.csv", "/data/*.parquet", "C:/x", "./s3:/b", "1x://b/c", "a b://c"] {
            assert_eq!(Address::parse(path).unwrap(), None, "{path}");
        }
        let Some(Address::S3(s3)) = Address::parse("S3://lake/y=2026/a*.parquet").unwrap() else { panic!() };
        assert_eq!((s3.bucket.as_str(), s3.key.as_str(), s3.prefix()), ("lake", "y=2026/a*.parquet", "y=2026/a"));
        assert!(s3.is_pattern());
        for wrong in
            ["s3://", "s3://b", "s3://b/", "s3://b/folder/", "s3:///k", "s3://b c/k", "s3://../k", "gs://b/k", "https://"]
        {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_has_nothing_secret() {
        let Some(Address::Web(web)) = Address::parse("https://me:word@host:8443/a%20b.csv.gz?X-Amz-Signature=abc").unwrap()
        else {
            panic!()
        };
        assert_eq!(web.name, "https://host:8443/a%20b.csv.gz");
        assert!(web.is_tls && web.url.contains("X-Amz") && !format!("{web:?}").contains("word"));
        let fault = Address::parse("https://me:word@host/a b?token=abc").unwrap_err().to_string();
        assert!(!fault.contains("word") && !fault.contains("abc"), "{fault}");
    }
}
