//! `pithead sql`: statements from the command line, from files, from stdin, or at a prompt.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use pithead_embed::Engine;
use pithead_model::{Blame, Fault};

use crate::error::CliError;
use crate::interrupt::Interrupts;
use crate::output::{Format, Sink};
use crate::plans::PlanFolder;
use crate::scratch::is_scratch;
use crate::script::Script;
use crate::statements::{Runner, Showing};
use crate::target::{TargetArgs, connected_or_new, must_exist};
use crate::terminal;
use crate::{front_serve, piped, prompt};

/// Rows of a table unless `--rows` says otherwise: at the prompt, and elsewhere.
const PROMPT_ROWS_MAX: usize = 40;
const TABLE_ROWS_MAX: usize = 10_000;
/// Width of a text in a table at the prompt.
const PROMPT_WIDTH_MAX: usize = 120;

const EXAMPLES: &str = "\
Examples:
  pithead sql                                     # a prompt; \\? there lists its commands
  pithead sql 'SELECT count(*) FROM trips'
  pithead sql -c 'EXPLAIN ANALYZE SELECT city, sum(fare) FROM trips GROUP BY city'
  pithead sql -f report.sql -o report.parquet
  echo 'SELECT * FROM trips' | pithead sql --format csv > trips.csv
  pithead sql -c \"SELECT city, sum(fare) FROM 'trips-*.parquet' GROUP BY city\"
  pithead sql --attach ./lake -c 'SHOW TABLES'     # Parquet and Arrow files as they lie
  pithead sql --set pithead.pushdown=off -c 'SELECT count(*) FROM trips'";

/// Ask in SQL: one-off statements, files of them, or a prompt.
///
/// Rows go to stdout, counts and times to stderr. Where none are given, statements are read at a prompt if stdin is a
/// terminal, else from stdin. The first statement that fails ends the run. Ctrl-C cancels at the drives. Lines that begin
/// with a backslash between statements are commands, as at the prompt: \d, \x, \i FILE, \timing and others.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SqlArgs {
    /// Statements to run, separated by `;` (repeatable)
    #[arg(short = 'c', long = "command", value_name = "SQL")]
    commands: Vec<String>,
    /// Statements to run, after all -c
    #[arg(value_name = "SQL")]
    statements: Vec<String>,
    /// File of statements to run, after those; - is stdin (repeatable)
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// How rows are written [default: by the ending of -o, else table]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Write rows to a file, which appears when it is complete; - is stdout
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A setting of the session, as SET does (repeatable)
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<Setting>,
    /// Tell on stderr of queries that take so many milliseconds, with their plan and what they waited for; 0: never [default: $PITHEAD_SLOW_QUERY_MS, else 0]
    #[arg(long, value_name = "MS")]
    slow_query_ms: Option<u64>,
    /// Serve this host's /metrics and /health while it runs: HOST:PORT, or a port that only this machine reaches
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// Rows of a table at most, 0 for all [default: 40 at the prompt, else 10000]
    #[arg(long, value_name = "N")]
    rows: Option<usize>,
    /// Write the sub-plans that drives ran as Substrait into a new folder, each with what was executed of it
    #[arg(long, value_name = "DIR")]
    plans: Option<PathBuf>,
    /// Show each row of a table as lines of names and values
    #[arg(short = 'x', long)]
    expanded: bool,
    /// Say nothing of counts and times
    #[arg(short, long)]
    quiet: bool,
    /// Make the data directory, if it is not there
    #[arg(long, conflicts_with = "drives")]
    create: bool,
    /// Divide queries among these workers (`pithead serve --worker`); they are reached as the drives are
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',')]
    workers: Vec<String>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

/// A session's setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    name: String,
    value: String,
}

impl Setting {
    /// What SQL says for it.
    pub(crate) fn statement(&self) -> String {
        format!("SET {} = '{}'", self.name, self.value.replace('\'', "''"))
    }
}

/// Where statements come from.
enum Source {
    Prompt,
    /// Stdin, which is no terminal.
    Piped,
    Texts(Vec<String>),
}

/// Runs the command.
pub(crate) async fn run(mut args: SqlArgs) -> Result<(), CliError> {
    args.target.or_scratch = !args.create;
    let source = source(&args)?;
    // Only now: a read of a file is best ended by the signal itself.
    let interrupts = Interrupts::listen();
    let format = args.format.or_else(|| Format::of_file(args.output.as_deref()?)).unwrap_or(Format::Table);
    let plans = args.plans.as_deref().map(PlanFolder::make).transpose()?;
    let sink = args.output.as_deref().map_or_else(|| Ok(Sink::stdout()), Sink::file)?;
    if format.is_binary() && sink.is_terminal() {
        return Err(CliError::user("this format is not for a terminal: give a file with -o, or redirect stdout"));
    }
    if !args.create {
        must_exist(&args.target.target())?;
    }
    connected_or_new(&args.target, args.target.options()?, &interrupts, async |engine| {
        if let Some(listen) = &args.metrics {
            let address = engine.observe(listen).await?;
            terminal::tell(format_args!("metrics at http://{address}/metrics, health at http://{address}/health"));
        }
        front_serve::divide(engine, &args.workers, &args.target).await?;
        if is_scratch(&args.target.target()) && !args.quiet {
            terminal::tell("no --data, and no pithead-data here: tables that are made now go when this command ends");
        }
        let (session, showing) = (engine.host.session().with_files(), showing(&args, format, &source, engine).await);
        let mut runner = Runner::new(&engine.host, session, &interrupts, sink, showing);
        // Before --set, which says it more plainly.
        let slow = slow_query_ms(&args)?.map(|ms| Setting { name: "pithead.slow_query_ms".to_owned(), value: ms.to_string() });
        let settings: Vec<Setting> = slow.into_iter().chain(args.settings.iter().cloned()).collect();
        interrupts.cancels(set(&mut runner, &settings)).await?;
        runner.write_plans_to(plans);
        match &source {
            Source::Prompt => prompt::run(&mut runner, &engine.host, &interrupts).await?,
            Source::Piped => interrupts.cancels(piped::run(&mut runner)).await?,
            Source::Texts(texts) => interrupts.cancels(run_texts(&mut runner, texts)).await?,
        }
        runner.finish()?;
        interrupts.told();
        Ok(())
    })
    .await
}

