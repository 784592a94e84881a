//! [`Session`]: a client's statements, one after another, with switches of its own.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::SessionState;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::DFParserBuilder;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use pithead_functions::{EngineOptions, check_clock, count_repeats, fault_from_datafusion, session_state};
use pithead_model::{Blame, Fault, PAGE_ROWS};

use crate::pushdown::explain_pushdown;
use crate::query::{Mode, Query};
use crate::repeated::{self, Names};
use crate::schemas::{CATALOG, catalogs};
use crate::statement::{self, Statement};
use crate::timeout::Deadline;
use crate::watch::{Slow, Watch};
use crate::{Host, Parameters, Settings, explain, from_first, parameters, precedence, pushdown, settings};
use pithead_fleet::Snapshot;
use pithead_remote::QueryProfile;

/// A client's connection to a host: its settings, and the statements it runs.
pub struct Session {
    host: Host,
    state: Mutex<SessionState>,
}

/// What a statement gives.
pub struct Answer {
    /// Columns of the rows.
    pub schema: SchemaRef,
    /// The rows, as they come. Dropping them cancels the work at the drives.
    pub rows: BoxStream<'static, Result<RecordBatch, Fault>>,
    /// What it cost; complete once the rows have ended.
    pub profile: Arc<QueryProfile>,
    /// Whether it asked for rows. If not, `rows` is empty.
    pub is_query: bool,
}

impl Host {
    /// A new session with default settings.
    pub fn session(&self) -> Session {
        let options = self.options();
        let pool = Arc::new(FairSpillPool::new(usize::try_from(options.memory).unwrap_or(usize::MAX)));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).with_disk_manager_builder(self.spills().of_session());
        let runtime = runtime.build_arc().unwrap_or_default();
        let engine =
            EngineOptions { batch_rows: PAGE_ROWS, target_partitions: options.threads.max(1), time_zone: None, runtime };
        let mut state = session_state(&engine);
        let config = state.config_mut().options_mut();
        config.catalog.default_catalog = CATALOG.to_owned();
        config.catalog.default_schema.clone_from(&options.domain);
        config.catalog.information_schema = true;
        config.extensions.insert(Settings::default());
        Session { host: self.clone(), state: Mutex::new(state) }
    }
}

impl Session {
    /// Runs one statement: a query, EXPLAIN [ANALYZE], SET, SHOW, DESCRIBE or DROP TABLE.
    pub async fn run(&self, sql: &str) -> Result<Answer, Fault> {
        self.run_with(sql, &Parameters::default()).await
    }

    /// Runs one statement as [`Session::run`] does, with values for its placeholders. Only queries and EXPLAIN have any.
    pub async fn run_with(&self, sql: &str, parameters: &Parameters) -> Result<Answer, Fault> {
        self.run_boxed(sql, parameters).await
    }

