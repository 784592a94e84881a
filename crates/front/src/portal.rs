//! Statements that were prepared, and portals: statements with values, that run.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use futures::StreamExt;
use pithead_host::{Answer, Parameters, Statement};
use pithead_pg_catalog::pg_type;

use crate::connection::{Halt, Talk, during};
use crate::error::{Complaint, NOT_SUPPORTED, READ_ONLY};
use crate::kind::{CREATE_INDEX, CREATE_SCHEMA, StatementKind};
use crate::rows::Rows;
use crate::settings::is_of_host;
use crate::work::{in_own_task, rows_in_own_task};

/// A statement that was prepared.
pub(crate) struct Prepared {
    pub(crate) sql: String,
    pub(crate) kind: StatementKind,
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
    pub(crate) fn of(sql: String, kind: StatementKind) -> Prepared {
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

/// The columns that a client was told of, if they are those that a statement has now: tables may have changed since. Values of
/// parameters can make other types, which are turned into those that were told ([`Rows`]).
fn still_told(prepared: &Prepared, told: &SchemaRef, now: &SchemaRef) -> Result<SchemaRef, Complaint> {
    let same = |(told, now): (&FieldRef, &FieldRef)| {
        told.name() == now.name() && (!prepared.types.is_empty() || pg_type(told) == pg_type(now))
    };
    let is_same = told.fields().len() == now.fields().len() && told.fields().iter().zip(now.fields()).all(same);
    match is_same {
        true => Ok(Arc::clone(told)),
        // Drivers know by these words, and this routine of PostgreSQL's, that they have to prepare it again.
        false => Err(Complaint::error(NOT_SUPPORTED, "cached plan must not change result type")
            .in_routine("RevalidateCachedQuery")
            .hint("a table of the statement has changed: prepare it again")),
    }
}

impl Talk {
    /// Begins a statement that gives rows or none; COPY is not among them. `prepared`: its plan, where it was planned before.
    pub(crate) async fn start(
        &mut self,
        sql: &str,
        kind: &StatementKind,
        prepared: Option<&Arc<Prepared>>,
        parameters: &Parameters,
    ) -> Result<Started, Halt> {
        match kind {
            StatementKind::Statement { tag, writes } => self.start_at_host(sql, tag, *writes, prepared, parameters).await,
            StatementKind::Declare(declare) => {
                self.transaction.check(false, false)?;
                let query = prepared.and_then(|prepared| prepared.query.as_ref());
                self.declare(declare, query, parameters).await
            }
            StatementKind::Commit => {
                let ended = self.transaction.commit();
                let is_committed = matches!(ended, Ok(("COMMIT", _)));
                self.end_portals(is_committed);
                self.end_settings(is_committed).await?;
                let (tag, notice) = ended?;
                self.notice(notice);
                Ok(Started::Done(tag.to_owned()))
            }
            StatementKind::Rollback => {
                self.end_portals(false);
                self.end_settings(false).await?;
                let notice = self.transaction.rollback()?;
                self.notice(notice);
                Ok(Started::Done("ROLLBACK".to_owned()))
            }
            StatementKind::RollbackTo => {
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
        self.check_writes(writes)?;
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
            let told = match prepared.and_then(|prepared| prepared.schema.as_ref().map(|told| (prepared, told))) {
                Some((prepared, told)) => still_told(prepared, told, &schema)?,
                None => schema,
            };
            return Ok(Started::Rows(Rows::new(Arc::clone(&told), rows_in_own_task(&self.entrance.work, rows)), told, tag));
        }
        Ok(Started::Done(match (tag, changed) {
            ("INSERT", changed) => format!("INSERT 0 {}", changed.unwrap_or(0)),
            ("UPDATE" | "DELETE" | "MERGE" | "SELECT", Some(changed)) => format!("{tag} {changed}"),
            (tag, _) => tag.to_owned(),
        }))
    }

    /// An error where a statement may not run in this block, or may not write.
    pub(crate) fn check_writes(&mut self, writes: bool) -> Result<(), Complaint> {
        if writes && self.transaction.is_read_only(self.settings.is_read_only()) {
            return Err(Complaint::error(READ_ONLY, "cannot change anything in a read-only transaction")
                .hint("SET TRANSACTION READ WRITE, or SET default_transaction_read_only = off"));
        }
        let notice = self.transaction.check(writes, self.settings.many_writes())?;
        self.notice(notice);
        Ok(())
    }

    /// What the server does itself.
    async fn control(&mut self, kind: &StatementKind) -> Result<Started, Halt> {
        let tag = match kind {
            StatementKind::Close(name) => return self.close_cursor(name.as_deref()),
            StatementKind::Begin { repeatable, read_only } => {
                let read_only = read_only.unwrap_or_else(|| self.settings.is_read_only());
                let notice = self.transaction.begin(*repeatable, read_only)?;
                self.notice(notice);
                "BEGIN"
            }
            StatementKind::Savepoint(tag) => {
                self.transaction.savepoint(tag)?;
                *tag
            }
            StatementKind::Set { name, value, local } => {
                self.set_in_block(name, value, *local).await?;
                "SET"
            }
            StatementKind::SetTransaction { read_only: None, .. } => "SET",
            StatementKind::SetTransaction { later: true, read_only: Some(read_only) } => {
                self.settings.set("default_transaction_read_only", if *read_only { "on" } else { "off" })?;
                "SET"
            }
            StatementKind::SetTransaction { later: false, read_only: Some(read_only) } => {
                let notice = self.transaction.set_read_only(*read_only)?;
                self.notice(notice);
                "SET"
            }
            StatementKind::Show(name) => return self.show(name).await,
            StatementKind::Reset(name) => {
                self.reset(name.as_deref()).await?;
                "RESET"
            }
            StatementKind::Discard { all: true } => {
                self.portals.clear();
                self.statements.clear();
                self.reset(None).await?;
                "DISCARD ALL"
            }
            StatementKind::Discard { all: false } => "DISCARD",
            StatementKind::Deallocate(name) => {
                match name {
                    Some(name) => drop(self.statements.remove(name)),
                    None => self.statements.clear(),
                }
                "DEALLOCATE"
            }
            StatementKind::Nothing(tag) => {
                let known = match *tag {
                    CREATE_INDEX => Some("there are no indexes here, so that none was made"),
                    CREATE_SCHEMA => Some("a schema is there with its first table"),
                    _ => None,
                };
                self.notice(known.map(|known| Complaint::warning("01000", known)));
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
    pub(crate) async fn shown_by_host(&mut self, name: &str) -> Result<Option<String>, Halt> {
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
