//! Statements that were prepared, and portals: statements with values, that run.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use futures::StreamExt;
use pithead_host::{Answer, Parameters, Statement};

use crate::connection::{Halt, Talk, during};
use crate::error::Complaint;
use crate::kind::{CREATE_INDEX, Kind};
use crate::rows::Rows;
use crate::settings::is_of_host;
use crate::work::{in_own_task, rows_in_own_task};

/// A statement that was prepared.
pub(crate) struct Prepared {
    pub(crate) sql: String,
    pub(crate) kind: Kind,
    /// The types of its parameters, by PostgreSQL's numbers.
    pub(crate) types: Vec<u32>,
    /// The types that the statement wants there.
    pub(crate) inferred: Vec<Option<DataType>>,
    /// The columns of its rows; none: it gives no rows.
    pub(crate) schema: Option<SchemaRef>,
    /// Its plan, where it has no parameters.
    pub(crate) statement: Option<Statement>,
    /// The query of DECLARE.
    pub(crate) query: Option<Arc<Prepared>>,
}

impl Prepared {
    /// A statement of which nothing more is known.
    pub(crate) fn of(sql: String, kind: Kind) -> Prepared {
        Prepared { sql, kind, types: Vec::new(), inferred: Vec::new(), schema: None, statement: None, query: None }
    }
}

/// A statement with values.
pub(crate) struct Portal {
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) parameters: Parameters,
    pub(crate) binary: Vec<bool>,
    pub(crate) state: PortalState,
    pub(crate) hold: Hold,
}

/// Whether a portal outlives its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    No,
    /// A cursor WITH HOLD, once its transaction was committed.
    AtCommit,
    Kept,
}

pub(crate) enum PortalState {
    New,
    Running(Rows, &'static str),
    /// FETCH, and how many rows it still wants, and has sent.
    Fetching(u64, u64),
    /// What Execute answers when it is asked again.
    Done(String),
}

/// What a statement that was begun gives.
pub(crate) enum Started {
    /// Rows, and the tag that stands before their number.
    Rows(Rows, SchemaRef, &'static str),
    /// Nothing but the tag.
    Done(String),
}

impl Talk {
    /// Begins a statement that gives rows or none; COPY is not among them. `prepared`: its plan, where it was planned before.
    pub(crate) async fn start(
        &mut self,
        sql: &str,
        kind: &Kind,
        prepared: Option<&Arc<Prepared>>,
        parameters: &Parameters,
    ) -> Result<Started, Halt> {
        match kind {
            Kind::Statement { tag, writes } => self.start_at_host(sql, tag, *writes, prepared, parameters).await,
            Kind::Declare(declare) => {
                self.transaction.check(false, false)?;
                let query = prepared.and_then(|prepared| prepared.query.as_ref());
                self.declare(declare, query, parameters).await
            }
            Kind::Commit => {
                let ended = self.transaction.commit();
                self.end_portals(matches!(ended, Ok(("COMMIT", _))));
                let (tag, notice) = ended?;
                self.notice(notice);
                Ok(Started::Done(tag.to_owned()))
            }
            Kind::Rollback => {
                self.end_portals(false);
                let notice = self.transaction.rollback()?;
                self.notice(notice);
                Ok(Started::Done("ROLLBACK".to_owned()))
            }
            Kind::RollbackTo => {
                self.transaction.rollback_to()?;
                Ok(Started::Done("ROLLBACK".to_owned()))
            }
            _ => {
                self.transaction.check(false, false)?;
                self.control(kind).await
            }
        }
    }

