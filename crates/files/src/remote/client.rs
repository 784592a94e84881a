//! [`Client`]: asks servers for files, as AWS's own tools and curl would.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use pithead_model::{Blame, Fault};
use ureq::Agent;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use super::address::Address;
use super::answer::Answer;
use super::request::Request;
use super::s3::S3Settings;
use super::trouble::{Patience, Trouble};

/// Hops of a server that sends elsewhere.
const REDIRECTS_MAX: u32 = 10;
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Where systems have the certificates of the CAs that they trust.
const CA_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Asks servers, over connections that it keeps.
#[derive(Debug)]
pub(crate) struct Client {
    agent: Agent,
    pub(crate) patience: Patience,
    pub(crate) s3: S3Settings,
}

impl Client {
    /// With what the environment says.
    pub(crate) fn from_env() -> Client {
        Client::new(Patience::default(), S3Settings::from_env())
    }

    pub(crate) fn new(patience: Patience, s3: S3Settings) -> Client {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .user_agent(concat!("pithead/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(patience.connect))
            .timeout_connect(Some(patience.connect))
            .timeout_send_request(Some(patience.idle))
            .timeout_recv_response(Some(patience.idle))
            .timeout_per_read(Some(patience.idle))
            .max_response_header_size(HEADER_BYTES_MAX)
            .tls_config(TlsConfig::builder().root_certs(roots()).build())
            .build();
        Client { agent: config.new_agent(), patience, s3 }
    }

    /// Asks for a file, or for some of its bytes: at least one. `version`: that of the file as it was before.
    pub(crate) fn get(&self, address: &Address, range: Option<Range<u64>>, version: Option<&str>) -> Result<Answer, Trouble> {
        let (request, name) = match address {
            Address::Web(web) => {
                let request = Request { url: web.url.clone(), headers: vec![], is_tls: web.is_tls, redirects: REDIRECTS_MAX };
                (request, web.name.clone())
            }
            Address::S3(s3) => (self.s3.object(s3).map_err(Trouble::Lasting)?, s3.to_string()),
        };
        let piece = range.is_some().then_some(self.patience.piece);
        let range = range.map(|range| ("range", format!("bytes={}-{}", range.start, range.end.saturating_sub(1))));
        // Weak ETags and times match nothing; whether the answer has the same one is looked at, too.
        let same = version.filter(|version| version.starts_with('"')).map(|version| ("if-match", version.to_owned()));
        let conditions: Vec<_> = range.into_iter().chain(same).collect();
        let response = self.send(&request, &conditions, piece).map_err(|error| Trouble::of(&name, &error))?;
        if version.is_some() && matches!(response.status().as_u16(), 404 | 410 | 412) {
            let how = if response.status() == 412 { "changed" } else { "removed" };
            let fault = Fault::new(Blame::Conflict, format!("{name} was {how} while it was read"));
            return Err(Trouble::Lasting(fault.hint("load it again")));
        }
        Answer::of(response, &name, matches!(address, Address::S3(_)).then_some(&self.s3))
    }

    /// Sends a request. `whole` is how long all of the answer may take.
    pub(crate) fn send(
        &self,
        request: &Request,
        conditions: &[(&str, String)],
        whole: Option<Duration>,
    ) -> Result<http::Response<ureq::Body>, ureq::Error> {
        let mut get = self.agent.get(&request.url);
        let headers = request.headers.iter().chain(conditions);
        for (name, value) in headers {
            get = get.header(*name, value);
        }
        let config = get.config().https_only(request.is_tls).max_redirects(request.redirects).timeout_recv_body(whole);
        config.build().call()
    }
}

/// The certificates that this system trusts, or those of `SSL_CERT_FILE`. Where there are none, Mozilla's.
fn roots() -> RootCerts {
    let named = std::env::var_os("SSL_CERT_FILE");
    let files = named.as_deref().map(Path::new).into_iter().chain(CA_FILES.iter().map(Path::new));
    let read = |file: &Path| {
        let pem = std::fs::read(file).ok()?;
        let certificates = parse_pem(&pem).filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        });
        let certificates: Vec<_> = certificates.collect();
        (!certificates.is_empty()).then(|| RootCerts::new_with_certs(&certificates))
    };
    files.into_iter().find_map(read).unwrap_or(RootCerts::WebPki)
}
