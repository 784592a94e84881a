//! An application over several drives, as a file describes it.

use std::sync::{Arc, Weak};

use futures::stream::{self, BoxStream, StreamExt, select_all, unfold};
use pithead_embed::{ApplicationEvent, ApplicationRun, Door, HostPort, PortAt, PortInput, PortInputs};
use pithead_model::{Fault, SessionId};
use pithead_span::{Application, Bounds, HostReader, HostWriter, Input, Output, Ssdlet};

use super::graph::{EACH, Graph, SsdletPlacement};

/// Starts it, its free ports fed by `inputs`. What runs is one application, whatever the drives that it lies on.
pub(super) async fn start(
    graph: &Graph,
    places: &[SsdletPlacement],
    doors: Vec<Arc<dyn Door>>,
    bounds: Bounds,
    inputs: PortInputs,
) -> Result<ApplicationRun, Fault> {
    let labels: Vec<String> = doors.iter().map(|door| door.label().to_owned()).collect();
    let name = graph.ssdlets.first().map(|ssdlet| ssdlet.module.clone()).unwrap_or_default();
    let application = Arc::new(Application::new(&name, doors, bounds)?);
    let mut copies: Vec<Vec<Ssdlet>> = Vec::new();
    for ((spec, name), place) in graph.ssdlets.iter().zip(&graph.names).zip(places) {
        let mut there = Vec::new();
        for drive in drives(place, &labels)? {
            let (ssdlet, arguments) = (spec.ssdlet.as_deref(), spec.arguments.clone());
            there.push(application.ssdlet(drive, &spec.module, ssdlet, arguments).await?.called(name));
        }
        copies.push(there);
    }
    connect(&application, graph, places, &copies)?;
    let (writers, readers) = free(&application, graph, &copies)?;
    application.start().await?;
    Ok(run(application, writers, readers, inputs))
}

/// The numbers of the drives that are meant.
fn drives(place: &SsdletPlacement, labels: &[String]) -> Result<Vec<usize>, Fault> {
    let there = labels.join(", ");
    match place {
        SsdletPlacement::Name(name) if name == EACH => Ok((0..labels.len()).collect()),
        SsdletPlacement::Number(number) if *number < labels.len() => Ok(vec![*number]),
        SsdletPlacement::Number(number) => {
            let count = labels.len();
            Err(Fault::invalid(format!("no drive has the number {number} among {count}, counted from 0: {there}")))
        }
        SsdletPlacement::Name(name) => {
            let found = labels.iter().position(|label| label == name);
            found
                .map(|drive| vec![drive])
                .ok_or_else(|| Fault::invalid(format!("no drive is {name:?}; the drives are {there}")))
        }
    }
}

/// Connects what the file connects. Between two SSDlets that lie at each drive, each drive has a connection of its own.
fn connect(application: &Application, graph: &Graph, places: &[SsdletPlacement], copies: &[Vec<Ssdlet>]) -> Result<(), Fault> {
    let is_each = |ssdlet: usize| places[ssdlet] == SsdletPlacement::Name(EACH.to_owned());
    for connection in &graph.connections {
        let (from, to) = (connection.from, connection.to);
        for (place, one) in copies[from.ssdlet].iter().enumerate() {
            for (other_place, other) in copies[to.ssdlet].iter().enumerate() {
                if !(is_each(from.ssdlet) && is_each(to.ssdlet)) || place == other_place {
                    application.connect(&one.output(from.port), &other.input(to.port))?;
                }
            }
        }
    }
    Ok(())
}

type Writers = Vec<(HostPort, HostWriter)>;
type Readers = Vec<(HostPort, HostReader)>;

/// Ports that nothing is connected to, those of an SSDlet at each drive as one.
fn free(application: &Application, graph: &Graph, copies: &[Vec<Ssdlet>]) -> Result<(Writers, Readers), Fault> {
    let (mut writers, mut readers) = (Vec::new(), Vec::new());
    for (number, there) in copies.iter().enumerate() {
        let Some(first) = there.first() else { continue };
        let at = |port: usize| PortAt { ssdlet: number, port };
        for port in (0..first.declared().inputs.len()).filter(|port| graph.connections.iter().all(|it| it.to != at(*port))) {
            let inputs: Vec<Input> = there.iter().map(|ssdlet| ssdlet.input(port)).collect();
            let writer = application.writer(&inputs)?;
            writers.push((HostPort { at: at(port), signature: writer.signature().to_owned() }, writer));
        }
        for port in (0..first.declared().outputs.len()).filter(|port| graph.connections.iter().all(|it| it.from != at(*port))) {
            let outputs: Vec<Output> = there.iter().map(|ssdlet| ssdlet.output(port)).collect();
            let reader = application.reader(&outputs)?;
            readers.push((HostPort { at: at(port), signature: reader.signature().to_owned() }, reader));
        }
    }
    Ok((writers, readers))
}

/// An application that was started, as one of a single drive looks like. Dropping its events stops it.
fn run(application: Arc<Application>, writers: Writers, readers: Readers, inputs: PortInputs) -> ApplicationRun {
    let (taken, writers): (Vec<HostPort>, Vec<HostWriter>) = writers.into_iter().unzip();
    let (given, readers): (Vec<HostPort>, Vec<HostReader>) = readers.into_iter().unzip();
    tokio::spawn(feed(Arc::downgrade(&application), writers, inputs));
    let outputs = (0..).zip(readers).map(|(port, reader)| batches(port, reader));
    let finished = stream::once(async move {
        let run_ns = application.wait().await?.as_nanos() as u64;
        Ok(ApplicationEvent::Finished { run_ns })
    });
    let events = select_all(outputs).chain(finished).boxed();
    ApplicationRun { session: SessionId(0), inputs: taken, outputs: given, events }
}

/// Passes on what comes for the inputs. A fault among it ends the application.
async fn feed(application: Weak<Application>, writers: Vec<HostWriter>, mut inputs: PortInputs) {
    while let Some(input) = inputs.next().await {
        match input {
            Ok(PortInput::Batch { port, bytes }) => {
                let Some(writer) = writers.get(port as usize) else { continue };
                // Where nobody reads, what comes is dropped. Of a failure the readers are told.
                let _ = writer.put(bytes).await;
            }
            Err(fault) => {
                // While the writers are there: their end would look like that of the input.
                if let Some(application) = application.upgrade() {
                    application.fail(fault);
                }
                return;
            }
            // Standard input ends as a whole, and says nothing of windows.
            Ok(PortInput::End { .. } | PortInput::Taken { .. } | PortInput::Unread { .. }) => {}
        }
    }
}

fn batches(port: u32, reader: HostReader) -> BoxStream<'static, Result<ApplicationEvent, Fault>> {
    let next = move |reader: Option<HostReader>| async move {
        let reader = reader?;
        match reader.get().await {
            Ok(Some(bytes)) => Some((Ok(ApplicationEvent::Batch { port, bytes }), Some(reader))),
            Ok(None) => Some((Ok(ApplicationEvent::End { port }), None)),
            Err(fault) => Some((Err(fault), None)),
        }
    };
    unfold(Some(reader), next).boxed()
}
