//! [`IdleSessions`]: results that nobody pulls give back what they hold at drives.
//!
//! A session at a drive has a place and memory there until its rows have ended. Where nobody pulls the rows for a while, the
//! session is closed: at once when this host is refused as busy, and after [`IDLE_LIMIT`] for the sake of other hosts. Who pulls
//! again opens another session for the slices that are left. Rows count once, since those of a round are handed on only when it
//! is closed.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::task::{ArcWake, AtomicWaker, waker_ref};
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use pithead_door::{Event, Events};
use pithead_fleet::ConnectedDrive;
use pithead_model::{DriveId, Fault, SessionId};
use tokio::task::JoinHandle;

use crate::closer::Closer;

/// How long rows from a drive that other hosts may need wait to be pulled.
const IDLE_LIMIT: Duration = Duration::from_secs(10);
/// The same while this host is refused there. Who pulls one row after the other is not taken for idle.
const REFUSED_IDLE_LIMIT: Duration = Duration::from_millis(250);
/// How often sessions are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The open sessions of a host, as far as somebody may have stopped to pull them.
#[derive(Debug, Default)]
pub(crate) struct IdleSessions {
    state: Mutex<IdleState>,
}

#[derive(Debug, Default)]
struct IdleState {
    open: Vec<Weak<OpenSession>>,
    /// Looks at them while there are some.
    looking: Option<JoinHandle<()>>,
}

/// Since when nobody pulls the rows of a result although they could go on.
#[derive(Debug, Default)]
pub(crate) struct Attention {
    idle_since: Mutex<Option<Instant>>,
    puller: AtomicWaker,
}

/// A session whose events arrive, until it is let go.
pub(crate) struct OpenSession {
    /// What the drive calls it.
    pub(crate) session: SessionId,
    drive: DriveId,
    /// Whether the drive is in this process: it has no other host.
    is_own: bool,
    attention: Arc<Attention>,
    held: Mutex<Option<(Events, Option<Closer>)>>,
}

/// A session was closed while nobody pulled.
pub(crate) struct LetGo;

/// Rows, and whether somebody pulls them.
struct Attended<S> {
    rows: S,
    attention: Arc<Attention>,
}

impl IdleSessions {
    /// Takes note of a session.
    pub(crate) fn add(self: &Arc<Self>, session: &Arc<OpenSession>) {
        let mut state = self.state.lock();
        state.open.retain(|open| open.strong_count() > 0);
        state.open.push(Arc::downgrade(session));
        if !session.is_own && state.looking.is_none() {
            state.looking = Some(tokio::spawn(look(Arc::downgrade(self))));
        }
    }

    /// This host was refused at a drive: its sessions there that nobody pulls make room.
    pub(crate) fn make_room(&self, drive: DriveId) {
        let count = self.let_go(REFUSED_IDLE_LIMIT, |session| session.drive == drive);
        tracing::debug!(%drive, count, "closed sessions that nobody pulls, to make room");
    }

    /// Lets sessions go that were idle for so long. How many.
    fn let_go(&self, least: Duration, is_meant: impl Fn(&OpenSession) -> bool) -> usize {
        let mut open = self.state.lock().open.clone();
        // Outside of the lock: what is let go closes a session.
        open.retain(|open| open.upgrade().is_some_and(|session| is_meant(&session) && session.let_go(least)));
        self.state.lock().open.retain(|known| !open.iter().any(|gone| gone.ptr_eq(known)));
        open.len()
    }
}

impl Drop for IdleSessions {
    fn drop(&mut self) {
        if let Some(looking) = &self.state.get_mut().looking {
            looking.abort();
        }
    }
}

