//! Ctrl-C and SIGTERM: end what is running, cleanly; a second one ends the process.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pithead_host::SpillFolder;
use pithead_model::{Blame, Fault};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::error::{CliError, TERMINATED_CODE, code};
use crate::scratch;
use crate::terminal::Modes;

/// How long what runs may take to notice. It does not where it writes to somebody who does not read.
const NOTICE_LIMIT: Duration = Duration::from_secs(2);
/// How long it may take to end once it has.
const END_LIMIT: Duration = Duration::from_secs(20);

/// Listens for SIGINT and SIGTERM from its making on.
pub(crate) struct Interrupts {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    came: Notify,
    /// One came that was not dealt with.
    pending: AtomicBool,
    /// It ended what was running.
    noticed: AtomicBool,
    /// It was SIGTERM: the process is to end.
    terminates: AtomicBool,
    /// A person types, and the terminal was like this before.
    typing: Mutex<Option<Modes>>,
    /// What goes however the process ends.
    spills: Mutex<Option<Arc<SpillFolder>>>,
}

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Interrupt,
    Terminate,
}

impl Came {
    /// The exit code of a process that it ends.
    fn code(self) -> u8 {
        match self {
            Came::Interrupt => code(Blame::Cancelled),
            Came::Terminate => TERMINATED_CODE,
        }
    }
}

impl Interrupts {
    /// Starts to listen, on a thread of its own: those of the runtime may be deep in a join.
    pub(crate) fn listen() -> Self {
        let shared = Arc::new(Shared::default());
        let watched = Arc::clone(&shared);
        let started = Builder::new_current_thread().enable_all().build().and_then(|runtime| {
            let signals = {
                // Before this returns, so that none is missed.
                let _entered = runtime.enter();
                (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
            };
            let watching = move || runtime.block_on(watch(watched, signals));
            std::thread::Builder::new().name("interrupts".to_owned()).spawn(watching)
        });
        if let Err(error) = started {
            // Then a signal ends the process, which harms nothing that was acknowledged.
            tracing::warn!(%error, "not listening for Ctrl-C");
        }
        Self { shared }
    }

    /// Drops `work` at Ctrl-C, which cancels what it runs at the drives.
    pub(crate) async fn cancels<T>(&self, work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
        // Made before the look at `pending`, so that a signal between the two is not missed.
        let came = self.shared.came.notified();
        if !self.shared.pending.load(Ordering::SeqCst) {
            tokio::select! {
                result = work => return result,
                () = came => {}
            }
        }
        self.shared.noticed.store(true, Ordering::SeqCst);
        match self.shared.terminates.load(Ordering::SeqCst) {
            true => Err(CliError::Terminated),
            false => Err(Fault::new(Blame::Cancelled, "cancelled").into()),
        }
    }

    /// Forgets a Ctrl-C that was dealt with, so that the next one is a first one again.
    pub(crate) fn clear(&self) {
        self.shared.pending.store(false, Ordering::SeqCst);
    }

    /// Removes what was spilled also where a signal ends the process at once.
    pub(crate) fn removes(&self, spills: &Arc<SpillFolder>) {
        *self.shared.spills.lock() = Some(Arc::clone(spills));
    }

    /// Lets a person type. Nothing runs meanwhile that Ctrl-C could end, and SIGTERM ends the process with the terminal as it
    /// was.
    pub(crate) fn typing<T>(&self, read: impl FnOnce() -> T) -> T {
        *self.shared.typing.lock() = Some(Modes::now());
        let read = read();
        *self.shared.typing.lock() = None;
        read
    }
}

impl Shared {
    /// What came is not dealt with in time: ends the process, unless it is about to end. Until when it may take.
    fn is_late(&self, came: Came) -> Option<(Instant, Came)> {
        if !self.pending.load(Ordering::SeqCst) {
            return None;
        }
        if !self.noticed.swap(false, Ordering::SeqCst) {
            self.end(came);
        }
        Some((Instant::now() + END_LIMIT, came))
    }

    /// What was acknowledged is durable; but for what goes with the process, nothing needs a tidy end.
    fn end(&self, came: Came) -> ! {
        if let Some(spills) = &*self.spills.lock() {
            spills.remove();
        }
        scratch::remove();
        std::process::exit(i32::from(came.code()))
    }
}

async fn watch(shared: Arc<Shared>, signals: (Signal, Signal)) {
    let (mut interrupt, mut terminate) = signals;
    let mut due: Option<(Instant, Came)> = None;
    loop {
        let limit = async {
            match due {
                Some((limit, _)) => sleep_until(limit).await,
                None => std::future::pending().await,
            }
        };
        let came = tokio::select! {
            Some(()) = interrupt.recv() => Came::Interrupt,
            Some(()) = terminate.recv() => Came::Terminate,
            () = limit => {
                due = due.and_then(|(_, came)| shared.is_late(came));
                continue;
            }
        };
        if let Some(modes) = &*shared.typing.lock() {
            match came {
                Came::Interrupt => continue,
                Came::Terminate => {
                    modes.restore();
                    shared.end(came);
                }
            }
        }
        shared.noticed.store(false, Ordering::SeqCst);
        shared.terminates.fetch_or(came == Came::Terminate, Ordering::SeqCst);
        if shared.pending.swap(true, Ordering::SeqCst) {
            shared.end(came);
        }
        due = Some((Instant::now() + NOTICE_LIMIT, came));
        shared.came.notify_waiters();
    }
}
