//! Settings of HTTP/2 that both ends share, and addresses.

use pithead_entry::is_loopback;
use std::fmt;
use std::time::Duration;

use crate::error::WireError;

/// The port that a drive listens at unless told otherwise.
pub const PORT_DEFAULT: u16 = 7433;

/// How often each end asks whether the other is alive, also when nothing is sent.
pub(crate) const PING_INTERVAL: Duration = Duration::from_secs(5);
/// How long the answer may take: a peer that stopped or vanished is found within 15 seconds.
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// What one call may have in flight.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// What all calls of a connection may have in flight: so much that streams which nobody reads, as those of a join's
/// other side, never hold up the calls beside them.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;
/// The same for what a drive takes in: it may have many connections, and reads loads as they come.
pub(crate) const SERVER_WINDOW_BYTES: u32 = 256 << 20;
/// HTTP/2's frames. The default of 16 KiB costs more calls; much larger ones would hold up small answers.
pub(crate) const FRAME_BYTES: u32 = 256 << 10;
/// Headers, which carry faults.
pub(crate) const HEADER_BYTES_MAX: u32 = 32 << 10;
/// Names, on a call, the drive that it is meant for. Another drive, one that was put in its place, refuses the call.
pub(crate) const DRIVE_HEADER: &str = "pithead-drive";
/// Calls of one connection at a time.
pub(crate) const CALLS_MAX: u32 = 1_024;

/// Where a drive is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// A name or an address, IPv6 in brackets.
    host: String,
    port: u16,
    /// Whether it was written as one that speaks TLS.
    pub(crate) must_be_tls: bool,
}

impl Address {
    /// Reads `HOST`, `HOST:PORT`, `pithead://HOST:PORT` or `pithead+tls://HOST:PORT`; the host may be a name or an address, IPv6
    /// with or without brackets.
    pub(crate) fn parse(address: &str) -> Result<Address, WireError> {
        let wrong = || WireError::Address(address.to_owned());
        let text = address.trim();
        let (text, must_be_tls) = match text.strip_prefix("pithead+tls://") {
            Some(text) => (text, true),
            None => (text.strip_prefix("pithead://").unwrap_or(text), false),
        };
        let text = text.strip_suffix('/').unwrap_or(text);
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port.parse().map_err(|_| wrong())?),
            _ => (text, PORT_DEFAULT),
        };
        let allowed = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']' | '%');
        if host.is_empty() || port == 0 || !host.chars().all(allowed) {
            return Err(wrong());
        }
        let bare_v6 = host.contains(':') && !host.starts_with('[');
        let host = if bare_v6 { format!("[{host}]") } else { host.to_owned() };
        Ok(Address { host, port, must_be_tls })
    }

    /// The host without brackets.
    pub(crate) fn bare_host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Whether it can only be this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = self.bare_host();
        host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(is_loopback)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_as_people_write_them() {
        for (text, expected) in [
            ("store1", "store1:7433"),
            ("store1:99", "store1:99"),
            ("pithead://10.0.0.7:7434/", "10.0.0.7:7434"),
            ("::1", "[::1]:7433"),
            ("[::1]", "[::1]:7433"),
            ("[::1]:8000", "[::1]:8000"),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(address.to_string(), expected);
            assert!(!address.must_be_tls);
        }
        for text in ["", ":7433", "a:b", "a:0", "a:70000", "http://a:1", "a b:1", "a/b:1", "user@a:1"] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }
    #[test]
    fn only_this_machine_is_loopback() {
        for (text, expected) in [
            ("localhost", true),
            ("127.0.0.2:1", true),
            ("::1", true),
            ("[::1]:8", true),
            ("10.0.0.1", false),
            ("localhost.x", false),
        ] {
            assert_eq!(Address::parse(text).unwrap().is_loopback(), expected, "{text}");
        }
        let address = Address::parse("pithead+tls://[fe80::1]:8/").unwrap();
        assert!(address.must_be_tls && address.to_string() == "[fe80::1]:8" && address.bare_host() == "fe80::1");
    }
}
