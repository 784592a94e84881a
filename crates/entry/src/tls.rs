//! TLS of both ends, from PEM files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pithead_model::{Blame, Fault};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, Error as TlsError, RootCertStore, ServerConfig};

use crate::end_point::{der_value, end_point};
use crate::watched::{Watched, read_bounded};

/// The PEM files of a drive's TLS. They are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTlsFiles {
    /// The drive's certificate, followed by those between it and its CA.
    pub cert: PathBuf,
    /// The certificate's key.
    pub key: PathBuf,
    /// Certificates of CAs. Callers must show a certificate that one of them signed. None: callers need no certificate.
    pub client_ca: Option<PathBuf>,
}

/// The PEM files of a host's TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTlsFiles {
    /// Certificates of the CAs that drives are trusted by.
    pub ca: PathBuf,
    /// The host's own certificate and its key, for drives that ask for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A server's TLS, made of files that may change.
pub struct ServerTls(Watched<TlsNow>);

/// A server's TLS as it is now.
pub struct TlsNow {
    /// What handshakes are made with.
    pub config: Arc<ServerConfig>,
    /// What the certificate binds an exchange to: `tls-server-end-point` of RFC 5929. None: that is not defined for such a certificate.
    pub end_point: Option<Vec<u8>>,
}

impl ServerTls {
    /// What handshakes are made with now.
    pub fn get(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.get().config)
    }

    /// All of it as it is now.
    pub fn now(&self) -> Arc<TlsNow> {
        self.0.get()
    }
}

impl ServerTlsFiles {
    /// Reads the files. `protocol`: what is spoken within TLS, by the name that ALPN (RFC 7301) has for it.
    pub(crate) fn read(&self, protocol: &'static [u8]) -> Result<ServerTls, Fault> {
        let files = [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()].into_iter().flatten().cloned().collect();
        let own = self.clone();
        Watched::new(files, move || own.now(protocol)).map(ServerTls)
    }

    fn now(&self, protocol: &[u8]) -> Result<TlsNow, Fault> {
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable("TLS", &error))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(ca)?), provider)
                    .build()
                    .map_err(|error| unusable(ca.display(), &error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let chain = certificates(&self.cert)?;
        let end_point = chain.first().and_then(|own| end_point(own));
        let mut config =
            builder.with_single_cert(chain, key(&self.key)?).map_err(|error| unusable_pair(&self.cert, &self.key, &error))?;
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(TlsNow { config: Arc::new(config), end_point })
    }
}

impl ClientTlsFiles {
    /// Reads the files. `protocol`: what is spoken within TLS, by the name that ALPN has for it.
    pub fn read(&self, protocol: &[u8]) -> Result<Arc<ClientConfig>, Fault> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable("TLS", &error))?
            .with_root_certificates(roots(&self.ca)?);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((cert, key_file)) => builder
                .with_client_auth_cert(certificates(cert)?, key(key_file)?)
                .map_err(|error| unusable_pair(cert, key_file, &error))?,
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Arc::new(config))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let bytes = read_bounded(path)?;
    let certificates = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(unusable(path.display(), &"no certificate is in it")),
        Err(error) => Err(unusable(path.display(), &error)),
    }
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, Fault> {
    PrivateKeyDer::from_pem_slice(&read_bounded(path)?).map_err(|error| unusable(path.display(), &error))
}

fn roots(path: &Path) -> Result<RootCertStore, Fault> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        store.add(certificate).map_err(|error| unusable(path.display(), &error))?;
    }
    Ok(store)
}

fn unusable(file: impl std::fmt::Display, why: &dyn std::fmt::Display) -> Fault {
    Fault::new(Blame::User, format!("{file}: {why}")).hint("expected a PEM file, such as `pithead cert` makes")
}

fn unusable_pair(cert: &Path, key: &Path, error: &TlsError) -> Fault {
    let message = format!("the certificate {} and the key {} do not go together: {error}", cert.display(), key.display());
    Fault::new(Blame::User, message)
}

/// The names in a certificate that was verified: DNS names and URIs of its alternative names, then its common name.
pub(crate) fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(parsed) = webpki::EndEntityCert::try_from(certificate) else { return Vec::new() };
    let alternative = parsed.valid_dns_names().chain(parsed.valid_uri_names()).map(str::to_owned);
    alternative.chain(common_name(parsed.subject())).collect()
}

/// The common name in a subject: DER of RFC 5280's RDNSequence without its own tag.
fn common_name(mut subject: &[u8]) -> Option<String> {
    const SET: u8 = 0x31;
    const SEQUENCE: u8 = 0x30;
    const OID: u8 = 0x06;
    const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
    /// UTF8String and PrintableString, the ones in use.
    const TEXTS: [u8; 2] = [0x0c, 0x13];
    while let Some((SET, attributes, rest)) = der_value(subject) {
        subject = rest;
        let Some((SEQUENCE, attribute, _)) = der_value(attributes) else { continue };
        if let Some((OID, COMMON_NAME, value)) = der_value(attribute)
            && let Some((tag, text, _)) = der_value(value)
            && TEXTS.contains(&tag)
        {
            return String::from_utf8(text.to_vec()).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    #[test]
    fn names_are_those_of_the_certificate() {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::URI("spiffe://x/y".try_into().unwrap()));
        params.distinguished_name.push(DnType::OrganizationName, "org");
        params.distinguished_name.push(DnType::CommonName, "ünser host");
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert_eq!(names_of(certificate.der()), ["a.example", "spiffe://x/y", "ünser host"]);
        assert!(names_of(&CertificateDer::from(vec![1, 2, 3])).is_empty());
    }

    #[test]
    fn files_that_are_something_else_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let keys = [KeyPair::generate().unwrap(), KeyPair::generate().unwrap()];
        let certificate = CertificateParams::new(vec!["a".to_owned()]).unwrap().self_signed(&keys[0]).unwrap();
        std::fs::write(path("cert"), certificate.pem()).unwrap();
        std::fs::write(path("key"), keys[0].serialize_pem()).unwrap();
        std::fs::write(path("other"), keys[1].serialize_pem()).unwrap();
        let read = |cert: &str, key: &str, ca: Option<&str>| {
            ServerTlsFiles { cert: path(cert), key: path(key), client_ca: ca.map(path) }.read(b"h2").map(|_| ())
        };
        read("cert", "key", Some("cert")).unwrap();
        for (cert, key, ca, named) in [
            ("key", "key", None, "key"),
            ("cert", "cert", None, "cert"),
            ("missing", "key", None, "missing"),
            ("cert", "other", None, "go together"),
            ("cert", "key", Some("key"), "key"),
        ] {
            let fault = read(cert, key, ca).unwrap_err();
            assert!(fault.blame == Blame::User && fault.message.contains(named), "{fault}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_subject_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            common_name(&bytes);
        }
    }
}
