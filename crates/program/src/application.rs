//! [`Application`]: a host program's graph of SSDlets.

mod ends;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use pithead_sched::{AbortOnDrop, Class};
use tokio::runtime::Handle;

use crate::budget::{Budget, Held, Meter};
use crate::channel::Channel;
use crate::graph::{Graph, Leaving, Node, Phase};
use crate::guest::{Guest, Names, OpenFile, Opened, Ports};
use crate::host_port::busy;
use crate::limits::{ARGUMENT_BYTES_MAX, SSDLETS_MAX};
use crate::links::End;
use crate::module::Code;
use crate::row::encode;
use crate::run::run;
use crate::{ArgumentType, HostReader, HostWriter, Limits, Module, ProgramError, Runtime, Services, Signature, Value};

/// An argument of an SSDlet.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    Value(Value),
    /// The name of a file of the drive.
    File(String),
}

/// A graph of SSDlets: built, started, then waited for or stopped. Dropping it stops it.
pub struct Application {
    name: Arc<str>,
    runtime: Arc<Runtime>,
    services: Arc<dyn Services>,
    budget: Arc<Budget>,
    graph: Arc<Mutex<Graph>>,
}

/// An SSDlet that is about to be spawned.
struct Ready {
    code: Arc<Code>,
    /// Its number among the declarations of its module.
    number: usize,
    guest: Guest,
    leaving: Leaving,
}

/// An SSDlet of an application.
#[derive(Clone)]
pub struct Ssdlet {
    graph: Arc<Mutex<Graph>>,
    node: usize,
}

impl Ssdlet {
    /// An input port, by its number.
    pub fn input(&self, port: usize) -> Input {
        Input { ssdlet: self.clone(), port }
    }

    /// An output port, by its number.
    pub fn output(&self, port: usize) -> Output {
        Output { ssdlet: self.clone(), port }
    }
}

/// An input port of an SSDlet.
#[derive(Clone)]
pub struct Input {
    ssdlet: Ssdlet,
    port: usize,
}

/// An output port of an SSDlet.
#[derive(Clone)]
pub struct Output {
    ssdlet: Ssdlet,
    port: usize,
}

impl Application {
    pub(crate) fn new(name: &str, runtime: Arc<Runtime>, services: Arc<dyn Services>, limits: Limits) -> Self {
        let name: Arc<str> = name.into();
        let graph = Arc::new(Mutex::new(Graph::new(Arc::clone(&name))));
        Self { name, runtime, services, budget: Budget::new(limits), graph }
    }

    /// Makes an SSDlet of a module. Files that arguments name are opened now, with the rights of the application's caller.
    pub async fn ssdlet(&self, module: &Arc<Module>, name: &str, arguments: &[Argument]) -> Result<Ssdlet, ProgramError> {
        let number = module.find(name)?;
        let expected = &module.declared()[number].arguments;
        if !expected.iter().eq(arguments.iter().map(argument_type).collect::<Vec<_>>().iter()) {
            let list = |types: Vec<String>| if types.is_empty() { "none".to_owned() } else { types.join(", ") };
            let expected = list(expected.iter().map(ToString::to_string).collect());
            let given = list(arguments.iter().map(|argument| argument_type(argument).to_string()).collect());
            let text = format!("the arguments of {name} in the module {} are {expected}, not {given}", module.name());
            return Err(ProgramError::Usage(text));
        }
        let (mut encoded, mut open) = (Vec::new(), Vec::new());
        for argument in arguments {
            match argument {
                Argument::Value(value) => encode(value, &mut encoded),
                Argument::File(file) => {
                    encoded.extend_from_slice(&(open.len() as u32).to_le_bytes());
                    let none = |none| ProgramError::Busy(format!("the argument {file:?} of {name} is a file, and {none}"));
                    let opened = OpenFile::new(self.services.open(file).await?, &self.budget).map_err(none)?;
                    open.push(Some(Opened::File(opened)));
                }
            }
        }
        if encoded.len() > ARGUMENT_BYTES_MAX {
            return Err(ProgramError::usage(format!("the arguments of {name} have more than {ARGUMENT_BYTES_MAX} bytes")));
        }
        let mut graph = self.building()?;
        if graph.nodes.len() == SSDLETS_MAX {
            return Err(ProgramError::usage(format!("an application has at most {SSDLETS_MAX} SSDlets")));
        }
        graph.nodes.push(Node::new(Arc::clone(module), number, encoded, open));
        Ok(Ssdlet { graph: Arc::clone(&self.graph), node: graph.nodes.len() - 1 })
    }

