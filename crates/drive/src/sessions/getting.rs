//! GET: starts a session's tasks, and the stream that its host pulls.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use futures::{FutureExt, Stream};
use pithead_door::{Event, Events, LinkGauge};
use pithead_model::{Blame, Fault, SessionId};
use pithead_sched::Class;
use tracing::Instrument;

use crate::metrics::Metrics;
use crate::resources::panic_fault;
use crate::sessions::SessionServer;
use crate::sessions::admission::Sessions;
use crate::sessions::polling::Polling;
use crate::sessions::running::{Around, Running};
use crate::sessions::session::Session;
use crate::sessions::slow::Watch;

impl SessionServer {
    /// `link`: over what the events travel; none: within this process.
    pub(crate) fn get_events(&self, id: SessionId, link: Option<Arc<dyn LinkGauge>>) -> Result<Events, Fault> {
        let session = self.sessions.get(id)?;
        let work = session.begin()?;
        session.activity.touch(false);
        let (tasks, steer) = (work.policy.tasks, Arc::clone(&work.steer));
        if let Some(link) = link {
            steer.over(link);
        }
        let events = session.queue.open();
        let watch = Watch { metrics: Arc::clone(&self.metrics), slow: self.slow_session };
        let around = Around {
            workers: self.resources.workers.clone(),
            sessions: Arc::clone(&self.sessions),
            slices: Arc::clone(&self.storage.slices),
        };
        let running =
            Arc::new(Running::new(Arc::clone(&session), work, Arc::clone(&self.resources.device), events, watch, around));
        if steer.may_carry() {
            self.start_task(&session, &running, Arc::clone(&running).carrier());
        }
        for index in 0..tasks {
            self.start_task(&session, &running, Arc::clone(&running).task(index));
        }
        if session.is_stopped() {
            // It was closed just now, before there was a queue to end.
            session.queue.end();
        }
        let (sessions, metrics) = (Arc::clone(&self.sessions), Arc::clone(&self.metrics));
        let polling = Polling::of(&self.resources.device);
        Ok(Box::pin(EventStream { session, polling, sessions, metrics, ended: false }))
    }

    fn start_task(
        &self,
        session: &Arc<Session>,
        running: &Arc<Running>,
        task: impl Future<Output = Result<(), Fault>> + Send + 'static,
    ) {
        let id = session.id;
        let (mark, events) = (session.mark_task(), running.events());
        let task = session.until_stopped(AssertUnwindSafe(task).catch_unwind());
        let session = Arc::clone(session);
        let whole = async move {
            match task.await {
                Ok(Ok(Ok(()))) | Err(_) => {}
                Ok(Ok(Err(fault))) => session.fail(fault),
                Ok(Err(panic)) => session.fail(panic_fault(&*panic)),
            }
            // The host sees the queue's end only now that there is a fault to see.
            drop((events, mark));
        };
        // At this level, so that warnings of operators name their session.
        let span = tracing::info_span!("session", id = %id);
        self.resources.workers.spawn(Class::Foreground, whole.instrument(span));
    }
}

/// A session's events. Dropping it before the end ends the session.
struct EventStream {
    session: Arc<Session>,
    polling: Option<Polling>,
    sessions: Arc<Sessions>,
    metrics: Arc<Metrics>,
    ended: bool,
}

impl Stream for EventStream {
    type Item = Result<Event, Fault>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.session.activity.touch(true);
        let EventStream { session, polling, .. } = &mut *self;
        let event = ready!(match polling {
            Some(polling) => polling.poll(context, |context| session.queue.poll_next(context)),
            None => session.queue.poll_next(context),
        });
        self.session.activity.touch(false);
        let event = match (self.session.fault(), event) {
            (Some(fault), _) => Err(fault),
            (None, Some(event)) => Ok(event),
            (None, None) => Err(Fault::new(Blame::Cancelled, format!("session {} was closed", self.session.id))),
        };
        if let Err(fault) = &event {
            self.metrics.failed(fault);
        }
        self.ended = matches!(event, Err(_) | Ok(Event::Finished { .. }));
        if self.ended {
            self.session.is_delivered.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Some(event))
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        // All was sent once it has ended, and lies in buffers of the link: its host closes it when it has read that, or the reaper.
        if !self.ended {
            self.sessions.close(self.session.id);
        }
    }
}
