//! `pithead repair`: all copies are checked and mended, or a lost drive's are made anew.

use clap::Args;
use pithead_fleet::{AwayDrive, RepairReport, RepairSpec};
use pithead_model::{Blame, Bytes, DriveId, Fault};

use crate::apart::apart;
use crate::error::{CliError, say};
use crate::interrupt::Interrupts;
use crate::target::{TargetArgs, connected};
use crate::{move_args, terminal};

const EXAMPLES: &str = "\
Examples:
  pithead repair                               # check every copy, mend what can be
  pithead repair --lost 805cb548da646478       # that drive will not come back
  pithead repair --lost 805cb548da646478 --drop-lost";

/// Check all copies and mend them, or rebuild what a lost drive held.
///
/// Without --lost, every run is read on each of its drives. What is missing or damaged is written anew from another copy,
/// and copies that a dataset lacks are made. With --lost, the copies of that drive are made anew on the others, and
/// another drive becomes home where it was. Queries run on meanwhile. The exit code is 1 if something stays lost,
/// damaged or undone, or if a drive is away, so that what it has was not checked.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RepairArgs {
    /// Identity of a drive that will not come back
    #[arg(long, value_name = "ID")]
    lost: Option<DriveId>,
    /// Drop the datasets of which a partition was on the lost drive only
    #[arg(long, requires = "lost")]
    drop_lost: bool,
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
pub(crate) async fn run(args: RepairArgs) -> Result<(), CliError> {
    let interrupts = Interrupts::listen();
    connected(&args.target, &interrupts, async |engine| {
        let (bar, tell) = move_args::progress(args.quiet || args.json);
        let spec = RepairSpec { lost: args.lost, drop_lost: args.drop_lost };
        let host = engine.host.clone();
        let repaired = apart(async move { host.fleet().repair(&spec, tell).await });
        let result = interrupts.cancels(async { Ok(repaired.await?) }).await;
        bar.finish_and_clear();
        let report = result?;
        if args.json {
            move_args::print_json(&serde_json::json!(report))?;
        } else if !args.quiet {
            terminal::tell(summary(&report));
            move_args::homes(&report.homes);
            move_args::notes(&report.notes);
        }
        verdict(&report, args.json, args.lost)
    })
    .await
}

fn summary(report: &RepairReport) -> String {
    let mut parts = Vec::new();
    if report.runs_checked > 0 {
        parts.push(format!("{} checked, {}", terminal::counted(report.runs_checked, "run"), Bytes(report.bytes_checked)));
    }
    if report.runs_rewritten > 0 {
        parts.push(format!("{} written anew", terminal::counted(report.runs_rewritten, "run")));
    }
    if report.copies_made > 0 {
        parts.push(format!("{} of partitions made", terminal::counted_as(report.copies_made, "copy", "copies")));
    }
    if !report.dropped.is_empty() {
        parts.push(format!("dropped {}", report.dropped.join(", ")));
    }
    match parts.is_empty() {
        true => "there was nothing to do".to_owned(),
        false => parts.join("; "),
    }
}

/// What stays lost or damaged is an error, said once for each.
fn verdict(report: &RepairReport, said: bool, lost: Option<DriveId>) -> Result<(), CliError> {
    let kept: Vec<_> = report.lost.iter().filter(|lost| !report.dropped.contains(&lost.name.to_string())).collect();
    if kept.is_empty() && report.damaged.is_empty() && report.failed.is_empty() && report.away.is_empty() {
        return Ok(());
    }
    if !said {
        for partition in &kept {
            let rows = terminal::counted(partition.rows, "row");
            let message = format!("no copy is left of partition {} of {}, {rows}", partition.partition, partition.name);
            let fault = Fault::new(Blame::Corrupt, message);
            let hint = lost.map(|id| format!("if the drive is gone for good: pithead repair --lost {id} --drop-lost"));
            say(&match hint {
                Some(hint) => fault.hint(hint),
                None => fault,
            });
        }
        for what in &report.damaged {
            say(&Fault::new(Blame::Corrupt, what.clone()).hint("no good copy was found; load the dataset again"));
        }
        report.away.iter().for_each(|away| say(&away_fault(away)));
        for what in &report.failed {
            say(&Fault::new(Blame::Device, what.clone()).hint("`pithead status` shows the drives; then run the repair again"));
        }
    }
    Err(CliError::Said(if kept.is_empty() && report.damaged.is_empty() { Blame::Device } else { Blame::Corrupt }))
}

/// What is said of a drive that is not reached.
fn away_fault(away: &AwayDrive) -> Fault {
    let AwayDrive { drive, why } = away;
    let fault = Fault::new(Blame::Device, format!("drive {drive} is away, and its copies were not checked: {why}"));
    fault.hint(format!("start it, or name its address, too; if it is gone for good: pithead repair --lost {drive}"))
}

#[cfg(test)]
mod tests {
    use pithead_fleet::LostPartition;

    use super::*;

    #[test]
    fn the_summary_says_what_was_done() {
        assert_eq!(summary(&RepairReport::default()), "there was nothing to do");
        let report = RepairReport {
            runs_checked: 12,
            bytes_checked: 5_000_000,
            runs_rewritten: 1,
            copies_made: 2,
            ..Default::default()
        };
        assert_eq!(summary(&report), "12 runs checked, 5.0 MB; 1 run written anew; 2 copies of partitions made");
    }

    #[test]
    fn what_stays_lost_is_a_failure() {
        let lost = LostPartition { name: "t".parse().unwrap(), partition: 1, rows: 7 };
        let mut report = RepairReport { lost: vec![lost], ..Default::default() };
        assert!(matches!(verdict(&report, true, None), Err(CliError::Said(Blame::Corrupt))));
        report.dropped.push("main.t".into());
        assert!(verdict(&report, true, None).is_ok());
        report.failed.push("x".into());
        assert!(matches!(verdict(&report, true, None), Err(CliError::Said(Blame::Device))));
        report.damaged.push("x".into());
        assert!(matches!(verdict(&report, true, None), Err(CliError::Said(Blame::Corrupt))));
    }

    #[test]
    fn a_drive_that_is_away_is_a_failure_with_a_way_out() {
        let away = AwayDrive { drive: DriveId(7), why: "another drive answers at a:1 in its place".into() };
        let hint = away_fault(&away).hint.unwrap();
        assert!(hint.contains("pithead repair --lost 0000000000000007"), "{hint}");
        let report = RepairReport { away: vec![away], ..Default::default() };
        assert!(matches!(verdict(&report, true, None), Err(CliError::Said(Blame::Device))));
    }
}
