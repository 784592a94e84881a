//! `pithead program`: SSDlets at drives. Modules are loaded, listed, run and removed.

mod graph;
mod lines;
mod run;
mod spread;
mod versions;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use futures::future::join_all;
use pithead_embed::{DeclaredSsdlet, Door, LoadModule, StoredModule, Target, doors};
use pithead_model::{Blame, Bytes, Fault};
use serde_json::json;

use crate::error::{CliError, said};
use crate::interrupt::Interrupts;
use crate::output::{Align, Grid, Sink};
use crate::target::{TargetArgs, connected, connected_or_new, variable};
use crate::terminal;

pub(crate) use lines::{LineFormat, Lines};
pub(crate) use run::RunArgs;

const LOAD_EXAMPLES: &str = "\
Examples:
  pithead program load doubler.wasm                     # as doubler, on every drive
  pithead program load build/new.wasm --name doubler --replace
  pithead program load doubler.wasm --drives server1:7433,server2:7433";

const LS_EXAMPLES: &str = "\
Examples:
  pithead program ls
  pithead program ls --json --drives server1:7433 | jq -r .name";

const REMOVE_EXAMPLES: &str = "\
Examples:
  pithead program rm doubler";

/// What can be done with programs.
#[derive(Debug, Subcommand)]
pub(crate) enum ProgramCommand {
    Load(LoadArgs),
    Ls(LsArgs),
    Run(Box<RunArgs>),
    #[command(name = "rm")]
    Remove(RemoveArgs),
}

/// Load a module of SSDlets into drives.
///
/// Each drive checks and compiles the module, and keeps it until it is removed. Applications that run keep the module that they
/// were started with.
#[derive(Debug, Args)]
#[command(after_help = LOAD_EXAMPLES)]
pub(crate) struct LoadArgs {
    /// The module: WebAssembly, as the libraries in sdk/ build it
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Its name at the drives [default: that of the file, without its ending]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Put it in the place of another module of that name
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

/// List the modules that drives keep, with their SSDlets.
#[derive(Debug, Args)]
#[command(after_help = LS_EXAMPLES)]
pub(crate) struct LsArgs {
    /// One JSON object for each module of each drive
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

/// Remove modules from drives.
#[derive(Debug, Args)]
#[command(after_help = REMOVE_EXAMPLES)]
pub(crate) struct RemoveArgs {
    /// Modules, as `pithead program ls` shows them
    #[arg(value_name = "MODULE", required = true)]
    modules: Vec<String>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

impl ProgramCommand {
    /// Where it is to happen.
    pub(crate) fn target(&self) -> &TargetArgs {
        match self {
            ProgramCommand::Load(args) => &args.target,
            ProgramCommand::Ls(args) => &args.target,
            ProgramCommand::Run(args) => &args.target,
            ProgramCommand::Remove(args) => &args.target,
        }
    }
}

/// Runs the command.
pub(crate) async fn run(command: ProgramCommand) -> Result<(), CliError> {
    let interrupts = Interrupts::listen();
    let at = Drives { args: command.target(), interrupts: &interrupts };
    match &command {
        ProgramCommand::Load(args) => load(args, &at).await,
        ProgramCommand::Ls(args) => at.reach(async |doors| ls(args, &doors).await).await,
        ProgramCommand::Run(args) => at.reach(async |doors| run::run(args, doors).await).await,
        ProgramCommand::Remove(args) => at.reach(async |doors| remove(args, &doors).await).await,
    }
}

/// The drives of a command, in this process or on the network.
struct Drives<'a> {
    args: &'a TargetArgs,
    interrupts: &'a Interrupts,
}

impl Drives<'_> {
    /// Does something with the drives that are there.
    async fn reach(&self, body: impl AsyncFnOnce(Vec<Arc<dyn Door>>) -> Result<(), CliError>) -> Result<(), CliError> {
        match self.args.target() {
            // Whoever only runs programs may have no right to what a host reads when it connects.
            Target::Drives(drives) => {
                let doors = doors(&drives, &self.args.link.options(variable)?)?;
                self.interrupts.cancels(body(doors)).await
            }
            Target::Data(_) => {
                connected(self.args, self.interrupts, async |engine| {
                    let drives = engine.host.fleet().drives();
                    let doors = drives.iter().map(|drive| Arc::clone(&drive.door)).collect();
                    self.interrupts.cancels(body(doors)).await
                })
                .await
            }
        }
    }

