//! `pithead check`: verifies stores, and repairs what can be.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use pithead_embed::Target;
use pithead_model::{Blame, Bytes, Fault};
use pithead_store::{CheckOptions, CheckProgress, CheckReport, Finding};
use serde_json::{Value as Json, json};

use crate::error::{CliError, say};
use crate::interrupt::Interrupts;
use crate::output::{Align, Grid, Sink};
use crate::store_keys::{key_words, store_folders};
use crate::target::TargetArgs;
use crate::terminal::{self, counted};

const EXAMPLES: &str = "\
Examples:
  pithead check                       # all drives under ./pithead-data
  pithead check /disk1                # one drive's folder
  pithead check --data d --repair
  pithead check --json | jq '.findings[] | select(.repaired | not)'";

/// Verify stores: every page of their index, every value, and all accounts of room.
///
/// Reads everything, so it takes as long as the medium takes to be read. No other process may have the drives. What is wrong is
/// listed with what it concerns; without --repair nothing is changed, so that a store on a medium that refuses writes can be
/// checked, too. The exit code is 1 where something is left unrepaired.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckArgs {
    /// A drive's folder, or a data directory [default: $PITHEAD_DATA, else ./pithead-data]
    #[arg(value_name = "DIR", conflicts_with = "data")]
    directory: Option<PathBuf>,
    /// The same as DIR
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Repair what can be: an index is made anew from what it shows and from the journal. Values that are damaged stay, and are named
    #[arg(long)]
    repair: bool,
    /// One JSON object a drive
    #[arg(long)]
    json: bool,
    /// Show no progress and no summary
    #[arg(short, long)]
    quiet: bool,
}

/// A store, and what was found in it or why that is not known.
type Checked = (PathBuf, Result<CheckReport, Fault>);

/// Runs the command.
pub(crate) async fn run(args: CheckArgs) -> Result<(), CliError> {
    let interrupts = Interrupts::listen();
    let folders = store_folders(&directory(&args)?)?;
    let mut checked = Vec::new();
    for folder in folders {
        let (bar, repair) = (progress_bar(args.quiet), args.repair);
        let (shown, place) = (bar.clone(), folder.clone());
        let work = tokio::task::spawn_blocking(move || {
            pithead_store::check(&place, &CheckOptions { repair }, &mut |progress| show(&shown, &place, &progress))
        });
        let result = interrupts.cancels(async { Ok(work.await) }).await?;
        bar.finish_and_clear();
        let lost = |lost| Fault::new(Blame::Bug, format!("the check ended early: {lost}"));
        let report = result.map_err(lost).and_then(|report| report.map_err(Fault::from));
        if let (false, Ok(report)) = (args.quiet, &report) {
            terminal::tell(summary(&folder, report));
        }
        checked.push((folder, report));
    }
    let mut sink = Sink::stdout();
    if args.json {
        for one in &checked {
            writeln!(sink, "{}", checked_json(one))?;
        }
    } else if checked.iter().any(|(_, report)| report.as_ref().is_ok_and(|report| !report.findings.is_empty())) {
        grid(&checked).write(&mut sink)?;
    }
    sink.finish()?;
    verdict(&checked)
}

fn directory(args: &CheckArgs) -> Result<PathBuf, CliError> {
    let named = args.directory.clone().or_else(|| args.data.clone());
    let target = TargetArgs { data: named, ..TargetArgs::default() };
    match target.target() {
        Target::Data(directory) => Ok(directory),
        Target::Drives(_) => {
            let fault =
                Fault::new(Blame::User, "$PITHEAD_DRIVES names drives on the network; stores are checked where they are");
            Err(fault.hint("stop the drive and run `pithead check DIR` on its machine").into())
        }
    }
}

