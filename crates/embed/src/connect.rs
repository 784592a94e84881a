//! [`connect`], and the [`Engine`] that it gives.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use pithead_drive::{Drive, DriveOptions};
use pithead_host::{Host, HostOptions};
use pithead_model::{Blame, Fault, Rate};
use pithead_sched::{Pool, PoolOptions};
use pithead_wire::{Door, FlightDoor};
use tokio::task::JoinHandle;

use crate::directory::drive_directories;
use crate::{EmbedOptions, Target};

/// How long sessions have to end by themselves. Their host is this process, which has no more use for them.
const STOP_GRACE: Duration = Duration::ZERO;
/// How long threads have to end once they are told to.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long rows of a session may wait to be pulled. The host is this process, so nobody else has died meanwhile.
const IDLE_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// Most calls that block at once, a thread of the pool.
const BLOCKING_PER_REACTOR: usize = 4;

/// A host, and the drives that live in this process for it. [`Engine::shutdown`] ends them; dropping it leaves them
/// running until the process ends, with no harm to what was acknowledged.
pub struct Engine {
    /// Where statements run.
    pub host: Host,
    here: DrivesHere,
    cleaning: Option<JoinHandle<()>>,
}

/// Connects to all drives of a target. On the network, each has to answer.
pub async fn connect(target: &Target, options: &EmbedOptions) -> Result<Engine, Fault> {
    refuse_pacing(target, options)?;
    match target {
        Target::Data(directory) => connect_here(directory, options).await,
        Target::Drives(addresses) => connect_there(addresses, options).await,
    }
}

impl Engine {
    /// How the drives' links are paced, in words; none if they are not. No figure is shown without it.
    pub fn pacing(&self) -> Option<String> {
        let rates: Vec<Option<f64>> = self.host.drives().iter().map(|drive| drive.welcome.link_bits_per_second).collect();
        pacing_text(&rates)
    }

    /// Ends the drives of this process: sessions end, what was written is flushed, threads are joined.
    pub async fn shutdown(self) {
        if let Some(cleaning) = self.cleaning {
            cleaning.abort();
            // It was told to stop; how it ended says nothing.
            let _ = cleaning.await;
        }
        // Hosts hold doors, and doors hold stores open.
        drop(self.host);
        self.here.shutdown().await;
    }
}

async fn connect_here(directory: &Path, options: &EmbedOptions) -> Result<Engine, Fault> {
    let here = DrivesHere::open(directory, options).await?;
    let host_options = HostOptions { threads: options.threads(), memory: options.memory() / 2, ..HostOptions::default() };
    match Host::connect(here.doors(), host_options).await {
        Ok(host) => {
            let cleaning = Some(tokio::spawn(clean(host.clone())));
            Ok(Engine { host, here, cleaning })
        }
        Err(fault) => {
            here.shutdown().await;
            Err(fault)
        }
    }
}

async fn connect_there(addresses: &[String], options: &EmbedOptions) -> Result<Engine, Fault> {
    let doors = addresses.iter().map(|address| Ok(Arc::new(FlightDoor::connect(address)?) as Arc<dyn Door>));
    let doors = doors.collect::<Result<Vec<_>, Fault>>()?;
    let host_options = HostOptions { threads: options.threads(), memory: options.memory(), ..HostOptions::default() };
    Ok(Engine { host: Host::connect(doors, host_options).await?, here: DrivesHere::default(), cleaning: None })
}

/// Deletes what loads that were killed left behind. Only this process loads here, so nothing of another's is touched.
async fn clean(host: Host) {
    match host.collect_orphans().await {
        Ok(0) => {}
        Ok(slices) => tracing::info!(slices, "deleted what unfinished loads had left"),
        Err(fault) => tracing::warn!(%fault, "what unfinished loads have left stays for now"),
    }
}

/// Drives in this process, and the reactors that they share.
#[derive(Default)]
pub(crate) struct DrivesHere {
    drives: Vec<Arc<Drive>>,
    pool: Option<Arc<Pool>>,
}

impl DrivesHere {
    /// Opens the drives of a data directory, all or none.
    pub(crate) async fn open(directory: &Path, options: &EmbedOptions) -> Result<DrivesHere, Fault> {
        let threads = options.threads();
        let directories = drive_directories(directory, options.drives.unwrap_or(threads.min(64)))?;
        let pool = Arc::new(pool(threads)?);
        let memory = options.memory() / 2 / directories.len() as u64;
        let open = directories.into_iter().map(|data| {
            let pool = Some(Arc::clone(&pool));
            let options = DriveOptions { memory, idle_limit: IDLE_LIMIT, pool, ..DriveOptions::new(data) };
            tokio::task::spawn_blocking(move || Drive::open(options))
        });
        let opened = join_all(open).await.into_iter().map(|opened| opened.unwrap_or_else(|lost| Err(lost_task(&lost))));
        match opened.collect() {
            Ok(drives) => Ok(DrivesHere { drives, pool: Some(pool) }),
            Err(fault) => {
                stop(pool).await;
                Err(fault)
            }
        }
    }

    /// The way to each.
    pub(crate) fn doors(&self) -> Vec<Arc<dyn Door>> {
        self.drives.iter().map(|drive| Arc::clone(drive) as Arc<dyn Door>).collect()
    }

    /// Ends all drives, then the reactors.
    pub(crate) async fn shutdown(self) {
        join_all(self.drives.iter().map(|drive| drive.stop(STOP_GRACE))).await;
        drop(self.drives);
        if let Some(pool) = self.pool {
            stop(pool).await;
        }
    }
}

fn lost_task(lost: &tokio::task::JoinError) -> Fault {
    Fault::new(Blame::Bug, format!("opening a drive ended early: {lost}"))
}

fn pool(threads: usize) -> Result<Pool, Fault> {
    let options = PoolOptions {
        name: "drive".to_owned(),
        cores: None,
        reactors: threads,
        blocking_threads_max: threads * BLOCKING_PER_REACTOR,
    };
    Pool::new(options).map_err(|error| Fault::new(Blame::Limit, error.to_string()))
}

async fn stop(pool: Arc<Pool>) {
    let stopped = tokio::task::spawn_blocking(move || pool.shutdown(STOP_TIMEOUT)).await;
    if !matches!(stopped, Ok(true)) {
        tracing::warn!("some threads of the drives have not ended in {STOP_TIMEOUT:?}");
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
    fn pacing_cannot_be_asked_for_here() {
        let options = EmbedOptions { link_bits_per_second: Some(1e9), ..EmbedOptions::default() };
        assert_eq!(refuse_pacing(&Target::Data("x".into()), &options).unwrap_err().blame, Blame::User);
        assert!(refuse_pacing(&Target::Data("x".into()), &EmbedOptions::default()).is_ok());
    }
}