    /// The same, but a directory that is not there is made.
    async fn reach_or_make(&self, body: impl AsyncFnOnce(Vec<Arc<dyn Door>>) -> Result<(), CliError>) -> Result<(), CliError> {
        if let Target::Data(_) = self.args.target() {
            connected_or_new(self.args, self.args.options()?, self.interrupts, async |_| Ok(())).await?;
        }
        self.reach(body).await
    }
}

async fn load(args: &LoadArgs, at: &Drives<'_>) -> Result<(), CliError> {
    let name = match (&args.name, args.file.file_stem()) {
        (Some(name), _) => name.clone(),
        (None, stem) => stem.unwrap_or_default().to_string_lossy().into_owned(),
    };
    let bytes = bytes::Bytes::from(std::fs::read(&args.file).map_err(|error| CliError::file(&args.file, error))?);
    let request = LoadModule { name, replace: args.replace, bytes };
    at.reach_or_make(async |doors| {
        let answers = join_all(doors.iter().map(|door| door.load_module(request.clone()))).await;
        let mut faults = Vec::new();
        let mut loaded: Option<(StoredModule, u64)> = None;
        for (door, answer) in doors.iter().zip(answers) {
            match answer {
                Ok(module) => {
                    let count = loaded.take().map_or(0, |(_, count)| count);
                    loaded = Some((module, count + 1));
                }
                Err(fault) => faults.push(fault.at_drive(door.label())),
            }
        }
        if let Some((module, count)) = loaded {
            if faults.is_empty()
                && let Err(fault) = versions::check_loaded(&doors, &module).await
            {
                faults.push(fault);
            }
            terminal::tell(format_args!(
                "loaded {}, {}, {}, on {}",
                module.name,
                Bytes(module.bytes),
                terminal::counted(module.ssdlets.len() as u64, "SSDlet"),
                terminal::counted(count, "drive")
            ));
        }
        said(faults)
    })
    .await
}

async fn ls(args: &LsArgs, doors: &[Arc<dyn Door>]) -> Result<(), CliError> {
    let answers = join_all(doors.iter().map(|door| door.modules())).await;
    let (mut modules, mut faults) = (Vec::new(), Vec::new());
    for (door, answer) in doors.iter().zip(answers) {
        match answer {
            Ok(there) => modules.extend(there.into_iter().map(|module| (door.label().to_owned(), module))),
            Err(fault) => faults.push(fault),
        }
    }
    let mut sink = Sink::stdout();
    if args.json {
        for (drive, module) in &modules {
            let mut object = json!(module);
            object["drive"] = json!(drive);
            writeln!(sink, "{object}")?;
        }
    } else {
        grid(modules.into_iter().map(|(_, module)| module).collect(), doors.len()).write(&mut sink)?;
    }
    sink.finish()?;
    said(faults)
}

/// A row for each SSDlet of each module. The same module on several drives is one.
fn grid(mut modules: Vec<StoredModule>, drives: usize) -> Grid {
    use Align::{Left, Right};
    let columns = [("module", Left), ("size", Right), ("drives", Right), ("SSDlet", Left), ("shape", Left)];
    let mut grid = Grid::of(&columns);
    modules.sort_by(|a, b| (&a.name, &a.sha256).cmp(&(&b.name, &b.sha256)));
    for same in modules.chunk_by(|a, b| (&a.name, &a.sha256) == (&b.name, &b.sha256)) {
        let Some(module) = same.first() else { continue };
        let about = [module.name.clone(), Bytes(module.bytes).to_string(), format!("{} of {drives}", same.len())];
        for (number, ssdlet) in module.ssdlets.iter().enumerate() {
            let about = if number == 0 { about.clone() } else { Default::default() };
            grid.push(about.into_iter().chain([ssdlet.name.clone(), shape(ssdlet)]).collect());
        }
    }
    grid
}

/// `(u32, file) string -> string,u32`: arguments, inputs and outputs.
fn shape(ssdlet: &DeclaredSsdlet) -> String {
    let list = |ports: &[String]| if ports.is_empty() { "()".to_owned() } else { ports.join(" + ") };
    let arguments = if ssdlet.arguments.is_empty() { String::new() } else { format!("({}) ", ssdlet.arguments.join(", ")) };
    format!("{arguments}{} -> {}", list(&ssdlet.inputs), list(&ssdlet.outputs))
}

async fn remove(args: &RemoveArgs, doors: &[Arc<dyn Door>]) -> Result<(), CliError> {
    let mut faults = Vec::new();
    for module in &args.modules {
        let answers = join_all(doors.iter().map(|door| door.remove_module(module.clone()))).await;
        let removed = answers.iter().filter(|answer| matches!(answer, Ok(true))).count() as u64;
        let missing = answers.iter().all(|answer| matches!(answer, Ok(false)));
        if removed > 0 {
            terminal::tell(format_args!("removed {module} from {}", terminal::counted(removed, "drive")));
        }
        if missing {
            let fault = Fault::new(Blame::User, format!("no drive has a module {module}"));
            faults.push(fault.hint("`pithead program ls` shows those that there are"));
        }
        faults.extend(answers.into_iter().filter_map(Result::err));
    }
    said(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn module(name: &str, sha256: &str) -> StoredModule {
        let ssdlet = |name: &str, arguments: &[&str], inputs: &[&str], outputs: &[&str]| {
            let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect();
            DeclaredSsdlet { name: name.into(), arguments: texts(arguments), inputs: texts(inputs), outputs: texts(outputs) }
        };
        let ssdlets = vec![ssdlet("a", &["u32", "file"], &["string"], &["string,u32", "i64"]), ssdlet("b", &[], &[], &["i64"])];
        StoredModule { name: name.into(), version: 1, bytes: 34_000, sha256: sha256.into(), loaded_s: 0, ssdlets }
    }

    #[test]
    fn a_module_on_several_drives_is_shown_once() {
        let mut out = Vec::new();
        grid(vec![module("m", "1"), module("k", "1"), module("m", "1")], 2).write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let rows: Vec<String> =
            text.lines().skip(2).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let expected = [
            "k | 34.0 kB | 1 of 2 | a | (u32, file) string -> string,u32 + i64",
            "| | | b | () -> i64",
            "m | 34.0 kB | 2 of 2 | a | (u32, file) string -> string,u32 + i64",
            "| | | b | () -> i64",
        ];
        assert_eq!(rows, expected, "{text}");
    }
}
