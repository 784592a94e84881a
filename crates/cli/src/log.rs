//! `pithead log`: the versions of a domain, how long they are kept, and the end of them.

use std::io::Write;

use clap::Args;
use pithead_fleet::{LogEntry, log, time_text};
use pithead_model::{Blame, Fault, parse_period};
use serde_json::json;

use crate::error::CliError;
use crate::interrupt::Interrupts;
use crate::output::{Align, Grid, Sink};
use crate::target::{TargetArgs, connected};
use crate::terminal::{self, grouped};

const EXAMPLES: &str = "\
Examples:
  pithead log                     # what was changed in the domain main, the newest first
  pithead log lab --json | jq 'select(.rows_removed > 0)'
  pithead log lab --keep 7d       # keep versions for a week from now on
  pithead log lab --forget        # free now what older versions alone hold

`SELECT … FROM t AS OF VERSION 12` reads an older version, `pithead restore` brings it back.";

/// List the versions of a domain: what changed, and when.
///
/// A domain keeps its versions for a day once another one has taken their place, unless it or its drives say otherwise. What they
/// hold is not deleted before. Times are in UTC.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LogArgs {
    /// The domain
    #[arg(value_name = "DOMAIN", default_value = "main")]
    domain: String,
    /// One JSON object a change
    #[arg(long)]
    json: bool,
    /// Keep versions for so long, such as 7d, 12h or 0, or as long as drives say: default
    #[arg(long, value_name = "PERIOD|default", value_parser = parse_keep, conflicts_with_all = ["forget", "json"])]
    keep: Option<Keep>,
    /// Forget all versions but the newest one, and delete what they alone hold
    #[arg(long, conflicts_with = "json")]
    forget: bool,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

/// How long versions are kept, milliseconds; none: as long as drives say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Keep(Option<u64>);

fn parse_keep(text: &str) -> Result<Keep, Fault> {
    if text.eq_ignore_ascii_case("default") {
        return Ok(Keep(None));
    }
    let period = parse_period(text)?;
    Ok(Keep(Some(u64::try_from(period.as_millis()).unwrap_or(u64::MAX))))
}

/// Runs the command.
pub(crate) async fn run(args: LogArgs) -> Result<(), CliError> {
    let interrupts = Interrupts::listen();
    connected(&args.target, &interrupts, async |engine| {
        let (fleet, domain) = (engine.host.fleet(), args.domain.as_str());
        if let Some(Keep(history_ms)) = args.keep {
            check_known(fleet, domain).await?;
            let version = interrupts.cancels(async { Ok(fleet.set_history(domain, history_ms).await?) }).await?;
            terminal::tell(format_args!("version {version} of domain {domain} says how long versions are kept"));
            return Ok(());
        }
        if args.forget {
            check_known(fleet, domain).await?;
            let versions = interrupts.cancels(async { Ok(fleet.forget_history(domain).await?) }).await?;
            terminal::tell(format_args!("forgot {} of domain {domain}", terminal::counted(versions, "version")));
            return Ok(());
        }
        let versions = interrupts.cancels(async { Ok(fleet.history(domain).await?) }).await?;
        let mut entries = log(&versions);
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.version));
        let mut sink = Sink::stdout();
        if args.json {
            for entry in &entries {
                writeln!(sink, "{}", object(entry))?;
            }
        } else {
            grid(&entries).write(&mut sink)?;
        }
        sink.finish()
    })
    .await
}

/// A change of a domain that is not there would make it.
async fn check_known(fleet: &pithead_fleet::Fleet, domain: &str) -> Result<(), CliError> {
    let snapshot = fleet.snapshot().await?;
    let is_known = snapshot.domains().any(|(name, _)| name == domain);
    if is_known {
        return Ok(());
    }
    let fault = Fault::new(Blame::User, format!("there is no domain {domain}"));
    Err(fault.hint("pithead ls shows the domains").into())
}

fn grid(entries: &[LogEntry]) -> Grid {
    use Align::{Left, Right};
    let mut grid = Grid::of(&[
        ("version", Right),
        ("time", Left),
        ("name", Left),
        ("change", Left),
        ("rows", Right),
        ("added", Right),
        ("removed", Right),
    ]);
    let some = |count: u64| if count == 0 { String::new() } else { grouped(count) };
    for entry in entries {
        grid.push(vec![
            entry.version.to_string(),
            entry.time_ms.map(time_text).unwrap_or_default(),
            entry.name.clone().unwrap_or_default(),
            entry.change.text().to_owned(),
            entry.rows.map(grouped).unwrap_or_default(),
            some(entry.rows_added),
            some(entry.rows_removed),
        ]);
    }
    grid
}

fn object(entry: &LogEntry) -> serde_json::Value {
    json!({
        "version": entry.version,
        "time": entry.time_ms.map(time_text),
        "time_ms": entry.time_ms,
        "name": entry.name,
        "change": entry.change.text(),
        "rows": entry.rows,
        "rows_added": entry.rows_added,
        "rows_removed": entry.rows_removed,
    })
}

#[cfg(test)]
mod tests {
    use pithead_fleet::LogChange;

    use super::*;

    #[test]
    fn times_to_keep_versions_are_read() {
        assert_eq!(parse_keep("7d"), Ok(Keep(Some(604_800_000))));
        assert_eq!((parse_keep("0"), parse_keep("Default")), (Ok(Keep(Some(0))), Ok(Keep(None))));
        assert!(parse_keep("long").is_err());
    }

    #[test]
    fn a_change_is_a_line() {
        let entry = LogEntry {
            version: 3,
            time_ms: Some(1_795_514_400_123),
            name: Some("t".into()),
            change: LogChange::Appended,
            rows: Some(1_500),
            rows_added: 500,
            rows_removed: 0,
        };
        let mut written = Vec::new();
        grid(std::slice::from_ref(&entry)).write(&mut written).unwrap();
        let written = String::from_utf8(written).unwrap();
        assert!(written.ends_with("3 | 2026-11-24 10:00:00.123 UTC | t    | appended | 1,500 |   500 |\n"), "{written}");
        assert_eq!(object(&entry)["time_ms"], 1_795_514_400_123_u64);
    }
}
