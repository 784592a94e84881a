//! The interactive prompt: history, completion, statements over several lines, commands that begin with a backslash.

mod commands;
mod completing;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use pithead_host::Host;
use pithead_model::{Dataset, DatasetName};
use reedline::{
    ColumnarMenu, Emacs, FileBackedHistory, KeyCode, KeyModifiers, MenuBuilder, Prompt, PromptEditMode, PromptHistorySearch,
    PromptHistorySearchStatus, Reedline, ReedlineEvent, ReedlineMenu, Signal, ValidationResult, Validator,
    default_emacs_keybindings,
};

use self::commands::{Next, run_command};
use self::completing::{Completing, Names};
use crate::error::{self, CliError};
use crate::interrupt::Interrupts;
use crate::statements::Runner;
use crate::terminal;

const HISTORY_LINES_MAX: usize = 10_000;
const MENU: &str = "completion";

/// Reads and runs until the person leaves.
pub(crate) async fn run(runner: &mut Runner, host: &Host, interrupts: &Interrupts) -> Result<(), CliError> {
    let names = Names::default();
    let mut editor = editor(&names);
    terminal::tell(format_args!("pithead {}; \\? for help, \\q to leave", env!("CARGO_PKG_VERSION")));
    loop {
        know(host, &names);
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
        None if is_farewell(text) => Ok(Next::Leave),
        None => runner.run_all(text).await.map(|()| Next::Line),
    }
}

/// Learns what there is to name, while the person types.
fn know(host: &Host, names: &Names) {
    let (fleet, names) = (host.fleet().clone(), Arc::clone(names));
    tokio::spawn(async move {
        // What cannot be had is not completed.
        let Ok(datasets) = fleet.datasets().await else { return };
        let columns = |dataset: &Dataset| dataset.schema.fields().iter().map(|field| field.name().clone()).collect();
        let named = |(name, dataset): &(DatasetName, Dataset)| match name.domain == DatasetName::DEFAULT_DOMAIN {
            true => (name.dataset.clone(), columns(dataset)),
            false => (name.to_string(), columns(dataset)),
        };
        let views = fleet.views().await.unwrap_or_default();
        let views = views.into_iter().map(|(name, view)| {
            let columns = view.schema.fields().iter().map(|field| field.name().clone()).collect();
            (if name.domain == DatasetName::DEFAULT_DOMAIN { name.dataset } else { name.to_string() }, columns)
        });
        *names.lock() = datasets.iter().map(named).chain(views).collect();
    });
}

fn editor(names: &Names) -> Reedline {
    let mut keys = default_emacs_keybindings();
    let complete = vec![ReedlineEvent::Menu(MENU.to_owned()), ReedlineEvent::MenuNext];
    keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, ReedlineEvent::UntilFound(complete));
    let editor = Reedline::create()
        .with_validator(Box::new(Statements))
        .with_ansi_colors(terminal::colour())
        .with_completer(Box::new(Completing { names: Arc::clone(names) }))
        .with_menu(ReedlineMenu::EngineCompleter(Box::new(ColumnarMenu::default().with_name(MENU))))
        .with_quick_completions(true)
        .with_partial_completions(true)
        .with_edit_mode(Box::new(Emacs::new(keys)));
    let Some(path) = history_path() else { return editor };
    match FileBackedHistory::with_file(HISTORY_LINES_MAX, path.clone()) {
        Ok(history) => editor.with_history(Box::new(history)),
        Err(error) => {
            terminal::tell(format_args!("no history: {}: {error}", path.display()));
            editor
        }
    }
}

/// Whether somebody wants to leave who does not know how: these words begin no statement.
fn is_farewell(text: &str) -> bool {
    let word = text.trim_end_matches(';').trim();
    ["exit", "quit"].iter().any(|known| word.eq_ignore_ascii_case(known))
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
    if trimmed.is_empty() || trimmed.starts_with('\\') || is_farewell(trimmed) {
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
    fn who_wants_to_leave_may() {
        assert!(is_farewell("exit") && is_farewell("QUIT ;") && is_complete("quit"));
        assert!(!is_farewell("exit now") && !is_complete("exit now"));
    }

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
