//! [`Application`]: a host program's graph of SSDlets over drives.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::try_join_all;
use futures::stream::unfold;
use pithead_door::{
    ApplicationRun, Connection, DeclaredSsdlet, Door, Hello, PortAt, PortInputs, ReadsAll, RunApplication, SsdletSpec,
    StoredModule, check_hello, check_module_name,
};
use pithead_model::{Blame, Fault, PROTOCOL_VERSION, boxed};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::following::{follow, pass_on};
use crate::join::{HostEnd, Join, Sender, Source, WINDOW_BYTES};
use crate::links::connected_already;
use crate::state::{ApplicationState, Phase, Placed, Shared, Side};
use crate::{HostReader, HostWriter};

/// SSDlets of an application at most, over all of its drives: what one drive runs at most.
const SSDLETS_MAX: usize = 64;

/// What an application may take at each of its drives.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Memory of its SSDlets, bytes; the drive may grant less.
    pub memory: u64,
    /// Processor time of its SSDlets, milliseconds; none: as much as the drive allows.
    pub run_ms: Option<u64>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { memory: 256 << 20, run_ms: None }
    }
}

/// A graph of SSDlets on one or several drives: built, started, then waited for or stopped. Dropping it stops it.
///
/// It is to be used within a tokio runtime, whose threads pass batches on: between drives, and from one application to another.
#[derive(Debug)]
pub struct Application {
    drives: Vec<Drive>,
    bounds: Bounds,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Drive {
    door: Arc<dyn Door>,
    /// Whether it speaks the host's protocol.
    is_greeted: tokio::sync::OnceCell<()>,
}

/// An SSDlet of an application.
#[derive(Clone, Debug)]
pub struct Ssdlet {
    shared: Arc<Shared>,
    number: usize,
    declared: Arc<DeclaredSsdlet>,
    /// How messages name it.
    name: Arc<str>,
}

/// An input port of an SSDlet.
#[derive(Clone, Debug)]
pub struct Input {
    ssdlet: Ssdlet,
    port: usize,
}

/// An output port of an SSDlet.
#[derive(Clone, Debug)]
pub struct Output {
    ssdlet: Ssdlet,
    port: usize,
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

    /// The same SSDlet. What is said of its ports from now on names it so, and not as its module declares it.
    pub fn called(self, name: &str) -> Self {
        name.clone_into(&mut self.shared.lock().ssdlets[self.number].name);
        Self { name: name.into(), ..self }
    }

    /// Its name, its ports and its arguments.
    pub fn declared(&self) -> &DeclaredSsdlet {
        &self.declared
    }
}

impl Application {
    /// An application without SSDlets over these drives. Its name is one as modules have.
    pub fn new(name: &str, drives: Vec<Arc<dyn Door>>, bounds: Bounds) -> Result<Self, Fault> {
        check_module_name(name)?;
        if drives.is_empty() {
            return Err(Fault::invalid("an application needs one drive at least"));
        }
        let drives = drives.into_iter().map(|door| Drive { door, is_greeted: Default::default() }).collect();
        Ok(Self { drives, bounds, shared: Arc::new(Shared::new(name.to_owned())) })
    }

    /// Makes an SSDlet of a module that a drive keeps. `drive` is a place in the list of drives; `name` may be left out where the module
    /// has one SSDlet; arguments are texts, a file its name. Its ports are known from now on; arguments are read at the start.
    #[boxed]
    pub async fn ssdlet(
        &self,
        drive: usize,
        module: &str,
        name: Option<&str>,
        arguments: Vec<String>,
    ) -> Result<Ssdlet, Fault> {
        self.typed_ssdlet(drive, module, name, arguments, None).await
    }

