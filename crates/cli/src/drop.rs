//! `pithead drop`: a dataset and all its slices.

use clap::Args;
use pithead_model::DatasetName;

use crate::error::CliError;
use crate::interrupt::Interrupts;
use crate::target::{TargetArgs, connected};
use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  pithead drop trips
  pithead drop tpch.lineitem --drives server1:7433,server2:7433";

/// Drop a dataset.
///
/// Queries that run go on to see it to their end.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DropArgs {
    /// The dataset, as NAME or DOMAIN.NAME
    #[arg(value_name = "DATASET")]
    name: DatasetName,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

/// Runs the command.
pub(crate) async fn run(args: DropArgs) -> Result<(), CliError> {
    let interrupts = Interrupts::listen();
    connected(&args.target, &interrupts, async |engine| {
        interrupts.cancels(async { Ok(engine.host.fleet().drop_dataset(&args.name).await?) }).await?;
        terminal::tell(format_args!("dropped {}", args.name));
        Ok(())
    })
    .await
}
