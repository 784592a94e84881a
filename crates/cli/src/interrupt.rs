//! Ctrl-C and SIGTERM: end what is running, cleanly; a second one ends the process.
//!
//! What has sent a change goes on, and tells what came of it: whoever is told that it was cancelled does it once more.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pithead_host::{Commitment, SpillFolder};
use pithead_model::{Blame, Fault};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::error::{CliError, TERMINATED_CODE, code};
use crate::scratch;
use crate::terminal::{self, Modes};

/// How long what runs may take to notice. It does not where it writes to somebody who does not read.
const NOTICE_LIMIT: Duration = Duration::from_secs(2);
/// How long it may take to end once it has.
const END_LIMIT: Duration = Duration::from_secs(20);

/// Listens for SIGINT and SIGTERM from its making on.
#[derive(Clone)]
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
    /// Until when what runs can be cancelled; none: nothing runs that changes anything.
    changing: Mutex<Option<Arc<Commitment>>>,
    /// It has ended.
    changed: Notify,
    /// All was done, and the person was told so.
    is_told: AtomicBool,
}

/// The time for which something runs that may change data.
pub(crate) struct Changing {
    shared: Arc<Shared>,
    commitment: Arc<Commitment>,
}

impl Changing {
    /// Until when it can be cancelled.
    pub(crate) fn commitment(&self) -> Arc<Commitment> {
        Arc::clone(&self.commitment)
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        *self.shared.changing.lock() = None;
        self.shared.changed.notify_waiters();
    }
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

    /// Drops `work` at Ctrl-C, which cancels what it runs at the drives. Where it has sent a change, it goes on until it is known what
    /// came of that.
    pub(crate) async fn cancels<T>(&self, work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
        let mut work = pin!(work);
        // Made before the look at `pending`, so that a signal between the two is not missed.
        let came = self.shared.came.notified();
        if !self.shared.pending.load(Ordering::SeqCst) {
            tokio::select! {
                result = &mut work => return result,
                () = came => {}
            }
        }
        self.shared.noticed.store(true, Ordering::SeqCst);
        if self.shared.is_sent() {
            terminal::tell("what it changes was sent, and it goes on until it is known what came of that");
        }
        loop {
            // Made before the look, as above.
            let changed = self.shared.changed.notified();
            if !self.shared.is_sent() {
                return Err(self.shared.cancelled());
            }
            tokio::select! {
                biased;
                result = &mut work => return result,
                () = changed => {}
            }
        }
    }

    /// What runs from now on may change data, until this is dropped. An error: a signal came before.
    pub(crate) fn changing(&self) -> Result<Changing, CliError> {
        if self.shared.pending.load(Ordering::SeqCst) {
            return Err(self.shared.cancelled());
        }
        let (shared, commitment) = (Arc::clone(&self.shared), Arc::<Commitment>::default());
        *shared.changing.lock() = Some(Arc::clone(&commitment));
        Ok(Changing { shared, commitment })
    }

    /// All was done and told. A signal from now on ends only what nobody waits for.
    pub(crate) fn told(&self) {
        self.shared.is_told.store(true, Ordering::SeqCst);
    }