    /// The same with arguments of types that have to be those of the SSDlet: `u32`, `string`, `file` and so on.
    #[boxed]
    pub async fn typed_ssdlet(
        &self,
        drive: usize,
        module: &str,
        name: Option<&str>,
        arguments: Vec<String>,
        types: Option<&[String]>,
    ) -> Result<Ssdlet, Fault> {
        let count = self.drives.len();
        let at = self.drives.get(drive);
        let at = at.ok_or_else(|| Fault::invalid(format!("there is no drive {drive} among {count}, counted from 0")))?;
        let label = at.door.label();
        at.greet().await.map_err(|fault| fault.at_drive(label))?;
        let modules = at.door.modules().await.map_err(|fault| fault.at_drive(label))?;
        let declared = declared(&modules, module, name).map_err(|fault| fault.at_drive(label))?;
        check_arguments(&declared, module, arguments.len(), types)?;
        let spec = SsdletSpec { module: module.to_owned(), ssdlet: Some(declared.name.clone()), arguments };
        let mut state = self.shared.building()?;
        if state.ssdlets.len() == SSDLETS_MAX {
            return Err(Fault::new(Blame::Limit, format!("an application has at most {SSDLETS_MAX} SSDlets")));
        }
        let number = state.ssdlets.len();
        let name = declared.name.clone();
        state.ssdlets.push(Placed { drive, spec, declared: declared.clone(), name: name.clone() });
        Ok(Ssdlet { shared: Arc::clone(&self.shared), number, declared: Arc::new(declared), name: name.into() })
    }

    /// Connects an output to an input, of one drive or of two, of this application or of this one and another. An output that is
    /// connected to several inputs deals its batches out to them; an input takes from several outputs in the order in which batches
    /// come. Connections within an application that have a port in common are one, and the start fails unless each of its outputs is
    /// connected to each of its inputs. Where the application that puts out fails, so does the one that reads it: what came is not all.
    pub fn connect(&self, from: &Output, to: &Input) -> Result<(), Fault> {
        let is_ours = |ssdlet: &Ssdlet| Arc::ptr_eq(&ssdlet.shared, &self.shared);
        if !is_ours(&from.ssdlet) && !is_ours(&to.ssdlet) {
            return Err(Fault::invalid(format!("neither {from} nor {to} is a port of the application {}", self.shared.name)));
        }
        let (types, others) = (from.signature()?, to.signature()?);
        if types != others {
            return Err(Fault::invalid(format!("{from} puts out {types} and {to} takes {others}; they cannot be connected")));
        }
        match Arc::ptr_eq(&from.ssdlet.shared, &to.ssdlet.shared) {
            true => self.shared.building()?.connect(from.at(), to.at(), &types),
            false => connect_other(from, to),
        }
    }

    /// Connects outputs, one at least, to the host program, which reads them as one.
    pub fn reader(&self, from: &[Output]) -> Result<HostReader, Fault> {
        reader_of(&self.shared, from, format!("the host program's reader of {}", listed(from)))
    }

    /// Connects the host program to inputs, one at least: batches are dealt out to them.
    pub fn writer(&self, to: &[Input]) -> Result<HostWriter, Fault> {
        writer_of(&self.shared, to, format!("the host program's writer to {}", listed(to)))
    }

    /// Starts all SSDlets, or none: then nothing is left at any drive, and the application has ended. Fails if a port is not connected,
    /// or not with all that share its connection; both can be mended.
    #[boxed]
    pub async fn start(&self) -> Result<(), Fault> {
        let parts = {
            let mut state = self.shared.building()?;
            check_connected(&state, &self.shared.name)?;
            state.check_complete()?;
            state.phase = Phase::Starting;
            self.parts(&state)
        };
        let started = self.start_parts(parts).await.and_then(|started| self.follow(started));
        started.inspect_err(|fault| self.shared.fail(fault.clone()))
    }

    async fn start_parts(&self, parts: Vec<DriveShare>) -> Result<Vec<Started>, Fault> {
        let started = parts.into_iter().map(|part| async move {
            let door = &self.drives[part.drive].door;
            let (sender, receiver) = unbounded_channel();
            let sender = Sender::new(sender);
            let run = door.run_application(part.request, received(receiver), Arc::new(ReadsAll)).await;
            let run = run.map_err(|fault| fault.at_drive(door.label()))?;
            Ok::<_, Fault>(Started { drive: part.drive, numbers: part.numbers, sender, run })
        });
        try_join_all(started).await
    }

