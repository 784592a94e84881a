//! [`Entrance`]: what a request meets first.

use pithead_entry::Doorman;
use tokio::runtime::Handle;

/// What stands before a console.
pub(crate) struct Entrance {
    pub(crate) doorman: Doorman,
    /// Whether whoever reaches the port gets in: neither TLS nor anything else says who calls.
    pub(crate) is_open: bool,
    /// Where statements run.
    pub(crate) work: Handle,
}