    /// Connects an output to an input, of this application or of two. An output that is connected to several inputs deals its
    /// batches out to them; an input takes from several outputs in the order in which batches come. Connections that have a port in
    /// common are one, and the start fails unless each of its outputs is connected to each of its inputs.
    pub fn connect(&self, from: &Output, to: &Input) -> Result<(), ProgramError> {
        let _turn = Runtime::connecting();
        let ours = |ssdlet: &Ssdlet| Arc::ptr_eq(&ssdlet.graph, &self.graph);
        if !ours(&from.ssdlet) && !ours(&to.ssdlet) {
            return Err(ProgramError::usage(format!("neither {from} nor {to} is a port of the application {}", self.name)));
        }
        let (types, others) = (from.signature()?, to.signature()?);
        if types != others {
            return Err(ProgramError::usage(format!(
                "{from} puts out {types} and {to} takes {others}; they cannot be connected"
            )));
        }
        let (output, input) = (from.end(), to.end());
        let channel = match (from.channel()?, to.channel()?) {
            (Some(one), Some(_)) if one.links.lock().contains(&output, &input) => {
                return Err(ProgramError::usage(format!("{from} and {to} are connected already")));
            }
            (Some(one), Some(other)) if one.unite(&other) => one,
            (Some(_), Some(_)) => {
                let text = format!(
                    "{from} and {to} are both connected elsewhere, one of them to the host program or to what was started already; \
                     give one of them a port of its own"
                );
                return Err(ProgramError::Usage(text));
            }
            (Some(channel), None) | (None, Some(channel)) => channel,
            (None, None) => self.channel(types),
        };
        if !Arc::ptr_eq(&from.ssdlet.graph, &to.ssdlet.graph) {
            channel.reach_outside();
        }
        from.join(&channel)?;
        to.join(&channel)?;
        channel.links.lock().add(output, input);
        Ok(())
    }

    /// Connects an output to the host program.
    pub fn reader(&self, from: &Output) -> Result<HostReader, ProgramError> {
        let _turn = Runtime::connecting();
        let channel = match from.channel()? {
            Some(channel) => channel,
            None => self.channel(from.signature()?),
        };
        channel.reach_outside();
        from.join(&channel)?;
        let (output, host) = (from.end(), End::host(format!("the host program's reader of {from}")));
        channel.links.lock().add_host(output, host);
        Ok(HostReader::new(channel, Arc::clone(&self.graph)))
    }

    /// Connects the host program to an input.
    pub fn writer(&self, to: &Input) -> Result<HostWriter, ProgramError> {
        let _turn = Runtime::connecting();
        let channel = match to.channel()? {
            Some(channel) => channel,
            None => self.channel(to.signature()?),
        };
        channel.reach_outside();
        to.join(&channel)?;
        let (host, input) = (End::host(format!("the host program's writer to {to}")), to.end());
        channel.links.lock().add_host(host, input);
        Ok(HostWriter::new(channel, Arc::clone(&self.graph), Arc::clone(&self.budget)))
    }

    fn channel(&self, signature: Signature) -> Arc<Channel> {
        Channel::new(signature, self.budget.limits().queue_bytes_max)
    }

    /// Starts all SSDlets, each on the reactor with the fewest tasks. Fails if a port is not connected, or not with all that share its
    /// connection; both can be mended.
    pub fn start(&self) -> Result<(), ProgramError> {
        let ready = self.ready()?;
        // Without the lock: a pool that has stopped drops an SSDlet at once, which then says that it has ended.
        let first_turn = self.runtime.starts_here().filter(|_| ready.len() == 1);
        let tasks: Vec<_> = ready.into_iter().filter_map(|ready| self.spawn(ready, first_turn)).collect();
        let mut graph = self.graph.lock();
        if graph.failure.is_none() {
            graph.tasks = tasks;
            return Ok(());
        }
        // It has failed meanwhile, and nobody else ends what goes on.
        drop(graph);
        drop(tasks);
        Ok(())
    }

    /// Says that the application runs, and returns its SSDlets as they are to be spawned.
    fn ready(&self) -> Result<Vec<Ready>, ProgramError> {
        let _turn = Runtime::connecting();
        let mut graph = self.building()?;
        if graph.nodes.is_empty() {
            return Err(ProgramError::usage(format!("the application {} has no SSDlets", self.name)));
        }
        if let Some(port) = graph.nodes.iter().find_map(Node::unconnected) {
            return Err(ProgramError::usage(format!("{port} is not connected; connect all ports before the start")));
        }
        let channels = || graph.nodes.iter().flat_map(Node::channels);
        if let Some((from, to)) = channels().find_map(|channel| channel.links.lock().lacking()) {
            let text = format!(
                "{from} and {to} share a connection by way of other ports, but are not connected; connect them, too, or give one \
                 of them a port of its own"
            );
            return Err(ProgramError::Usage(text));
        }
        channels().for_each(|channel| channel.links.lock().is_fixed = true);
        graph.phase = Phase::Running;
        graph.live = graph.nodes.len();
        Ok(graph.nodes.iter_mut().enumerate().map(|(index, node)| self.ready_node(node, index)).collect())
    }

