//! Statements that were prepared, and portals: statements with values, that run.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use pithead_host::{Answer, Commitment, Parameters, Statement, taken_in_parts};
use pithead_pg_catalog::{ConnectionFacts, SearchPath, pg_type};

use crate::connection::{Halt, Talk, answering};
use crate::error::{Complaint, NOT_SUPPORTED, READ_ONLY};
use crate::kind::StatementKind;
use crate::rows::Rows;
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
    /// Its plan, with NULL for each parameter.
    pub(crate) statement: Option<Statement>,
    /// Where bare names were looked up when it was planned. Its plan holds for no other path.
    pub(crate) path: Arc<SearchPath>,
    /// The query of DECLARE.
    pub(crate) query: Option<Arc<Prepared>>,
    /// Whether it was prepared by PREPARE of SQL.
    pub(crate) by_sql: bool,
}

impl Prepared {
    /// A statement of which nothing more is known.
    pub(crate) fn of(sql: String, kind: StatementKind) -> Prepared {
        let (types, inferred) = (Vec::new(), Vec::new());
        let path = Arc::default();
        Prepared { sql, kind, types, inferred, schema: None, statement: None, path, query: None, by_sql: false }
    }
}

/// A statement with values.
pub(crate) struct Portal {
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) parameters: Parameters,
    /// The bytes of its values, as they came.
    pub(crate) bytes: usize,
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

/// How a client takes the rows of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taking {
    /// All at once, within the time that the statement may take.
    AtOnce,
    /// In parts, when it likes to: each part may take as long as a statement.
    InParts,
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
        taking: Taking,
    ) -> Result<Started, Halt> {
        match kind {
            StatementKind::Statement { tag, writes } => {
                self.before_statement(sql).await?;
                self.start_at_host((sql, tag, *writes), prepared, parameters, taking).await
            }
            StatementKind::Execute(execute) => {
                self.transaction.check(false, false)?;
                let prepared = self.prepared_by_name(execute)?;
                self.before_statement(&prepared.sql).await?;
                self.execute_by_name(execute, taking).await
            }
            StatementKind::Declare(declare) => {
                self.transaction.check(false, false)?;
                self.before_statement(&declare.query).await?;
                let query = prepared.and_then(|prepared| prepared.query.as_ref());
                self.declare(declare, query, parameters).await
            }
            StatementKind::Commit { chain } => self.commit(*chain).await,
            StatementKind::Rollback { chain } => self.rollback(*chain).await,
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

    /// Begins a statement that the host runs: its text, its tag, and whether it writes.
    pub(crate) async fn start_at_host(
        &mut self,
        (sql, tag, writes): (&str, &'static str, bool),
        prepared: Option<&Arc<Prepared>>,
        parameters: &Parameters,
        taking: Taking,
    ) -> Result<Started, Halt> {
        self.check_writes(writes)?;
        let path = self.settings.path();
        let planned = prepared.filter(|prepared| prepared.path == path).cloned();
        let session = Arc::clone(&self.session);
        let (sql, parameters) = (sql.to_owned(), parameters.clone());
        let commitment = Arc::<Commitment>::default();
        let sends = Arc::clone(&commitment);
        let running = async move {
            match planned.as_ref().and_then(|prepared| prepared.statement.as_ref()) {
                Some(statement) => statement.run_with(&session, &parameters, &sends).await,
                None => session.run_until(&sql, &parameters, &sends).await,
            }
        };
        let work = in_own_task(&self.entrance.work, async move {
            match taking {
                Taking::AtOnce => running.await,
                Taking::InParts => taken_in_parts(running).await,
            }
        });
        let answer = answering(&mut self.link, &self.place.cancel, &commitment, work).await?;
        // Of one that has failed nobody may know whether its change was made.
        if commitment.is_sent() || writes && answer.is_ok() {
            self.transaction.wrote();
        }
        let Answer { schema, rows, is_query, changed, .. } = answer?;
        if is_query {
            let told = match prepared.and_then(|prepared| prepared.schema.as_ref().map(|told| (prepared, told))) {
                Some((prepared, told)) => still_told(prepared, told, &schema)?,
                None => schema,
            };
            let rows = Rows::new(Arc::clone(&told), rows_in_own_task(&self.entrance.work, rows));
            return Ok(Started::Rows(rows.of_what_was_sent(commitment.is_sent()), told, tag));
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
}
