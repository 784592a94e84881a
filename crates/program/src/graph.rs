//! [`Graph`]: the SSDlets of one application, their connections, and who waits for whom.

use std::fmt::Write as _;
use std::sync::Arc;

use futures::future::select_all;
use parking_lot::Mutex;
use pithead_sched::AbortOnDrop;
use tokio::sync::Notify;

use crate::budget::Fault;
use crate::channel::{Channel, Reader, Side, Writer};
use crate::guest::Opened;
use crate::links::new_owner;
use crate::{Declared, Module, ProgramError};

/// Where an application is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Building,
    Running,
    Ended,
}

pub(crate) struct Graph {
    /// The name of the application.
    pub name: Arc<str>,
    /// Who it is as an owner of ends of connections.
    pub owner: u64,
    pub phase: Phase,
    pub nodes: Vec<Node>,
    /// The connections that its SSDlets write to, which a failure cuts. Those that they only read may have other readers, who go on.
    pub written: Vec<Arc<Channel>>,
    pub tasks: Vec<AbortOnDrop<()>>,
    /// The SSDlets that have not ended.
    pub live: usize,
    pub failure: Option<ProgramError>,
    pub ended: Arc<Notify>,
}

/// One SSDlet.
pub(crate) struct Node {
    pub module: Arc<Module>,
    /// Its number among the declarations of its module.
    pub number: usize,
    pub arguments: Vec<u8>,
    pub open: Vec<Option<Opened>>,
    pub inputs: Vec<Option<Reader>>,
    pub outputs: Vec<Option<Writer>>,
    pub ended: bool,
    waits: Option<Wait>,
}

/// What an SSDlet waits for.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    /// The number of one of its ports.
    pub port: usize,
    pub channel: Arc<Channel>,
    pub side: Side,
    /// Outputs that had no room for what it holds. Others may need just that before the port can go on, so room there ends the wait,
    /// too.
    pub others: Vec<(Arc<Channel>, Side)>,
}

impl Wait {
    pub fn is_ready(&self) -> bool {
        self.channel.is_ready(self.side) || self.others.iter().any(|(channel, side)| channel.is_ready(*side))
    }

    /// Waits until it is ready.
    pub async fn ready(&self) {
        if self.others.is_empty() {
            return self.channel.ready(self.side).await;
        }
        let others = self.others.iter().map(|(channel, side)| Box::pin(channel.ready(*side)));
        select_all(std::iter::once(Box::pin(self.channel.ready(self.side))).chain(others)).await;
    }

    /// Whether nobody outside of the application can end it.
    fn is_inside(&self) -> bool {
        self.channel.is_inside() && self.others.iter().all(|(channel, _)| channel.is_inside())
    }
}

impl Node {
    pub fn new(module: Arc<Module>, number: usize, arguments: Vec<u8>, open: Vec<Option<Opened>>) -> Self {
        let declared = &module.declared()[number];
        let inputs = declared.inputs.iter().map(|_| None).collect();
        let outputs = declared.outputs.iter().map(|_| None).collect();
        Self { number, arguments, open, inputs, outputs, ended: false, waits: None, module }
    }

    pub fn declared(&self) -> &Declared {
        &self.module.declared()[self.number]
    }

    /// The first port that is not connected, in words.
    pub fn unconnected(&self) -> Option<String> {
        let name = &self.declared().name;
        let input = self.inputs.iter().position(Option::is_none).map(|port| format!("{name}.in({port})"));
        input.or_else(|| self.outputs.iter().position(Option::is_none).map(|port| format!("{name}.out({port})")))
    }

    /// The connections that its ports have.
    pub fn channels(&self) -> impl Iterator<Item = &Arc<Channel>> {
        let inputs = self.inputs.iter().flatten().map(Reader::channel);
        inputs.chain(self.outputs.iter().flatten().map(Writer::channel))
    }
}

