//! CAs and certificates for tests, as files.

use std::path::PathBuf;

use pithead_entry::{ClientTlsFiles, ServerTlsFiles};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use tempfile::TempDir;

/// A CA whose certificates are files of a folder.
pub struct Ca {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Ca {
    pub fn new() -> Ca {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "test CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Ca { folder, issuer }
    }

    pub fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Certificate and key for a name, the last year of its life a given one.
    pub fn issue(&self, name: &str, until_year: i32) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(until_year, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let path = |ending: &str| self.folder.path().join(format!("{name}-{until_year}.{ending}"));
        std::fs::write(path("pem"), certificate.pem()).unwrap();
        std::fs::write(path("key"), key.serialize_pem()).unwrap();
        (path("pem"), path("key"))
    }

    /// What a drive at 127.0.0.1 needs.
    pub fn server(&self, client_ca: Option<&Ca>) -> ServerTlsFiles {
        let (cert, key) = self.issue("127.0.0.1", 4000);
        ServerTlsFiles { cert, key, client_ca: client_ca.map(Ca::file) }
    }

    /// What a host needs that trusts this CA.
    pub fn client(&self, identity: Option<(PathBuf, PathBuf)>) -> ClientTlsFiles {
        ClientTlsFiles { ca: self.file(), identity }
    }
}
