//! What comes for an application: batches for its inputs, and how far its host is with its outputs.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{Either, select};
use futures::stream::StreamExt;
use pithead_door::{PortInput, PortInputs};
use pithead_model::{Blame, Fault};
use pithead_program::{Held, HostQueue, HostWriter, ProgramError};
use pithead_sched::{AbortOnDrop, Class, Pool};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::faults::program_fault;
use super::flow::Flow;
use super::session::Application;
use super::telling::Telling;

/// The inputs of an application whose ports have no windows: what comes for one waits for what came before it for another.
pub(super) struct Queued {
    pub(super) application: Arc<Application>,
    /// What waits in outputs.
    pub(super) outputs: Vec<HostQueue>,
}

/// An input of the host's.
enum Fed {
    Open(HostWriter),
    /// Nobody reads it any more: what comes is dropped.
    Unread,
    Ended,
}

impl Queued {
    /// Passes on what comes, one batch after the other, whatever their inputs. The end of all ends each.
    pub(super) async fn feed(self, writers: Vec<HostWriter>, inputs: PortInputs) {
        let mut ports: Vec<Fed> = writers.into_iter().map(Fed::Open).collect();
        if let Err(fault) = self.pass_all(&mut ports, inputs).await {
            // Before the writers are dropped, which would look like the end of what came.
            self.application.fail(fault);
        }
    }

    async fn pass_all(&self, ports: &mut [Fed], mut inputs: PortInputs) -> Result<(), Fault> {
        let count = ports.len();
        while let Some(input) = inputs.next().await {
            match input? {
                PortInput::End { port } => *ports.get_mut(port as usize).ok_or_else(|| no_input(port, count))? = Fed::Ended,
                PortInput::Batch { port, bytes } => {
                    let fed = ports.get_mut(port as usize).ok_or_else(|| no_input(port, count))?;
                    match fed {
                        Fed::Ended => return Err(after_end(port)),
                        Fed::Unread => {}
                        Fed::Open(writer) => {
                            if !self.put(port, writer, bytes).await? {
                                *fed = Fed::Unread;
                            }
                        }
                    }
                }
                PortInput::Taken { port, .. } | PortInput::Unread { port } => {
                    let what = format!("the application was started without windows, and output {port} was said to have one");
                    return Err(Fault::new(Blame::User, what));
                }
            }
        }
        Ok(())
    }

    /// Puts a batch. False if nobody reads any more. Fails where it would wait for ever: what the SSDlets wait for comes behind it.
    async fn put(&self, port: u32, writer: &HostWriter, batch: Bytes) -> Result<bool, Fault> {
        let mut putting = pin!(writer.put(batch.into()));
        let mut before = None;
        loop {
            if let Either::Left((put, _)) = select(putting.as_mut(), pin!(tokio::time::sleep(IDLE_LOOK))).await {
                return put.map_err(program_fault);
            }
            let waits = self.stuck();
            if let Some(waits) = &waits
                && before.as_ref() == Some(waits)
            {
                let what = format!("input {port} is full, and no SSDlet takes from it: {waits}, which comes later");
                return Err(
                    Fault::new(Blame::User, what).hint("send the rows of the inputs in the order in which they are taken")
                );
            }
            before = waits;
        }
    }

    /// Who waits for what, if no SSDlet can go on without the host, and the host has nothing to take.
    fn stuck(&self) -> Option<String> {
        let waits = self.application.running.idle()?;
        let are_taken = self.outputs.iter().all(HostQueue::is_empty);
        // What the host took just now may be what an SSDlet waited for.
        (are_taken && self.application.running.idle().as_ref() == Some(&waits)).then_some(waits)
    }
}

fn no_input(port: u32, count: usize) -> Fault {
    Fault::new(Blame::User, format!("there is no input {port} among {count}, counted from 0"))
}

fn after_end(port: u32) -> Fault {
    Fault::new(Blame::User, format!("a batch came for input {port} after its end"))
}

