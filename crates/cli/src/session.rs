//! `pithead session`: what runs at drives, whoever started it, and the end of it.

use std::io::Write;
use std::sync::Arc;

use clap::{Args, Subcommand};
use futures::future::join_all;
use pithead_embed::{Door, OpenSession, doors};
use pithead_model::{Blame, Bytes, Fault, SessionId, SessionState};
use serde_json::json;

use crate::error::{CliError, said};
use crate::interrupt::Interrupts;
use crate::link_args::LinkArgs;
use crate::output::{Align, Grid, Sink};
use crate::status::uptime;
use crate::target::variable;
use crate::terminal;

const LS_EXAMPLES: &str = "\
Examples:
  pithead session ls --drives server1:7433,server2:7433
  pithead session ls --json | jq -r 'select(.open_s > 600) | .session'";

const KILL_EXAMPLES: &str = "\
Examples:
  pithead session kill 5f0c1d2e3a4b5c6d --drives server1:7433,server2:7433";

/// What can be done with sessions.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    Ls(LsArgs),
    Kill(KillArgs),
}

/// List the sessions that are open at drives on the network.
///
/// A statement has one session for each partition that it reads, at one drive each. You see those of your own identity, and those
/// whose domains you may administer; where drives do not tell their callers apart, you see all.
#[derive(Debug, Args)]
#[command(after_help = LS_EXAMPLES)]
pub(crate) struct LsArgs {
    /// One JSON object a session
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: DrivesArgs,
}

/// End sessions at drives on the network.
///
/// Whoever runs the statement is told that an operator has ended it; nothing else of theirs is touched.
#[derive(Debug, Args)]
#[command(after_help = KILL_EXAMPLES)]
pub(crate) struct KillArgs {
    /// Sessions, as `pithead session ls` shows them
    #[arg(value_name = "SESSION", required = true)]
    sessions: Vec<SessionId>,
    #[command(flatten)]
    at: DrivesArgs,
}

/// Drives on the network: in drives of a directory no other process has sessions.
#[derive(Debug, Args)]
struct DrivesArgs {
    /// Drives on the network, HOST:PORT each [default: $PITHEAD_DRIVES]
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',')]
    drives: Vec<String>,
    #[command(flatten)]
    link: LinkArgs,
}

impl DrivesArgs {
    fn doors(&self) -> Result<Vec<Arc<dyn Door>>, CliError> {
        let drives = match (self.drives.is_empty(), variable("PITHEAD_DRIVES")) {
            (true, Some(drives)) => drives.split(',').map(|drive| drive.trim().to_owned()).collect(),
            _ => self.drives.clone(),
        };
        if drives.is_empty() {
            let fault = Fault::new(Blame::User, "expected drives on the network to look at");
            return Err(fault
                .hint("name them: --drives HOST:PORT,…; what runs on a directory ends with its own process")
                .into());
        }
        Ok(doors(&drives, &self.link.options(variable)?)?)
    }
}

/// Runs the command.
pub(crate) async fn run(command: SessionCommand) -> Result<(), CliError> {
    let interrupts = Interrupts::listen();
    match command {
        SessionCommand::Ls(args) => interrupts.cancels(ls(&args)).await,
        SessionCommand::Kill(args) => interrupts.cancels(kill(&args)).await,
    }
}

async fn ls(args: &LsArgs) -> Result<(), CliError> {
    let doors = args.at.doors()?;
    let answers = join_all(doors.iter().map(|door| door.sessions())).await;
    let (mut open, mut faults) = (Vec::new(), Vec::new());
    for (door, answer) in doors.iter().zip(answers) {
        match answer {
            Ok(sessions) => open.extend(sessions.into_iter().map(|session| (door.label().to_owned(), session))),
            Err(fault) => faults.push(fault),
        }
    }
    let mut sink = Sink::stdout();
    if args.json {
        for (drive, session) in &open {
            let mut object = json!(session);
            object["drive"] = json!(drive);
            object["datasets"] = json!(names(session));
            writeln!(sink, "{object}")?;
        }
    } else {
        grid(&open).write(&mut sink)?;
    }
    sink.finish()?;
    said(faults)
}

fn grid(open: &[(String, OpenSession)]) -> Grid {
    use Align::{Left, Right};
    let mut grid = Grid::of(&[
        ("session", Left),
        ("drive", Left),
        ("owner", Left),
        ("open", Right),
        ("state", Left),
        ("slices", Right),
        ("reserved", Right),
        ("datasets", Left),
    ]);
    for (drive, session) in open {
        grid.push(vec![
            session.session.to_string(),
            drive.clone(),
            session.owner.clone().unwrap_or_default(),
            uptime(session.open_s as u64),
            state(session.state).to_owned(),
            slices(session),
            Bytes(session.memory).to_string(),
            reads(session),
        ]);
    }
    grid
}

/// The datasets that it reads, or the modules that it runs.
fn reads(session: &OpenSession) -> String {
    let programs = session.programs.iter().map(|module| format!("program {module}"));
    names(session).into_iter().chain(programs).collect::<Vec<_>>().join(", ")
}

fn names(session: &OpenSession) -> Vec<String> {
    session.datasets.iter().map(ToString::to_string).collect()
}

/// How far it is; an application has no slices.
fn slices(session: &OpenSession) -> String {
    match session.programs.is_empty() {
        true => format!("{} of {}", session.slices_done, session.slices_total),
        false => String::new(),
    }
}

fn state(state: SessionState) -> &'static str {
    match state {
        SessionState::Opened => "opened",
        SessionState::Running => "running",
        SessionState::Finished => "finished",
        SessionState::Failed => "failed",
    }
}

async fn kill(args: &KillArgs) -> Result<(), CliError> {
    let doors = args.at.doors()?;
    let mut faults = Vec::new();
    let mut missing = Vec::new();
    for session in &args.sessions {
        let answers = join_all(doors.iter().map(|door| door.kill(*session))).await;
        let ended: Vec<&str> =
            doors.iter().zip(&answers).filter(|(_, answer)| matches!(answer, Ok(true))).map(|(door, _)| door.label()).collect();
        match ended.first() {
            Some(drive) => terminal::tell(format_args!("ended session {session} at {drive}")),
            None => missing.push(session.to_string()),
        }
        faults.extend(answers.into_iter().filter_map(Result::err));
    }
    if !missing.is_empty() {
        let what = format!("no drive has a session {} that you may end", missing.join(" or "));
        faults.push(Fault::new(Blame::User, what).hint("`pithead session ls` shows those that are open"));
    }
    said(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_a_row() {
        let session = OpenSession {
            session: SessionId(0xab),
            owner: Some("reports".into()),
            host: 1,
            datasets: vec!["lab.t".parse().unwrap()],
            state: SessionState::Running,
            open_s: 61.0,
            slices_done: 3,
            slices_total: 40,
            memory: 16_000_000,
            programs: vec![],
        };
        let mut out = Vec::new();
        grid(&[("a:1".to_owned(), session)]).write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("00000000000000ab | a:1   | reports | 1 min | running | 3 of 40 |  16.0 MB | lab.t"), "{text}");
    }
}