fn progress_bar(quiet: bool) -> ProgressBar {
    if quiet || !terminal::lively() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    let template = "{bar:30} {percent:>3}%, {msg}, {eta} left";
    bar.set_style(ProgressStyle::with_template(template).expect("the template is well-formed"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn show(bar: &ProgressBar, folder: &Path, progress: &CheckProgress) {
    bar.set_length(progress.total);
    bar.set_position(progress.done.min(progress.total));
    bar.set_message(format!("{}: {}", folder.display(), progress.step));
}

fn summary(folder: &Path, report: &CheckReport) -> String {
    let left = report.findings.iter().filter(|finding| !finding.repaired).count() as u64;
    let repaired = report.findings.len() as u64 - left;
    let found = match (left, repaired) {
        (0, 0) => "nothing is wrong".to_owned(),
        (left, 0) => counted(left, "finding"),
        (0, repaired) => format!("{}, all repaired", counted(repaired, "finding")),
        (left, repaired) => format!("{}, {repaired} repaired", counted(left + repaired, "finding")),
    };
    format!("{}: {}, {} of values: {found}", folder.display(), counted(report.keys, "key"), Bytes(report.value_bytes))
}

fn grid(checked: &[Checked]) -> Grid {
    use Align::Left;
    let columns = [("drive", Left), ("finding", Left), ("where", Left), ("what", Left), ("repaired", Left)];
    let mut grid = Grid::of(&columns);
    for (folder, report) in checked {
        let name = folder.file_name().map_or_else(|| folder.display().to_string(), |name| name.to_string_lossy().into_owned());
        for finding in report.iter().flat_map(|report| &report.findings) {
            grid.push(vec![
                name.clone(),
                finding.kind.to_string(),
                place(finding),
                finding.what.clone(),
                if finding.repaired { "yes" } else { "no" }.to_owned(),
            ]);
        }
    }
    grid
}

/// The key and what it stands for, the file, or both.
fn place(finding: &Finding) -> String {
    let key = finding.key.as_ref().map(|key| match key_words(key) {
        Some(words) => format!("{key}\n({words})"),
        None => key.clone(),
    });
    key.into_iter().chain(finding.file.clone()).collect::<Vec<_>>().join("\n")
}

fn checked_json((folder, report): &Checked) -> Json {
    match report {
        Ok(report) => {
            let mut object = json!(report);
            object["store"] = json!(folder.display().to_string());
            for finding in object["findings"].as_array_mut().into_iter().flatten() {
                if let Some(words) = finding["key"].as_str().and_then(key_words) {
                    finding["is"] = json!(words);
                }
            }
            object
        }
        Err(fault) => json!({ "store": folder.display().to_string(), "error": fault.message }),
    }
}

/// What is left as it is makes the exit code.
fn verdict(checked: &[Checked]) -> Result<(), CliError> {
    let faults: Vec<&Fault> = checked.iter().filter_map(|(_, report)| report.as_ref().err()).collect();
    faults.iter().for_each(|fault| say(fault));
    let left = checked.iter().any(|(_, report)| report.iter().flat_map(|report| &report.findings).any(|one| !one.repaired));
    match faults.first() {
        _ if left => Err(CliError::Said(Blame::Corrupt)),
        Some(fault) => Err(CliError::Said(fault.blame)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use pithead_store::FindingKind;

    use super::*;

    fn checked(repaired: &[bool]) -> Checked {
        let finding = |repaired: &bool| Finding {
            kind: FindingKind::Value,
            key: Some("manifest/lab".to_owned()),
            file: Some("segments/1.seg".to_owned()),
            what: "torn".to_owned(),
            repaired: *repaired,
        };
        let findings = repaired.iter().map(finding).collect();
        ("d/drive-0".into(), Ok(CheckReport { keys: 1_234, value_bytes: 5_000_000, findings, ..CheckReport::default() }))
    }

    #[test]
    fn what_is_left_unrepaired_is_a_failure() {
        assert!(verdict(&[checked(&[]), checked(&[true])]).is_ok());
        assert!(matches!(verdict(&[checked(&[]), checked(&[true, false])]), Err(CliError::Said(Blame::Corrupt))));
        let in_use = || ("d/drive-1".into(), Err(Fault::new(Blame::User, "in use")));
        assert!(matches!(verdict(&[checked(&[]), in_use()]), Err(CliError::Said(Blame::User))));
        assert!(matches!(verdict(&[in_use(), checked(&[false])]), Err(CliError::Said(Blame::Corrupt))));
    }

    #[test]
    fn findings_are_counted_and_put_in_words() {
        let said = |repaired: &[bool]| summary(Path::new("d"), checked(repaired).1.as_ref().unwrap());
        assert_eq!(said(&[]), "d: 1,234 keys, 5.0 MB of values: nothing is wrong");
        assert!(said(&[true]).ends_with("1 finding, all repaired"), "{}", said(&[true]));
        assert!(said(&[true, false]).ends_with("2 findings, 1 repaired"), "{}", said(&[true, false]));
        assert!(said(&[false]).ends_with(": 1 finding"), "{}", said(&[false]));
        let mut out = Vec::new();
        grid(&[checked(&[false])]).write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("drive-0 | damaged value | manifest/lab             | torn | no"), "{text}");
        assert!(text.contains("(manifest of domain lab)"), "{text}");
        let object = checked_json(&checked(&[false]));
        assert_eq!((&object["store"], &object["keys"]), (&json!("d/drive-0"), &json!(1_234)));
        assert_eq!(object["findings"][0]["is"], json!("manifest of domain lab"));
    }
}
