//! Commands of the prompt: they begin with a backslash.

use std::path::Path;

use pithead_host::Host;

use crate::error::CliError;
use crate::output::Sink;
use crate::statements::Runner;
use crate::{ls, terminal};

/// Whether the prompt goes on.
pub(super) enum Next {
    Line,
    Leave,
}

/// Each command and what it does, as `\?` shows it.
pub(super) const COMMANDS: &[(&str, &str)] = &[
    ("d", "[NAME]     list datasets and views, or describe one"),
    ("dt", "          list datasets and views"),
    ("dv", "          list views"),
    ("l", "           list domains"),
    ("i", "FILE       run the statements of a file"),
    ("o", "[FILE]     write rows to a file from now on, or to the terminal again"),
    ("x", "[on|off]   show each row as lines of names and values, or stop doing so"),
    ("rows", "N       show at most N rows of an answer, 0 for all"),
    ("timing", "[on|off]  say counts and times, or stop saying them"),
    ("q", "           leave (so do exit, quit and Ctrl-D)"),
    ("?", "           this list"),
];

/// Runs what follows a backslash.
pub(super) async fn run_command(runner: &mut Runner, host: &Host, text: &str) -> Result<Next, CliError> {
    let text = text.trim_end_matches(';').trim();
    let (command, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim();
    let argument = Some(rest).filter(|rest| !rest.is_empty());
    match command {
        "q" | "quit" | "exit" => return Ok(Next::Leave),
        "?" | "h" | "help" => terminal::tell(help()),
        "d" => ls::list(host, argument, runner.sink()).await?,
        "dt" => ls::list(host, None, runner.sink()).await?,
        "dv" => ls::views(host, runner.sink()).await?,
        "l" => ls::domains(host, runner.sink()).await?,
        "i" => {
            let path = Path::new(argument.ok_or_else(|| CliError::user("expected a file, as in \\i report.sql"))?);
            let text = std::fs::read_to_string(path).map_err(|error| CliError::file(path, error))?;
            runner.run_all(&text).await?;
        }
        "o" => {
            let sink = argument.map_or_else(|| Ok(Sink::stdout()), |path| Sink::file(Path::new(path)))?;
            runner.send_to(sink)?;
        }
        "x" => {
            let expanded = &mut runner.showing().expanded;
            *expanded = switched(*expanded, argument, "x")?;
            terminal::tell(format_args!("rows are shown {}", if *expanded { "as lines" } else { "in a table" }));
        }
        "timing" => {
            let timing = &mut runner.showing().timing;
            *timing = switched(*timing, argument, "timing")?;
            terminal::tell(format_args!("counts and times are {}", if *timing { "on" } else { "off" }));
        }
        "rows" => match rest.parse() {
            Ok(0) => runner.showing().rows_max = usize::MAX,
            Ok(count) => runner.showing().rows_max = count,
            Err(_) => return Err(CliError::user("expected a number, as in \\rows 100")),
        },
        other => return Err(CliError::user(format!("there is no command \\{other}; \\? lists them"))),
    }
    Ok(Next::Line)
}

fn switched(is_on: bool, wanted: Option<&str>, command: &str) -> Result<bool, CliError> {
    match wanted {
        None => Ok(!is_on),
        Some("on") => Ok(true),
        Some("off") => Ok(false),
        Some(_) => Err(CliError::user(format!("expected on, off or nothing, as in \\{command} on"))),
    }
}

fn help() -> String {
    let commands: String = COMMANDS.iter().map(|(name, what)| format!("  \\{name} {what}\n")).collect();
    format!(
        "Statements end with ; and may take several lines. Tab completes names and words.\n{commands}\
         Ctrl-C cancels a running statement, or drops the line. Ctrl-R searches the history."
    )
}
