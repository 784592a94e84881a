//! The open sessions of an array, and the end of those that nobody pulls.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use pithead_cse::{Cause, SessionLimits, SessionTable, Shutdown, TableSession};
use pithead_door::{Event, Events, OpenRequest, OpenSession, SlicePart};
use pithead_model::{Blame, DatasetId, DatasetName, Fault, SessionId, SessionProfile, SessionState};
use tokio::sync::watch;

use crate::lower::LowerSession;

/// What GET starts.
pub(crate) type Begin = Box<dyn FnOnce() -> Events + Send>;

/// One session, from OPEN to CLOSE.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// Sessions below, of one that is relayed.
    pub(crate) lower: Arc<Vec<LowerSession>>,
    pub(crate) slices_total: u32,
    opened: Instant,
    host: u64,
    datasets: Vec<DatasetName>,
    begin: Mutex<Option<Begin>>,
    progress: Mutex<Progress>,
    /// Why it ended, once it has.
    ended: watch::Sender<Option<Fault>>,
    _place: SessionPermit,
}

struct Progress {
    state: SessionState,
    rounds: u32,
    slices_done: u32,
    /// When the host was last heard of; none: it waits for rows.
    heard: Option<Instant>,
}

/// The open sessions.
pub(crate) struct Sessions {
    table: SessionTable<Session>,
    places: Arc<Places>,
}

/// What sessions take of an array.
#[derive(Default)]
struct Places {
    sessions: AtomicUsize,
    merging: AtomicUsize,
    /// Sessions that read an incarnation of a dataset.
    readers: Mutex<HashMap<DatasetId, usize>>,
}

/// A session's place; free again when this is dropped.
pub(crate) struct SessionPermit {
    places: Arc<Places>,
    merging: bool,
    reads: Vec<DatasetId>,
}

impl SessionPermit {
    /// The session puts rows together at the array.
    pub(crate) fn merges(&mut self) {
        if !std::mem::replace(&mut self.merging, true) {
            self.places.merging.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        self.places.sessions.fetch_sub(1, Ordering::Relaxed);
        if self.merging {
            self.places.merging.fetch_sub(1, Ordering::Relaxed);
        }
        let mut readers = self.places.readers.lock();
        for dataset in &self.reads {
            if let Some(count) = readers.get_mut(dataset) {
                *count -= 1;
                if *count == 0 {
                    readers.remove(dataset);
                }
            }
        }
    }
}

impl Sessions {
    pub(crate) fn new(shutdown: Shutdown) -> Self {
        Self { table: SessionTable::new(shutdown), places: Arc::default() }
    }

    /// Whether the array is about to go.
    pub(crate) fn shutdown(&self) -> &Shutdown {
        self.table.shutdown()
    }

    /// A place for one more session over these parts; none: there are `most`.
    pub(crate) fn admit(&self, most: usize, parts: &[SlicePart]) -> Option<SessionPermit> {
        let admitted =
            self.places.sessions.fetch_update(Ordering::AcqRel, Ordering::Acquire, |open| (open < most).then_some(open + 1));
        admitted.ok()?;
        let reads: Vec<DatasetId> = parts.iter().map(|part| part.dataset).collect();
        let mut readers = self.places.readers.lock();
        reads.iter().for_each(|dataset| *readers.entry(*dataset).or_insert(0) += 1);
        drop(readers);
        Some(SessionPermit { places: Arc::clone(&self.places), merging: false, reads })
    }

    /// Sessions that put rows together here.
    pub(crate) fn merging(&self) -> usize {
        self.places.merging.load(Ordering::Relaxed)
    }

    /// Sessions that are open or about to be.
    pub(crate) fn count(&self) -> usize {
        self.places.sessions.load(Ordering::Relaxed)
    }

    /// Whether a session reads the incarnation.
    pub(crate) fn reads(&self, dataset: DatasetId) -> bool {
        self.places.readers.lock().contains_key(&dataset)
    }

    pub(crate) fn insert(
        &self,
        lower: Arc<Vec<LowerSession>>,
        slices_total: u32,
        begin: Begin,
        place: SessionPermit,
        request: &OpenRequest,
    ) -> SessionId {
        let progress = Progress { state: SessionState::Opened, rounds: 0, slices_done: 0, heard: Some(Instant::now()) };
        let session = Session {
            id: SessionId(rand::random()),
            lower,
            slices_total,
            opened: Instant::now(),
            host: request.options.host,
            datasets: request.parts.iter().map(|part| part.name.clone()).collect(),
            begin: Mutex::new(Some(begin)),
            progress: Mutex::new(progress),
            ended: watch::Sender::new(None),
            _place: place,
        };
        let id = session.id;
        self.table.insert(Arc::new(session));
        id
    }

    pub(crate) fn get(&self, id: SessionId) -> Result<Arc<Session>, Fault> {
        self.table.get(id)
    }

