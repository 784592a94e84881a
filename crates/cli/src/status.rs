//! `pithead status`: how each drive is, and each partition on it.

use std::io::Write;

use clap::Args;
use pithead_embed::DriveStatus;
use pithead_emulate::quantity_text;
use pithead_model::{Blame, Bytes, Fault, Rate};
use serde_json::{Value as Json, json};

use crate::device;
use crate::error::{CliError, say};
use crate::interrupt::Interrupts;
use crate::output::{Align, Grid, Sink};
use crate::status_cores;
use crate::status_energy::write_energy;
use crate::status_partitions::partitions_grid;
use crate::target::{TargetArgs, must_exist};
use crate::terminal::grouped;

const EXAMPLES: &str = "\
Examples:
  pithead status --drives server1:7433,server2:7433
  pithead status --costs --drives server1:7433
  pithead status --cores --drives server1:7433
  pithead status --device smart-ssd --drives server1:7433
  pithead status --json | jq .free_bytes";

/// Show how each drive is, and how much each partition on it holds and is used.
///
/// What was read counts from the start of the drive. A drive that cannot be reached is shown with the reason, and makes the
/// exit code 1.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    /// One JSON object a drive
    #[arg(long)]
    json: bool,
    /// Show what operators cost at each drive, as it has learned, and how far its predictions were off
    #[arg(long)]
    costs: bool,
    /// Show how busy each core is, and what it gives to background services
    #[arg(long, conflicts_with = "costs")]
    cores: bool,
    /// Show what the drives' work since they started would take on drives of a profile: seconds and joules by part
    #[arg(long, value_name = "PROFILE", conflicts_with_all = ["costs", "cores"])]
    device: Option<String>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

/// A drive's label, and how it is or why that is not known.
pub(crate) type Answer = (String, Result<DriveStatus, Fault>);

/// Runs the command.
pub(crate) async fn run(args: StatusArgs) -> Result<(), CliError> {
    if args.cores {
        return status_cores::cores(&args.target, args.json).await;
    }
    let profile = args.device.as_deref().map(device::modelled).transpose()?;
    let interrupts = Interrupts::listen();
    let target = args.target.target();
    must_exist(&target)?;
    let options = args.target.options()?;
    let answers = interrupts.cancels(async { Ok(pithead_embed::status(&target, &options).await?) }).await?;
    let mut sink = Sink::stdout();
    match (&profile, args.json) {
        (Some(profile), json) => write_energy(profile, &answers, json, &mut sink)?,
        (None, true) => write_json(&answers, &mut sink)?,
        (None, false) if args.costs => costs_grid(&answers).write(&mut sink)?,
        (None, false) => {
            grid(&answers).write(&mut sink)?;
            if let Some(partitions) = partitions_grid(&answers) {
                writeln!(sink)?;
                partitions.write(&mut sink)?;
            }
        }
    }
    sink.finish()?;
    report_down(&answers, args.json)
}

fn grid(answers: &[Answer]) -> Grid {
    use Align::{Left, Right};
    let mut grid = Grid::of(&[
        ("drive", Left),
        ("id", Left),
        ("release", Left),
        ("up", Right),
        ("threads", Right),
        ("memory", Right),
        ("reserved", Right),
        ("sessions", Right),
        ("slices", Right),
        ("stored", Right),
        ("free", Right),
        ("link", Left),
    ]);
    for (label, answer) in answers {
        grid.push(match answer {
            Ok(status) => row(label, status),
            Err(fault) => [label.as_str(), if fault.blame == Blame::Access { "refuses" } else { "down" }]
                .iter()
                .map(ToString::to_string)
                .chain((2..12).map(|_| String::new()))
                .collect(),
        });
    }
    grid
}

/// What operators cost, a line a drive, encoding and operator.
fn costs_grid(answers: &[Answer]) -> Grid {
    use Align::{Left, Right};
    let mut grid = Grid::of(&[
        ("drive", Left),
        ("encoding", Left),
        ("operator", Left),
        ("ns", Right),
        ("per", Left),
        ("learned from", Right),
        ("predicted/actual", Right),
    ]);
    for (label, answer) in answers {
        for cost in answer.iter().flat_map(|status| &status.costs) {
            let ratio = cost.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
            let learned = format!("{} slices", cost.learned);
            let ns = format!("{:.2}", cost.ns);
            grid.push(vec![label.clone(), cost.encoding.clone(), cost.operator.clone(), ns, cost.unit.clone(), learned, ratio]);
        }
    }
    grid
}

fn row(label: &str, status: &DriveStatus) -> Vec<String> {
    vec![
        label.to_owned(),
        status.drive.to_string(),
        status.release.clone(),
        uptime(status.uptime_s),
        status.threads.to_string(),
        Bytes(status.memory).to_string(),
        Bytes(status.memory_reserved).to_string(),
        status.sessions.to_string(),
        grouped(status.slices),
        Bytes(status.stored_bytes).to_string(),
        Bytes(status.free_bytes).to_string(),
        paced(status),
    ]
}

