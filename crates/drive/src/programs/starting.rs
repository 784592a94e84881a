//! Starting an application: its modules, its memory, its graph.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use pithead_door::{ApplicationRun, HostPort, PortAt, PortInputs, Reads, RunApplication, SsdletSpec, check_application};
use pithead_model::{Blame, Fault, FaultKind, SessionId};
use pithead_program::{Argument, ArgumentType, HostReader, HostWriter, Limits, Module, ProgramError, Ssdlet, Value};

use super::Programs;
use super::faults::program_fault;
use super::feeding::Room;
use super::modules::Keep;
use super::running::{HostPorts, run};
use super::services::DriveServices;
use super::session::Application;

/// An application before its start.
struct Built {
    running: pithead_program::Application,
    writers: Vec<(HostPort, HostWriter)>,
    readers: Vec<(HostPort, HostReader)>,
}

impl Programs {
    /// Runs SSDlets of modules that are kept: see [`pithead_door::Door::run_application`].
    pub(crate) async fn run(
        &self,
        request: RunApplication,
        inputs: PortInputs,
        reads: Arc<dyn Reads>,
    ) -> Result<ApplicationRun, Fault> {
        check_application(&request)?;
        let mut modules = Vec::new();
        for ssdlet in &request.ssdlets {
            modules.push(self.module(&ssdlet.module).await?);
        }
        self.start(request, &modules, inputs, reads).await
    }

    /// Runs SSDlets of one module that is not kept.
    pub(crate) async fn run_bytes(
        &self,
        module: Bytes,
        request: RunApplication,
        inputs: PortInputs,
        reads: Arc<dyn Reads>,
    ) -> Result<ApplicationRun, Fault> {
        check_application(&request)?;
        let module = self.compiled(&request.name, module, Keep::Nothing).await?;
        let modules = vec![module; request.ssdlets.len()];
        self.start(request, &modules, inputs, reads).await
    }

    async fn start(
        &self,
        request: RunApplication,
        modules: &[Arc<Module>],
        inputs: PortInputs,
        reads: Arc<dyn Reads>,
    ) -> Result<ApplicationRun, Fault> {
        self.applications.shutdown().check()?;
        let place = self.place()?;
        let grant = self.resources.budget.reserve(request.memory, 0).ok_or_else(|| {
            let what = format!("of its memory of {} bytes the drive has too little free", self.resources.budget.total());
            Fault::new(Blame::Limit, what).of_kind(FaultKind::Memory).hint("try again later")
        })?;
        let standard = Limits::default();
        let run_time_max =
            request.run_ms.map_or(standard.run_time_max, |limit| Duration::from_millis(limit).min(standard.run_time_max));
        let limits = Limits { memory_bytes_max: grant.bytes(), run_time_max, ..standard };
        let services = Arc::new(DriveServices::new(Arc::clone(&self.storage), Arc::clone(&self.resources), reads));
        let running = self.runtime().await?.application(&request.name, services, limits);
        let Built { running, writers, readers } = build(running, &request, modules).await?;
        let room = request.window.map(|bytes| Room::new(&running, bytes, writers.len())).transpose();
        let room = room.map_err(|error| program_fault(error).at("the windows of its inputs"))?;
        running.start().map_err(program_fault)?;
        let now = self.resources.device.clock().now();
        let names: BTreeSet<&String> = request.ssdlets.iter().map(|ssdlet| &ssdlet.module).collect();
        let application = Arc::new(Application {
            id: SessionId(rand::random()),
            running,
            modules: names.into_iter().cloned().collect(),
            grant,
            device: Arc::clone(&self.resources.device),
            started: now,
            fault: Mutex::default(),
            is_finished: AtomicBool::new(false),
            is_awaited: AtomicBool::new(false),
            awaited_ns: AtomicU64::new(now.0),
        });
        self.applications.insert(Arc::clone(&application));
        drop(place);
        let ports = HostPorts { writers, readers, room };
        let (table, workers) = (Arc::clone(&self.applications), &self.resources.workers);
        Ok(run(application, ports, inputs, request.window, table, workers))
    }
}

/// The place of an application that is being started.
struct Place<'a>(&'a Mutex<usize>);

impl Programs {
    /// A place for one more application, if as many as may run are not there or on their way.
    fn place(&self) -> Result<Place<'_>, Fault> {
        let mut starting = self.starting.lock();
        if self.count() + *starting >= self.applications_max {
            let what = format!("the drive runs {} applications, and may not run more at one time", self.applications_max);
            return Err(Fault::new(Blame::Limit, what).hint("`pithead session ls` shows them; try again later"));
        }
        *starting += 1;
        Ok(Place(&self.starting))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
    }
}

