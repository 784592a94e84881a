//! Ctrl-C: ends what is running, cleanly; a second one ends the process.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pithead_model::{Blame, Fault};
use tokio::runtime::Builder;
use tokio::sync::Notify;

use crate::error::{CliError, code};

/// Listens for SIGINT from its making on.
pub(crate) struct Interrupts {
    shared: Arc<Shared>,
}

struct Shared {
    came: Notify,
    pending: AtomicBool,
}

impl Interrupts {
    /// Starts to listen, on a thread of its own: those of the runtime may be deep in a join.
    pub(crate) fn listen() -> Self {
        let shared = Arc::new(Shared { came: Notify::new(), pending: AtomicBool::new(false) });
        let watched = Arc::clone(&shared);
        let started = Builder::new_current_thread().enable_io().build().and_then(|runtime| {
            std::thread::Builder::new().name("interrupts".to_owned()).spawn(move || runtime.block_on(watch(watched)))
        });
        if let Err(error) = started {
            // Then Ctrl-C ends the process, which harms nothing that was acknowledged.
            tracing::warn!(%error, "not listening for Ctrl-C");
        }
        Self { shared }
    }

    /// Drops `work` at Ctrl-C, which cancels what it runs at the drives.
    pub(crate) async fn cancels<T>(&self, work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
        // Made before the look at `pending`, so that a signal between the two is not missed.
        let came = self.shared.came.notified();
        if self.shared.pending.load(Ordering::SeqCst) {
            return Err(cancelled());
        }
        tokio::select! {
            result = work => result,
            () = came => Err(cancelled()),
        }
    }

    /// Forgets a Ctrl-C that was dealt with, so that the next one is a first one again.
    pub(crate) fn clear(&self) {
        self.shared.pending.store(false, Ordering::SeqCst);
    }
}

async fn watch(shared: Arc<Shared>) {
    while tokio::signal::ctrl_c().await.is_ok() {
        if shared.pending.swap(true, Ordering::SeqCst) {
            // What was acknowledged is durable; nothing else needs a tidy end.
            std::process::exit(i32::from(code(Blame::Cancelled)));
        }
        shared.came.notify_waiters();
    }
}

fn cancelled() -> CliError {
    Fault::new(Blame::Cancelled, "cancelled").into()
}
