//! [`connect`], and the [`Engine`] that it gives.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pithead_door::Door;
use pithead_entry::ConnectOptions;
use pithead_fleet::{MoveReport, TellMove};
use pithead_host::{Host, HostOptions};
use pithead_model::{Blame, Fault, Rate, boxed};
use pithead_wire::FlightDoor;
use tokio::task::JoinHandle;

use crate::here::DrivesHere;
use crate::{EmbedOptions, Target, functions};

/// How long a host that ends waits for what goes on after statements: as long as merging takes at most. Who only ever appends in
/// processes of their own would have none merged otherwise.
const AFTERWARDS_WAIT: Duration = Duration::from_secs(60);

/// A host, and the drives that live in this process for it. [`Engine::shutdown`] ends them; dropping it leaves them
/// running until the process ends, with no harm to what was acknowledged.
pub struct Engine {
    /// Where statements run.
    pub host: Host,
    here: DrivesHere,
    /// How drives on the network are connected to.
    connect: ConnectOptions,
    cleaning: Option<JoinHandle<()>>,
    observed: Mutex<Option<JoinHandle<()>>>,
}

/// Connects to all drives of a target. On the network, at least one has to answer; see [`Host::connect`].
///
/// ```
/// use pithead_embed::{EmbedOptions, Target, connect};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let directory = tempfile::tempdir()?;
/// let options = EmbedOptions { drives: Some(2), ..EmbedOptions::default() };
/// let engine = connect(&Target::Data(directory.path().join("data")), &options).await?;
/// let session = engine.host.session();
/// for statement in ["CREATE TABLE trips (city VARCHAR, fare DOUBLE)", "INSERT INTO trips VALUES ('Oslo', 18.5)"] {
///     session.run(statement).await?;
/// }
/// assert_eq!(engine.host.fleet().drives().len(), 2);
/// engine.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[boxed]
pub async fn connect(target: &Target, options: &EmbedOptions) -> Result<Engine, Fault> {
    refuse_pacing(target, options)?;
    match target {
        Target::Data(directory) => connect_here(directory, options).await,
        Target::Drives(addresses) => connect_there(addresses, options).await,
    }
}

impl Engine {
    /// How the drives are throttled and their links paced, in words; none if they are not. No figure is shown without it.
    pub fn pacing(&self) -> Option<String> {
        let drives = self.host.fleet().drives();
        let rates: Vec<Option<f64>> = drives.iter().map(|drive| drive.welcome.link_bits_per_second).collect();
        let profiles: Vec<Option<&str>> = drives.iter().map(|drive| drive.welcome.profile.as_deref()).collect();
        let texts: Vec<String> = [throttled_text(&profiles), pacing_text(&rates)].into_iter().flatten().collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }

    /// Adds the drive at this address, as [`Host::add_drive`] does.
    #[boxed]
    pub async fn add_drive(&self, address: &str, tell: TellMove) -> Result<MoveReport, Fault> {
        if self.here.is_in_use() {
            let fault = Fault::new(Blame::User, "drives of a data directory and drives on the network cannot be mixed");
            return Err(fault.hint("leave the address out, and another drive is made in the directory"));
        }
        self.host.fleet().add_drive(Arc::new(FlightDoor::connect_with(address, &self.connect)?), tell).await
    }

    /// Makes one more drive in the data directory, and adds it.
    #[boxed]
    pub async fn add_drive_here(&self, tell: TellMove) -> Result<MoveReport, Fault> {
        if !self.here.is_in_use() {
            let fault = Fault::new(Blame::User, "expected the address of the drive to add");
            return Err(fault.hint("start it first: pithead drive serve --data DIR --listen HOST:PORT"));
        }
        self.host.fleet().add_drive(self.here.make_one().await?, tell).await
    }

    /// Serves the host's metrics and health at `listen`, `HOST:PORT` or a port of this machine, until the engine is shut down or this is
    /// called again. Returns the address.
    #[boxed]
    pub async fn observe(&self, listen: &str) -> Result<SocketAddr, Fault> {
        let failed = |error: std::io::Error| {
            Fault::new(Blame::User, format!("cannot serve metrics at {listen}: {error}"))
                .hint("name a free address of this machine, such as 127.0.0.1:9434")
        };
        let listener = pithead_observe::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let serving = tokio::spawn(pithead_observe::serve(listener, Arc::new(self.host.clone())));
        if let Some(before) = self.observed.lock().unwrap_or_else(PoisonError::into_inner).replace(serving) {
            before.abort();
        }
        Ok(address)
    }

    /// Ends the drives of this process: sessions end, what was written is flushed, threads are joined.
    #[boxed]
    pub async fn shutdown(self) {
        if let Some(cleaning) = self.cleaning {
            cleaning.abort();
            // It was told to stop; how it ended says nothing.
            let _ = cleaning.await;
        }
        if let Some(serving) = self.observed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            serving.abort();
            // It holds the host, too.
            let _ = serving.await;
        }
        self.host.settled(AFTERWARDS_WAIT).await;
        // Work that was cancelled may hold its files for a while yet.
        self.host.spills().remove();
        // Hosts hold doors, and doors hold stores open.
        drop(self.host);
        self.here.shutdown().await;
    }
}

