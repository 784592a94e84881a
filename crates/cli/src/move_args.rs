//! What commands that move partitions share: naming a drive, progress, the report.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use pithead_fleet::{MoveProgress, MoveReport, TellMove};
use pithead_host::Host;
use pithead_model::{Blame, Bytes, DriveId, Fault};

use crate::error::CliError;
use crate::output::Sink;
use crate::terminal;

/// The drive that a person means: by identity, or by the label under which it is connected.
pub(crate) fn find_drive(host: &Host, named: &str) -> Result<DriveId, CliError> {
    let wanted = named.trim().trim_start_matches("pithead://").trim_end_matches('/');
    let drives = host.fleet().drives();
    let labelled = drives.iter().find(|drive| drive.label() == wanted || drive.label().ends_with(&format!("/{wanted}")));
    if let Some(drive) = labelled {
        return Ok(drive.id());
    }
    wanted.parse().map_err(|_| {
        let names: Vec<String> = drives.iter().map(|drive| format!("{} ({})", drive.id(), drive.label())).collect();
        let message = format!("no connected drive is {named:?}; there are {}", names.join(", "));
        Fault::new(Blame::User, message).hint("name a drive by its identity or its address; `pithead status` shows both").into()
    })
}

/// A bar for people who watch, and nothing for others.
pub(crate) fn progress(quiet: bool) -> (ProgressBar, TellMove) {
    let bar = if quiet || !terminal::lively() { ProgressBar::hidden() } else { ProgressBar::new(0) };
    let template = "{bar:30} {decimal_bytes}/{decimal_total_bytes}, {decimal_bytes_per_sec}, {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    let shown = bar.clone();
    let tell = move |progress: MoveProgress| {
        shown.set_length(progress.bytes_total);
        shown.set_position(progress.bytes_done);
        shown.set_message(progress.what);
    };
    (bar, Arc::new(tell))
}

/// Says what was moved: as JSON on stdout, or in words on stderr.
pub(crate) fn report(what: &str, report: &MoveReport, json: bool, quiet: bool) -> Result<(), CliError> {
    if json {
        return print_json(&serde_json::json!(report));
    }
    if quiet {
        return Ok(());
    }
    let moved = match report.partitions {
        0 => "nothing had to be moved".to_owned(),
        count => format!("{} moved, {}", terminal::counted(count, "partition"), Bytes(report.bytes)),
    };
    terminal::tell(format_args!("{what}: {moved}"));
    homes(&report.homes);
    notes(&report.notes);
    Ok(())
}

/// One object on stdout.
pub(crate) fn print_json(report: &serde_json::Value) -> Result<(), CliError> {
    let mut sink = Sink::stdout();
    writeln!(sink, "{report}")?;
    sink.finish()
}

/// Domains that have another home now.
pub(crate) fn homes(domains: &[String]) {
    for domain in domains {
        terminal::tell(format_args!("domain {domain} has another home now"));
    }
}

/// What is worth knowing beside the rest.
pub(crate) fn notes(notes: &[String]) {
    for note in notes {
        terminal::tell(format_args!("note: {note}"));
    }
}
