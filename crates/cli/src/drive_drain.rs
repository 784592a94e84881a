//! `pithead drive drain` and `pithead drive rm`: a drive is emptied, and leaves.

use clap::Args;

use crate::apart::apart;
use crate::error::CliError;
use crate::interrupt::Interrupts;
use crate::target::{TargetArgs, connected};
use crate::{move_args, terminal};

const DRAIN_EXAMPLES: &str = "\
Examples:
  pithead drive drain server2:7433
  pithead drive drain 805cb548da646478 && pithead drive rm 805cb548da646478";

const RM_EXAMPLES: &str = "\
Examples:
  pithead drive rm server2:7433
  pithead drive rm 805cb548da646478

A drive that is lost and cannot be drained: pithead repair --lost ID";

/// Move everything off a drive, while queries run.
///
/// It stays one of the domains' drives, and new datasets may still be placed on it, until `pithead drive rm`.
#[derive(Debug, Args)]
#[command(after_help = DRAIN_EXAMPLES)]
pub(crate) struct DrainArgs {
    /// The drive, by identity or address
    #[arg(value_name = "ID|HOST:PORT")]
    drive: String,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Show no progress and no summary
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

/// Take a drive that was drained out of use.
///
/// Refused as long as it holds a copy of a partition or is the home of a domain. It need not be reached.
#[derive(Debug, Args)]
#[command(after_help = RM_EXAMPLES)]
pub(crate) struct RemoveArgs {
    /// The drive, by identity or address
    #[arg(value_name = "ID|HOST:PORT")]
    drive: String,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

/// Runs `drain`.
pub(crate) async fn drain(args: DrainArgs) -> Result<(), CliError> {
    let interrupts = Interrupts::listen();
    connected(&args.target, &interrupts, async |engine| {
        let drive = move_args::find_drive(&engine.host, &args.drive)?;
        let (bar, tell) = move_args::progress(args.quiet || args.json);
        let host = engine.host.clone();
        let drained = apart(async move { host.fleet().drain(drive, tell).await });
        let result = interrupts.cancels(async { Ok(drained.await?) }).await;
        bar.finish_and_clear();
        move_args::report(&format!("drained {}", args.drive), &result?, args.json, args.quiet)
    })
    .await
}

/// Runs `rm`.
pub(crate) async fn remove(args: RemoveArgs) -> Result<(), CliError> {
    let interrupts = Interrupts::listen();
    connected(&args.target, &interrupts, async |engine| {
        let drive = move_args::find_drive(&engine.host, &args.drive)?;
        interrupts.cancels(async { Ok(engine.host.fleet().remove(drive).await?) }).await?;
        terminal::tell(format_args!("removed {}: it can be stopped now", args.drive));
        Ok(())
    })
    .await
}
