//! `pithead drive aside`: what drives changed as homes that were declared lost and were not.

use std::io::Write;

use clap::{Args, Subcommand};
use pithead_fleet::{Aside, TakeUp, TakeUpOutcome, There};
use pithead_model::{Bytes, DatasetName};
use serde_json::json;

use crate::apart::apart;
use crate::error::CliError;
use crate::interrupt::Interrupts;
use crate::output::{Align, Grid, Sink};
use crate::target::{TargetArgs, connected};
use crate::terminal::{counted, grouped};
use crate::{move_args, terminal};

const LS_EXAMPLES: &str = "\
Examples:
  pithead drive aside ls
  pithead drive aside ls --json | jq .datasets";

const TAKE_EXAMPLES: &str = "\
Examples:
  pithead drive aside take trips                          # append the rows that trips lacks
  pithead drive aside take trips --into trips_of_server3  # as a dataset of their own
  pithead drive aside take trips --drive 805cb548da646478 --version 12";

const DROP_EXAMPLES: &str = "\
Examples:
  pithead drive aside drop 805cb548da646478 main 12";

/// What can be done with what drives have set aside.
#[derive(Debug, Subcommand)]
pub(crate) enum AsideCommand {
    Ls(LsArgs),
    Take(TakeArgs),
    Drop(DropArgs),
}

/// List what drives have set aside, beside what the domains have now.
///
/// A drive that was declared lost while some host still changed data there sets these changes aside when it learns that another
/// drive is home. A row is a dataset with rows that its domain does not have.
#[derive(Debug, Args)]
#[command(after_help = LS_EXAMPLES)]
pub(crate) struct LsArgs {
    /// One JSON object for each time that a drive has set something aside
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: TargetArgs,
}

/// Take up rows of a dataset that a drive has set aside.
///
/// The rows that the domain does not have are appended to the dataset of this name, or, with --into, to another one. A dataset that is
/// not there is made. All rows are visible at once, or none. What is set aside stays until it is dropped.
#[derive(Debug, Args)]
#[command(after_help = TAKE_EXAMPLES)]
pub(crate) struct TakeArgs {
    /// The dataset, as NAME or DOMAIN.NAME
    #[arg(value_name = "DATASET")]
    name: DatasetName,
    /// The dataset that gets the rows, in the same domain
    #[arg(long, value_name = "DATASET")]
    into: Option<DatasetName>,
    /// The drive that has set it aside, by identity or address, where there are several
    #[arg(long, value_name = "ID|HOST:PORT")]
    drive: Option<String>,
    /// The version that is set aside, where there are several
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// Go on without runs that no drive gives
    #[arg(long)]
    partial: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Show no progress and no summary
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    target: TargetArgs,
}

/// Drop what a drive has set aside.
///
/// Its rows go with it, except those that a dataset has. DRIVE, DOMAIN and VERSION are as `pithead drive aside ls` shows them.
#[derive(Debug, Args)]
#[command(after_help = DROP_EXAMPLES)]
pub(crate) struct DropArgs {
    /// The drive, by identity or address
    #[arg(value_name = "ID|HOST:PORT")]
    drive: String,
    /// The domain
    #[arg(value_name = "DOMAIN")]
    domain: String,
    /// The version that is set aside
    #[arg(value_name = "VERSION")]
    version: u64,
    #[command(flatten)]
    target: TargetArgs,
}

impl AsideCommand {
    pub(crate) fn threads(&self) -> Option<usize> {
        match self {
            AsideCommand::Ls(args) => args.target.threads,
            AsideCommand::Take(args) => args.target.threads,
            AsideCommand::Drop(args) => args.target.threads,
        }
    }
}

/// Runs the command.
pub(crate) async fn run(command: AsideCommand) -> Result<(), CliError> {
    match command {
        AsideCommand::Ls(args) => ls(args).await,
        AsideCommand::Take(args) => take(args).await,
        AsideCommand::Drop(args) => drop(args).await,
    }
}

async fn ls(args: LsArgs) -> Result<(), CliError> {
    let interrupts = Interrupts::listen();
    connected(&args.target, &interrupts, async |engine| {
        let asides = interrupts.cancels(async { Ok(engine.host.fleet().asides().await?) }).await?;
        let mut sink = Sink::stdout();
        if args.json {
            for aside in &asides {
                writeln!(sink, "{}", json!(aside))?;
            }
        } else {
            grid(&asides).write(&mut sink)?;
        }
        sink.finish()
    })
    .await
}