/// By flag, else by environment.
fn slow_query_ms(args: &SqlArgs) -> Result<Option<u64>, CliError> {
    match std::env::var("PITHEAD_SLOW_QUERY_MS") {
        Ok(text) if args.slow_query_ms.is_none() && !text.is_empty() => match text.parse() {
            Ok(ms) => Ok(Some(ms)),
            Err(_) => Err(CliError::user(format!("PITHEAD_SLOW_QUERY_MS={text:?} is not a number of milliseconds"))),
        },
        _ => Ok(args.slow_query_ms),
    }
}

async fn showing(args: &SqlArgs, format: Format, source: &Source, engine: &Engine) -> Showing {
    let at_prompt = matches!(source, Source::Prompt);
    let rows_default = if at_prompt { PROMPT_ROWS_MAX } else { TABLE_ROWS_MAX };
    let rows_max = match args.rows {
        Some(0) => usize::MAX,
        rows => rows.unwrap_or(rows_default),
    };
    let width_max = if at_prompt { PROMPT_WIDTH_MAX } else { usize::MAX };
    Showing { format, rows_max, width_max, expanded: args.expanded, timing: !args.quiet, pacing: engine.pacing() }
}

async fn set(runner: &mut Runner, settings: &[Setting]) -> Result<(), CliError> {
    let timing = std::mem::replace(&mut runner.showing().timing, false);
    for setting in settings {
        let place = format!("--set {}={}", setting.name, setting.value);
        runner.run(&setting.statement()).await.map_err(|error| error.at(place))?;
    }
    runner.showing().timing = timing;
    Ok(())
}

async fn run_texts(runner: &mut Runner, texts: &[String]) -> Result<(), CliError> {
    for text in texts {
        Script::default().run(runner, text).await?;
    }
    Ok(())
}

fn source(args: &SqlArgs) -> Result<Source, CliError> {
    if args.commands.is_empty() && args.statements.is_empty() && args.files.is_empty() {
        return match std::io::stdin().is_terminal() {
            true => Ok(Source::Prompt),
            false => Ok(Source::Piped),
        };
    }
    if let Some(file) = args.statements.iter().map(Path::new).find(|text| text.is_file()) {
        let file_name = file.display();
        let hint = format!("-f {file_name} runs the statements in it; \"FROM '{file_name}'\" reads its rows");
        return Err(Fault::new(Blame::User, format!("{} is a file, not a statement", file.display())).hint(hint).into());
    }
    let mut texts = [args.commands.as_slice(), &args.statements].concat();
    for file in &args.files {
        texts.push(read(file)?);
    }
    Ok(Source::Texts(texts))
}

fn read(path: &Path) -> Result<String, CliError> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(|error| CliError::file(Path::new("stdin"), error))?;
        return Ok(text);
    }
    std::fs::read_to_string(path).map_err(|error| CliError::file(path, error))
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE, such as pithead.pushdown=off")?;
        let name = name.trim();
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.') {
            return Err(format!("{name:?} is not the name of a setting"));
        }
        Ok(Self { name: name.to_owned(), value: value.trim().to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_names_and_values() {
        let setting: Setting = "pithead.pushdown = off".parse().unwrap();
        assert_eq!(setting, Setting { name: "pithead.pushdown".into(), value: "off".into() });
        assert!("pithead.pushdown".parse::<Setting>().is_err());
        assert!("a; DROP TABLE t --=1".parse::<Setting>().is_err());
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        sql: SqlArgs,
    }

    fn texts(words: &[&str]) -> Result<Vec<String>, CliError> {
        let line = <Line as clap::Parser>::parse_from([&["sql"], words].concat());
        match source(&line.sql)? {
            Source::Texts(texts) => Ok(texts),
            Source::Prompt | Source::Piped => Ok(vec![]),
        }
    }

    #[test]
    fn statements_need_no_flag() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("q.sql");
        std::fs::write(&file, "SELECT 3").unwrap();
        let file = file.display().to_string();
        assert_eq!(texts(&["SELECT 2", "-c", "SELECT 1", "-f", &file]).unwrap(), ["SELECT 1", "SELECT 2", "SELECT 3"]);
        assert!(texts(&[&file]).unwrap_err().to_string().contains("is a file"), "not SQL");
        assert!(texts(&[]).unwrap().is_empty());
    }
}