    /// Boxed here, or every crate that awaits it would compile all of planning again.
    fn run_boxed<'a>(&'a self, sql: &'a str, parameters: &'a Parameters) -> BoxFuture<'a, Result<Answer, Fault>> {
        Box::pin(self.run_watched(sql, parameters))
    }

    async fn run_watched(&self, sql: &str, parameters: &Parameters) -> Result<Answer, Fault> {
        check_clock()?;
        let sql = from_first::with_select(sql);
        let numbered = parameters::numbered(&sql);
        let statement = numbered.as_ref().map_err(Fault::clone).and_then(|sql| statement::parse(sql));
        let kind = match &statement {
            Ok(Statement::Set { .. }) => "set",
            Ok(Statement::Drop { .. }) => "drop",
            Ok(Statement::Explain { .. } | Statement::Pushdown { .. }) => "explain",
            Ok(Statement::Query) => "query",
            Err(_) => "unknown",
        };
        let mut watch = Watch::start(&self.host, kind);
        let result = match statement {
            Ok(statement) => {
                let timed = !matches!(statement, Statement::Set { .. } | Statement::Drop { .. });
                let deadline = Deadline::after(Settings::of(&self.state.lock()).statement_timeout().filter(|_| timed));
                let run = self.run_parsed(statement, numbered.as_deref().unwrap_or(&sql), parameters, &mut watch);
                match deadline {
                    Some(deadline) => deadline.run(run).await,
                    None => run.await,
                }
            }
            Err(fault) => Err(fault),
        };
        watch.answered(result)
    }

    /// The columns of what a statement would give; none where it is no query. It is planned, and nothing is run.
    pub async fn describe(&self, sql: &str, parameters: &Parameters) -> Result<Option<SchemaRef>, Fault> {
        self.describe_boxed(sql, parameters).await
    }

    fn describe_boxed<'a>(
        &'a self,
        sql: &'a str,
        parameters: &'a Parameters,
    ) -> BoxFuture<'a, Result<Option<SchemaRef>, Fault>> {
        Box::pin(self.describe_planned(sql, parameters))
    }

    async fn describe_planned(&self, sql: &str, parameters: &Parameters) -> Result<Option<SchemaRef>, Fault> {
        check_clock()?;
        let sql = from_first::with_select(sql);
        let sql = parameters::numbered(&sql)?;
        let schema = match statement::parse(&sql)? {
            Statement::Set { .. } | Statement::Drop { .. } => return Ok(None),
            Statement::Explain { query, .. } => {
                self.plan(&query, parameters).await?;
                explain::schema()
            }
            Statement::Pushdown { query } => {
                self.plan(queried(&query)?, parameters).await?;
                pushdown::schema()?
            }
            Statement::Query => {
                let (query, plan, names) = self.plan(&sql, parameters).await?;
                // Types of some columns are known only once literals are folded.
                let plan = query.state.optimize(&plan).map_err(fault_from_datafusion)?;
                names.schema(plan.schema().inner())
            }
        };
        Ok(Some(schema))
    }

    async fn run_parsed(
        &self,
        statement: Statement,
        sql: &str,
        parameters: &Parameters,
        watch: &mut Watch,
    ) -> Result<Answer, Fault> {
        match statement {
            Statement::Set { name, value } => {
                parameters.refuse("SET")?;
                settings::set(&mut self.state.lock(), &name, &value)?;
                Ok(Answer::done())
            }
            Statement::Drop { name, if_exists } => {
                parameters.refuse("DROP TABLE")?;
                let domain = self.state.lock().config_options().catalog.default_schema.clone();
                let name = name.resolve(&domain)?;
                let missing = if_exists && self.host.fleet().snapshot().await?.dataset(&name).is_none();
                if !missing {
                    self.host.fleet().drop_dataset(&name).await?;
                }
                Ok(Answer::done())
            }
            Statement::Explain { query, analyze } => {
                let (query, plan, _) = self.plan(&query, parameters).await?;
                explain::explain(&query, plan, analyze).await
            }
            Statement::Pushdown { query } => {
                let (query, plan, _) = self.plan(queried(&query)?, parameters).await?;
                explain_pushdown(&query, plan).await
            }
            Statement::Query => self.query(sql, parameters, watch).await,
        }
    }

    /// Splits a script into statements; quotes and comments are respected.
    pub fn split(sql: &str) -> Result<Vec<String>, Fault> {
        statement::split(sql)
    }

    async fn query(&self, sql: &str, parameters: &Parameters, watch: &mut Watch) -> Result<Answer, Fault> {
        let limit_ms = Settings::of(&self.state.lock()).slow_query_ms;
        if limit_ms > 0 {
            watch.tell(Slow { sql: sql.to_owned(), limit: Duration::from_millis(limit_ms as u64), run: None });
        }
        let (query, plan, names) = self.plan(sql, parameters).await?;
        let profile = Arc::clone(&query.profile);
        let query = Arc::new(query);
        let prepared = Arc::new(query.prepare(plan, Mode::Run).await?);
        let rows = query.execute(&prepared).await?;
        // What was prepared holds the tables to ship: it is kept only where the log may need it.
        watch.runs(&profile, (limit_ms > 0).then(|| (Arc::clone(&query), prepared)));
        let schema = names.schema(&rows.schema());
        let rows = names.rows(rows.map(|batch| batch.map_err(fault_from_datafusion)).boxed(), &schema);
        Ok(Answer { schema, rows, profile, is_query: true })
    }

    /// A statement's plan over the datasets as they are now, not optimised, and the names of its columns.
    async fn plan(&self, sql: &str, parameters: &Parameters) -> Result<(Query, LogicalPlan, Names), Fault> {
        let before = self.host.fleet().connected().ids();
        let planned = match self.host.fleet().snapshot().await {
            Ok(snapshot) => self.plan_over(snapshot, sql, parameters).await,
            Err(fault) => Err(fault),
        };
        match planned {
            // What it lacks may be on a drive that has not answered yet.
            Err(fault) if fault.blame == Blame::Device => match self.host.fleet().settled_snapshot(&before).await? {
                Some(snapshot) => self.plan_over(snapshot, sql, parameters).await,
                None => Err(fault),
            },
            planned => planned,
        }
    }

    async fn plan_over(
        &self,
        snapshot: Arc<Snapshot>,
        sql: &str,
        parameters: &Parameters,
    ) -> Result<(Query, LogicalPlan, Names), Fault> {
        let mut state = self.state.lock().clone();
        state.register_catalog_list(catalogs(snapshot, self.host.tables()));
        state.mark_start_execution();
        let (plan, names) = logical_plan(&state, &parameters.told(sql)).await?;
        let plan = parameters.put_into(plan)?;
        let settings = Settings::of(&state);
        Ok((
            Query {
                host: self.host.clone(),
                state,
                settings,
                profile: QueryProfile::start(),
                computed: Mutex::default(),
                from_above: None,
            },
            plan,
            names,
        ))
    }
}

