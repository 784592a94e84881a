//! [`DriveOptions`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pithead_cse::SessionLimits;
use pithead_device::{Device, Native};
use pithead_functions::Registry;
use pithead_policy::background::BackgroundPolicy;
use pithead_sched::{Pool, Services};

use crate::storage::Attach;

/// Bytes of a drive's medium for blocks of attached objects, unless it is told otherwise.
const ATTACH_CACHE_DEFAULT: u64 = 1 << 30;

/// How a drive runs.
#[derive(Clone, Debug)]
pub struct DriveOptions {
    /// Directory of its store; made if absent. Temporary files go to `tmp` in it.
    pub data: PathBuf,
    /// Cores to pin its threads to. None: not pinned. Unused with `pool`.
    pub cores: Option<Vec<usize>>,
    /// Reactors; 0: one a core. Unused with `pool`.
    pub threads: usize,
    /// Memory for sessions and loads, bytes.
    pub memory: u64,
    /// Memory for slices that were read and may be read again, bytes: open readers and the store's cache together. None: as
    /// much as `memory`.
    pub cache: Option<u64>,
    /// Sessions open at one time at most.
    pub sessions_max: usize,
    /// Sessions of one host open at one time at most. None: three quarters of `sessions_max`, so that a host that opens sessions
    /// and leaves them does not keep all others away.
    pub host_sessions_max: Option<usize>,
    /// A session that takes at least so long is told of in the log. None: never.
    pub slow_session: Option<Duration>,
    /// How long sessions may last.
    pub session_limits: SessionLimits,
    /// The hardware.
    pub device: Arc<dyn Device>,
    /// What sub-plans can call.
    pub functions: Arc<Registry>,
    /// The reactors to run on, where drives in one process share them. None: reactors of its own.
    pub pool: Option<Arc<Pool>>,
    /// What runs the background services of all drives on `pool`, from [`crate::start_services`]. None: the drive's own.
    pub services: Option<Arc<Services>>,
    /// How cores are chosen for background services. Unused with `services`.
    pub background_policy: BackgroundPolicy,
    /// The time in which the scrub reads all that is stored. None: it runs only if it was told to.
    pub scrub_period: Option<Duration>,
    /// How long versions of a domain are kept once another one has taken their place, where the domain does not say it.
    pub history: Duration,
    /// Whether `history` is what the drive goes by from now on. Otherwise it goes by what was set last, where that is longer.
    pub sets_history: bool,
    /// Files to offer as datasets, where they lie.
    pub attach: Vec<Attach>,
    /// Bytes on the drive's medium for what was read of servers that `attach` names, and may be read again.
    pub attach_cache: u64,
}

impl DriveOptions {
    /// A drive over `data` with one reactor a core, 1 GiB for sessions, and its hardware as it is.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data: data.into(),
            cores: None,
            threads: 0,
            memory: 1 << 30,
            cache: None,
            sessions_max: 64,
            host_sessions_max: None,
            slow_session: None,
            session_limits: SessionLimits { idle: Duration::from_secs(60), open: None },
            device: Arc::new(Native::new()),
            functions: Registry::own(),
            pool: None,
            services: None,
            background_policy: BackgroundPolicy::default(),
            scrub_period: None,
            history: Duration::ZERO,
            sets_history: false,
            attach: vec![],
            attach_cache: ATTACH_CACHE_DEFAULT,
        }
    }

    /// Sessions of one host, with the default worked out.
    pub(crate) fn host_sessions(&self) -> usize {
        self.host_sessions_max.unwrap_or_else(|| (self.sessions_max * 3).div_ceil(4)).clamp(1, self.sessions_max.max(1))
    }

    /// The cache's bytes, with the default worked out.
    pub(crate) fn cache_bytes(&self) -> u64 {
        self.cache.unwrap_or(self.memory)
    }
}
