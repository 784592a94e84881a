//! What is connected to, and how.

use std::path::PathBuf;
use std::time::Duration;

use pithead_drive::Attach;
use pithead_entry::ConnectOptions;

/// How long versions are kept for people, unless their domain says it.
pub const HISTORY: Duration = Duration::from_secs(24 * 3600);

/// Where datasets are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A directory, whose drives run inside this process. One that is missing or empty is made a new one. One process
    /// at a time may use it.
    Data(PathBuf),
    /// Drives on the network: `HOST`, `HOST:PORT`, `pithead://HOST:PORT` or `pithead+tls://HOST:PORT`.
    Drives(Vec<String>),
}

/// How to connect.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EmbedOptions {
    /// Threads for the host's operators, and reactors that the drives in this process share. Default: one a core.
    pub threads: Option<usize>,
    /// Memory for queries in this process, bytes: half of it the host's, half shared evenly by the drives here; all of
    /// it the host's where the drives are elsewhere. Default: 60% of what the process may have.
    pub memory: Option<u64>,
    /// Drives to make in a new directory, 1 to 64. Default: one a thread. Where there are another number of drives,
    /// connecting fails.
    pub drives: Option<usize>,
    /// A rate to pace links to. Only a drive that serves its link can pace it, so connecting refuses this; it is here
    /// so that a caller who asks is told, rather than shown numbers of another link.
    pub link_bits_per_second: Option<f64>,
    /// Files to offer as datasets where they lie. The drives of a data directory share them.
    pub attach: Vec<Attach>,
    /// How long the drives of a data directory keep versions of domains that do not say it: see [`HISTORY`]. Default: not at all.
    pub history: Duration,
    /// TLS and credentials for drives on the network. Default: none, and so only drives of this machine.
    pub connect: ConnectOptions,
}

impl EmbedOptions {
    /// Threads, with the default worked out.
    pub(crate) fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1)
    }

    /// Memory, with the default worked out.
    pub(crate) fn memory(&self) -> u64 {
        self.memory.unwrap_or_else(|| crate::memory::available() / 10 * 6)
    }
}