/// Looks at the sessions of a host while it has some.
async fn look(sessions: Weak<IdleSessions>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(sessions) = sessions.upgrade() else { return };
        let count = sessions.let_go(IDLE_LIMIT, |session| !session.is_own);
        if count > 0 {
            tracing::debug!(count, "closed sessions that nobody pulls");
        }
        let mut state = sessions.state.lock();
        state.open.retain(|open| open.strong_count() > 0);
        if state.open.is_empty() {
            state.looking = None;
            return;
        }
    }
}

impl Attention {
    /// The same rows; from now on it is known whether somebody pulls them.
    pub(crate) fn of<S: Stream + Unpin>(self: &Arc<Self>, rows: S) -> impl Stream<Item = S::Item> + use<S> {
        Attended { rows, attention: Arc::clone(self) }
    }

    fn begin(&self) {
        *self.idle_since.lock() = None;
    }

    fn end(&self) {
        *self.idle_since.lock() = Some(Instant::now());
    }
}

impl ArcWake for Attention {
    /// The rows can go on. Idle from now on, unless somebody pulls.
    fn wake_by_ref(attention: &Arc<Self>) {
        attention.end();
        attention.puller.wake();
    }
}

impl<S: Stream + Unpin> Stream for Attended<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let Attended { rows, attention } = &mut *self;
        attention.begin();
        attention.puller.register(context.waker());
        let waker = waker_ref(attention);
        let polled = rows.poll_next_unpin(&mut Context::from_waker(&waker));
        if polled.is_ready() {
            attention.end();
        }
        polled
    }
}

impl OpenSession {
    pub(crate) fn new(
        drive: &ConnectedDrive,
        session: SessionId,
        attention: &Arc<Attention>,
        events: Events,
        closer: Option<Closer>,
    ) -> Arc<Self> {
        let (is_own, held) = (drive.door.is_in_process(), Mutex::new(Some((events, closer))));
        Arc::new(Self { session, drive: drive.id(), is_own, attention: Arc::clone(attention), held })
    }

    /// The next event; none after the last one.
    pub(crate) async fn next(&self) -> Result<Option<Result<Event, Fault>>, LetGo> {
        std::future::poll_fn(|context| match &mut *self.held.lock() {
            Some((events, _)) => events.poll_next_unpin(context).map(Ok),
            None => Poll::Ready(Err(LetGo)),
        })
        .await
    }

    /// CLOSE, at the end of its work.
    pub(crate) async fn close(&self) {
        let held = self.held.lock().take();
        if let Some((_, Some(mut closer))) = held {
            closer.close().await;
        }
    }

    /// Closes it if nobody has pulled for so long.
    fn let_go(&self, least: Duration) -> bool {
        // Who holds the lock pulls.
        let Some(mut held) = self.held.try_lock() else { return false };
        let is_idle = self.attention.idle_since.lock().is_some_and(|since| since.elapsed() >= least);
        let let_go = if is_idle { held.take() } else { None };
        drop(held);
        let_go.is_some()
    }
}

impl std::fmt::Debug for OpenSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenSession").field("session", &self.session).field("drive", &self.drive).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::channel::mpsc;

    use super::*;

    fn idle(attention: &Attention) -> bool {
        attention.idle_since.lock().is_some()
    }

    #[tokio::test]
    async fn rows_that_are_waited_for_are_not_idle_and_those_that_wait_are() {
        let (sender, receiver) = mpsc::unbounded();
        let attention = Arc::new(Attention::default());
        assert!(!idle(&attention), "nobody has pulled yet, and nothing is open");
        let mut rows = attention.of(receiver);
        let waker = futures::task::noop_waker();
        let mut context = Context::from_waker(&waker);
        assert!(rows.poll_next_unpin(&mut context).is_pending());
        assert!(!idle(&attention), "who pulls waits for the drive");
        sender.unbounded_send(1).unwrap();
        assert!(idle(&attention), "rows wait to be pulled");
        assert!(rows.poll_next_unpin(&mut context).is_ready() && idle(&attention));
        sender.unbounded_send(2).unwrap();
        assert_eq!(rows.next().await, Some(2));
    }
}