/// How often it is looked whether no SSDlet can go on by itself.
const IDLE_LOOK: Duration = Duration::from_millis(250);

/// What may wait in front of each input of an application, and its memory for all of them: what SSDlets take meanwhile does not
/// end the application for what its host sends.
#[derive(Debug)]
pub(super) struct Room {
    bytes: u64,
    _held: Held,
}

impl Room {
    /// A window for each of so many inputs. Fails if the application may not hold as much.
    pub(super) fn new(running: &pithead_program::Application, bytes: u64, inputs: usize) -> Result<Self, ProgramError> {
        let held = running.hold((bytes as usize).saturating_mul(inputs))?;
        Ok(Self { bytes, _held: held })
    }
}

/// The inputs of an application whose ports have windows: none waits for another.
pub(super) struct Windows {
    pub(super) application: Arc<Application>,
    pub(super) room: Room,
    pub(super) flows: Vec<Arc<Flow>>,
    /// What waits in outputs.
    pub(super) outputs: Vec<HostQueue>,
    /// What tells the host of its inputs.
    pub(super) telling: Arc<Telling>,
    /// What has come until now.
    pub(super) received: AtomicU64,
}

/// An input with its own queue, which holds no more than the window and a batch: who sends more has not kept to it.
struct Lane {
    /// None after its end.
    sender: Option<UnboundedSender<Waiting>>,
    waiting: Arc<AtomicU64>,
    /// Where it waits behind that.
    queue: HostQueue,
    task: AbortOnDrop<()>,
}

/// A batch that waits, and the memory of what does not fit into the window.
struct Waiting {
    batch: Bytes,
    beyond: Option<Held>,
}

/// The bytes that wait in front of the queue of an input, and that queue.
type InputBacklog = (Arc<AtomicU64>, HostQueue);

impl Windows {
    /// Passes on what comes until it ends, and then until all of it was taken.
    pub(super) async fn feed(self, writers: Vec<HostWriter>, inputs: PortInputs, pool: Arc<Pool>) {
        let mut lanes: Vec<Lane> = (0..).zip(writers).map(|(port, writer)| self.lane(port, writer, &pool)).collect();
        let held: Vec<InputBacklog> = lanes.iter().map(|lane| (Arc::clone(&lane.waiting), lane.queue.clone())).collect();
        let passed = {
            let (passing, telling) = (pin!(self.pass_all(&mut lanes, inputs)), pin!(self.tell_idle(&held)));
            match select(passing, telling).await {
                Either::Left((passed, _)) => passed,
                Either::Right((never, _)) => match never {},
            }
        };
        if let Err(fault) = passed {
            self.application.fail(fault);
        }
        for Lane { sender, task, .. } in lanes {
            drop(sender);
            // A task that was lost has ended its stream by that.
            let _ = task.await;
        }
    }

    fn lane(&self, port: u32, writer: HostWriter, pool: &Pool) -> Lane {
        let (sender, receiver) = unbounded_channel();
        let (waiting, queue) = (Arc::new(AtomicU64::new(0)), writer.queue());
        let passing = Passing {
            application: Arc::clone(&self.application),
            port,
            writer,
            waiting: Arc::clone(&waiting),
            telling: Arc::clone(&self.telling),
        };
        let task = pool.spawn(Class::Foreground, passing.run(receiver)).abort_on_drop();
        Lane { sender: Some(sender), waiting, queue, task }
    }

    /// Tells the host, once for all that has come until then, that no SSDlet can go on by itself: all may wait for each other.
    async fn tell_idle(&self, held: &[InputBacklog]) -> std::convert::Infallible {
        let mut told = None;
        loop {
            tokio::time::sleep(IDLE_LOOK).await;
            // First, so that what comes meanwhile is not counted.
            let received = self.received.load(Ordering::Acquire);
            if told != Some(received)
                && let Some(waits) = self.idle(held)
            {
                told = Some(received);
                self.telling.idle(received, waits);
            }
        }
    }

