//! Drives in this process, and the reactors that they share.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use pithead_cse::SessionLimits;
use pithead_door::Door;
use pithead_drive::{Attach, BackgroundPolicy, Drive, DriveOptions, Share, start_services};
use pithead_model::{Blame, Fault, boxed};
use pithead_sched::{Pool, PoolOptions, Services};

use crate::directory::{check_count, drive_directories, make_another};
use crate::{EmbedOptions, functions};

/// How long sessions have to end by themselves. Their host is this process, which has no more use for them.
const STOP_GRACE: Duration = Duration::ZERO;
/// How long threads have to end once they are told to.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long rows of a session may wait to be pulled. The host is this process, so nobody else has died meanwhile.
const IDLE_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// How long runs that no manifest names are kept: merged ones that statements may read still, and what was given up.
const COLLECT_AFTER: Duration = Duration::from_secs(900);
/// Most calls that block at once, a thread of the pool.
const BLOCKING_PER_REACTOR: usize = 4;

/// Drives in this process; none, where they are on the network.
#[derive(Default)]
pub(crate) struct DrivesHere {
    drives: Mutex<Vec<Arc<Drive>>>,
    shared: Option<Shared>,
}

/// What the drives of a directory have in common.
struct Shared {
    directory: PathBuf,
    pool: Arc<Pool>,
    /// Background services of all drives.
    services: Arc<Services>,
    /// Bytes for each drive.
    memory: u64,
    /// How long versions are kept.
    history: Duration,
}

impl DrivesHere {
    /// Opens the drives of a data directory, all or none.
    #[boxed]
    pub(crate) async fn open(directory: &Path, options: &EmbedOptions) -> Result<DrivesHere, Fault> {
        let threads = options.threads();
        let directories = drive_directories(directory, options.drives.unwrap_or(threads.min(64)))?;
        check_count(directory, directories.len(), options.drives)?;
        let pool = Arc::new(pool(threads)?);
        let memory = options.memory() / 2 / directories.len() as u64;
        let services = start_services(&pool, BackgroundPolicy::default());
        let shared = Shared { directory: directory.to_owned(), pool, services, memory, history: options.history };
        let of = directories.len();
        let share = |part| options.attach.iter().map(|attach| Attach { share: Share { part, of }, ..attach.clone() }).collect();
        let opened = (0..).zip(directories).map(|(part, data)| shared.open(data, share(part)));
        let opened = join_all(opened).await;
        match opened.into_iter().collect() {
            Ok(drives) => Ok(DrivesHere { drives: Mutex::new(drives), shared: Some(shared) }),
            Err(fault) => {
                stop(shared.pool).await;
                Err(fault)
            }
        }
    }

    /// Whether there are any.
    pub(crate) fn is_in_use(&self) -> bool {
        self.shared.is_some()
    }

    /// The way to each.
    pub(crate) fn doors(&self) -> Vec<Arc<dyn Door>> {
        let drives = self.drives.lock().unwrap_or_else(PoisonError::into_inner);
        drives.iter().map(|drive| Arc::clone(drive) as Arc<dyn Door>).collect()
    }

    /// Makes and opens one more. The others keep their memory: it gets as much as each of them.
    pub(crate) async fn make_one(&self) -> Result<Arc<dyn Door>, Fault> {
        let Some(shared) = &self.shared else {
            return Err(Fault::new(Blame::Bug, "there is no data directory to make a drive in"));
        };
        let drive = shared.open(make_another(&shared.directory)?, vec![]).await?;
        self.drives.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&drive));
        Ok(drive)
    }

    /// Ends all drives, then the reactors.
    #[boxed]
    pub(crate) async fn shutdown(self) {
        let drives = self.drives.into_inner().unwrap_or_else(PoisonError::into_inner);
        join_all(drives.iter().map(|drive| drive.stop(STOP_GRACE))).await;
        drop(drives);
        if let Some(shared) = self.shared {
            stop(shared.pool).await;
        }
    }
}

impl Shared {
    async fn open(&self, data: PathBuf, attach: Vec<Attach>) -> Result<Arc<Drive>, Fault> {
        let pool = Some(Arc::clone(&self.pool));
        // Sessions and loads get two thirds, slices that were read the rest.
        let cache = self.memory / 3;
        let memory = self.memory - cache;
        let options = DriveOptions {
            memory,
            cache: Some(cache),
            // There is no other host that places would have to be kept for.
            host_sessions_max: Some(usize::MAX),
            session_limits: SessionLimits { idle: IDLE_LIMIT, open: None },
            pool,
            services: Some(Arc::clone(&self.services)),
            functions: functions(),
            history: self.history,
            attach,
            ..DriveOptions::new(data)
        };
        let opened = tokio::task::spawn_blocking(move || Drive::open(options)).await;
        let drive =
            opened.unwrap_or_else(|lost| Err(Fault::new(Blame::Bug, format!("opening a drive ended early: {lost}"))))?;
        drive.collect_orphans_after(COLLECT_AFTER);
        Ok(drive)
    }
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
