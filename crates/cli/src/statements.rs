//! Runs statements one after another and writes their answers.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use pithead_host::{Answer, Host, Parameters, Session};
use pithead_model::Bytes;

use crate::apart::{Rows, apart};
use crate::error::CliError;
use crate::interrupt::Interrupts;
use crate::output::{Format, Sink, TableRows, row_writer};
use crate::plans::PlanFolder;
use crate::terminal;

/// When a person starts to wonder.
const QUIET_WAIT: Duration = Duration::from_millis(500);
/// How often it is shown how far a statement is.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);
/// Drives that are named there.
const DRIVES_SHOWN: usize = 3;

/// How answers are shown.
pub(crate) struct Showing {
    /// The format.
    pub(crate) format: Format,
    /// Rows of a table at most.
    pub(crate) rows_max: usize,
    /// Width of a text in a table at most.
    pub(crate) width_max: usize,
    /// Whether each row of a table is shown as lines of names and values.
    pub(crate) expanded: bool,
    /// Whether counts and times are said.
    pub(crate) timing: bool,
    /// How the links are paced, where they are: no time is shown without it.
    pub(crate) pacing: Option<String>,
}

/// One session and where its answers go.
pub(crate) struct Runner {
    host: Host,
    session: Arc<Session>,
    interrupts: Interrupts,
    sink: Sink,
    showing: Showing,
    answers: usize,
    plans: Option<PlanFolder>,
}

/// What was written of an answer.
struct Shown {
    rows: u64,
    more: bool,
}

impl Runner {
    pub(crate) fn new(host: &Host, session: Session, interrupts: &Interrupts, sink: Sink, showing: Showing) -> Self {
        if terminal::lively() {
            host.activity().follow();
        }
        let (host, session, interrupts) = (host.clone(), Arc::new(session), interrupts.clone());
        Self { host, session, interrupts, sink, showing, answers: 0, plans: None }
    }

    /// Where statements run.
    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// How answers are shown, to change it.
    pub(crate) fn showing(&mut self) -> &mut Showing {
        &mut self.showing
    }

    /// Where answers go.
    pub(crate) fn sink(&mut self) -> &mut Sink {
        &mut self.sink
    }

    /// The sub-plans of statements go there from now on.
    pub(crate) fn write_plans_to(&mut self, plans: Option<PlanFolder>) {
        self.plans = plans;
    }

    /// Answers go there from now on; where they went before has all of them.
    pub(crate) fn send_to(&mut self, sink: Sink) -> Result<(), CliError> {
        self.answers = 0;
        std::mem::replace(&mut self.sink, sink).finish()
    }

    /// Runs the statements of a text, up to the first that fails.
    pub(crate) async fn run_all(&mut self, text: &str) -> Result<(), CliError> {
        self.run_after(0, text).await.map(drop)
    }

    /// The same, where `before` others were run before. How many statements the text has.
    pub(crate) async fn run_after(&mut self, before: usize, text: &str) -> Result<usize, CliError> {
        let statements = Session::split(text).map_err(|fault| match before {
            0 => fault.into(),
            _ => CliError::from(fault).at(format!("statement {}", before + 1)),
        })?;
        let is_one_of_many = before + statements.len() > 1;
        for (index, statement) in statements.iter().enumerate() {
            let number = before + index + 1;
            let result = self.run(statement).await;
            result.map_err(|error| if is_one_of_many { error.at(format!("statement {number}")) } else { error })?;
        }
        Ok(statements.len())
    }

    /// Runs one statement, unless a signal came before.
    pub(crate) async fn run(&mut self, statement: &str) -> Result<(), CliError> {
        let changing = self.interrupts.changing()?;
        let start = Instant::now();
        let waiting = Waiting::start(&self.host);
        let (session, text, commitment) = (Arc::clone(&self.session), statement.to_owned(), changing.commitment());
        let answer = apart(async move { session.run_until(&text, &Parameters::default(), &commitment).await }).await?;
        let profile = Arc::clone(&answer.profile);
        let (is_query, changed) = (answer.is_query, answer.changed);
        let rows_max = if describes(statement) { usize::MAX } else { self.showing.rows_max };
        let shown = self.show(answer, rows_max, waiting).await;
        // Also of a statement that has failed: they say how far it came.
        if let Some(plans) = &mut self.plans {
            plans.write(&profile)?;
        }
        let shown = shown?;
        if self.showing.timing {
            let link_bytes = profile.snapshot().link_bytes;
            terminal::tell(self.summary(is_query, changed, &shown, start.elapsed(), link_bytes));
        }
        Ok(())
    }

    /// Everything was written.
    pub(crate) fn finish(self) -> Result<(), CliError> {
        self.sink.finish()
    }

    async fn show(&mut self, answer: Answer, rows_max: usize, waiting: Waiting) -> Result<Shown, CliError> {
        if !answer.is_query {
            return drain(answer).await;
        }
        self.answers += 1;
        if self.showing.format == Format::Table {
            return self.show_table(answer, rows_max, waiting).await;
        }
        if self.showing.format.is_binary() && self.answers > 1 {
            return Err(CliError::user("this format holds one answer; run one query at a time, or choose csv or json"));
        }
        self.stream(answer, waiting).await
    }

