//! The interactive prompt: history, completion, statements over several lines, commands that begin with a backslash.

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

use self::completing::{Completing, Names};
use crate::ending::{going, is_complete, is_cry_for_help, is_farewell};
use crate::error::{self, CliError};
use crate::interrupt::Interrupts;
use crate::script::{Next, run_command};
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
        match interrupts.cancels(run_text(runner, text.trim())).await {
            Ok(Next::Line) => {}
            Ok(Next::Leave) => return Ok(()),
            Err(error @ (CliError::BrokenPipe | CliError::Terminated)) => return Err(error),
            Err(CliError::Fault(fault)) => error::say(&fault),
            Err(CliError::Said(_)) => {}
        }
        if interrupts.terminates() {
            return Err(CliError::Terminated);
        }
        interrupts.clear();
    }
}

async fn run_text(runner: &mut Runner, text: &str) -> Result<Next, CliError> {
    match text.strip_prefix('\\') {
        Some(command) => run_command(runner, command, 0).await,
        None if is_farewell(text) => Ok(Next::Leave),
        None if is_cry_for_help(text) => run_command(runner, "?", 0).await,
        None => {
            let (statements, expanded) = going(text).unwrap_or((text, false));
            let before = runner.showing().expanded;
            runner.showing().expanded |= expanded;
            let ran = runner.run_all(statements).await;
            runner.showing().expanded = before;
            ran.map(|()| Next::Line)
        }
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