    /// Who waits for what, if nothing moves in the application and between it and its host.
    fn idle(&self, held: &[InputBacklog]) -> Option<String> {
        let before: Vec<(bool, u64)> = self.flows.iter().map(|flow| flow.look()).collect();
        let waits = self.application.running.idle()?;
        let are_taken = held.iter().all(|(waiting, queue)| waiting.load(Ordering::Acquire) == 0 || !queue.is_empty());
        let are_sent = self.outputs.iter().zip(&before).all(|(queue, (is_full, _))| *is_full || queue.is_empty());
        let is_still = self.flows.iter().zip(&before).all(|(flow, before)| flow.look() == *before);
        (are_taken && are_sent && is_still).then_some(waits)
    }

    async fn pass_all(&self, lanes: &mut [Lane], mut inputs: PortInputs) -> Result<(), Fault> {
        let (count, outputs) = (lanes.len(), self.flows.len());
        let no_output =
            |port: u32| Fault::new(Blame::User, format!("there is no output {port} among {outputs}, counted from 0"));
        while let Some(input) = inputs.next().await {
            match input? {
                PortInput::Taken { port, bytes } => {
                    self.flows.get(port as usize).ok_or_else(|| no_output(port))?.taken(bytes);
                }
                PortInput::Unread { port } => self.flows.get(port as usize).ok_or_else(|| no_output(port))?.unread(),
                PortInput::End { port } => {
                    lanes.get_mut(port as usize).ok_or_else(|| no_input(port, count))?.sender = None;
                }
                PortInput::Batch { port, bytes } => {
                    let lane = lanes.get_mut(port as usize).ok_or_else(|| no_input(port, count))?;
                    self.queue(lane, port, bytes)?;
                }
            }
            self.received.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    fn queue(&self, lane: &Lane, port: u32, bytes: Bytes) -> Result<(), Fault> {
        let sender = lane.sender.as_ref().ok_or_else(|| after_end(port))?;
        if bytes.is_empty() {
            return Err(Fault::new(Blame::User, format!("an empty batch came for input {port}")));
        }
        let (window, length) = (self.room.bytes, bytes.len() as u64);
        let waiting = lane.waiting.fetch_add(length, Ordering::Relaxed);
        if waiting >= window {
            let what =
                format!("more came for input {port} than its window of {window} bytes, of which {waiting} are not taken");
            return Err(Fault::new(Blame::User, what));
        }
        let beyond = (waiting + length).saturating_sub(window) as usize;
        let held = (beyond > 0).then(|| self.application.running.hold(beyond)).transpose();
        let held = held.map_err(|error| program_fault(error).at(format_args!("a batch for input {port}")))?;
        // Where nobody reads any more, it is dropped; the host was told.
        let _ = sender.send(Waiting { batch: bytes, beyond: held });
        Ok(())
    }
}

/// Passes the batches of one input to its SSDlets.
struct Passing {
    application: Arc<Application>,
    port: u32,
    writer: HostWriter,
    waiting: Arc<AtomicU64>,
    telling: Arc<Telling>,
}

impl Passing {
    async fn run(self, mut batches: UnboundedReceiver<Waiting>) {
        let port = self.port;
        let mut is_read = true;
        while let Some(Waiting { batch, beyond }) = batches.recv().await {
            let bytes = batch.len() as u64;
            if is_read {
                self.writer.room(batch.len()).await;
                // It counts where it waits from now on.
                drop(beyond);
                match self.writer.put(batch.into()).await {
                    Ok(true) => {}
                    Ok(false) => {
                        is_read = false;
                        self.telling.unread(port);
                    }
                    Err(error) => return self.application.fail(program_fault(error)),
                }
            }
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
            if is_read {
                self.telling.taken(port, bytes);
            }
        }
    }
}
