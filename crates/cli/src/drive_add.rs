//! `pithead drive add`: one more drive for the datasets that there are.

use clap::Args;

use crate::error::CliError;
use crate::interrupt::Interrupts;
use crate::move_args;
use crate::target::{TargetArgs, connected};

const EXAMPLES: &str = "\
Examples:
  pithead drive add server3:7433 --drives server1:7433,server2:7433
  pithead drive add --data ./pithead-data      # one more drive in the directory

From then on name the new drive with the others, in --drives or PITHEAD_DRIVES.";

/// Add a drive, and move its share of the partitions to it.
///
/// Queries run on meanwhile. With --data, another drive is made in the directory. Partitions move whole, until bytes are
/// balanced as well as that allows.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AddArgs {
    /// Address of the drive, which must be running; none with --data
    #[arg(value_name = "HOST:PORT")]
    address: Option<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Show no progress and no summary
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

/// Runs the command.
pub(crate) async fn run(args: AddArgs) -> Result<(), CliError> {
    let interrupts = Interrupts::listen();
    connected(&args.target, &interrupts, async |engine| {
        let (bar, tell) = move_args::progress(args.quiet || args.json);
        let added = async {
            match &args.address {
                Some(address) => Ok(engine.add_drive(address, tell).await?),
                None => Ok(engine.add_drive_here(tell).await?),
            }
        };
        let result = interrupts.cancels(added).await;
        bar.finish_and_clear();
        let what = args.address.as_deref().map_or_else(|| "added a drive".to_owned(), |address| format!("added {address}"));
        move_args::report(&what, &result?, args.json, args.quiet)
    })
    .await
}