fn grid(asides: &[Aside]) -> Grid {
    use Align::{Left, Right};
    let mut grid = Grid::of(&[
        ("drive", Left),
        ("id", Left),
        ("domain", Left),
        ("version", Right),
        ("dataset", Left),
        ("the domain", Left),
        ("loads", Right),
        ("rows", Right),
        ("on the drive", Right),
        ("stored", Right),
    ]);
    for aside in asides {
        let of = [aside.label.clone(), aside.drive.to_string(), aside.domain.clone(), aside.version.to_string()];
        if aside.datasets.is_empty() {
            let rest = ["", "has all of it", "", "", "", ""].map(str::to_owned);
            grid.push(of.into_iter().chain(rest).collect());
            continue;
        }
        for dataset in &aside.datasets {
            let rest = [
                dataset.dataset.clone(),
                there(dataset.there).to_owned(),
                grouped(dataset.loads.len() as u64),
                grouped(dataset.rows),
                grouped(dataset.rows_here),
                Bytes(dataset.bytes).to_string(),
            ];
            grid.push(of.iter().cloned().chain(rest).collect());
        }
    }
    grid
}

fn there(there: There) -> &'static str {
    match there {
        There::Lacks => "lacks these rows",
        There::MayHave => "may have them in merged runs",
        There::Another => "has another dataset of this name",
        There::Nothing => "has no such dataset",
    }
}

async fn take(args: TakeArgs) -> Result<(), CliError> {
    let interrupts = Interrupts::listen();
    connected(&args.target, &interrupts, async |engine| {
        let drive = args.drive.as_deref().map(|drive| move_args::find_drive(&engine.host, drive)).transpose()?;
        let into = args.into.clone().unwrap_or_else(|| args.name.clone());
        let (version, partial) = (args.version, args.partial);
        let spec = TakeUp { name: args.name.clone(), into, drive, version, partial };
        let (bar, tell) = move_args::progress(args.quiet || args.json);
        let (host, wanted) = (engine.host.clone(), spec.clone());
        let taking = apart(async move { host.fleet().take_up(&wanted, tell).await });
        let result = interrupts.cancels(async { Ok(taking.await?) }).await;
        bar.finish_and_clear();
        let taken = result?;
        if args.json {
            move_args::print_json(&json!(taken))?;
        } else if !args.quiet {
            terminal::tell(summary(&spec, &taken));
        }
        Ok(())
    })
    .await
}

fn summary(spec: &TakeUp, taken: &TakeUpOutcome) -> String {
    let how = if taken.created { "made of" } else { "appended" };
    let lost = match taken.rows_lost {
        0 => String::new(),
        rows => format!("; {} no drive has any more", counted(rows, "row")),
    };
    format!("{}: {how} {} that were set aside, {} copied{lost}", spec.into, counted(taken.rows, "row"), Bytes(taken.bytes))
}

async fn drop(args: DropArgs) -> Result<(), CliError> {
    let interrupts = Interrupts::listen();
    connected(&args.target, &interrupts, async |engine| {
        let drive = move_args::find_drive(&engine.host, &args.drive)?;
        let dropped = engine.host.fleet().drop_aside(drive, &args.domain, args.version);
        interrupts.cancels(async { Ok(dropped.await?) }).await?;
        terminal::tell(format_args!("{}: dropped version {} of domain {}", args.drive, args.version, args.domain));
        Ok(())
    })
    .await
}

#[cfg(test)]
mod tests {
    use pithead_fleet::AsideDataset;
    use pithead_model::{DriveId, LoadId};

    use super::*;

    #[test]
    fn each_dataset_that_is_set_aside_has_a_row() {
        let dataset = AsideDataset {
            dataset: "trips".into(),
            there: There::Lacks,
            loads: vec![LoadId(7)],
            rows: 1_500,
            bytes: 30_000,
            rows_here: 1_000,
        };
        let aside =
            |version, datasets| Aside { drive: DriveId(0xab), label: "a:1".into(), domain: "main".into(), version, datasets };
        let mut out = Vec::new();
        grid(&[aside(12, vec![dataset]), aside(40, vec![])]).write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let row =
            "a:1   | 00000000000000ab | main   |      12 | trips   | lacks these rows |     1 | 1,500 |        1,000 | 30.0 kB";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("a:1   | 00000000000000ab | main   |      40 |         | has all of it"), "{text}");
    }

    #[test]
    fn the_summary_says_what_is_lost() {
        let name: DatasetName = "trips".parse().unwrap();
        let spec = TakeUp { name: name.clone(), into: name, drive: None, version: None, partial: true };
        let taken = TakeUpOutcome { rows: 1_000, bytes: 2_000, created: true, rows_lost: 1 };
        let said = "main.trips: made of 1,000 rows that were set aside, 2.0 kB copied; 1 row no drive has any more";
        assert_eq!(summary(&spec, &taken), said);
    }
}