/// Makes the SSDlets and their connections. Ports that no connection names are the host's.
async fn build(
    running: pithead_program::Application,
    request: &RunApplication,
    modules: &[Arc<Module>],
) -> Result<Built, Fault> {
    let mut ssdlets = Vec::new();
    for (spec, module) in request.ssdlets.iter().zip(modules) {
        let name = name_of(spec, module)?;
        let arguments = arguments(spec, name, module)?;
        ssdlets.push((running.ssdlet(module, name, &arguments).await.map_err(program_fault)?, module, name));
    }
    for connection in &request.connections {
        let from = ssdlets[connection.from.ssdlet].0.output(connection.from.port);
        let to = ssdlets[connection.to.ssdlet].0.input(connection.to.port);
        running.connect(&from, &to).map_err(program_fault)?;
    }
    let named_output = |at: &PortAt| request.connections.iter().any(|connection| connection.from == *at);
    let named_input = |at: &PortAt| request.connections.iter().any(|connection| connection.to == *at);
    let (mut writers, mut readers) = (Vec::new(), Vec::new());
    for (number, (ssdlet, module, name)) in ssdlets.iter().enumerate() {
        let Some(declared) = module.declared().iter().find(|declared| declared.name == *name) else { continue };
        let free = |count: usize| (0..count).map(move |port| PortAt { ssdlet: number, port });
        for at in free(declared.inputs.len()).filter(|at| !named_input(at)) {
            writers.push(input(&running, ssdlet, at).map_err(program_fault)?);
        }
        for at in free(declared.outputs.len()).filter(|at| !named_output(at)) {
            readers.push(output(&running, ssdlet, at).map_err(program_fault)?);
        }
    }
    Ok(Built { running, writers, readers })
}

fn input(running: &pithead_program::Application, ssdlet: &Ssdlet, at: PortAt) -> Result<(HostPort, HostWriter), ProgramError> {
    let writer = running.writer(&ssdlet.input(at.port))?;
    Ok((HostPort { at, signature: writer.signature().to_string() }, writer))
}

fn output(running: &pithead_program::Application, ssdlet: &Ssdlet, at: PortAt) -> Result<(HostPort, HostReader), ProgramError> {
    let reader = running.reader(&ssdlet.output(at.port))?;
    Ok((HostPort { at, signature: reader.signature().to_string() }, reader))
}

/// The SSDlet's name, which may be left out where a module has only one.
fn name_of<'a>(spec: &'a SsdletSpec, module: &'a Module) -> Result<&'a str, Fault> {
    match (&spec.ssdlet, module.declared()) {
        (Some(name), _) => Ok(name),
        (None, [only]) => Ok(&only.name),
        (None, all) => {
            let names: Vec<&str> = all.iter().map(|declared| declared.name.as_str()).collect();
            let what = format!("the module {} has several SSDlets: {}", module.name(), names.join(", "));
            Err(Fault::new(Blame::User, what).hint("name one of them"))
        }
    }
}

/// Arguments of the types that the SSDlet declares.
fn arguments(spec: &SsdletSpec, name: &str, module: &Module) -> Result<Vec<Argument>, Fault> {
    let Some(declared) = module.declared().iter().find(|declared| declared.name == name) else {
        // The sandbox says which there are.
        return Ok(Vec::new());
    };
    let (wanted, given) = (declared.arguments.len(), spec.arguments.len());
    if wanted != given {
        let types: Vec<String> = declared.arguments.iter().map(ToString::to_string).collect();
        let types = if types.is_empty() { "none".to_owned() } else { types.join(", ") };
        let what = format!("{name} of the module {} takes {wanted} arguments ({types}), not {given}", module.name());
        return Err(Fault::new(Blame::User, what));
    }
    let argument = |(number, (of, text)): (usize, (&ArgumentType, &String))| match of {
        ArgumentType::File => Ok(Argument::File(text.clone())),
        ArgumentType::Value(of) => Value::parse(*of, text)
            .map(Argument::Value)
            .map_err(|why| Fault::new(Blame::User, format!("argument {number} of {name}, counted from 0: {why}"))),
    };
    declared.arguments.iter().zip(&spec.arguments).enumerate().map(argument).collect()
}
