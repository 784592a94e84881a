//! Who may connect to a drive, and how many.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use pithead_cse::SessionLimits;
use pithead_entry::{ConnectionLimits, ServeOptions, ServerTlsFiles};
use pithead_model::{CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX};

use crate::error::CliError;
use crate::terminal;

/// Flags of a drive's entry.
#[derive(Debug, Args)]
#[command(next_help_heading = "Who may connect")]
pub(crate) struct EntryArgs {
    /// The drive's certificate (PEM), followed by those between it and its CA; makes it speak TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Ask callers for a certificate that this CA has signed
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    client_ca: Option<PathBuf>,
    /// Who may do what (TOML); looked at again when it changes. Without it, whoever gets in may do everything
    #[arg(long, value_name = "FILE")]
    access: Option<PathBuf>,
    /// Listen to other machines without TLS or to strangers: whoever reaches the port can read, change and delete all
    /// data, and bytes travel in clear
    #[arg(long)]
    insecure: bool,
    /// Connections at one time at most
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS_MAX, value_parser = parse_connections)]
    connections: usize,
    /// Connections from one address at one time at most
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS_PER_ADDRESS_MAX, value_parser = parse_connections)]
    connections_per_address: usize,
}

impl EntryArgs {
    /// What the flags say.
    pub(crate) fn options(&self) -> ServeOptions {
        let tls = self.tls_cert.clone().zip(self.tls_key.clone());
        let tls = tls.map(|(cert, key)| ServerTlsFiles { cert, key, client_ca: self.client_ca.clone() });
        let connections = ConnectionLimits {
            total: self.connections,
            per_address: self.connections_per_address,
            ..ConnectionLimits::default()
        };
        ServeOptions { tls, access: self.access.clone(), insecure: self.insecure, connections }
    }
}

/// Refuses to serve at an address where that is not safe, or says what it means; and files that cannot be used.
pub(crate) fn check(options: &ServeOptions, listen: SocketAddr) -> Result<(), CliError> {
    options.check(listen.ip())?;
    options.check_files()?;
    if options.insecure
        && !listen.ip().to_canonical().is_loopback()
        && let Some(danger) = options.danger()
    {
        terminal::tell(format_args!("{}: --insecure: {danger}", terminal::bold("warning")));
    }
    Ok(())
}

/// How callers are met, in words.
pub(crate) fn facts(options: &ServeOptions) -> &'static str {
    match (&options.tls, options.knows_callers()) {
        (None, false) => "no TLS, anyone may call",
        (None, true) => "no TLS, known callers",
        (Some(_), false) => "TLS, anyone may call",
        (Some(_), true) => "TLS, known callers",
    }
}

fn parse_connections(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(connections @ 1..=1_000_000) => Ok(connections),
        _ => Err("expected a number from 1 to 1000000".to_owned()),
    }
}

/// How long sessions may last, both in seconds; without a limit where `open` is 0.
pub(crate) fn session_limits(idle: u64, open: u64) -> SessionLimits {
    SessionLimits { idle: Duration::from_secs(idle), open: (open > 0).then(|| Duration::from_secs(open)) }
}
