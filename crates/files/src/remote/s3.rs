//! [`S3Settings`]: where buckets are and who asks for them, by the variables of the environment that AWS's own tools read.

use chrono::Utc;
use http::Uri;
use pithead_model::{Blame, Fault};

use super::address::S3Address;
use super::request::Request;
use super::sign::{Credentials, Signed, encode_path, headers, query};

const REGION_DEFAULT: &str = "us-east-1";

/// Where buckets are, and what requests are signed with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct S3Settings {
    /// The server, where it is not Amazon's.
    endpoint: Option<String>,
    region: Option<String>,
    credentials: Option<Credentials>,
    /// Why there are none, where somebody meant to give some.
    half: Option<&'static str>,
    /// Whether the server may be asked without TLS.
    allow_http: bool,
}

impl S3Settings {
    /// From this process's environment.
    pub(crate) fn from_env() -> S3Settings {
        S3Settings::of(|name| std::env::var(name).ok())
    }

    /// From variables, of which those that are empty count as not there.
    pub(crate) fn of(variable: impl Fn(&str) -> Option<String>) -> S3Settings {
        let get = |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let is_set =
            |name: &str| get(name).is_some_and(|value| matches!(value.to_lowercase().as_str(), "true" | "1" | "yes" | "on"));
        let endpoint = get("AWS_ENDPOINT_URL_S3").or_else(|| get("AWS_ENDPOINT_URL")).or_else(|| get("AWS_ENDPOINT"));
        let (credentials, half) = match (get("AWS_ACCESS_KEY_ID"), get("AWS_SECRET_ACCESS_KEY")) {
            _ if is_set("AWS_SKIP_SIGNATURE") => (None, None),
            (Some(key_id), Some(secret)) => {
                let token = get("AWS_SESSION_TOKEN").or_else(|| get("AWS_TOKEN"));
                (Some(Credentials { key_id, secret, token }), None)
            }
            (Some(_), None) => (None, Some("AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not")),
            (None, Some(_)) => (None, Some("AWS_SECRET_ACCESS_KEY is set, and AWS_ACCESS_KEY_ID is not")),
            (None, None) => (None, None),
        };
        S3Settings {
            endpoint: endpoint.map(|endpoint| endpoint.trim_end_matches('/').to_owned()),
            region: get("AWS_REGION").or_else(|| get("AWS_DEFAULT_REGION")),
            credentials,
            half,
            allow_http: is_set("AWS_ALLOW_HTTP"),
        }
    }

    /// What to do where a server lets nobody in.
    pub(crate) fn access_hint(&self) -> &'static str {
        match &self.credentials {
            Some(_) => "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN must be of somebody who may read it",
            None => "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; without them only public buckets can be read",
        }
    }

    /// A request for one object.
    pub(crate) fn object(&self, address: &S3Address) -> Result<Request, Fault> {
        self.request(&format!("/{}/{}", address.bucket, encode_path(&address.key)), &[])
    }

    /// A request for the keys of a bucket with a prefix, from where the answer before broke off.
    pub(crate) fn listing(&self, bucket: &str, prefix: &str, from: Option<&str>) -> Result<Request, Fault> {
        let mut pairs = vec![("list-type", "2"), ("encoding-type", "url"), ("prefix", prefix)];
        pairs.extend(from.map(|from| ("continuation-token", from)));
        self.request(&format!("/{bucket}"), &pairs)
    }

    fn request(&self, path: &str, pairs: &[(&str, &str)]) -> Result<Request, Fault> {
        if let Some(half) = self.half {
            return Err(Fault::new(Blame::Access, half).hint("set both, or neither for public buckets"));
        }
        let region = self.region.as_deref().unwrap_or(REGION_DEFAULT);
        let endpoint = self.endpoint.clone().unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let server = Server::parse(&endpoint)?;
        if !server.is_tls && !self.allow_http {
            let fault = Fault::invalid(format!("AWS_ENDPOINT_URL is {}, which is without TLS", server.name));
            return Err(fault.hint("set AWS_ALLOW_HTTP=true if whoever sees that network may see the data"));
        }
        let path = format!("{}{path}", server.path);
        let query_text = query(pairs);
        let mark = if pairs.is_empty() { "" } else { "?" };
        let url = format!("{}{path}{mark}{query_text}", server.name);
        let headers = match &self.credentials {
            None => Vec::new(),
            Some(credentials) => {
                let signed = Signed { host: &server.host, path: &path, query: pairs, region };
                headers(&signed, credentials, Utc::now())
            }
        };
        Ok(Request { url, headers, is_tls: server.is_tls, redirects: 0 })
    }
}

