//! [`Statement`]: a statement that was read and planned, to be run once or again, with other values or the same.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use futures::future::BoxFuture;
use pithead_functions::check_clock;
use pithead_model::{Fault, boxed};

use crate::large_texts::Admitted;
use crate::query_plan::QueryPlan;
use crate::session::Work;
use crate::statement::Parsed;
use crate::watch::Watch;
use crate::writing::check_returning;
use crate::{Answer, Commitment, Parameters, Session, explain, pushdown, summarize, written_plans};

/// A statement that was read and planned: see [`Session::prepare`].
pub struct Statement {
    sql: String,
    parsed: Arc<Parsed>,
    parameters: Parameters,
    schema: Option<SchemaRef>,
    planned: Option<QueryPlan>,
    /// Its text, whose memory is reserved as long as it is kept.
    admitted: Arc<Admitted>,
}

impl Statement {
    pub(crate) async fn new(session: &Session, sql: &str, parameters: &Parameters) -> Result<Self, Fault> {
        check_clock()?;
        let admitted = session.admit(sql).await?;
        let parsed = session.read(sql, parameters, &admitted).await?;
        let statement = Self::of(session, sql, parsed, parameters).await?;
        admitted.planned();
        Ok(Self { admitted: Arc::new(admitted), ..statement })
    }

    pub(crate) async fn of(session: &Session, sql: &str, parsed: Parsed, parameters: &Parameters) -> Result<Self, Fault> {
        let (schema, planned) = match &parsed {
            Parsed::Set { .. }
            | Parsed::Drop { .. }
            | Parsed::Alter(_)
            | Parsed::Rename(_)
            | Parsed::Truncate(_)
            | Parsed::CreateFunction(_)
            | Parsed::DropFunction(_)
            | Parsed::CreateView(_)
            | Parsed::DropViews(_)
            | Parsed::CopyTo { .. }
            | Parsed::CopyFrom { .. }
            | Parsed::Write { returning: None, .. } => (None, None),
            Parsed::Write { returning: Some(list), .. } => {
                let (query, mut planned) = session.plan(list, &Parameters::default(), None).await?;
                check_returning(&planned.plan)?;
                (Some(planned.columns(&query.state)?), None)
            }
            Parsed::History(history) => (history.schema(), None),
            Parsed::Explain { query, .. } => (Some(explain::schema()), Some(session.plan(query, parameters, None).await?.1)),
            Parsed::Substrait { query, .. } => {
                (Some(written_plans::schema()?), Some(session.plan(query, parameters, None).await?.1))
            }
            Parsed::Pushdown { query } => (Some(pushdown::schema()?), Some(session.plan(query, parameters, None).await?.1)),
            Parsed::Summarize { query } => (Some(summarize::schema()), Some(session.plan(query, parameters, None).await?.1)),
            Parsed::Query(syntax) => {
                let (query, mut planned) = session.plan(syntax, parameters, None).await?;
                (Some(planned.columns(&query.state)?), Some(planned))
            }
            Parsed::Plan(plan) => {
                let (query, mut planned) = session.plan_of_substrait(plan, None).await?;
                (Some(planned.columns(&query.state)?), Some(planned))
            }
        };
        let (sql, parsed, admitted) = (sql.to_owned(), Arc::new(parsed), Arc::default());
        Ok(Self { sql, parsed, parameters: parameters.clone(), schema, planned, admitted })
    }

    /// The same statement with other values for its placeholders. Where they have the types of those that it was planned with, it is not
    /// read and planned again, but for what hangs on values.
    #[boxed]
    pub async fn bind(&self, session: &Session, parameters: &Parameters) -> Result<Statement, Fault> {
        let (Parsed::Query(syntax), Some(bound)) = (&*self.parsed, self.bound(parameters)?) else {
            return session.prepare(&self.sql, parameters).await;
        };
        check_clock()?;
        let (query, mut planned) = session.plan(syntax, parameters, Some(&bound)).await?;
        let schema = Some(planned.columns(&query.state)?);
        let (sql, parsed, admitted) = (self.sql.clone(), Arc::clone(&self.parsed), Arc::clone(&self.admitted));
        Ok(Self { sql, parsed, parameters: parameters.clone(), schema, planned: Some(planned), admitted })
    }

    /// Its plan with other values; none where it has to be planned anew.
    fn bound(&self, parameters: &Parameters) -> Result<Option<QueryPlan>, Fault> {
        match &self.planned {
            Some(planned) if parameters.fit_in_place_of(&self.parameters) => planned.bound(parameters),
            _ => Ok(None),
        }
    }

    /// The columns of what it gives; none where it is no query.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    /// Whether it changes data, or what there is of it. Such a one may have rows all the same, where it says RETURNING.
    pub fn writes(&self) -> bool {
        matches!(self.parsed.kind(), "write" | "drop")
    }

    /// Bytes that it keeps, about: what was read, and what was planned of it.
    pub fn bytes(&self) -> usize {
        /// What the syntax tree has for a byte of SQL.
        const SYNTAX_BYTES: usize = 16;
        self.sql.len() * (1 + SYNTAX_BYTES) + self.planned.as_ref().map_or(0, QueryPlan::bytes)
    }

    /// Whether so much of memory is reserved for it that it should be planned each time it runs, and not be kept.
    pub fn is_large(&self) -> bool {
        self.admitted.is_large()
    }

    /// Whether it is an EXPLAIN, whose rows tell of a plan.
    pub fn explains(&self) -> bool {
        self.parsed.kind() == "explain"
    }

    /// Runs it over the datasets as they are by now. It can be run again.
    #[boxed]
    pub async fn run(&self, session: &Session) -> Result<Answer, Fault> {
        self.run_until(session, &Arc::default()).await
    }

    /// The same, for who may want to cancel it, as [`Session::run_until`] does.
    #[boxed]
    pub async fn run_until(&self, session: &Session, commitment: &Arc<Commitment>) -> Result<Answer, Fault> {
        self.run_boxed(session, commitment).await
    }

    /// The same with other values for its placeholders: see [`Statement::bind`].
    #[boxed]
    pub async fn run_with(
        &self,
        session: &Session,
        parameters: &Parameters,
        commitment: &Arc<Commitment>,
    ) -> Result<Answer, Fault> {
        match self.bound(parameters)? {
            Some(planned) => self.run_planned(session, parameters, Some(&planned), commitment).await,
            None if parameters.is_empty() && self.parameters.is_empty() => self.run_boxed(session, commitment).await,
            None => session.run_until(&self.sql, parameters, commitment).await,
        }
    }

    fn run_boxed<'a>(&'a self, session: &'a Session, commitment: &'a Arc<Commitment>) -> BoxFuture<'a, Result<Answer, Fault>> {
        self.run_planned(session, &self.parameters, self.planned.as_ref(), commitment)
    }

    fn run_planned<'a>(
        &'a self,
        session: &'a Session,
        parameters: &'a Parameters,
        planned: Option<&'a QueryPlan>,
        commitment: &'a Arc<Commitment>,
    ) -> BoxFuture<'a, Result<Answer, Fault>> {
        let Self { sql, parsed, .. } = self;
        Box::pin(async move {
            let mut watch = Watch::start(session, parsed.kind(), sql, commitment);
            let result = session.run_timed(Work { sql, parsed, parameters, planned }, &mut watch).await;
            watch.answered(result)
        })
    }
}
