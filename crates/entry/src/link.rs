//! [`LinkFlags`]: what a program is told of its link to drives, by flags and by its environment.

use std::path::PathBuf;

use pithead_model::{Blame, Fault};

use crate::{ClientTlsFiles, ConnectOptions, Token};

/// Files of the link to drives. Each has a variable of the environment that goes after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkFlags {
    /// Certificates of the CAs that drives are trusted by, else `PITHEAD_TLS_CA`; none: no TLS.
    pub tls_ca: Option<PathBuf>,
    /// The host's own certificate, else `PITHEAD_TLS_CERT`.
    pub tls_cert: Option<PathBuf>,
    /// Its key, else `PITHEAD_TLS_KEY`.
    pub tls_key: Option<PathBuf>,
    /// A file with the token, else the token itself in `PITHEAD_TOKEN`, or its file in `PITHEAD_TOKEN_FILE`.
    pub token_file: Option<PathBuf>,
    /// Connect to other machines also without TLS.
    pub insecure: bool,
}

impl LinkFlags {
    /// What the flags say, and where they are silent the environment.
    pub fn options(&self, variable: impl Fn(&str) -> Option<String>) -> Result<ConnectOptions, Fault> {
        let file = |flag: &Option<PathBuf>, name| flag.clone().or_else(|| variable(name).map(PathBuf::from));
        let identity = match (file(&self.tls_cert, "PITHEAD_TLS_CERT"), file(&self.tls_key, "PITHEAD_TLS_KEY")) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err(Fault::invalid("expected both PITHEAD_TLS_CERT and PITHEAD_TLS_KEY, or neither")),
        };
        let tls = match (file(&self.tls_ca, "PITHEAD_TLS_CA"), identity) {
            (Some(ca), identity) => Some(ClientTlsFiles { ca, identity }),
            (None, None) => None,
            (None, Some(_)) => {
                let fault = Fault::new(
                    Blame::User,
                    "a client certificate is sent over TLS only, and no CA is named to trust drives by",
                );
                return Err(fault.hint("name it: --tls-ca FILE"));
            }
        };
        let token = match (&self.token_file, variable("PITHEAD_TOKEN"), variable("PITHEAD_TOKEN_FILE")) {
            (Some(file), _, _) => Some(Token::from_file(file)?),
            (None, Some(text), _) => Some(Token::parse(&text).map_err(|fault| fault.at("PITHEAD_TOKEN"))?),
            (None, None, Some(file)) => Some(Token::from_file(file.as_ref())?),
            (None, None, None) => None,
        };
        Ok(ConnectOptions { tls, token, insecure: self.insecure })
    }
}
