//! `pithead restore`: a domain, or one dataset of it, as it was.

use clap::Args;
use pithead_fleet::Restored;
use pithead_model::DatasetName;
use serde_json::json;

use crate::error::CliError;
use crate::interrupt::Interrupts;
use crate::move_args;
use crate::target::{TargetArgs, connected};
use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  pithead log lab                                          # which versions there are
  pithead restore lab.cells --to 12                        # one dataset, also one that was dropped
  pithead restore lab --to '2026-11-24 10:00:00'           # all datasets and views of the domain
  pithead restore main.trips --to 12 --json";

/// Make a domain, or one of its datasets, what it was in an older version.
///
/// That is a new version: what is there now stays in the log, and can be restored again. No rows are copied. Queries that run go
/// on to see what they saw.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RestoreArgs {
    /// A domain, or a dataset or view as DOMAIN.NAME
    #[arg(value_name = "DOMAIN[.DATASET]")]
    name: String,
    /// The version, or a time in UTC unless it says another zone: what was there then
    #[arg(long, value_name = "VERSION|TIME")]
    to: String,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

/// Runs the command.
pub(crate) async fn run(args: RestoreArgs) -> Result<(), CliError> {
    let interrupts = Interrupts::listen();
    let (domain, dataset) = match args.name.split_once('.') {
        Some(_) => {
            let name: DatasetName = args.name.parse()?;
            (name.domain, Some(name.dataset))
        }
        None => (DatasetName::new(args.name.as_str(), "any")?.domain, None),
    };
    connected(&args.target, &interrupts, async |engine| {
        let restoring = async {
            let to = engine.host.session().as_of(&args.to).await?;
            Ok(engine.host.fleet().restore(&domain, dataset.as_deref(), to).await?)
        };
        let restored = interrupts.cancels(restoring).await?;
        if args.json {
            let Restored { from, version, changed } = &restored;
            return move_args::print_json(&json!({"restored_from": from, "version": version, "changed": changed}));
        }
        terminal::tell(said(&args.name, &restored));
        Ok(())
    })
    .await
}

fn said(name: &str, restored: &Restored) -> String {
    let from = restored.from;
    match restored.version {
        None => format!("{name} is as it was in version {from}: there was nothing to do"),
        Some(version) => {
            let changed = restored.changed.join(", ");
            format!("restored {name} from version {from}, as version {version}; changed: {changed}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_said() {
        let mut restored = Restored { from: 3, version: Some(9), changed: vec!["t".into(), "u".into()] };
        assert_eq!(said("lab", &restored), "restored lab from version 3, as version 9; changed: t, u");
        restored.version = None;
        assert_eq!(said("lab.t", &restored), "lab.t is as it was in version 3: there was nothing to do");
    }
}