/// A server of buckets.
struct Server {
    /// With the scheme, without a path.
    name: String,
    /// As a request names it: with its port where that is not the usual one.
    host: String,
    path: String,
    is_tls: bool,
}

impl Server {
    fn parse(endpoint: &str) -> Result<Server, Fault> {
        let wrong = || {
            let fault = Fault::invalid("AWS_ENDPOINT_URL is no URL of a server");
            fault.hint("expected https://HOST or https://HOST:PORT")
        };
        let uri: Uri = endpoint.parse().map_err(|_| wrong())?;
        let (scheme, authority) = uri.scheme_str().zip(uri.authority()).ok_or_else(wrong)?;
        let usual = match scheme {
            "https" => 443,
            "http" => 80,
            _ => return Err(wrong()),
        };
        // A user and a password are not what such a server takes.
        if authority.as_str().contains('@') || uri.query().is_some() {
            return Err(wrong());
        }
        let port = authority.port_u16().filter(|port| *port != usual).map(|port| format!(":{port}")).unwrap_or_default();
        let host = format!("{}{port}", authority.host());
        let path = uri.path().trim_end_matches('/').to_owned();
        Ok(Server { name: format!("{scheme}://{host}"), host, path, is_tls: scheme == "https" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> S3Settings {
        S3Settings::of(|name| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    fn address() -> S3Address {
        S3Address { bucket: "lake".into(), key: "a b.csv".into() }
    }

    #[test]
    fn the_environment_says_where_buckets_are() {
        let amazon = settings(&[("AWS_REGION", "eu-west-1")]).object(&address()).unwrap();
        assert_eq!(amazon.url, "https://s3.eu-west-1.amazonaws.com/lake/a%20b.csv");
        assert!(amazon.headers.is_empty(), "nothing is signed without credentials");
        let own = [("AWS_ENDPOINT_URL", "http://ceph:7480/"), ("AWS_ALLOW_HTTP", "true")];
        let keys = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "word"), ("AWS_SESSION_TOKEN", "pass")];
        let own = settings(&[own.as_slice(), &keys].concat()).listing("lake", "a b.csv", Some("x/1")).unwrap();
        let expected = "http://ceph:7480/lake?continuation-token=x%2F1&encoding-type=url&list-type=2&prefix=a%20b.csv";
        assert_eq!(own.url, expected);
        let names: Vec<&str> = own.headers.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["host", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token", "authorization"]);
        assert_eq!(own.headers[0].1, "ceph:7480");
    }

    #[test]
    fn what_cannot_be_meant_is_refused_without_a_secret() {
        let keys = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "word")];
        for (pairs, expected) in [
            (vec![("AWS_ENDPOINT_URL", "http://ceph")], "without TLS"),
            (vec![("AWS_ENDPOINT_URL", "ceph:7480")], "no URL"),
            (vec![("AWS_ENDPOINT_URL", "https://me:word@ceph")], "no URL"),
            (keys[..1].to_vec(), "AWS_SECRET_ACCESS_KEY is not"),
            (keys[1..].to_vec(), "AWS_ACCESS_KEY_ID is not"),
        ] {
            let fault = settings(&pairs).object(&address()).unwrap_err().to_string();
            assert!(fault.contains(expected) && !fault.contains("word"), "{fault}");
        }
        assert!(!format!("{:?}", settings(&keys)).contains("word"));
    }
}
