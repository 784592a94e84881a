//! [`Console`]: a host, and what its page keeps beside it.

use std::sync::Arc;
use std::time::Instant;

use pithead_host::Host;
use tokio::sync::Semaphore;

use crate::caller::Sessions;
use crate::drives::LastDrives;

/// Texts of statements that run at one time, each from a request of its own.
const QUERIES_MAX: usize = 64;

/// A host, and the page that is served before it.
pub struct Console {
    pub(crate) host: Host,
    pub(crate) sessions: Sessions,
    pub(crate) drives: LastDrives,
    pub(crate) places: Arc<Semaphore>,
    pub(crate) started: Instant,
}

impl Console {
    /// The page before a host. From now on the host keeps what its statements did.
    pub fn new(host: Host) -> Arc<Console> {
        host.activity().follow();
        Arc::new(Console {
            host,
            sessions: Sessions::default(),
            drives: LastDrives::default(),
            places: Arc::new(Semaphore::new(QUERIES_MAX)),
            started: Instant::now(),
        })
    }
}