async fn connect_here(directory: &Path, options: &EmbedOptions) -> Result<Engine, Fault> {
    let here = DrivesHere::open(directory, options).await?;
    let host_options = HostOptions {
        threads: options.threads(),
        memory: options.memory() / 2,
        functions: functions(),
        ..HostOptions::default()
    };
    match Host::connect(here.doors(), host_options).await {
        Ok(host) => {
            let cleaning = Some(tokio::spawn(clean(host.clone())));
            Ok(Engine { host, here, connect: options.connect.clone(), cleaning, observed: Mutex::default() })
        }
        Err(fault) => {
            here.shutdown().await;
            Err(fault)
        }
    }
}

/// The ways to drives on the network. Whether they are there shows with the first call.
pub fn doors(addresses: &[String], options: &ConnectOptions) -> Result<Vec<Arc<dyn Door>>, Fault> {
    addresses.iter().map(|address| Ok(Arc::new(FlightDoor::connect_with(address, options)?) as Arc<dyn Door>)).collect()
}

async fn connect_there(addresses: &[String], options: &EmbedOptions) -> Result<Engine, Fault> {
    if !options.attach.is_empty() {
        let fault = Fault::new(Blame::User, "drives on the network attach their own files, not those of this machine");
        return Err(fault.hint("start the drives with `pithead drive serve --attach DIR`, or connect to a data directory"));
    }
    let doors = doors(addresses, &options.connect)?;
    let host_options = HostOptions {
        threads: options.threads(),
        memory: options.memory(),
        functions: functions(),
        code_folder: user_cache().map(|cache| cache.join("pithead/code")),
        ..HostOptions::default()
    };
    let host = Host::connect(doors, host_options).await?;
    Ok(Engine {
        host,
        here: DrivesHere::default(),
        connect: options.connect.clone(),
        cleaning: None,
        observed: Mutex::default(),
    })
}

/// The folder of what programs of this user can make again, as the XDG Base Directory Specification names it.
fn user_cache() -> Option<PathBuf> {
    let absolute = |variable| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))
}

/// Deletes what loads that were killed left behind. Only this process loads here, so nothing of another's is touched.
async fn clean(host: Host) {
    match host.fleet().collect_orphans().await {
        Ok(0) => {}
        Ok(slices) => tracing::info!(slices, "deleted what unfinished loads had left"),
        Err(fault) => tracing::warn!(%fault, "what unfinished loads have left stays for now"),
    }
}

fn refuse_pacing(target: &Target, options: &EmbedOptions) -> Result<(), Fault> {
    if options.link_bits_per_second.is_none() {
        return Ok(());
    }
    let message = match target {
        Target::Data(_) => "drives inside this process have no link that could be paced: batches pass by pointer",
        Target::Drives(_) => "a link is paced by the drive that sends on it",
    };
    Err(Fault::new(Blame::User, message).hint("start drives with `pithead drive serve --link 1gbit`"))
}

/// Which drives behave like devices of profiles.
fn throttled_text(profiles: &[Option<&str>]) -> Option<String> {
    let mut names: Vec<&str> = profiles.iter().copied().flatten().collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    let all = names.join(", ");
    match count {
        0 => None,
        count if count == profiles.len() => Some(format!("drives throttled, as by the profile {all}")),
        count => Some(format!("{count} of {} drives throttled, as by the profile {all}", profiles.len())),
    }
}

fn pacing_text(rates: &[Option<f64>]) -> Option<String> {
    let paced: Vec<f64> = rates.iter().copied().flatten().collect();
    let slowest = paced.iter().copied().reduce(f64::min)?;
    let fastest = paced.iter().copied().fold(slowest, f64::max);
    let show = |bits_per_second| Rate { bits_per_second };
    let rate = if slowest == fastest { show(slowest).to_string() } else { format!("{} to {}", show(slowest), show(fastest)) };
    Some(match paced.len() == rates.len() {
        true => format!("links paced to {rate} a drive"),
        false => format!("links of {} of {} drives paced to {rate}", paced.len(), rates.len()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pacing_is_said_for_some_and_for_all() {
        assert_eq!(pacing_text(&[None, None]), None);
        assert_eq!(pacing_text(&[Some(1e9), Some(1e9)]).unwrap(), "links paced to 1 Gbit/s a drive");
        assert_eq!(
            pacing_text(&[Some(1e8), Some(1e9), None]).unwrap(),
            "links of 2 of 3 drives paced to 100 Mbit/s to 1 Gbit/s"
        );
    }

    #[test]
    fn throttled_drives_are_told_with_their_profiles() {
        assert_eq!(throttled_text(&[None]), None);
        assert_eq!(throttled_text(&[Some("hdd"), Some("hdd")]).unwrap(), "drives throttled, as by the profile hdd");
        let some = [Some("pm1725"), None, Some("hdd"), Some("hdd")];
        assert_eq!(throttled_text(&some).unwrap(), "3 of 4 drives throttled, as by the profile hdd, pm1725");
    }

    #[test]
    fn pacing_cannot_be_asked_for_here() {
        let options = EmbedOptions { link_bits_per_second: Some(1e9), ..EmbedOptions::default() };
        assert_eq!(refuse_pacing(&Target::Data("x".into()), &options).unwrap_err().blame, Blame::User);
        assert!(refuse_pacing(&Target::Data("x".into()), &EmbedOptions::default()).is_ok());
    }
}