    /// Binds the ports of what was started, and follows it to its end.
    fn follow(&self, started: Vec<Started>) -> Result<(), Fault> {
        self.shared.change(|state| {
            // It may have been stopped meanwhile.
            state.failure.clone().map_or(Ok(()), Err)?;
            state.sides = self.drives.iter().map(|_| Side::default()).collect();
            for Started { drive, numbers, sender, run } in &started {
                state.bind(*drive, sender, &run.inputs, &run.outputs, numbers)?;
            }
            (state.phase, state.live) = (Phase::Running, started.len());
            for Started { drive, run, .. } in started {
                let labels = self.drives.iter().map(|drive| drive.door.label().to_owned()).collect();
                let task = tokio::spawn(follow(Arc::downgrade(&self.shared), drive, labels, run.events));
                state.tasks.push(task.abort_handle());
            }
            state.joins.iter_mut().for_each(Join::open);
            Ok(())
        })
    }

    /// What each drive is to run.
    fn parts(&self, state: &ApplicationState) -> Vec<DriveShare> {
        let of_drive = |drive: usize| {
            let numbers: Vec<usize> = (0..state.ssdlets.len()).filter(|number| state.ssdlets[*number].drive == drive).collect();
            let here = |at: PortAt| {
                let place = numbers.iter().position(|number| *number == at.ssdlet);
                place.map(|ssdlet| PortAt { ssdlet, port: at.port })
            };
            let within = state.joins.iter().filter(|join| state.is_within(join)).flat_map(|join| &join.links);
            let connections = within.filter_map(|(from, to)| Some(Connection { from: here(*from)?, to: here(*to)? })).collect();
            let ssdlets = numbers.iter().map(|number| state.ssdlets[*number].spec.clone()).collect();
            let Bounds { memory, run_ms } = self.bounds;
            let (name, window) = (self.shared.name.clone(), Some(WINDOW_BYTES));
            DriveShare { drive, numbers, request: RunApplication { name, ssdlets, connections, memory, run_ms, window } }
        };
        (0..self.drives.len()).map(of_drive).filter(|part| !part.numbers.is_empty()).collect()
    }

    /// Waits until all SSDlets have ended, and returns the processor time that they took; or the first failure, which names the drive,
    /// the module, the SSDlet and the cause.
    #[boxed]
    pub async fn wait(&self) -> Result<Duration, Fault> {
        let ended = self.shared.until(|state| match (&state.failure, state.phase) {
            (Some(failure), _) => Some(Err(failure.clone())),
            (None, Phase::Ended) => Some(Ok(Duration::from_nanos(state.run_ns))),
            (None, Phase::Building) => {
                Some(Err(Fault::invalid(format!("the application {} was not started", self.shared.name))))
            }
            (None, Phase::Starting | Phase::Running) => None,
        });
        ended.await
    }

    /// Ends all SSDlets.
    pub fn stop(&self) {
        self.shared.fail(Fault::new(Blame::Cancelled, format!("the application {} was stopped", self.shared.name)));
    }

