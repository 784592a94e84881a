//! From a parsed command line to a running command.

use std::io::IsTerminal;

use clap::CommandFactory;
use pithead_model::PLANNING_STACK_BYTES;
use tracing_subscriber::EnvFilter;

use crate::args::{ArrayCommand, Cli, Command, DriveCommand};
use crate::error::CliError;
use crate::{
    array_serve, bench, cell, cert, check, device, drive_add, drive_aside, drive_drain, drive_serve, drop, explain,
    front_serve, inspect, kv, load, log, ls, program, repair, repro, restore, service, session, shell_files, sql, status,
    target, token, whatif,
};

/// What is logged unless `PITHEAD_LOG` says otherwise.
const LOG_DEFAULT: &str = "error,pithead=warn";

/// Runs one command to its end.
pub(crate) fn run(command: Command) -> Result<(), CliError> {
    log_to_stderr()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads(&command))
        .thread_name("pithead")
        .thread_stack_size(PLANNING_STACK_BYTES)
        .enable_all()
        .build()?;
    let result = runtime.block_on(dispatch(command));
    // Ends at once: a blocked read of stdin must not hold the process.
    runtime.shutdown_background();
    result
}

async fn dispatch(command: Command) -> Result<(), CliError> {
    match command {
        Command::Drive(DriveCommand::Serve(args)) => drive_serve::run(args).await,
        Command::Drive(DriveCommand::Add(args)) => drive_add::run(args).await,
        Command::Drive(DriveCommand::Drain(args)) => drive_drain::drain(args).await,
        Command::Drive(DriveCommand::Remove(args)) => drive_drain::remove(args).await,
        Command::Drive(DriveCommand::Aside(command)) => drive_aside::run(command).await,
        Command::Array(ArrayCommand::Serve(args)) => array_serve::run(*args).await,
        Command::Repair(args) => repair::run(args).await,
        Command::Load(args) => load::run(*args).await,
        Command::Sql(args) => sql::run(args).await,
        Command::Serve(args) => front_serve::run(*args).await,
        Command::Ls(args) => ls::run(args).await,
        Command::Status(args) => status::run(args).await,
        Command::Session(command) => session::run(command).await,
        Command::Service(command) => service::run(command).await,
        Command::Program(command) => program::run(command).await,
        Command::Drop(args) => drop::run(args).await,
        Command::Log(args) => log::run(args).await,
        Command::Restore(args) => restore::run(args).await,
        Command::Check(args) => check::run(args).await,
        Command::Inspect(command) => inspect::run(command).await,
        Command::Cell(args) => cell::run(&args),
        Command::Kv(args) => kv::run(*args).await,
        Command::Cert(command) => cert::run(command),
        Command::Token(args) => token::run(&args),
        Command::Bench(command) => bench::run(command).await,
        Command::Device(command) => device::run(&command),
        Command::Repro(args) => repro::run(args).await,
        Command::Whatif(args) => whatif::run(*args).await,
        Command::Explain(args) => explain::run(*args).await,
        Command::Completions(args) => shell_files::completions(&args, Cli::command()),
        Command::Man(args) => shell_files::man(&args, Cli::command()),
    }
}

/// Threads for the host's part, or for a drive's network.
fn threads(command: &Command) -> usize {
    let asked = match command {
        Command::Drive(DriveCommand::Serve(_)) | Command::Bench(_) | Command::Check(_) | Command::Inspect(_) => None,
        Command::Session(_) | Command::Cell(_) | Command::Kv(_) | Command::Cert(_) | Command::Token(_) => None,
        Command::Device(_) | Command::Repro(_) | Command::Whatif(_) | Command::Completions(_) | Command::Man(_) => None,
        Command::Explain(args) => args.target.threads,
        Command::Array(ArrayCommand::Serve(args)) => args.threads(),
        Command::Serve(args) => args.threads(),
        Command::Drive(DriveCommand::Add(args)) => args.target.threads,
        Command::Drive(DriveCommand::Drain(args)) => args.target.threads,
        Command::Drive(DriveCommand::Remove(args)) => args.target.threads,
        Command::Drive(DriveCommand::Aside(command)) => command.threads(),
        Command::Repair(args) => args.target.threads,
        Command::Service(command) => command.threads(),
        Command::Program(command) => command.target().threads,
        Command::Load(args) => args.target.threads,
        Command::Sql(args) => args.target.threads,
        Command::Ls(args) => args.target.threads,
        Command::Status(args) => args.target.threads,
        Command::Drop(args) => args.target.threads,
        Command::Log(args) => args.target.threads,
        Command::Restore(args) => args.target.threads,
    };
    asked.unwrap_or_else(target::cores).max(1)
}

/// What these would tell of requests has the credentials in it.
const WITHOUT_SECRETS: &str = "ureq=error,ureq_proto=error";

fn log_to_stderr() -> Result<(), CliError> {
    let directives = std::env::var("PITHEAD_LOG").unwrap_or_else(|_| LOG_DEFAULT.to_owned());
    let filter = EnvFilter::try_new(format!("{directives},{WITHOUT_SECRETS}")).map_err(|error| {
        CliError::user(format!("PITHEAD_LOG={directives:?} is not a filter such as pithead_host=debug: {error}"))
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Otherwise a closed stderr makes it panic.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal() && crate::terminal::colour())
        .init();
    Ok(())
}
