//! [`KineticOptions`]: how the protocol is served.

use std::net::SocketAddr;

use pithead_entry::{ConnectionLimits, ServerTlsFiles};
use tokio::net::TcpListener;

use crate::limits::Limits;
use crate::proto::LogLimits;

/// How the protocol is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KineticOptions {
    /// Bounds on requests.
    pub limits: Limits,
    /// Bounds on connections.
    pub connections: ConnectionLimits,
    /// Whether the identity whose key everybody knows may call from other machines, and PINs that were never set be used there.
    pub default_credentials: bool,
    /// The drive's name for itself: its serial number.
    pub serial_number: String,
}

impl KineticOptions {
    /// The bounds as clients are told them.
    pub(crate) fn told(&self) -> LogLimits {
        // All connections of a client come from one address, as a rule.
        self.limits.told(self.connections.total.min(self.connections.per_address))
    }
}

/// Where the protocol is served. Both ports have the same keys and identities.
#[derive(Debug)]
pub struct Listeners {
    /// In clear.
    pub plain: Option<TcpListener>,
    /// Over TLS.
    pub tls: Option<(TcpListener, ServerTlsFiles)>,
}

/// The ports that are told to clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ports {
    pub plain: Option<u16>,
    pub tls: Option<u16>,
}

impl Listeners {
    pub(crate) fn ports(&self) -> Ports {
        let port = |listener: &TcpListener| listener.local_addr().ok().map(|address: SocketAddr| address.port());
        Ports { plain: self.plain.as_ref().and_then(port), tls: self.tls.as_ref().and_then(|(listener, _)| port(listener)) }
    }
}
