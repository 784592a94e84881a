//! What a drive does behind the scenes, and what it is told of that.

use serde::{Deserialize, Serialize};

/// What a drive's background work is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackgroundOrder {
    /// Nothing: only how it is.
    Look,
    /// A service goes on where it is, or begins anew if it was stopped. One that runs already goes on without a pause, whatever its
    /// own pace would be.
    Start(String),
    /// A service rests where it is.
    Pause(String),
    /// A service rests, and forgets where it is.
    Stop(String),
    /// A service takes at most so many bytes a second; none: as many as the cores give.
    Limit {
        /// The service.
        service: String,
        /// Bytes a second, 1 at least.
        bytes_per_second: Option<u64>,
    },
    /// What the service `dedup` looks at from now on, and how. It does not start it.
    Deduplicate(DedupSettings),
    /// Cores are chosen by this policy, as `drive serve --background-policy` names it.
    Policy(String),
}

/// What deduplication looks at, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DedupSettings {
    /// How values are cut into chunks: `cdc`, `1KiB` or `0.5KiB`.
    pub chunks: String,
    /// The domains whose slices are deduplicated, each by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<String>,
    /// Whether the values of Kinetic clients are.
    #[serde(default)]
    pub kinetic: bool,
}

/// How a drive's background work is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BackgroundStatus {
    /// The policy that chooses cores.
    pub policy: String,
    /// The cores, as the drive numbers its reactors.
    pub cores: Vec<CoreStatus>,
    /// The services.
    pub services: Vec<ServiceStatus>,
}

/// A core of a drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CoreStatus {
    /// The share of the last moments that went to anything but background work, 0 to 1.
    pub foreground: f64,
    /// The share that went to background work.
    pub background: f64,
    /// How long foreground tasks waited for the core, on average, microseconds.
    pub queue_delay_us: f64,
    /// The share of its time that background work may take.
    pub share: f64,
    /// Whether background work waits while a foreground task could run.
    pub strict: bool,
    /// Tasks that held the core for too long, since the drive started.
    pub stalls: u64,
    /// The last of them: its name, and for how long it had held the core when it was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled: Option<String>,
    /// Steps of services that ran here, since the drive started.
    pub steps: u64,
    /// Of them, steps whose service ran its last one on another core.
    pub moves: u64,
}

/// A background service of a drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// Its name.
    pub name: String,
    /// `running`, `idle`, `paused`, `stopped`, `failed` or `broken`.
    pub activity: String,
    /// Why it has failed, or is broken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Bytes of this round that are done.
    pub done_bytes: u64,
    /// Bytes of this round; 0: not known.
    pub total_bytes: u64,
    /// What it has found, in its own count: damaged values, or bytes that it saves.
    pub found: u64,
    /// The first of the damaged values that it has found, as keys of the drive's store. Empty for callers who may not administer all
    /// domains.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<String>,
    /// What deduplication looks at. None for callers who may not administer all domains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup: Option<DedupSettings>,
    /// Bytes a second of the last seconds.
    pub bytes_per_second: f64,
    /// The bytes a second that it may take at most.
    pub limit: Option<u64>,
    /// Seconds that the rest of the round takes at this rate.
    pub left_s: Option<u64>,
    /// Steps since the drive started.
    pub steps: u64,
    /// Bytes of these steps.
    pub bytes: u64,
    /// Time of its steps, on all cores, nanoseconds.
    pub busy_ns: u64,
}