impl Graph {
    pub fn new(name: Arc<str>) -> Self {
        Self {
            name,
            owner: new_owner(),
            phase: Phase::Building,
            nodes: Vec::new(),
            written: Vec::new(),
            tasks: Vec::new(),
            live: 0,
            failure: None,
            ended: Arc::new(Notify::new()),
        }
    }

    /// Notes that an SSDlet is about to wait. Fails if all SSDlets would then wait for each other, for ever.
    pub fn wait(&mut self, node: usize, wait: Wait) -> Result<(), Fault> {
        self.nodes[node].waits = Some(wait);
        self.deadlock().map_or(Ok(()), |what| Err(Fault(what)))
    }

    pub fn woke(&mut self, node: usize) {
        self.nodes[node].waits = None;
    }

    /// Says who waits for what if nobody can ever go on.
    fn deadlock(&self) -> Option<String> {
        let live = || self.nodes.iter().filter(|node| !node.ended);
        let stuck = |node: &Node| node.waits.as_ref().is_some_and(|wait| wait.is_inside() && !wait.is_ready());
        if live().next().is_none() || !live().all(stuck) {
            return None;
        }
        Some(format!("all SSDlets of its application wait for each other; {}", self.waits()))
    }

    /// Who waits for what if no SSDlet can go on without what is outside of the application.
    pub fn idle(&self) -> Option<String> {
        let mut live = self.nodes.iter().filter(|node| !node.ended).peekable();
        let idle = |node: &Node| node.waits.as_ref().is_some_and(|wait| !wait.is_ready());
        (self.phase == Phase::Running && live.peek().is_some() && live.all(idle)).then(|| self.waits())
    }

    fn waits(&self) -> String {
        let mut what = String::new();
        for (node, wait) in self.nodes.iter().filter_map(|node| node.waits.as_ref().map(|wait| (node, wait))) {
            let (name, separator) = (&node.declared().name, if what.is_empty() { "" } else { "; " });
            let _ = match wait.side {
                Side::Read => write!(what, "{separator}{name} for rows in in({})", wait.port),
                Side::Write { .. } => write!(what, "{separator}{name} for room in out({})", wait.port),
            };
        }
        what
    }

    /// Ends the application with its first failure. The tasks that it returns are to be dropped once the lock is released.
    #[must_use]
    pub fn fail(&mut self, error: ProgramError) -> Vec<AbortOnDrop<()>> {
        // As an application is told that reads this one.
        let why: Arc<str> = format!("the application {}, which it reads, has failed: {error}", self.name).into();
        self.failure.get_or_insert(error);
        self.written.iter().for_each(|channel| channel.whole().cut(&why));
        if self.phase == Phase::Building {
            self.phase = Phase::Ended;
            // Nobody will read them; those of SSDlets that run go with their tasks.
            self.nodes.iter_mut().flat_map(|node| &mut node.inputs).for_each(|input| *input = None);
        }
        std::mem::take(&mut self.tasks)
    }
}

/// Says that an SSDlet has ended, however that came.
pub(crate) struct Leaving {
    pub graph: Arc<Mutex<Graph>>,
    pub node: usize,
    /// Whether it came to its end, or its failure was noted. If not, its task was lost.
    pub well: bool,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let mut graph = self.graph.lock();
        graph.live -= 1;
        graph.nodes[self.node].ended = true;
        graph.nodes[self.node].waits = None;
        if graph.live == 0 {
            graph.phase = Phase::Ended;
        }
        let lost = (!self.well && graph.failure.is_none()).then(|| ProgramError::engine("the task of an SSDlet was lost"));
        let stuck = || {
            graph.deadlock().and_then(|cause| {
                let node = graph.nodes.iter().find(|node| !node.ended)?;
                let (module, ssdlet) = (node.module.name().to_owned(), node.declared().name.clone());
                Some(ProgramError::Guest { module, ssdlet, cause })
            })
        };
        let failure = lost.or_else(stuck);
        let tasks = failure.map(|error| graph.fail(error));
        let ended = Arc::clone(&graph.ended);
        drop(graph);
        drop(tasks);
        ended.notify_waiters();
    }
}