    /// Ends all SSDlets because of what the host program has found, which everybody who waits is told.
    pub fn fail(&self, fault: Fault) {
        self.shared.fail(fault);
    }
}

/// Connects ports of two applications, between which the host passes batches on.
fn connect_other(from: &Output, to: &Input) -> Result<(), Fault> {
    let (ours, theirs) = (&from.ssdlet.shared, &to.ssdlet.shared);
    let link = (from.at(), Arc::downgrade(theirs), to.at());
    // Neither is changed where the other one was started already.
    let is_there =
        ours.building()?.outward.iter().any(|known| known.0 == link.0 && known.1.ptr_eq(&link.1) && known.2 == link.2);
    if is_there {
        return Err(connected_already(&from.to_string(), &to.to_string()));
    }
    let writer = writer_of(theirs, std::slice::from_ref(to), format!("{from} of the application {}", ours.name))?;
    let reader = reader_of(ours, std::slice::from_ref(from), format!("{to} of the application {}", theirs.name))?;
    ours.lock().outward.push(link);
    tokio::spawn(pass_on(reader, writer));
    Ok(())
}

fn listed(ports: &[impl ToString]) -> String {
    ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A reader of outputs of one application, which messages name so.
fn reader_of(shared: &Arc<Shared>, from: &[Output], name: String) -> Result<HostReader, Fault> {
    let first = from.first().ok_or_else(|| Fault::invalid("a reader needs an output"))?;
    let signature = first.signature()?;
    for other in from {
        check_own(shared, &other.ssdlet)?;
        let others = other.signature()?;
        if others != signature {
            return Err(Fault::invalid(format!("{first} puts out {signature} and {other} {others}; nobody can read both")));
        }
    }
    let mut state = shared.building()?;
    let known = from.iter().map(|output| state.from(output.at())).collect::<Vec<_>>();
    let number = state.one_of(&known, &signature).ok_or_else(different)?;
    let join = &mut state.joins[number];
    from.iter().for_each(|output| join.add(Some(output.at()), None));
    join.host_reads.push(HostEnd { name, ports: from.iter().map(Output::at).collect() });
    join.readers += 1;
    Ok(HostReader::new(Arc::clone(shared), number, signature))
}

/// A writer to inputs of one application, which messages name so.
fn writer_of(shared: &Arc<Shared>, to: &[Input], name: String) -> Result<HostWriter, Fault> {
    let first = to.first().ok_or_else(|| Fault::invalid("a writer needs an input"))?;
    let signature = first.signature()?;
    for other in to {
        check_own(shared, &other.ssdlet)?;
        let others = other.signature()?;
        if others != signature {
            return Err(Fault::invalid(format!("{first} takes {signature} and {other} {others}; nobody can write both")));
        }
    }
    let mut state = shared.building()?;
    let known = to.iter().map(|input| state.to(input.at())).collect::<Vec<_>>();
    let number = state.one_of(&known, &signature).ok_or_else(different)?;
    let join = &mut state.joins[number];
    to.iter().for_each(|input| join.add(None, Some(input.at())));
    join.host_writes.push(HostEnd { name, ports: to.iter().map(Input::at).collect() });
    join.sources.push(Source { drive: None, waiting: 0, has_ended: false });
    let source = join.sources.len() - 1;
    Ok(HostWriter::new(Arc::clone(shared), number, source, signature))
}

fn check_own(shared: &Arc<Shared>, ssdlet: &Ssdlet) -> Result<(), Fault> {
    match Arc::ptr_eq(&ssdlet.shared, shared) {
        true => Ok(()),
        false => {
            let (name, ours) = (&ssdlet.name, &shared.name);
            Err(Fault::invalid(format!("{name} is an SSDlet of another application than {ours}"))
                .hint("make a reader or a writer of the application that it belongs to"))
        }
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What one drive is to run.
struct DriveShare {
    drive: usize,
    /// Its SSDlets' numbers in the application.
    numbers: Vec<usize>,
    request: RunApplication,
}

/// What one drive has started.
struct Started {
    drive: usize,
    numbers: Vec<usize>,
    sender: Sender,
    run: ApplicationRun,
}

impl Drive {
    async fn greet(&self) -> Result<(), Fault> {
        let greeting = async {
            let release = env!("CARGO_PKG_VERSION").to_owned();
            let hello = Hello { protocol: PROTOCOL_VERSION, release, extensions: vec![] };
            let welcome = self.door.hello(hello.clone()).await?;
            check_hello(&hello, &welcome)
        };
        self.is_greeted.get_or_try_init(|| greeting).await.map(|_| ())
    }
}

impl Output {
    /// What goes through the port. Fails if the SSDlet has no such port.
    pub fn signature(&self) -> Result<String, Fault> {
        port(&self.ssdlet.name, "outputs", &self.ssdlet.declared.outputs, self.port)
    }

    fn at(&self) -> PortAt {
        PortAt { ssdlet: self.ssdlet.number, port: self.port }
    }
}

impl Input {
    /// What goes through the port. Fails if the SSDlet has no such port.
    pub fn signature(&self) -> Result<String, Fault> {
        port(&self.ssdlet.name, "inputs", &self.ssdlet.declared.inputs, self.port)
    }

    fn at(&self) -> PortAt {
        PortAt { ssdlet: self.ssdlet.number, port: self.port }
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.out({})", self.ssdlet.name, self.port)
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.in({})", self.ssdlet.name, self.port)
    }
}

fn port(name: &str, kind: &str, all: &[String], port: usize) -> Result<String, Fault> {
    let count = all.len();
    let missing = || Fault::invalid(format!("{name} has no port {port} among its {count} {kind}; they are counted from 0"));
    all.get(port).cloned().ok_or_else(missing)
}

/// The SSDlet that is meant.
fn declared(modules: &[StoredModule], module: &str, name: Option<&str>) -> Result<DeclaredSsdlet, Fault> {
    let known = modules.iter().find(|known| known.name == module).ok_or_else(|| {
        Fault::invalid(format!("the drive has no module {module}"))
            .hint("`pithead program ls` shows those that there are, and `pithead program load` loads one")
    })?;
    let names = || known.ssdlets.iter().map(|ssdlet| ssdlet.name.as_str()).collect::<Vec<_>>().join(", ");
    match (name, &known.ssdlets[..]) {
        (None, [only]) => Ok(only.clone()),
        (None, _) => {
            let what = format!("the module {module} has several SSDlets: {}", names());
            Err(Fault::invalid(what).hint("name one of them"))
        }
        (Some(name), all) => {
            let missing = || Fault::invalid(format!("the module {module} has no SSDlet {name}; it has {}", names()));
            all.iter().find(|ssdlet| ssdlet.name == name).cloned().ok_or_else(missing)
        }
    }
}

fn check_arguments(declared: &DeclaredSsdlet, module: &str, given: usize, types: Option<&[String]>) -> Result<(), Fault> {
    let (name, wanted) = (&declared.name, &declared.arguments);
    let list = |types: &[String]| if types.is_empty() { "none".to_owned() } else { types.join(", ") };
    match types {
        Some(types) if types != wanted => {
            let (wanted, given) = (list(wanted), list(types));
            Err(Fault::invalid(format!("the arguments of {name} in the module {module} are {wanted}, not {given}")))
        }
        None if wanted.len() != given => {
            let (types, wanted) = (list(wanted), wanted.len());
            Err(Fault::invalid(format!("{name} of the module {module} takes {wanted} arguments ({types}), not {given}")))
        }
        _ => Ok(()),
    }
}

/// What the host program would read or write as one has ends of its own already.
fn different() -> Fault {
    Fault::invalid("the ports are connected to different ones already")
}

fn check_connected(state: &ApplicationState, name: &str) -> Result<(), Fault> {
    if state.ssdlets.is_empty() {
        return Err(Fault::invalid(format!("the application {name} has no SSDlets")));
    }
    for (ssdlet, Placed { declared, name, .. }) in state.ssdlets.iter().enumerate() {
        let input = (0..declared.inputs.len()).find(|port| state.to(PortAt { ssdlet, port: *port }).is_none());
        let output = (0..declared.outputs.len()).find(|port| state.from(PortAt { ssdlet, port: *port }).is_none());
        let port = input.map(|port| format!("in({port})")).or_else(|| output.map(|port| format!("out({port})")));
        if let Some(port) = port {
            let what = format!("{name}.{port} is not connected; connect all ports before the start");
            return Err(Fault::invalid(what));
        }
    }
    Ok(())
}

/// What a drive gets. It ends when nobody can send any more.
fn received(receiver: UnboundedReceiver<Result<pithead_door::PortInput, Fault>>) -> PortInputs {
    unfold(receiver, |mut receiver| async move { receiver.recv().await.map(|input| (input, receiver)) }).boxed()
}
