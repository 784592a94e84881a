//! [`Shared`]: an application's SSDlets, connections and drives, and how far they are.

use std::pin::pin;
use std::sync::Weak;

use parking_lot::{Mutex, MutexGuard};
use pithead_door::{ApplicationEvent, DeclaredSsdlet, HostPort, PortAt, SsdletSpec};
use pithead_model::{Blame, Fault};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::join::{Join, Sender, Sink, Source};

/// Where an application is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Building,
    Starting,
    Running,
    Ended,
}

/// How far an application is.
#[derive(Debug)]
pub(crate) struct ApplicationState {
    pub phase: Phase,
    pub failure: Option<Fault>,
    pub ssdlets: Vec<Placed>,
    pub joins: Vec<Join>,
    /// Connections to other applications: an output, the other application, and an input there.
    pub outward: Vec<(PortAt, Weak<Shared>, PortAt)>,
    /// By the application's drives. Empty before the start.
    pub sides: Vec<Side>,
    /// Drives whose SSDlets have not all ended.
    pub live: usize,
    /// Processor time of SSDlets that have ended.
    pub run_ns: u64,
    pub tasks: Vec<AbortHandle>,
}

/// An SSDlet, and where it lies.
#[derive(Debug)]
pub(crate) struct Placed {
    pub drive: usize,
    pub spec: SsdletSpec,
    pub declared: DeclaredSsdlet,
    /// How messages name it.
    pub name: String,
}

/// What goes between the host and one drive.
#[derive(Debug, Default)]
pub(crate) struct Side {
    pub sender: Option<Sender>,
    /// Connections and their sinks, by the numbers of the drive's inputs.
    pub inputs: Vec<(usize, usize)>,
    /// Connections and their sources, by the numbers of the drive's outputs.
    pub outputs: Vec<(usize, usize)>,
    /// What had come there when no SSDlet could go on by itself, and who waited for what.
    pub idle: Option<(u64, String)>,
}

impl ApplicationState {
    pub fn new() -> Self {
        Self {
            phase: Phase::Building,
            failure: None,
            ssdlets: vec![],
            joins: vec![],
            outward: vec![],
            sides: vec![],
            live: 0,
            run_ns: 0,
            tasks: vec![],
        }
    }

    /// The connection that an output has.
    pub fn from(&self, output: PortAt) -> Option<usize> {
        self.joins.iter().position(|join| join.outputs.contains(&output))
    }

    /// The connection that an input has.
    pub fn to(&self, input: PortAt) -> Option<usize> {
        self.joins.iter().position(|join| join.inputs.contains(&input))
    }

    /// Whether a connection needs no host: all of its ports are of one drive.
    pub fn is_within(&self, join: &Join) -> bool {
        let mut drives = join.outputs.iter().chain(&join.inputs).map(|at| self.ssdlets[at.ssdlet].drive);
        let first = drives.next();
        !join.is_hosts() && drives.all(|drive| Some(drive) == first)
    }

    /// Binds the ports that a drive has announced. `numbers`: its SSDlets' numbers in the application.
    pub fn bind(
        &mut self,
        drive: usize,
        sender: &Sender,
        inputs: &[HostPort],
        outputs: &[HostPort],
        numbers: &[usize],
    ) -> Result<(), Fault> {
        let at = |port: &HostPort| {
            let ssdlet = numbers.get(port.at.ssdlet).copied();
            ssdlet.map(|ssdlet| PortAt { ssdlet, port: port.at.port }).ok_or_else(changed)
        };
        let mut side = Side { sender: Some(sender.clone()), ..Side::default() };
        for (port, announced) in (0..).zip(inputs) {
            let number = self.to(at(announced)?).ok_or_else(changed)?;
            let join = &mut self.joins[number];
            if join.signature != announced.signature {
                return Err(changed());
            }
            side.inputs.push((number, join.sinks.len()));
            join.sinks.push(Sink { sender: sender.clone(), port, waiting: 0, is_open: true });
        }
        for (port, announced) in (0..).zip(outputs) {
            let number = self.from(at(announced)?).ok_or_else(changed)?;
            let join = &mut self.joins[number];
            if join.signature != announced.signature {
                return Err(changed());
            }
            side.outputs.push((number, join.sources.len()));
            join.sources.push(Source { drive: Some((sender.clone(), port)), waiting: 0, has_ended: false });
        }
        self.sides[drive] = side;
        Ok(())
    }