    /// Ends a session if it is there, and the sessions below. Whether it was.
    pub(crate) async fn end(&self, id: SessionId, cause: Cause) -> bool {
        let session = self.table.remove(id);
        if let Some(session) = &session {
            let closed = || Fault::new(Blame::Cancelled, "the session was closed");
            session.end(cause.fault(self.table.shutdown().keeper()).unwrap_or_else(closed)).await;
        }
        session.is_some()
    }

    /// The open sessions, the longest open first.
    pub(crate) fn list(&self) -> Vec<OpenSession> {
        self.table.list()
    }

    pub(crate) async fn end_all(&self, why: &Fault) {
        join_all(self.table.remove_all().iter().map(|session| session.end(why.clone()))).await;
    }

    /// Ends the sessions that last longer than they may, until the table of sessions is gone.
    pub(crate) async fn reap(sessions: Weak<Sessions>, limits: SessionLimits) {
        while let Some(sessions) = sessions.upgrade() {
            for (id, cause) in sessions.table.overdue(&limits) {
                if sessions.end(id, cause).await && cause != Cause::Closed {
                    tracing::warn!(session = %id, cause = cause.word(), ?limits, "ended a session");
                }
            }
            drop(sessions);
            tokio::time::sleep(limits.step()).await;
        }
    }
}

impl Session {
    /// GET, once.
    pub(crate) fn events(self: Arc<Self>, sessions: &Arc<Sessions>) -> Result<Events, Fault> {
        let begin = self.begin.lock().take();
        let Some(begin) = begin else {
            return Err(Fault::new(Blame::User, format!("the rows of session {} were asked for before", self.id)));
        };
        self.progress.lock().state = SessionState::Running;
        let ended = self.ended.subscribe();
        let pulled = Pulled { session: self, sessions: Arc::downgrade(sessions) };
        let state = Some((begin(), ended, pulled));
        Ok(stream::unfold(state, |state| async move {
            let (mut events, mut ended, pulled) = state?;
            pulled.session.progress.lock().heard = None;
            let event = tokio::select! {
                biased;
                why = ended.wait_for(Option::is_some) => {
                    let stopped = || Fault::new(Blame::Cancelled, "the session was closed");
                    Some(Err(why.ok().and_then(|why| why.clone()).unwrap_or_else(stopped)))
                }
                event = events.next() => event,
            };
            pulled.session.heard(event.as_ref());
            let event = event?;
            let more = event.is_ok().then_some((events, ended, pulled));
            Some((event, more))
        })
        .boxed())
    }

    /// Where it stands.
    pub(crate) fn profile(&self) -> SessionProfile {
        let progress = self.progress.lock();
        SessionProfile {
            state: progress.state,
            rounds: progress.rounds,
            slices_total: self.slices_total,
            slices_done: progress.slices_done,
            ..empty_profile()
        }
    }

    fn heard(&self, event: Option<&Result<Event, Fault>>) {
        let mut progress = self.progress.lock();
        progress.heard = Some(Instant::now());
        match event {
            Some(Ok(Event::Closed { annotation, .. })) => {
                progress.rounds += 1;
                progress.slices_done += annotation.slices.iter().map(|span| span.count).sum::<u32>();
            }
            Some(Ok(Event::Finished { .. })) => progress.state = SessionState::Finished,
            Some(Err(_)) => progress.state = SessionState::Failed,
            _ => {}
        }
    }

    async fn end(&self, why: Fault) {
        drop(self.begin.lock().take());
        self.ended.send_replace(Some(why));
        join_all(self.lower.iter().map(LowerSession::close)).await;
    }
}

impl TableSession for Session {
    fn id(&self) -> SessionId {
        self.id
    }

    /// The memory is reserved at the drives below.
    fn described(&self) -> OpenSession {
        let progress = self.progress.lock();
        OpenSession {
            session: self.id,
            owner: None,
            host: self.host,
            datasets: self.datasets.clone(),
            state: progress.state,
            open_s: self.age().as_secs_f64(),
            slices_done: progress.slices_done,
            slices_total: self.slices_total,
            memory: 0,
            programs: vec![],
        }
    }

    fn state(&self) -> SessionState {
        self.progress.lock().state
    }

    fn idle(&self) -> Duration {
        self.progress.lock().heard.map_or(Duration::ZERO, |heard| heard.elapsed())
    }

    fn age(&self) -> Duration {
        self.opened.elapsed()
    }
}

/// A session's rows while somebody pulls them. Who drops them ends the work.
struct Pulled {
    session: Arc<Session>,
    sessions: Weak<Sessions>,
}

impl Drop for Pulled {
    fn drop(&mut self) {
        if self.session.progress.lock().state != SessionState::Finished
            && let Some(sessions) = self.sessions.upgrade()
        {
            sessions.table.remove(self.session.id);
        }
    }
}

/// A profile with nothing in it.
pub(crate) fn empty_profile() -> SessionProfile {
    SessionProfile {
        state: SessionState::Opened,
        rounds: 0,
        slices_total: 0,
        slices_done: 0,
        memory_peak: 0,
        spilled_bytes: 0,
        other_rows_in: 0,
        other_medium_bytes: 0,
        predicted: None,
        link_bytes_per_s: None,
        settled: None,
        calls: vec![],
    }
}