/// How a drive's link, CPU and medium are paced, for tables.
fn paced(status: &DriveStatus) -> String {
    let link = match status.link_bits_per_second {
        Some(bits_per_second) => format!("paced to {}", Rate { bits_per_second }),
        None => "not paced".to_owned(),
    };
    let cpu = (status.cpu_share != 1.0).then(|| format!("CPU paced to {:.3}", status.cpu_share));
    let medium = status.medium_bytes_per_second.map(|rate| format!("medium to {}", quantity_text("bytes_per_s", rate)));
    let profile = status.profile.as_ref().map(|name| format!("throttled, as a {name}"));
    [profile, Some(link), cpu, medium].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

pub(crate) fn uptime(seconds: u64) -> String {
    match seconds {
        s if s < 60 => format!("{s} s"),
        s if s < 3_600 => format!("{} min", s / 60),
        s if s < 86_400 => format!("{} h", s / 3_600),
        s => format!("{} d", s / 86_400),
    }
}

fn write_json(answers: &[Answer], out: &mut Sink) -> Result<(), CliError> {
    for (label, answer) in answers {
        writeln!(out, "{}", status_json(label, answer))?;
    }
    Ok(())
}

fn status_json(label: &str, answer: &Result<DriveStatus, Fault>) -> Json {
    match answer {
        Ok(status) => {
            let mut object = json!(status);
            object["label"] = json!(label);
            object["up"] = json!(true);
            object
        }
        Err(fault) => json!({ "label": label, "up": false, "error": fault.message }),
    }
}

/// What is down is an error by itself, said once for each drive, also for those beneath arrays.
fn report_down(answers: &[Answer], said: bool) -> Result<(), CliError> {
    let down: Vec<Fault> = answers.iter().flat_map(|(label, answer)| faults(label, answer)).collect();
    if down.is_empty() {
        return Ok(());
    }
    // What only credentials are missing for is no failure of drives.
    let blame = if down.iter().all(|fault| fault.blame == Blame::Access) { Blame::Access } else { Blame::Device };
    if !said {
        down.iter().for_each(say);
    }
    Err(CliError::Said(blame))
}

/// Why a drive, or what is beneath it, does not say how it is.
fn faults(label: &str, answer: &Result<DriveStatus, Fault>) -> Vec<Fault> {
    match answer {
        Ok(status) => status.away.iter().map(|fault| fault.clone().at(format_args!("beneath array {label}"))).collect(),
        Err(fault) if fault.message.contains(label) => vec![fault.clone()],
        Err(fault) => vec![fault.clone().at(label)],
    }
}

#[cfg(test)]
mod tests {
    use pithead_model::DriveId;

    use pithead_model::ByLevel;

    use super::*;

    fn answers() -> Vec<Answer> {
        let status = DriveStatus {
            drive: DriveId(0xab),
            release: "0.1.0".into(),
            uptime_s: 7_300,
            threads: 2,
            memory: 4_000_000_000,
            memory_reserved: 0,
            sessions: 1,
            slices: 1_234,
            stored_bytes: 5_000_000,
            free_bytes: 7_000_000_000,
            domains: vec![],
            partitions: vec![],
            link_bits_per_second: Some(1e9),
            profile: None,
            cpu_share: 1.0,
            medium_bytes_per_second: None,
            work: ByLevel::default(),
            costs: vec![],
            away: vec![],
        };
        vec![("a:1".into(), Ok(status)), ("b:2".into(), Err(Fault::new(Blame::Device, "connection refused")))]
    }

    #[test]
    fn drives_that_are_down_have_a_row_too() {
        let mut out = Vec::new();
        grid(&answers()).write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("2 h |       2 | 4.0 GB |      0 B |        1 |  1,234 | 5.0 MB | 7.0 GB | paced to 1 Gbit/s"),
            "{text}"
        );
        assert!(text.contains(" b:2   | down"), "{text}");
    }

    #[test]
    fn one_drive_down_is_a_failure() {
        assert!(matches!(report_down(&answers(), true), Err(CliError::Said(Blame::Device))));
        assert!(report_down(&answers()[..1], true).is_ok());
    }

    #[test]
    fn a_drive_down_beneath_an_array_is_a_failure() {
        let mut answers = answers();
        answers.truncate(1);
        let (label, answer) = &mut answers[0];
        let label = label.clone();
        answer.as_mut().unwrap().away = vec![Fault::new(Blame::Device, "drive c:3: connection refused")];
        let told = faults(&label, &answers[0].1);
        assert_eq!(told, [Fault::new(Blame::Device, "beneath array a:1: drive c:3: connection refused")]);
        assert!(matches!(report_down(&answers, true), Err(CliError::Said(Blame::Device))));
    }

    #[test]
    fn json_says_who_is_up() {
        let answers = answers();
        let up = status_json(&answers[0].0, &answers[0].1);
        assert_eq!((&up["label"], &up["up"], &up["threads"]), (&json!("a:1"), &json!(true), &json!(2)));
        let down = status_json(&answers[1].0, &answers[1].1);
        assert_eq!(down, json!({ "label": "b:2", "up": false, "error": "connection refused" }));
    }
}