    pub(crate) async fn start_at_host(
        &mut self,
        sql: &str,
        tag: &'static str,
        writes: bool,
        prepared: Option<&Arc<Prepared>>,
        parameters: &Parameters,
    ) -> Result<Started, Halt> {
        let notice = self.transaction.check(writes, self.settings.many_writes())?;
        self.notice(notice);
        self.admit()?;
        let (session, planned) = (Arc::clone(&self.session), prepared.cloned());
        let (sql, parameters) = (sql.to_owned(), parameters.clone());
        let work = in_own_task(&self.entrance.work, async move {
            match planned.as_ref().and_then(|prepared| prepared.statement.as_ref()) {
                Some(statement) => statement.run(&session).await,
                None => session.run_with(&sql, &parameters).await,
            }
        });
        let Answer { schema, rows, is_query, changed, .. } = during(&mut self.link, &self.place.cancel, work).await??;
        if writes {
            self.transaction.wrote();
        }
        if is_query {
            let told = prepared.and_then(|prepared| prepared.schema.clone()).unwrap_or(schema);
            return Ok(Started::Rows(Rows::new(Arc::clone(&told), rows_in_own_task(&self.entrance.work, rows)), told, tag));
        }
        Ok(Started::Done(match (tag, changed) {
            ("INSERT", changed) => format!("INSERT 0 {}", changed.unwrap_or(0)),
            ("UPDATE" | "DELETE" | "MERGE" | "SELECT", Some(changed)) => format!("{tag} {changed}"),
            (tag, _) => tag.to_owned(),
        }))
    }

    /// What the server does itself.
    async fn control(&mut self, kind: &Kind) -> Result<Started, Halt> {
        let tag = match kind {
            Kind::Close(name) => return self.close_cursor(name.as_deref()),
            Kind::Begin { repeatable } => {
                let notice = self.transaction.begin(*repeatable)?;
                self.notice(notice);
                "BEGIN"
            }
            Kind::Savepoint(tag) => {
                self.transaction.savepoint(tag)?;
                *tag
            }
            Kind::Set { name, value } => {
                self.set(name, value).await?;
                "SET"
            }
            Kind::SetTransaction => "SET",
            Kind::Show(name) => return self.show(name).await,
            Kind::Reset(name) => {
                self.reset(name.as_deref()).await?;
                "RESET"
            }
            Kind::Discard { all: true } => {
                self.portals.clear();
                self.statements.clear();
                self.reset(None).await?;
                "DISCARD ALL"
            }
            Kind::Discard { all: false } => "DISCARD",
            Kind::Deallocate(name) => {
                match name {
                    Some(name) => drop(self.statements.remove(name)),
                    None => self.statements.clear(),
                }
                "DEALLOCATE"
            }
            Kind::Nothing(tag) => {
                let indexed = *tag == CREATE_INDEX;
                self.notice(indexed.then(|| Complaint::warning("01000", "there are no indexes here, so that none was made")));
                tag
            }
            _ => "",
        };
        Ok(Started::Done(tag.to_owned()))
    }

    async fn reset(&mut self, name: Option<&str>) -> Result<(), Halt> {
        match name {
            Some(name) => self.set(name, "default").await,
            None => {
                for name in self.settings.changed() {
                    self.set(&name, "default").await?;
                }
                Ok(())
            }
        }
    }

    async fn show(&mut self, name: &str) -> Result<Started, Halt> {
        let schema = shown_schema(name);
        let value = if is_of_host(name) { self.shown_by_host(name).await? } else { self.settings.show(name) };
        let Some(value) = value else {
            let message = format!("unrecognized configuration parameter {name:?}");
            return Err(Complaint::error(crate::error::UNKNOWN_SETTING, message).into());
        };
        let column = Arc::new(arrow::array::StringArray::from(vec![value]));
        let batch = arrow::array::RecordBatch::try_new(Arc::clone(&schema), vec![column]).map_err(pithead_model::Fault::bug);
        Ok(Started::Rows(Rows::new(Arc::clone(&schema), futures::stream::iter([batch]).boxed()), schema, "SHOW"))
    }

    /// A setting of the host's, whose rows are its name and its value.
    async fn shown_by_host(&mut self, name: &str) -> Result<Option<String>, Halt> {
        use arrow::util::display::array_value_to_string;
        let mut rows = self.session.run(&format!("SHOW {name}")).await?.rows;
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            if batch.num_rows() > 0 && batch.num_columns() > 1 {
                return Ok(array_value_to_string(batch.column(1), 0).ok());
            }
        }
        Ok(None)
    }
}

/// The column of SHOW.
pub(crate) fn shown_schema(name: &str) -> SchemaRef {
    use arrow::datatypes::{Field, Schema};
    Arc::new(Schema::new(vec![Field::new(name, DataType::Utf8, true)]))
}
