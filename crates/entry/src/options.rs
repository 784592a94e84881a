//! How a drive is served, and how a host connects to one.

use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use pithead_model::{Blame, Fault};

use crate::access::Access;
use crate::doorman::{Callers, Doorman};
use crate::gate::{ConnectionLimits, Gate};
use crate::protocol::Protocol;
use crate::tls::{ClientTlsFiles, ServerTls, ServerTlsFiles};
use crate::token::Token;
use crate::watched::{Watched, read_bounded};

/// Ends when a server shall stop.
pub type Shutdown = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How a drive is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServeOptions {
    /// TLS. None: bytes travel in clear.
    pub tls: Option<ServerTlsFiles>,
    /// The access file: who may do what. It is read again when it changes. None: whoever can connect may do everything.
    pub access: Option<PathBuf>,
    /// Listen beyond loopback also without TLS, or to callers who are not known.
    pub insecure: bool,
    /// How many connections there may be.
    pub connections: ConnectionLimits,
}

/// What stands before a server: all its files were read.
pub struct Entry {
    /// Its TLS as it is now; none: bytes travel in clear.
    pub tls: Option<Arc<ServerTls>>,
    /// Who may call.
    pub doorman: Doorman,
    /// How many may be connected.
    pub gate: Arc<Gate>,
}

impl ServeOptions {
    /// Refuses to serve beyond loopback in clear or to everybody, unless that is asked for.
    pub fn check(&self, listen: IpAddr) -> Result<(), Fault> {
        if is_loopback(listen) || self.insecure {
            return Ok(());
        }
        let lacking = match (&self.tls, self.knows_callers()) {
            (Some(_), true) => return Ok(()),
            (Some(_), false) => "a way to know who calls (--access FILE or --client-ca FILE)",
            (None, true) => "TLS (--tls-cert FILE --tls-key FILE)",
            (None, false) => {
                "TLS (--tls-cert FILE --tls-key FILE) and a way to know who calls (--access FILE or --client-ca FILE)"
            }
        };
        let message = format!("{listen} is reached from other machines, and serving there needs {lacking}");
        Err(Fault::new(Blame::User, message).hint(
            "`pithead cert` and `pithead token` make what is needed; --insecure serves without it, and then whoever reaches the \
             port can read, change and delete all data",
        ))
    }

    /// Whether callers have to say who they are.
    pub fn knows_callers(&self) -> bool {
        self.access.is_some() || self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
    }

    /// What is missing for safe service, in words, where anything is.
    pub fn danger(&self) -> Option<&'static str> {
        match (&self.tls, self.knows_callers()) {
            (Some(_), true) => None,
            (Some(_), false) => Some("whoever reaches the port can read, change and delete all data"),
            (None, true) => Some("bytes travel in clear: whoever sees them has the data, and the tokens too"),
            (None, false) => Some("whoever reaches the port can read, change and delete all data, and bytes travel in clear"),
        }
    }

    /// Reads all files, and says what is wrong with them: to be asked before anybody is told that a server is there.
    pub fn check_files(&self) -> Result<(), Fault> {
        self.entry(Protocol { name: "", alpn: b"", greeting: b"" }).map(drop)
    }

    /// Reads all files, for a server that speaks `protocol`.
    pub fn entry(&self, protocol: Protocol) -> Result<Entry, Fault> {
        let tls = self.tls.as_ref().map(|files| files.read(protocol.alpn)).transpose()?.map(Arc::new);
        let callers = match &self.access {
            Some(file) => Callers::Named(self.read_access(file.clone())?),
            None if self.knows_callers() => Callers::Certified,
            None => Callers::Anyone,
        };
        Ok(Entry { tls, doorman: Doorman::new(callers), gate: Gate::new(self.connections) })
    }

    fn read_access(&self, file: PathBuf) -> Result<Watched<Access>, Fault> {
        Watched::new(vec![file.clone()], move || {
            let bytes = read_bounded(&file)?;
            Access::parse(&String::from_utf8_lossy(&bytes)).map_err(|fault| fault.at(file.display()))
        })
    }
}

/// How a host connects to drives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    /// TLS. None: a plain link.
    pub tls: Option<ClientTlsFiles>,
    /// Sent with every call.
    pub token: Option<Token>,
    /// Connect beyond loopback also without TLS, and send the token there.
    pub insecure: bool,
}

/// Whether an address is this machine's own, which no other machine reaches.
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_loopback_needs_tls_and_known_callers() {
        let tls = |client_ca| ServerTlsFiles { cert: "c".into(), key: "k".into(), client_ca };
        let access: Option<PathBuf> = Some("a".into());
        let none = ServeOptions::default();
        let only_tls = ServeOptions { tls: Some(tls(None)), ..none.clone() };
        let only_access = ServeOptions { access: access.clone(), ..none.clone() };
        let certified = ServeOptions { tls: Some(tls(Some("ca".into()))), ..none.clone() };
        let named = ServeOptions { access, ..only_tls.clone() };
        for address in ["127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"] {
            none.check(address.parse().unwrap()).unwrap();
        }
        for address in ["0.0.0.0", "::", "10.0.0.7", "::ffff:10.0.0.7"] {
            let address = address.parse().unwrap();
            for (options, lacking) in
                [(&none, "TLS"), (&none, "--access"), (&only_tls, "--client-ca"), (&only_access, "--tls-cert")]
            {
                let fault = options.check(address).unwrap_err();
                assert!(fault.blame == Blame::User && fault.message.contains(lacking), "{fault}");
                assert!(options.danger().is_some());
                ServeOptions { insecure: true, ..options.clone() }.check(address).unwrap();
            }
            certified.check(address).unwrap();
            named.check(address).unwrap();
        }
        assert!(certified.danger().is_none() && named.danger().is_none());
    }
}