    /// Whether the process is to end.
    pub(crate) fn terminates(&self) -> bool {
        self.shared.terminates.load(Ordering::SeqCst)
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
    /// Something came. Until when it is to be dealt with.
    fn take(&self, came: Came) -> Option<(Instant, Came)> {
        self.noticed.store(false, Ordering::SeqCst);
        self.terminates.fetch_or(came == Came::Terminate, Ordering::SeqCst);
        if self.pending.swap(true, Ordering::SeqCst) {
            self.end(came);
        }
        self.came.notify_waiters();
        Some((Instant::now() + NOTICE_LIMIT, came))
    }

    /// Why what runs ends early.
    fn cancelled(&self) -> CliError {
        match self.terminates.load(Ordering::SeqCst) {
            true => CliError::Terminated,
            false => Fault::new(Blame::Cancelled, "cancelled").into(),
        }
    }

    /// Whether what runs has sent a change. If not, it sends none from now on.
    fn is_sent(&self) -> bool {
        let changing = self.changing.lock().clone();
        changing.is_some_and(|commitment| !commitment.cancel(Fault::new(Blame::Cancelled, "cancelled")))
    }

    /// What came is not dealt with in time: ends the process, unless it is about to end. Until when it may take.
    fn is_late(&self, came: Came) -> Option<(Instant, Came)> {
        if !self.pending.load(Ordering::SeqCst) {
            return None;
        }
        if self.is_sent() {
            return Some((Instant::now() + NOTICE_LIMIT, came));
        }
        if !self.noticed.swap(false, Ordering::SeqCst) {
            self.end(came);
        }
        Some((Instant::now() + END_LIMIT, came))
    }

    /// What was acknowledged is durable; but for what goes with the process, nothing needs a tidy end.
    fn end(&self, came: Came) -> ! {
        if self.is_sent() {
            terminal::tell("what it changes was sent, and it is not known what came of that: look before it is done again");
        }
        if let Some(spills) = &*self.spills.lock() {
            spills.remove();
        }
        scratch::remove();
        let is_told = self.is_told.load(Ordering::SeqCst);
        std::process::exit(if is_told { 0 } else { i32::from(came.code()) })
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
        due = shared.take(came);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use pithead_embed::{EmbedOptions, Target, connect};
    use pithead_host::{Parameters, Session};

    use super::*;

    fn unheard() -> Interrupts {
        Interrupts { shared: Arc::default() }
    }

    async fn ran(session: &Session, sql: &str, changing: &Changing) -> Result<(), CliError> {
        session.run_until(sql, &Parameters::default(), &changing.commitment()).await?;
        Ok(())
    }

    fn is_cancelled<T>(result: Result<T, CliError>) -> bool {
        matches!(result, Err(CliError::Fault(fault)) if fault.blame == Blame::Cancelled)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_sent_is_waited_for_and_nothing_is_sent_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let options = EmbedOptions { drives: Some(1), ..EmbedOptions::default() };
        let engine = connect(&Target::Data(folder.path().join("data")), &options).await.unwrap();
        let (session, interrupts) = (engine.host.session(), unheard());
        let work = async {
            let changing = interrupts.changing()?;
            ran(&session, "CREATE TABLE t AS SELECT 1 AS a", &changing).await?;
            let due = interrupts.shared.take(Came::Interrupt);
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert!(due.is_some() && interrupts.shared.is_late(Came::Interrupt).is_some(), "the process goes on");
            Ok(7)
        };
        assert_eq!(interrupts.cancels(work).await.unwrap(), 7);
        assert!(is_cancelled(interrupts.changing()), "a statement behind it does not begin");
        interrupts.clear();

        let changing = interrupts.changing().unwrap();
        let work = async {
            let due = interrupts.shared.take(Came::Interrupt);
            assert!(due.is_some());
            std::future::pending::<Result<Infallible, CliError>>().await
        };
        assert!(is_cancelled(interrupts.cancels(work).await));
        assert!(is_cancelled(ran(&session, "INSERT INTO t VALUES (2)", &changing).await), "it was not sent, and is not");
        let mut rows = session.run("SELECT * FROM t").await.unwrap().rows;
        let mut count = 0;
        while let Some(batch) = futures::StreamExt::next(&mut rows).await {
            count += batch.unwrap().num_rows();
        }
        assert_eq!(count, 1);
        engine.shutdown().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_follows_a_change_does_not_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let options = EmbedOptions { drives: Some(1), ..EmbedOptions::default() };
        let engine = connect(&Target::Data(folder.path().join("data")), &options).await.unwrap();
        let (session, interrupts) = (engine.host.session(), unheard());
        let work = async {
            let changing = interrupts.changing()?;
            ran(&session, "CREATE TABLE t AS SELECT 1 AS a", &changing).await?;
            interrupts.shared.take(Came::Terminate);
            tokio::task::yield_now().await;
            drop(changing);
            // As who waits for the next line of stdin.
            std::future::pending::<Result<Infallible, CliError>>().await
        };
        let ended = tokio::time::timeout(Duration::from_secs(60), interrupts.cancels(work)).await;
        assert!(matches!(ended, Ok(Err(CliError::Terminated))) && interrupts.terminates());
        engine.shutdown().await;
    }
}
