//! [`Script`]: statements and backslash commands, from the prompt, from stdin that is no terminal, from files and from arguments.

use std::path::Path;

use pithead_host::Session;
use pithead_model::{Blame, Fault};

use crate::ending::{is_ended, may_end};
use crate::error::CliError;
use crate::output::Sink;
use crate::statements::Runner;
use crate::{domains, ls, terminal};

/// Files that read one another at most.
const DEPTH_MAX: usize = 16;

/// Whether the prompt, or the script, goes on.
#[derive(Debug)]
pub(crate) enum Next {
    Line,
    Leave,
}

/// Each command and what it does, as `\?` shows it.
pub(crate) const COMMANDS: &[(&str, &str)] = &[
    ("d", "[NAME]     list datasets and views, or describe one"),
    ("dt", "          list datasets and views"),
    ("dv", "          list views"),
    ("l", "           list domains"),
    ("g", "           at the prompt: run the statement before it, as in SELECT 1 \\g"),
    ("gx", "          the same, and show each row as lines of names and values"),
    ("i", "FILE       run the statements of a file"),
    ("o", "[FILE]     write rows to a file from now on, or to the terminal again"),
    ("x", "[on|off]   show each row as lines of names and values, or stop doing so"),
    ("rows", "N       show at most N rows of an answer, 0 for all"),
    ("timing", "[on|off]  say counts and times, or stop saying them"),
    ("q", "           leave (so do exit, quit and Ctrl-D)"),
    ("?", "           this list"),
];

/// Runs what follows a backslash, in a file that so many others are read by.
pub(crate) async fn run_command(runner: &mut Runner, text: &str, depth: usize) -> Result<Next, CliError> {
    let host = &runner.host().clone();
    let text = text.trim().trim_end_matches(';').trim();
    let (command, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim();
    let argument = Some(rest).filter(|rest| !rest.is_empty());
    if matches!(command, "d" | "dt" | "dv" | "l") && runner.showing().format.is_binary() {
        let fault =
            Fault::new(Blame::User, format!("\\{command} writes a table, and the rows here are in a format of their own"));
        return Err(fault.hint("leave it out, or leave out --format").into());
    }
    match command {
        "q" | "quit" | "exit" => return Ok(Next::Leave),
        "?" | "h" | "help" => terminal::tell(help()),
        "d" => ls::list(host, argument, runner.sink()).await?,
        "dt" => ls::list(host, None, runner.sink()).await?,
        "dv" => ls::views(host, runner.sink()).await?,
        "l" => domains::list(host, runner.sink()).await?,
        "i" => {
            let path = Path::new(argument.ok_or_else(|| CliError::user("expected a file, as in \\i report.sql"))?);
            let text = std::fs::read_to_string(path).map_err(|error| CliError::file(path, error))?;
            if depth >= DEPTH_MAX {
                let what = format!("{} is read by a file that is read by a file, {DEPTH_MAX} times over", path.display());
                return Err(CliError::user(what));
            }
            let script = Script::at_depth(depth + 1).run(runner, &text);
            Box::pin(script).await.map_err(|error| error.at(path.display()))?;
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
        "g" | "gx" => {
            return Err(CliError::user(format!("\\{command} ends a statement at the prompt, as in SELECT 1 \\{command}")));
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

/// Lines of which the last statement may not be complete yet.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// What has not run yet.
    text: String,
    /// Lines before.
    lines: usize,
    /// Statements that have run.
    ran: usize,
    /// Files that this one is read by, each by the one before.
    depth: usize,
}

impl Script {
    /// The script of a file that a command of another one reads.
    pub(crate) fn at_depth(depth: usize) -> Self {
        Self { depth, ..Self::default() }
    }

    /// Takes a line with its end, and runs what it completes. A command is a line of its own between statements, as at the prompt.
    pub(crate) async fn line(&mut self, runner: &mut Runner, line: &str) -> Result<Next, CliError> {
        self.lines += 1;
        if let Some(command) = command_of(line)
            && is_ended(&self.text)
        {
            self.run_pending(runner).await?;
            return self.run_command(runner, command).await;
        }
        self.text.push_str(line);
        if may_end(line) && is_ended(&self.text) {
            self.run_pending(runner).await?;
        }
        Ok(Next::Line)
    }

    /// Runs the last statement, which needs no `;`.
    pub(crate) async fn end(mut self, runner: &mut Runner) -> Result<(), CliError> {
        self.run_pending(runner).await
    }

    /// Runs the whole of a text. One whose statements cannot be told apart runs nothing.
    pub(crate) async fn run(mut self, runner: &mut Runner, text: &str) -> Result<(), CliError> {
        let parts = parts(text);
        if parts.iter().all(|part| matches!(part, Part::Statements(_))) {
            return runner.run_all(text).await;
        }
        for part in &parts {
            if let Part::Statements(text) = part {
                Session::split(text)?;
            }
        }
        for part in parts {
            match part {
                Part::Statements(text) => {
                    self.lines += text.lines().count();
                    self.text = text;
                    self.run_pending(runner).await?;
                }
                Part::Command(command) => {
                    self.lines += 1;
                    if let Next::Leave = self.run_command(runner, &command).await? {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    async fn run_pending(&mut self, runner: &mut Runner) -> Result<(), CliError> {
        self.ran += runner.run_after(self.ran, &std::mem::take(&mut self.text)).await?;
        Ok(())
    }

    async fn run_command(&self, runner: &mut Runner, command: &str) -> Result<Next, CliError> {
        let line = self.lines;
        run_command(runner, command, self.depth).await.map_err(|error| error.at(format!("line {line}")))
    }
}

/// A part of a script.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    /// Lines of statements, the last of which may lack its `;`.
    Statements(String),
    /// What follows a backslash.
    Command(String),
}

fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut statements = String::new();
    for line in text.split_inclusive('\n') {
        match command_of(line).filter(|_| is_ended(&statements)) {
            Some(command) => {
                parts.extend((!statements.is_empty()).then(|| Part::Statements(std::mem::take(&mut statements))));
                parts.push(Part::Command(command.to_owned()));
            }
            None => statements.push_str(line),
        }
    }
    parts.extend((!statements.is_empty()).then_some(Part::Statements(statements)));
    parts
}

/// What follows a backslash at the start of a line.
fn command_of(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix('\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_lines_between_statements() {
        let statements = |text: &str| Part::Statements(text.to_owned());
        let command = |text: &str| Part::Command(text.to_owned());
        assert_eq!(parts("\\x on;\r\nSELECT 1;\n\\q"), [command("x on;\r\n"), statements("SELECT 1;\n"), command("q")]);
        for whole in ["SELECT '\n\\q';\n", "SELECT 1\n\\q\n", "SELECT $$a;\n\\q$$;", "/* a;\n\\q */", ""] {
            let expected = if whole.is_empty() { vec![] } else { vec![statements(whole)] };
            assert_eq!(parts(whole), expected, "{whole:?}");
        }
        let noted = "SELECT 1; /* note\nmore */\n";
        assert_eq!(parts(&format!("{noted}\\x\n-- a\n")), [statements(noted), command("x\n"), statements("-- a\n")]);
    }
}