    /// Takes what a drive says. True: it was its last word.
    pub fn take(&mut self, drive: usize, event: ApplicationEvent) -> Result<bool, Fault> {
        let side = &self.sides[drive];
        let (inputs, outputs) = (&side.inputs, &side.outputs);
        let unknown = |port: u32| Fault::new(Blame::Device, format!("it speaks of port {port}, which it did not announce"));
        let of = |ports: &[(usize, usize)], port: u32| ports.get(port as usize).copied().ok_or_else(|| unknown(port));
        match event {
            ApplicationEvent::Batch { port, bytes } => {
                let (join, source) = of(outputs, port)?;
                let join = &mut self.joins[join];
                if !join.has_room(source) {
                    return Err(Fault::new(
                        Blame::Device,
                        format!("it sends more through output {port} than its window holds"),
                    ));
                }
                join.put(source, bytes);
            }
            ApplicationEvent::End { port } => {
                let (join, source) = of(outputs, port)?;
                self.joins[join].end(source);
            }
            ApplicationEvent::Taken { port, bytes } => {
                let (join, sink) = of(inputs, port)?;
                self.joins[join].taken(sink, bytes);
            }
            ApplicationEvent::Unread { port } => {
                let (join, sink) = of(inputs, port)?;
                self.joins[join].unread(sink);
            }
            ApplicationEvent::Idle { received, waits } => self.sides[drive].idle = Some((received, waits)),
            ApplicationEvent::Finished { run_ns } => {
                self.run_ns += run_ns;
                self.live -= 1;
                self.finish(drive);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Who waits for what, if all SSDlets of all drives do, for each other: each drive has what it was sent, and nothing that it could go
    /// on with comes from anywhere.
    pub fn deadlock(&self, labels: impl Fn(usize) -> String) -> Option<String> {
        let mut all = Vec::new();
        for (drive, side) in self.sides.iter().enumerate() {
            let Some(sender) = &side.sender else { continue };
            let (received, waits) = side.idle.as_ref()?;
            if *received != sender.sent() {
                return None;
            }
            all.push(format!("at drive {}, {waits}", labels(drive)));
        }
        let is_stuck = !all.is_empty() && !self.joins.iter().any(Join::waits_for_host);
        is_stuck.then(|| format!("all SSDlets of the application wait for each other; {}", all.join("; ")))
    }

    /// All SSDlets of a drive have ended: nothing comes from it, and nothing is wanted there.
    fn finish(&mut self, drive: usize) {
        let Side { sender, inputs, outputs, .. } = std::mem::take(&mut self.sides[drive]);
        outputs.into_iter().for_each(|(join, source)| self.joins[join].end(source));
        inputs.into_iter().for_each(|(join, sink)| self.joins[join].unread(sink));
        // The last sender of the drive's stream, but for those of its connections, which send nothing more.
        drop(sender);
        if self.live == 0 {
            self.phase = Phase::Ended;
            self.release();
        }
    }

    /// Lets go of the streams to drives, so that they end.
    fn release(&mut self) {
        self.sides.clear();
        for join in &mut self.joins {
            join.sinks.clear();
            join.sources.iter_mut().for_each(|source| source.drive = None);
        }
    }

    /// Ends the application with its first failure.
    fn fail(&mut self, fault: Fault) {
        if self.phase == Phase::Ended {
            return;
        }
        self.phase = Phase::Ended;
        // An input whose stream ended like any other would look complete.
        for sender in self.sides.iter().filter_map(|side| side.sender.as_ref()) {
            sender.fail(Fault::new(Blame::Cancelled, "the application has ended elsewhere"));
        }
        self.failure = Some(fault);
        self.tasks.drain(..).for_each(|task| task.abort());
        self.release();
    }
}

/// A drive announces other ports than its module declared a moment ago.
fn changed() -> Fault {
    Fault::new(Blame::Conflict, "a module was replaced while the application was made").hint("make the application again")
}

/// What the host program's ends and the drives' streams have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub name: String,
    state: Mutex<ApplicationState>,
    changed: Notify,
}

impl Shared {
    pub fn new(name: String) -> Self {
        Self { name, state: Mutex::new(ApplicationState::new()), changed: Notify::new() }
    }

    pub fn lock(&self) -> MutexGuard<'_, ApplicationState> {
        self.state.lock()
    }

    /// Changes something, and wakes who waits for it.
    pub fn change<T>(&self, change: impl FnOnce(&mut ApplicationState) -> T) -> T {
        let changed = change(&mut self.state.lock());
        self.changed.notify_waiters();
        changed
    }

    pub fn fail(&self, fault: Fault) {
        self.change(|state| state.fail(fault));
    }

    /// Waits until a look at the state finds something.
    pub async fn until<T>(&self, mut look: impl FnMut(&mut ApplicationState) -> Option<T>) -> T {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(found) = look(&mut self.state.lock()) {
                return found;
            }
            changed.await;
        }
    }

    /// The state, if ports and SSDlets may still be added.
    pub fn building(&self) -> Result<MutexGuard<'_, ApplicationState>, Fault> {
        let state = self.state.lock();
        match (state.phase, &state.failure) {
            (Phase::Building, _) => Ok(state),
            (_, Some(failure)) => Err(failure.clone()),
            _ => Err(Fault::invalid(format!("the application {} was started already", self.name))),
        }
    }
}