/// The query of EXPLAIN PUSHDOWN, if it is one.
fn queried(query: &str) -> Result<&str, Fault> {
    match statement::parse(query)? {
        Statement::Query => Ok(query),
        _ => Err(Fault::new(Blame::User, "EXPLAIN PUSHDOWN runs a query; expected one after it")),
    }
}

async fn logical_plan(state: &SessionState, sql: &str) -> Result<(LogicalPlan, Names), Fault> {
    let statements =
        DFParserBuilder::new(sql).build().and_then(|mut parser| parser.parse_statements()).map_err(fault_from_datafusion)?;
    let mut statements = statements.into_iter();
    let (Some(mut statement), None) = (statements.next(), statements.next()) else {
        return Err(Fault::new(Blame::User, "expected exactly one SQL statement"));
    };
    precedence::mend(&mut statement);
    settings::show_in_full(&mut statement);
    let (plan, names) = repeated::plan(state, statement).await.map_err(fault_from_datafusion)?;
    let plan = count_repeats(plan).map_err(fault_from_datafusion)?;
    match &plan {
        LogicalPlan::Ddl(_) | LogicalPlan::Dml(_) | LogicalPlan::Copy(_) | LogicalPlan::Statement(_) => {
            Err(Fault::new(Blame::Unsupported, format!("{} is not a statement that this release runs", plan.display())))
        }
        _ => Ok((plan, names)),
    }
}

impl Answer {
    /// A statement that did what it says and has no rows.
    fn done() -> Answer {
        let schema = Arc::new(arrow::datatypes::Schema::empty());
        Answer { schema, rows: futures::stream::empty().boxed(), profile: QueryProfile::start(), is_query: false }
    }

    /// Rows that are there already.
    pub(crate) fn of(batch: RecordBatch, profile: Arc<QueryProfile>) -> Answer {
        Answer { schema: batch.schema(), rows: futures::stream::iter([Ok(batch)]).boxed(), profile, is_query: true }
    }
}