    async fn show_table(&mut self, answer: Answer, rows_max: usize, waiting: Waiting) -> Result<Shown, CliError> {
        let mut table = TableRows::new(&answer.schema, rows_max, self.showing.width_max);
        let mut rows = Rows::pull(answer.rows);
        while let Some(batch) = rows.next().await? {
            if !table.push(&batch)? {
                break;
            }
        }
        // Ends what still runs at the drives, if anything does.
        drop(rows);
        drop(waiting);
        match self.showing.expanded {
            true => table.write_records(&mut self.sink)?,
            false => table.write(&mut self.sink)?,
        }
        Ok(Shown { rows: table.rows(), more: table.more() })
    }

    async fn stream(&mut self, answer: Answer, waiting: Waiting) -> Result<Shown, CliError> {
        let mut rows = Rows::pull(answer.rows);
        // The first rows come before the first byte is written, so that a statement that fails writes nothing.
        let mut next = rows.next().await?;
        drop(waiting);
        let mut writer = row_writer(self.showing.format, &answer.schema, &mut self.sink)?;
        let mut rows_written = 0;
        while let Some(batch) = next {
            rows_written += batch.num_rows() as u64;
            writer.write(&batch)?;
            next = rows.next().await?;
        }
        writer.finish()?;
        self.sink.flush()?;
        Ok(Shown { rows: rows_written, more: false })
    }

    fn summary(&self, is_query: bool, changed: Option<u64>, shown: &Shown, elapsed: Duration, link_bytes: u64) -> String {
        let rows = terminal::counted(shown.rows, "row");
        let what = match (is_query, shown.more) {
            (false, _) => changed.map_or_else(|| "done".to_owned(), |rows| terminal::counted(rows, "row")),
            (true, false) => rows,
            (true, true) => format!("first {rows}, there are more,"),
        };
        let link = match link_bytes {
            0 => String::new(),
            bytes => format!(", {} over the link", pithead_model::Bytes(bytes)),
        };
        let paced = self.showing.pacing.as_ref().map(|pacing| format!(" ({pacing})")).unwrap_or_default();
        format!("{what} in {}{link}{paced}", terminal::seconds(elapsed.as_secs_f64()))
    }
}

/// Whether the rows are about a plan, a dataset or settings: few, and of no use in part.
fn describes(statement: &str) -> bool {
    let verb = statement.split_whitespace().next().unwrap_or("");
    ["explain", "describe", "desc", "show", "summarize"].iter().any(|known| verb.eq_ignore_ascii_case(known))
}

/// Runs a statement that has no rows to show to its end.
async fn drain(answer: Answer) -> Result<Shown, CliError> {
    let mut rows = Rows::pull(answer.rows);
    while rows.next().await?.is_some() {}
    Ok(Shown { rows: 0, more: false })
}

/// Shows on a terminal how far a statement is, once that takes a while; gone when dropped.
struct Waiting {
    bar: Option<ProgressBar>,
    timer: Option<tokio::task::JoinHandle<()>>,
}

impl Waiting {
    fn start(host: &Host) -> Self {
        if !terminal::lively() {
            return Self { bar: None, timer: None };
        }
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} running, {elapsed}{wide_msg}");
        bar.set_style(style.expect("the template is well-formed"));
        let (shown, host) = (bar.clone(), host.clone());
        let timer = tokio::spawn(async move {
            tokio::time::sleep(QUIET_WAIT).await;
            shown.enable_steady_tick(Duration::from_millis(100));
            loop {
                let drives: Vec<_> =
                    host.activity().running().last().map_or_else(Vec::new, |it| it.drives().into_iter().collect());
                shown.set_message(format!("{} (Ctrl-C cancels)", progress(&drives)));
                tokio::time::sleep(PROGRESS_EVERY).await;
            }
        });
        Self { bar: Some(bar), timer: Some(timer) }
    }
}

/// What has come so far, from each drive: rows and bytes.
fn progress(drives: &[(String, (u64, u64))]) -> String {
    let (rows, bytes) = drives.iter().fold((0, 0), |sum, (_, (rows, bytes))| (sum.0 + rows, sum.1 + bytes));
    if drives.is_empty() {
        return String::new();
    }
    let mut each: Vec<String> = drives
        .iter()
        .take(DRIVES_SHOWN)
        .map(|(drive, (rows, bytes))| format!("{drive}: {}, {}", terminal::counted(*rows, "row"), Bytes(*bytes)))
        .collect();
    if drives.len() > DRIVES_SHOWN {
        each.push(format!("{} more", drives.len() - DRIVES_SHOWN));
    }
    format!("; {}, {} from drives ({})", terminal::counted(rows, "row"), Bytes(bytes), each.join("; "))
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            timer.abort();
        }
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_tells_of_each_drive() {
        let drive = |name: &str, rows, bytes| (name.to_owned(), (rows, bytes));
        let two = [drive("a:1", 1_500, 2_000_000), drive("b:1", 1, 10)];
        assert_eq!(
            progress(&two),
            format!(
                "; 1,501 rows, {} from drives (a:1: 1,500 rows, {}; b:1: 1 row, {})",
                Bytes(2_000_010),
                Bytes(2_000_000),
                Bytes(10)
            )
        );
        let many: Vec<_> = (0..9).map(|number| drive(&format!("d{number}"), 1, 1)).collect();
        assert!(progress(&many).ends_with("; 6 more)") && progress(&[]).is_empty());
    }

    #[test]
    fn plans_are_shown_whole() {
        assert!(describes("EXPLAIN ANALYZE SELECT 1") && describes("show tables"));
        assert!(!describes("SELECT 1") && !describes(""));
    }
}
