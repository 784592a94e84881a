//! An application's ports between the drive and its host, from the start to the end.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll};

use futures::future::{Either, select};
use futures::stream::{self, BoxStream, Stream, StreamExt};
use pithead_cse::SessionTable;
use pithead_door::{ApplicationEvent, ApplicationRun, HostPort, PortInputs};
use pithead_model::{Blame, Fault};
use pithead_program::{HostReader, HostWriter, ProgramError};
use pithead_sched::{AbortOnDrop, Class};

use super::feeding::{Queued, Room, Windows};
use super::flow::Flow;
use super::session::Application;
use super::telling::Telling;
use crate::resources::Workers;

/// The ports that are the host's.
pub(super) struct HostPorts {
    pub(super) writers: Vec<(HostPort, HostWriter)>,
    pub(super) readers: Vec<(HostPort, HostReader)>,
    /// Where ports have windows.
    pub(super) room: Option<Room>,
}

type Events = BoxStream<'static, Result<ApplicationEvent, Fault>>;

/// The events of an application that was started. Dropping them ends it. `window`: see [`pithead_door::RunApplication::window`].
pub(super) fn run(
    application: Arc<Application>,
    ports: HostPorts,
    inputs: PortInputs,
    window: Option<u64>,
    table: Arc<SessionTable<Application>>,
    workers: &Workers,
) -> ApplicationRun {
    let HostPorts { writers, readers, room } = ports;
    let (taken, writers): (Vec<HostPort>, Vec<HostWriter>) = writers.into_iter().unzip();
    let (given, readers): (Vec<HostPort>, Vec<HostReader>) = readers.into_iter().unzip();
    let flows: Vec<Arc<Flow>> = window.iter().flat_map(|bytes| given.iter().map(|_| Arc::new(Flow::new(*bytes)))).collect();
    let queues = readers.iter().map(HostReader::queue).collect();
    let outputs = (0..).zip(readers).map(|(port, reader)| batches(&application, port, reader, flows.get(port as usize)));
    let outputs: Vec<Events> = outputs.collect();
    let ending = Arc::clone(&application);
    let finished = stream::once(async move { Ok(ApplicationEvent::Finished { run_ns: ending.finished().await? }) });
    let events = stream::select_all(outputs).chain(finished).boxed();
    let (pool, feeding) = (Arc::clone(workers.pool()), Arc::clone(&application));
    let (feeder, events) = match room {
        None => {
            let queued = Queued { application: feeding, outputs: queues };
            (pool.spawn(Class::Foreground, queued.feed(writers, inputs)), events)
        }
        Some(room) => {
            let (telling, received) = (Arc::new(Telling::default()), AtomicU64::new(0));
            let told = Arc::clone(&telling);
            let windows = Windows { application: feeding, room, flows, outputs: queues, telling, received };
            let feeder = pool.spawn(Class::Foreground, windows.feed(writers, inputs, Arc::clone(&pool)));
            (feeder, with_windows(&application, events, told))
        }
    };
    let session = application.id;
    let watched = Watched { events: Some(events), application, table, _feeder: feeder.abort_on_drop() };
    ApplicationRun { session, inputs: taken, outputs: given, events: watched.boxed() }
}

/// Events, and between them what the host is told of its inputs. A failure comes at once, also while outputs wait for room.
fn with_windows(application: &Arc<Application>, events: Events, telling: Arc<Telling>) -> Events {
    let told = stream::unfold(telling, |telling| async move { Some((Ok(telling.next().await), telling)) });
    let application = Arc::clone(application);
    let failing = stream::once(async move { application.finished().await.err() });
    let failing = failing.filter_map(|fault| std::future::ready(fault.map(Err)));
    stream::select(stream::select(events, told), failing).boxed()
}

/// The batches of one output, and its end.
fn batches(application: &Arc<Application>, port: u32, reader: HostReader, flow: Option<&Arc<Flow>>) -> Events {
    let state = Sending { application: Arc::clone(application), port, reader, flow: flow.cloned() };
    stream::unfold(Some(state), |state| async move { Some(state?.next().await) }).boxed()
}

struct Sending {
    application: Arc<Application>,
    port: u32,
    reader: HostReader,
    flow: Option<Arc<Flow>>,
}

impl Sending {
    /// The next event; without what is left of it, it is the last one.
    async fn next(self) -> (Result<ApplicationEvent, Fault>, Option<Self>) {
        let port = self.port;
        match self.batch().await {
            Ok(Some(batch)) => {
                if let Some(flow) = &self.flow {
                    flow.sent(batch.len() as u64);
                }
                (Ok(ApplicationEvent::Batch { port, bytes: batch.into() }), Some(self))
            }
            Ok(None) => (Ok(ApplicationEvent::End { port }), None),
            Err(error) => (Err(self.application.why(error)), None),
        }
    }

    /// The next batch, once the host has room for it. None at the end, and once the host wants no more.
    async fn batch(&self) -> Result<Option<Vec<u8>>, ProgramError> {
        let Some(flow) = &self.flow else { return self.reader.get().await };
        if !flow.room().await {
            return Ok(None);
        }
        match select(pin!(self.reader.get()), pin!(flow.closed())).await {
            Either::Left((batch, _)) => batch,
            Either::Right(_) => Ok(None),
        }
    }
}

/// Events whose end, or whose loss, is the application's end.
struct Watched {
    /// None after the last.
    events: Option<Events>,
    application: Arc<Application>,
    table: Arc<SessionTable<Application>>,
    _feeder: AbortOnDrop<()>,
}

impl Stream for Watched {
    type Item = Result<ApplicationEvent, Fault>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(events) = &mut self.events else { return Poll::Ready(None) };
        let polled = events.poll_next_unpin(context);
        self.application.touch(polled.is_pending());
        if matches!(&polled, Poll::Ready(None | Some(Err(_) | Ok(ApplicationEvent::Finished { .. })))) {
            self.events = None;
        }
        polled
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        drop(self.table.remove(self.application.id));
        self.application.fail(Fault::new(Blame::Cancelled, "the application's host is gone"));
    }
}
