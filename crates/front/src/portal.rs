//! Statements that were prepared, and portals: statements with values, that run.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, SchemaRef};
use pithead_host::{Answer, Commitment, Deadline, KeptText, Parameters, Statement, taken_in_parts};
use pithead_pg_catalog::{ConnectionFacts, SearchPath, pg_type};

use crate::connection::{Halt, Talk, answering, during};
use crate::deadline::{STATEMENT, in_time_of};
use crate::error::Complaint;
use crate::extended::nulls;
use crate::kind::{DROP_TABLE, StatementKind};
use crate::rows::Rows;
use crate::sql_state::{NOT_SUPPORTED, READ_ONLY};
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
    /// The memory of its text.
    #[expect(dead_code, reason = "it is held, and not looked at")]
    pub(crate) kept: Option<KeptText>,
}

impl Prepared {
    /// A statement of which nothing more is known.
    pub(crate) fn of(sql: String, kind: StatementKind) -> Prepared {
        let (types, inferred) = (Vec::new(), Vec::new());
        let path = Arc::default();
        Prepared { sql, kind, types, inferred, schema: None, statement: None, path, query: None, by_sql: false, kept: None }
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

/// What CommandComplete says of a statement that gives no rows.
fn done(tag: &str, changed: Option<u64>) -> String {
    match (tag, changed) {
        ("INSERT", changed) => format!("INSERT 0 {}", changed.unwrap_or(0)),
        ("UPDATE" | "DELETE" | "MERGE" | "SELECT", Some(changed)) => format!("{tag} {changed}"),
        (tag, _) => tag.to_owned(),
    }
}

/// Whether columns have the names that a client was told, and their types.
fn are_as_told(told: &SchemaRef, now: &SchemaRef) -> (bool, bool) {
    let pairs = || told.fields().iter().zip(now.fields());
    let names = told.fields().len() == now.fields().len() && pairs().all(|(told, now)| told.name() == now.name());
    (names, pairs().all(|(told, now)| pg_type(told) == pg_type(now)))
}

/// A statement has other columns than those that a client was told.
fn has_changed() -> Complaint {
    // Drivers know by these words, and this routine of PostgreSQL's, that they have to prepare it again.
    Complaint::error(NOT_SUPPORTED, "cached plan must not change result type")
        .in_routine("RevalidateCachedQuery")
        .hint("a table of the statement has changed: prepare it again")
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
            StatementKind::RollbackTo(name) => {
                self.rollback_to_savepoint(name)?;
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
        let deadline = Deadline::after(self.session.statement_timeout().filter(|_| tag != DROP_TABLE));
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
        let answer = answering(&mut self.link, &self.place.cancel, &commitment, deadline, work).await?;
        // Of one that has failed nobody may know whether its change was made.
        if commitment.is_sent() || writes && answer.is_ok() {
            self.transaction.wrote();
        }
        let Answer { schema, rows, is_query, changed, .. } = answer?;
        if is_query {
            let told = self.told_columns(prepared, schema).await?;
            let rows = Rows::new(Arc::clone(&told), rows_in_own_task(&self.entrance.work, rows));
            return Ok(Started::Rows(rows.of_what_was_sent(commitment.is_sent()), told, tag));
        }
        Ok(Started::Done(done(tag, changed)))
    }

    /// The columns that a client was told of, or those that there are. An error where those that a statement has now are others: tables may
    /// have changed since. Values of parameters can make other types, which are turned into those that were told ([`Rows`]): then NULLs in
    /// their places make none.
    async fn told_columns(&mut self, prepared: Option<&Arc<Prepared>>, now: SchemaRef) -> Result<SchemaRef, Halt> {
        let Some((prepared, told)) = prepared.and_then(|prepared| prepared.schema.as_ref().map(|told| (prepared, told))) else {
            return Ok(now);
        };
        match are_as_told(told, &now) {
            (true, true) => return Ok(Arc::clone(told)),
            (true, false) if !prepared.types.is_empty() => {}
            _ => return Err(has_changed().into()),
        }
        let field = |data_type: &DataType| Arc::new(Field::new("", data_type.clone(), true));
        let fields: Vec<_> = prepared.inferred.iter().map(|inferred| inferred.as_ref().map(field)).collect();
        let nulls = nulls(&prepared.types, &fields)?;
        let (session, sql) = (Arc::clone(&self.session), prepared.sql.clone());
        let planning = in_own_task(&self.entrance.work, async move {
            let statement = session.prepare(&sql, &nulls).await?;
            Ok(statement.schema().cloned())
        });
        let deadline = Deadline::after(self.session.statement_timeout());
        let planned = in_time_of(deadline, STATEMENT, during(&mut self.link, &self.place.cancel, planning)).await??;
        match planned.is_some_and(|planned| are_as_told(told, &planned) == (true, true)) {
            true => Ok(Arc::clone(told)),
            false => Err(has_changed().into()),
        }
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
