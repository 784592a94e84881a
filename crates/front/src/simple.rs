//! The simple protocol: a text of one or several statements, each run to its end, with all values as text.

use std::sync::Arc;

use pithead_host::{Deadline, Parameters, Session};
use pithead_model::Fault;

use crate::connection::{Halt, Talk, during};
use crate::deadline::{STATEMENT, in_time_of};
use crate::error::Complaint;
use crate::explain_options::without_idle;
use crate::kind::{StatementKind, kind};
use crate::names::quoted;
use crate::operators::bare;
use crate::portal::{Started, Taking};
use crate::rows::{DataRows, described};
use crate::work::by_size;

impl Talk {
    /// Runs the statements of a text, until one fails.
    pub(crate) async fn simple(&mut self, sql: String) -> Result<(), Halt> {
        // Portals of a run that was not ended are over.
        self.portals.remove("");
        self.place.cancel.begin();
        let sql: Arc<str> = sql.into();
        let done = self.each(&sql).await;
        self.place.cancel.end();
        match done {
            Ok(()) => {}
            Err(Halt::Said(complaint)) => self.fail(&complaint),
            Err(Halt::Fault(fault)) => self.fail(&Complaint::of(&fault, &sql)),
            Err(other) => return Err(other),
        }
        self.ready().await
    }

    async fn each(&mut self, sql: &Arc<str>) -> Result<(), Halt> {
        let statements = self.split(Arc::clone(sql)).await?;
        // The message was read: while its statements run, others may send large ones. What is kept of it counts as theirs does.
        let _kept = self.front.host.keep_text(2 * sql.len())?;
        drop(self.link.take_room());
        if statements.is_empty() {
            self.link.out.empty(b'I');
        }
        for statement in &statements {
            let done = self.one(statement).await;
            if let Err(Halt::Fault(fault)) = &done {
                // Places are told in the whole text.
                return Err(Complaint::of(&moved(fault, sql, statement), sql).into());
            }
            done?;
        }
        Ok(())
    }

    /// The statements of a text. Long ones are read one after the other, whoever has sent them.
    pub(crate) async fn split(&mut self, sql: Arc<str>) -> Result<Vec<String>, Halt> {
        let (host, bytes) = (self.front.host.clone(), sql.len());
        let deadline = Deadline::after(self.session.statement_timeout());
        let waiting = during(&mut self.link, &self.place.cancel, host.turn_to_read(bytes));
        let turn = in_time_of(deadline, STATEMENT, waiting).await?;
        let statements = self.aside(bytes, move || Session::split(&sql)).await??;
        drop(turn);
        Ok(statements)
    }

    /// Does work over so many bytes that a client has sent, until it is cancelled or the time of a statement is over.
    pub(crate) async fn aside<T: Send + 'static>(
        &mut self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Halt> {
        let deadline = Deadline::after(self.session.statement_timeout());
        let working = by_size(&self.entrance.work, bytes, work);
        Ok(in_time_of(deadline, STATEMENT, during(&mut self.link, &self.place.cancel, working)).await??)
    }

    /// What a statement is, and its text as the host reads it.
    pub(crate) async fn told(&mut self, sql: String) -> Result<(StatementKind, String), Halt> {
        let bytes = sql.len();
        let telling = move || {
            let explained = without_idle(&sql)?;
            let readable = bare(&explained);
            Ok::<_, Complaint>((kind(&readable)?, quoted(&readable).into_owned()))
        };
        Ok(self.aside(bytes, telling).await??)
    }

    async fn one(&mut self, sql: &str) -> Result<(), Halt> {
        let (kind, sql) = self.told(sql.to_owned()).await?;
        let sql = sql.as_str();
        if !kind.is_an_end() {
            self.admit()?;
        }
        match &kind {
            StatementKind::Empty => {
                self.link.out.empty(b'I');
                Ok(())
            }
            StatementKind::CopyOut(copy) => self.copy_out(copy).await,
            StatementKind::CopyIn(copy) => self.copy_in(copy).await,
            StatementKind::Fetch(fetch) => {
                if !fetch.is_move {
                    let cursor = self.cursor(&fetch.name)?;
                    let columns = cursor.prepared.schema.as_ref().map(|schema| described(schema, &cursor.binary));
                    self.link.out.columns(&columns.unwrap_or_default());
                }
                let binary = self.cursor(&fetch.name)?.binary.clone();
                let rows = self.fetch(fetch, fetch.rows, binary).await?;
                self.set_what_was_asked().await?;
                self.link.out.complete(&fetch.tag(rows));
                Ok(())
            }
            _ => match self.start(sql, &kind, None, &Parameters::default(), Taking::AtOnce).await? {
                Started::Done(tag) => {
                    self.set_what_was_asked().await?;
                    self.link.out.complete(&tag);
                    Ok(())
                }
                Started::Rows(mut rows, schema, tag) => {
                    let binary = vec![false; schema.fields().len()];
                    self.link.out.columns(&described(&schema, &binary));
                    let mut writer = DataRows { binary, zone: self.settings.zone().1 };
                    rows.send(&mut self.link, &self.place.cancel, u64::MAX, &mut writer).await?;
                    self.set_what_was_asked().await?;
                    self.link.out.complete(&completed(tag, rows.sent));
                    Ok(())
                }
            },
        }
    }
}

/// What CommandComplete says of rows that were sent.
pub(crate) fn completed(tag: &str, rows: u64) -> String {
    match tag {
        "SELECT" | "UPDATE" | "DELETE" => format!("{tag} {rows}"),
        "INSERT" => format!("INSERT 0 {rows}"),
        tag => tag.to_owned(),
    }
}

/// A fault whose place is counted from the beginning of the whole text: the lines before its statement are added.
fn moved(fault: &Fault, whole: &str, statement: &str) -> Fault {
    const LINE: &str = "at Line: ";
    let before = whole.find(statement).map_or("", |at| &whole[..at]);
    let lines = before.matches('\n').count();
    let columns = before.rsplit('\n').next().unwrap_or("").chars().count();
    let place = fault.message.rfind(LINE).map(|at| at + LINE.len());
    let numbers = place.and_then(|place| fault.message[place..].split_once(", Column: "));
    let (Some(place), Some((line, rest))) = (place, numbers) else { return fault.clone() };
    let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
    let (Ok(line), Ok(column)) = (line.parse::<usize>(), rest[..digits].parse::<usize>()) else { return fault.clone() };
    let column = if line == 1 { column + columns } else { column };
    let message = format!("{}{}, Column: {column}{}", &fault.message[..place], line + lines, &rest[digits..]);
    Fault { message, ..fault.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_in_the_whole_text() {
        let fault = Fault::invalid("sql parser error: no at Line: 1, Column: 8");
        let whole = "SELECT 1;\n  SELECT FROM";
        assert_eq!(moved(&fault, whole, "SELECT FROM").message, "sql parser error: no at Line: 2, Column: 10");
        assert_eq!(Complaint::of(&moved(&fault, whole, "SELECT FROM"), whole).position, Some(20));
    }
}
