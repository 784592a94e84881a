//! An application's ports between the drive and its host, from the start to the end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::stream::{self, BoxStream, Stream, StreamExt};
use pithead_cse::SessionTable;
use pithead_door::{ApplicationEvent, ApplicationRun, HostPort, PortInput, PortInputs};
use pithead_model::{Blame, Fault};
use pithead_program::{HostReader, HostWriter};
use pithead_sched::{AbortOnDrop, Class};

use super::faults::program_fault;
use super::session::Application;
use crate::resources::Workers;

/// The ports that are the host's.
pub(super) struct HostPorts {
    pub(super) writers: Vec<(HostPort, HostWriter)>,
    pub(super) readers: Vec<(HostPort, HostReader)>,
}

type Events = BoxStream<'static, Result<ApplicationEvent, Fault>>;

/// The events of an application that was started. Dropping them ends it.
pub(super) fn run(
    application: Arc<Application>,
    ports: HostPorts,
    inputs: PortInputs,
    table: Arc<SessionTable<Application>>,
    workers: &Workers,
) -> ApplicationRun {
    let HostPorts { writers, readers } = ports;
    let (taken, writers): (Vec<HostPort>, Vec<HostWriter>) = writers.into_iter().unzip();
    let (given, readers): (Vec<HostPort>, Vec<HostReader>) = readers.into_iter().unzip();
    let feeding = Arc::clone(&application);
    let feeder = workers.pool().spawn(Class::Foreground, async move {
        if let Err(fault) = feed(writers, inputs).await {
            feeding.fail(fault);
        }
    });
    let outputs = (0..).zip(readers).map(|(port, reader)| batches(Arc::clone(&application), port, reader));
    let outputs: Vec<Events> = outputs.collect();
    let ending = Arc::clone(&application);
    let finished = stream::once(async move { Ok(ApplicationEvent::Finished { run_ns: ending.finished().await? }) });
    let events = stream::select_all(outputs).chain(finished).boxed();
    let session = application.id;
    let watched = Watched { events: Some(events), application, table, _feeder: feeder.abort_on_drop() };
    ApplicationRun { session, inputs: taken, outputs: given, events: watched.boxed() }
}

/// An input of the host's.
enum Fed {
    Open(HostWriter),
    /// Nobody reads it any more: what comes is dropped.
    Unread,
    Ended,
}

/// Passes on what comes for inputs. The end of all ends each.
async fn feed(writers: Vec<HostWriter>, mut inputs: PortInputs) -> Result<(), Fault> {
    let mut ports: Vec<Fed> = writers.into_iter().map(Fed::Open).collect();
    let count = ports.len();
    let unknown = |port| Fault::new(Blame::User, format!("there is no input {port} among {count}, counted from 0"));
    while let Some(input) = inputs.next().await {
        match input? {
            PortInput::End { port } => *ports.get_mut(port as usize).ok_or_else(|| unknown(port))? = Fed::Ended,
            PortInput::Batch { port, bytes } => {
                let fed = ports.get_mut(port as usize).ok_or_else(|| unknown(port))?;
                match fed {
                    Fed::Ended => {
                        return Err(Fault::new(Blame::User, format!("a batch came for input {port} after its end")));
                    }
                    Fed::Unread => {}
                    Fed::Open(writer) => {
                        if !writer.put(bytes.into()).await.map_err(program_fault)? {
                            *fed = Fed::Unread;
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// The batches of one output, and its end.
fn batches(application: Arc<Application>, port: u32, reader: HostReader) -> Events {
    stream::unfold(Some((application, reader)), move |state| async move {
        let (application, reader) = state?;
        match reader.get().await {
            Ok(Some(batch)) => Some((Ok(ApplicationEvent::Batch { port, bytes: batch.into() }), Some((application, reader)))),
            Ok(None) => Some((Ok(ApplicationEvent::End { port }), None)),
            Err(error) => Some((Err(application.why(error)), None)),
        }
    })
    .boxed()
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