    fn ready_node(&self, node: &mut Node, index: usize) -> Ready {
        let names = Names {
            application: Arc::clone(&self.name),
            module: Arc::clone(node.module.shared_name()),
            ssdlet: node.declared().name.as_str().into(),
        };
        let mut guest = Guest::new(names, Meter::new(Arc::clone(&self.budget)), Arc::clone(&self.services));
        guest.arguments = std::mem::take(&mut node.arguments);
        guest.open = std::mem::take(&mut node.open);
        guest.ports = Ports {
            graph: Some((Arc::clone(&self.graph), index)),
            inputs: std::mem::take(&mut node.inputs),
            outputs: std::mem::take(&mut node.outputs),
            ..Ports::default()
        };
        let leaving = Leaving { graph: Arc::clone(&self.graph), node: index, well: false };
        Ready { code: Arc::clone(node.module.code()), number: node.number, guest, leaving }
    }

    /// Its task, if it has not ended by then: where there is a reactor for it, it takes its first turn here.
    fn spawn(&self, ready: Ready, first_turn: Option<&Handle>) -> Option<AbortOnDrop<()>> {
        let Ready { code, number, guest, leaving } = ready;
        let ticking = self.runtime.ticking();
        let mut work = Box::pin(async move {
            let (_ticking, mut leaving) = (ticking, leaving);
            let graph = Arc::clone(&leaving.graph);
            run(code, guest, number, |error| {
                let tasks = graph.lock().fail(error);
                drop(tasks);
            })
            .await;
            leaving.well = true;
        });
        if first_turn.is_some_and(|reactor| has_ended(reactor, work.as_mut())) {
            return None;
        }
        Some(self.runtime.pool().spawn(Class::Foreground, work).abort_on_drop())
    }

    /// Waits until all SSDlets have ended, and returns the failure of the first that failed.
    pub async fn wait(&self) -> Result<(), ProgramError> {
        loop {
            let ended = Arc::clone(&self.graph.lock().ended);
            let mut ended = pin!(ended.notified());
            ended.as_mut().enable();
            {
                let graph = self.graph.lock();
                match (&graph.failure, graph.phase) {
                    (Some(failure), Phase::Ended) => return Err(failure.clone()),
                    (None, Phase::Ended) => return Ok(()),
                    (_, Phase::Building) => {
                        return Err(ProgramError::usage(format!("the application {} was not started", self.name)));
                    }
                    (_, Phase::Running) => {}
                }
            }
            ended.await;
        }
    }

    /// Ends all SSDlets at the next point where they wait or a slice of time is over.
    pub fn stop(&self) {
        let mut graph = self.graph.lock();
        let tasks = match graph.phase {
            Phase::Ended => Vec::new(),
            Phase::Building | Phase::Running => graph.fail(ProgramError::Stopped(self.name.to_string())),
        };
        drop(graph);
        drop(tasks);
    }

    /// Who waits for what, where no SSDlet can go on unless something comes from outside, or is taken there.
    pub fn idle(&self) -> Option<String> {
        self.graph.lock().idle()
    }

    /// Counts bytes that are to wait for its SSDlets outside of its connections. Fails if the application may not hold so many.
    pub fn hold(&self, bytes: usize) -> Result<Held, ProgramError> {
        self.budget.hold(bytes).map_err(busy)
    }

    /// The processor time that its SSDlets have taken.
    pub fn run_time(&self) -> Duration {
        Duration::from_nanos(self.budget.run_ns())
    }

    fn building(&self) -> Result<parking_lot::MutexGuard<'_, Graph>, ProgramError> {
        let graph = self.graph.lock();
        match graph.phase {
            Phase::Building => Ok(graph),
            Phase::Running | Phase::Ended => {
                Err(ProgramError::usage(format!("the application {} was started already", self.name)))
            }
        }
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Gives a task one turn on this thread, with the timers of a reactor. Whether that was its last: what panics has none any more.
fn has_ended(reactor: &Handle, work: Pin<&mut impl Future<Output = ()>>) -> bool {
    let _inside = reactor.enter();
    let mut context = Context::from_waker(Waker::noop());
    let turn = catch_unwind(AssertUnwindSafe(|| work.poll(&mut context)));
    turn.map_or(true, |turn| turn.is_ready())
}

fn argument_type(argument: &Argument) -> ArgumentType {
    match argument {
        Argument::Value(value) => ArgumentType::Value(value.of()),
        Argument::File(_) => ArgumentType::File,
    }
}
