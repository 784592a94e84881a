//! `pithead explain`: the plan of a query, as text or as a page with a picture of it.

mod page;

use std::path::PathBuf;

use clap::Args;
use pithead_host::PlanLine;

use crate::error::CliError;
use crate::interrupt::Interrupts;
use crate::output::Sink;
use crate::target::{TargetArgs, connected_or_new, must_exist};
use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  pithead explain 'SELECT city, sum(fare) FROM trips GROUP BY city'
  pithead explain --analyze --html plan.html 'SELECT city, sum(fare) FROM trips GROUP BY city'";

/// Show what of a query runs where, and with --analyze what each part cost.
///
/// It is what EXPLAIN and EXPLAIN ANALYZE show in SQL; --html makes a page of it that any browser shows, without a server.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExplainArgs {
    /// The query
    #[arg(value_name = "SQL")]
    sql: String,
    /// Run the query, drop its rows, and tell what each part cost
    #[arg(long)]
    analyze: bool,
    /// Write a page with the plan as a picture: sites, rows, bytes, time
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// A setting of the session, as SET does (repeatable)
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<crate::sql::Setting>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

/// Runs the command.
pub(crate) async fn run(mut args: ExplainArgs) -> Result<(), CliError> {
    args.target.or_scratch = true;
    must_exist(&args.target.target())?;
    let interrupts = Interrupts::listen();
    connected_or_new(&args.target, args.target.options()?, &interrupts, async |engine| {
        let session = engine.host.session().with_files();
        for setting in &args.settings {
            session.run(&setting.statement()).await?;
        }
        let lines = interrupts.cancels(async { Ok(session.explain(&args.sql, args.analyze).await?) }).await?;
        write(&args, &lines)
    })
    .await
}

fn write(args: &ExplainArgs, lines: &[PlanLine]) -> Result<(), CliError> {
    use std::io::Write;
    let Some(path) = &args.html else {
        let mut sink = Sink::stdout();
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        sink.write_all(text.as_bytes())?;
        return sink.finish();
    };
    let mut sink = Sink::file(path)?;
    sink.write_all(page::page(&args.sql, lines).as_bytes())?;
    sink.finish()?;
    terminal::tell(format_args!("the plan is in {}", path.display()));
    Ok(())
}
