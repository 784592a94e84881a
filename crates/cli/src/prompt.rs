//! The interactive prompt: history, statements over several lines, commands that begin with a backslash.

use std::borrow::Cow;
use std::path::PathBuf;

use pithead_host::Host;

use reedline::{
    FileBackedHistory, Prompt, PromptEditMode, PromptHistorySearch, PromptHistorySearchStatus, Reedline, Signal,
    ValidationResult, Validator,
};

use crate::error::{self, CliError};
use crate::interrupt::Interrupts;
use crate::statements::Runner;
use crate::{ls, terminal};

const HISTORY_LINES_MAX: usize = 10_000;

const HELP: &str = "\
Statements end with ; and may take several lines.
  \\d          list datasets
  \\d NAME     describe a dataset
  \\rows N     show at most N rows of an answer, 0 for all
  \\timing     say counts and times, or stop saying them; also \\timing on and \\timing off
  \\q          leave (so does Ctrl-D)
Ctrl-C cancels a running statement, or drops the line. Ctrl-R searches the history.";

/// Whether the prompt goes on.
enum Next {
    Line,
    Leave,
}

/// Reads and runs until the person leaves.
pub(crate) async fn run(runner: &mut Runner, host: &Host, interrupts: &Interrupts) -> Result<(), CliError> {
    let mut editor = editor()?;
    terminal::tell(format_args!("pithead {}; \\? for help, \\q to leave", env!("CARGO_PKG_VERSION")));
    loop {
        let text = match interrupts.typing(|| editor.read_line(&Pithead))? {
            Signal::Success(text) => text,
            Signal::CtrlC => continue,
            _ => return Ok(()),
        };
        // Now, since a closed terminal ends the process without asking. A history that cannot be kept is no reason to stop.
        let _ = editor.sync_history();
        interrupts.clear();
        match interrupts.cancels(run_text(runner, host, text.trim())).await {
            Ok(Next::Line) => {}
            Ok(Next::Leave) => return Ok(()),
            Err(error @ (CliError::BrokenPipe | CliError::Terminated)) => return Err(error),
            Err(CliError::Fault(fault)) => error::say(&fault),
            Err(CliError::Said(_)) => {}
        }
        interrupts.clear();
    }
}

async fn run_text(runner: &mut Runner, host: &Host, text: &str) -> Result<Next, CliError> {
    match text.strip_prefix('\\') {
        Some(command) => run_command(runner, host, command).await,
        None => runner.run_all(text).await.map(|()| Next::Line),
    }
}

async fn run_command(runner: &mut Runner, host: &Host, text: &str) -> Result<Next, CliError> {
    let mut words = text.trim_end_matches(';').split_whitespace();
    match (words.next().unwrap_or(""), words.next()) {
        ("q" | "quit" | "exit", _) => return Ok(Next::Leave),
        ("?" | "h" | "help", _) => terminal::tell(HELP),
        ("d", name) => ls::list(host, name, runner.sink()).await?,
        ("timing", wanted) => {
            let timing = &mut runner.showing().timing;
            *timing = match wanted {
                None => !*timing,
                Some("on") => true,
                Some("off") => false,
                Some(_) => return Err(CliError::user("expected on, off or nothing, as in \\timing on")),
            };
            terminal::tell(format_args!("counts and times are {}", if *timing { "on" } else { "off" }));
        }
        ("rows", count) => match count.and_then(|count| count.parse().ok()) {
            Some(0) => runner.showing().rows_max = usize::MAX,
            Some(count) => runner.showing().rows_max = count,
            None => return Err(CliError::user("expected a number, as in \\rows 100")),
        },
        (other, _) => return Err(CliError::user(format!("there is no command \\{other}; \\? lists them"))),
    }
    Ok(Next::Line)
}

fn editor() -> Result<Reedline, CliError> {
    let editor = Reedline::create().with_validator(Box::new(Statements)).with_ansi_colors(terminal::colour());
    let Some(path) = history_path() else { return Ok(editor) };
    match FileBackedHistory::with_file(HISTORY_LINES_MAX, path.clone()) {
        Ok(history) => Ok(editor.with_history(Box::new(history))),
        Err(error) => {
            terminal::tell(format_args!("no history: {}: {error}", path.display()));
            Ok(editor)
        }
    }
}

fn history_path() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
    Some(PathBuf::from(home).join(".pithead_history"))
}

/// Holds a line back until its statement is complete.
struct Statements;

impl Validator for Statements {
    fn validate(&self, line: &str) -> ValidationResult {
        match is_complete(line) {
            true => ValidationResult::Complete,
            false => ValidationResult::Incomplete,
        }
    }
}

/// Whether a text can be run: nothing, a backslash command, or a last `;` that is not in quotes or a comment.
pub(crate) fn is_complete(text: &str) -> bool {
    let trimmed = text.trim();
    if trimmed.is_empty() || trimmed.starts_with('\\') {
        return true;
    }
    let mut rest = trimmed;
    let mut ended = false;
    while let Some(first) = rest.chars().next() {
        // Where a quote or comment opens, what closes it; an open one is not complete.
        let skipped = match first {
            '\'' | '"' => after(&rest[1..], &first.to_string()),
            _ if rest.starts_with("--") => Some(after(rest, "\n").unwrap_or("")),
            _ if rest.starts_with("/*") => after(&rest[2..], "*/"),
            _ => {
                ended = first == ';' || (ended && first.is_whitespace());
                Some(&rest[first.len_utf8()..])
            }
        };
        match skipped {
            Some(skipped) => {
                ended &= !matches!(first, '\'' | '"');
                rest = skipped;
            }
            None => return false,
        }
    }
    ended
}

fn after<'a>(text: &'a str, end: &str) -> Option<&'a str> {
    text.find(end).map(|at| &text[at + end.len()..])
}

/// How the prompt looks.
struct Pithead;

impl Prompt for Pithead {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed("pithead")
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _mode: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("> ")
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("      -> ")
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        let failing = match search.status {
            PromptHistorySearchStatus::Passing => "",
            PromptHistorySearchStatus::Failing => "no ",
        };
        Cow::Owned(format!("({failing}match for {:?}) ", search.term))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_at_a_semicolon_that_is_code() {
        for complete in ["", "  ", "\\d", "select 1;", "select 1; ", "select ';';", "select 1; -- done", "select 1; /* a */ "] {
            assert!(is_complete(complete), "{complete:?}");
        }
        for open in
            ["select 1", "select ';", "select 1 -- ;", "select 1 /* ;", "select \"a;", "select 1; select 2", "select '';'a'"]
        {
            assert!(!is_complete(open), "{open:?}");
        }
        assert!(is_complete("select 'it''s';") && is_complete("-- note\nselect 1;"));
    }
}
