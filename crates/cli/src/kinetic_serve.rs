//! `pithead drive serve --kinetic`: the Kinetic protocol beside Flight, over the same drive.

use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::Arc;

use clap::Args;
use futures::future::BoxFuture;
use pithead_drive::{Drive, RawSlices};
use pithead_entry::{ConnectionLimits, Shutdown, is_loopback};
use pithead_kinetic::{KineticOptions, Limits, Listeners, Parts, Service, Slices, StoredSlice, self_signed, serve};
use pithead_model::{Blame, Fault};
use pithead_observe::{Health, Observed};
use pithead_store::{StoreError, Value};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::error::CliError;
use crate::kinetic_applets::DriveApplets;
use crate::terminal;

/// Flags of the Kinetic protocol.
#[derive(Debug, Args)]
#[command(next_help_heading = "Kinetic clients")]
pub(crate) struct KineticArgs {
    /// Serve the Kinetic key-value protocol, too, in clear there and over TLS at --kinetic-tls
    #[arg(long, value_name = "HOST:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:8123")]
    kinetic: Option<String>,
    /// Where Kinetic is served over TLS, with a certificate that the drive signs itself [default: the same host, port 8443]
    #[arg(long, value_name = "HOST:PORT", requires = "kinetic")]
    kinetic_tls: Option<String>,
    /// Let other machines use the identity and the PINs that every new Kinetic drive has. Everybody knows them: whoever
    /// reaches the ports can read, change and delete all Kinetic keys
    #[arg(long, requires = "kinetic")]
    kinetic_default_credentials: bool,
}

/// Addresses that are taken.
pub(crate) struct KineticListeners {
    plain: TcpListener,
    tls: TcpListener,
}

/// The protocol over a drive, ready to be served.
pub(crate) struct Kinetic {
    service: Arc<Service>,
    listeners: Listeners,
}

impl KineticArgs {
    /// Takes the addresses before the drive is opened, so that a wrong one is told at once. None: Kinetic is not asked for.
    pub(crate) async fn listen(&self) -> Result<Option<KineticListeners>, CliError> {
        let Some(plain) = &self.kinetic else { return Ok(None) };
        let plain = pithead_drive::bind(plain).await?;
        let address = pithead_drive::address(&plain)?;
        let tls = match &self.kinetic_tls {
            Some(listen) => pithead_drive::bind(listen).await?,
            None => pithead_drive::bind(&SocketAddr::new(address.ip(), 8443).to_string()).await.map_err(|fault| {
                fault.hint("--kinetic-tls HOST:PORT names another address for TLS; port 0 takes any that is free")
            })?,
        };
        Ok(Some(KineticListeners { plain, tls }))
    }
}

/// Opens the protocol over a drive, and says how clients are met.
pub(crate) fn open(
    args: &KineticArgs,
    drive: &Arc<Drive>,
    taken: KineticListeners,
    connections: ConnectionLimits,
) -> Result<Kinetic, CliError> {
    let shared = drive.shared();
    let (plain, tls) = (pithead_drive::address(&taken.plain)?, pithead_drive::address(&taken.tls)?);
    let files = self_signed(&shared.folder, &[tls.ip()])?;
    let options = KineticOptions {
        limits: Limits::default(),
        connections,
        default_credentials: args.kinetic_default_credentials,
        serial_number: drive.id().to_string(),
    };
    let parts = Parts {
        store: shared.store,
        slices: Arc::new(DriveSlices(drive.raw_slices())),
        applets: Arc::new(DriveApplets(Arc::clone(drive))),
        pool: shared.pool,
        device: shared.device,
        folder: Some(shared.folder),
    };
    let service = Service::open(parts, options)?;
    terminal::tell(format_args!("kinetic at {plain}, over TLS at {tls}; {}", credentials(args, &service)));
    if !is_loopback(plain.ip()) {
        let warning = terminal::bold("warning");
        terminal::tell(format_args!("{warning}: at {plain}, keys and values of Kinetic clients travel in clear"));
    }
    let listeners = Listeners { plain: Some(taken.plain), tls: Some((taken.tls, files)) };
    Ok(Kinetic { service, listeners })
}

fn credentials(args: &KineticArgs, service: &Service) -> &'static str {
    match (service.has_factory_identity(), args.kinetic_default_credentials) {
        (false, _) => "only identities that were set may call",
        (true, false) => "the default identity 1 may call from this machine only",
        (true, true) => "the default identity 1, whose key everybody knows, may call from everywhere",
    }
}

impl Kinetic {
    /// Serves until `stop` ends.
    pub(crate) async fn serve(self, stop: Shutdown) -> Result<(), Fault> {
        serve(self.service, self.listeners, stop).await
    }
}

/// Waits for the end of what was served.
pub(crate) async fn ended(serving: JoinHandle<Result<(), Fault>>) {
    let ended = serving.await.map_err(|error| Fault::new(Blame::Bug, error.to_string()));
    if let Err(fault) = ended.flatten() {
        tracing::error!(%fault, "Kinetic clients are served no more");
    }
}

/// A drive's slices as the protocol knows them.
#[derive(Debug)]
struct DriveSlices(RawSlices);

impl Slices for DriveSlices {
    fn list(
        &self,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
        reverse: bool,
        limit: usize,
    ) -> Result<Vec<StoredSlice>, StoreError> {
        let slices = self.0.list(start, end, reverse, limit)?;
        Ok(slices.into_iter().map(|(name, bytes)| StoredSlice { name, bytes }).collect())
    }

    fn read(&self, name: &[u8]) -> Result<Option<Value>, StoreError> {
        self.0.read(name)
    }
}

/// What collectors of metrics see: the drive, and the protocol where it is served.
pub(crate) fn observed(drive: &Arc<Drive>, kinetic: Option<&Kinetic>) -> Arc<dyn Observed> {
    match kinetic {
        None => Arc::clone(drive) as Arc<dyn Observed>,
        Some(kinetic) => Arc::new(Both { drive: Arc::clone(drive), service: Arc::clone(&kinetic.service) }),
    }
}

struct Both {
    drive: Arc<Drive>,
    service: Arc<Service>,
}

impl Observed for Both {
    fn metrics(&self) -> BoxFuture<'_, String> {
        Box::pin(async {
            let drive = self.drive.metrics().await;
            joined(&drive, &self.service.metrics_text())
        })
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        Observed::health(&*self.drive)
    }
}

/// Two texts of OpenMetrics as one: only the last may say that it ends.
fn joined(first: &str, second: &str) -> String {
    format!("{}{second}", first.strip_suffix("# EOF\n").unwrap_or(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_metrics_end_once() {
        assert_eq!(joined("a 1\n# EOF\n", "b 2\n# EOF\n"), "a 1\nb 2\n# EOF\n");
    }
}
