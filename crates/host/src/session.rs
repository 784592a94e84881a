//! [`Session`]: a client's statements, one after another, with switches of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::SessionState;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as Syntax;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use pithead_entry::Right;
use pithead_fleet::{Snapshot, is_view};
use pithead_functions::{
    EngineOptions, Registry, SessionCalls, check_clock, count_repeats, fault_from_datafusion, session_state,
};
use pithead_model::{Blame, DatasetName, DriveId, Fault, FaultKind, PAGE_ROWS, boxed};
use pithead_remote::QueryProfile;

use crate::activity::unless_cancelled;
use crate::aside::{aside_waiting, is_long};
use crate::copying::{self, CopyFile};
use crate::dropping;
use crate::idle_state::{IdleState, MadeFor, StatementState};
use crate::kept_rows::KeptRows;
use crate::planned_statement::Statement;
use crate::pushdown::explain_pushdown;
use crate::query::{Mode, Query};
use crate::query_plan::QueryPlan;
use crate::repeated::{self, Names};
use crate::replan::REPLANS_MAX;
use crate::schemas::{CATALOG, ClientView, Past, Scope, catalogs};
use crate::statement::{self, Named, Parsed};
use crate::timeout::Deadline;
use crate::views::{self, Expander, ViewsRead, refuse_broken};
use crate::watch::{Slow, Watch};
use crate::writing::{self, Altering, Layout, Returned, Writing, begins_again};
use crate::written_plans::explain_substrait;
use crate::zoned::{TIME_ZONE, in_session_zone};
use crate::{
    Client, Commitment, Frames, Host, Parameters, PlanLine, Settings, explain, functions, settings, summarize, tokens,
    truncating,
};

/// A client's connection to a host: its settings, and the statements it runs.
pub struct Session {
    pub(crate) host: Host,
    pub(crate) state: Mutex<SessionState>,
    /// Whom it is for; none: for the host's own process, which may do everything.
    pub(crate) client: Mutex<Option<Client>>,
    /// Another number after each change of settings, and other numbers in each session.
    change: AtomicU64,
    idle: Arc<IdleState>,
    /// Whether statements may read and write files of this machine, and read files at servers that this machine reaches.
    may_use_files: bool,
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
    /// Rows that it inserted, deleted or changed; none where it does no such thing.
    pub changed: Option<u64>,
}

impl Host {
    /// The host's memory, which all sessions share, and spill files for the operators of one.
    pub fn runtime(&self) -> Arc<RuntimeEnv> {
        let pool = Arc::clone(self.memory());
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).with_disk_manager_builder(self.spills().of_session());
        runtime.build_arc().unwrap_or_default()
    }

    /// A new session with default settings.
    pub fn session(&self) -> Session {
        let (options, runtime) = (self.options(), self.runtime());
        let engine = EngineOptions {
            batch_rows: PAGE_ROWS,
            target_partitions: options.threads.max(1),
            time_zone: Some(TIME_ZONE.to_owned()),
            runtime,
            functions: Arc::clone(&options.functions),
        };
        let mut state = session_state(&engine);
        let config = state.config_mut().options_mut();
        config.catalog.default_catalog = CATALOG.to_owned();
        config.catalog.default_schema.clone_from(&options.domain);
        config.catalog.information_schema = true;
        config.extensions.insert(Settings::default());
        Session {
            host: self.clone(),
            state: Mutex::new(state),
            client: Mutex::default(),
            change: AtomicU64::new(rand::random()),
            idle: IdleState::new(self.idle_states()),
            may_use_files: false,
        }
    }
}

impl Session {
    /// The same session, whose statements may read and write files of this machine, by COPY and CREATE FUNCTION: for sessions of
    /// those whose files they are.
    #[must_use]
    pub fn with_files(self) -> Session {
        Session { may_use_files: true, ..self }
    }

    /// An error unless statements may use files here.
    fn check_files(&self) -> Result<(), Fault> {
        if self.may_use_files {
            return Ok(());
        }
        let fault = Fault::new(Blame::Access, "statements read and write no files of this host, which others use, too");
        Err(fault.hint("run COPY with `pithead sql` or from Python, where the files are your own"))
    }

    /// Runs one statement: a query, EXPLAIN [ANALYZE], SET, SHOW, DESCRIBE, one that writes, COPY or DROP TABLE.
    #[boxed]
    pub async fn run(&self, sql: &str) -> Result<Answer, Fault> {
        self.run_with(sql, &Parameters::default()).await
    }

    /// Runs one statement as [`Session::run`] does, with values for its placeholders. Only queries and EXPLAIN have any.
    #[boxed]
    pub async fn run_with(&self, sql: &str, parameters: &Parameters) -> Result<Answer, Fault> {
        self.run_until(sql, parameters, &Arc::default()).await
    }

    /// The same, for who may want to cancel it: that can be done by dropping this until [`Commitment::cancel`] says that it is too late.
    #[boxed]
    pub async fn run_until(&self, sql: &str, parameters: &Parameters, commitment: &Arc<Commitment>) -> Result<Answer, Fault> {
        self.run_boxed(sql, parameters, commitment).await
    }

    /// Boxed here, or every crate that awaits it would compile all of planning again.
    fn run_boxed<'a>(
        &'a self,
        sql: &'a str,
        parameters: &'a Parameters,
        commitment: &'a Arc<Commitment>,
    ) -> BoxFuture<'a, Result<Answer, Fault>> {
        Box::pin(self.run_watched(sql, parameters, commitment))
    }

    #[boxed]
    async fn run_watched(&self, sql: &str, parameters: &Parameters, commitment: &Arc<Commitment>) -> Result<Answer, Fault> {
        let admitted = self.admit(sql).await.map(Arc::new);
        let parsed = match &admitted {
            Ok(admitted) => self.read(sql, parameters, admitted).await,
            Err(fault) => Err(fault.clone()),
        };
        let kind = parsed.as_ref().map_or("unknown", Parsed::kind);
        let mut watch = Watch::start(self, kind, sql, commitment).of(admitted.unwrap_or_default());
        let result = match &parsed {
            Ok(parsed) => self.run_timed(Work { sql, parsed, parameters, planned: None }, &mut watch).await,
            Err(fault) => Err(fault.clone()),
        };
        watch.answered(result)
    }

    /// The plan of a query, as EXPLAIN shows it. With `analyze` the query runs, its rows are dropped, and each part says what it cost.
    #[boxed]
    pub async fn explain(&self, sql: &str, analyze: bool) -> Result<Vec<PlanLine>, Fault> {
        self.explain_boxed(sql, analyze).await
    }

    fn explain_boxed<'a>(&'a self, sql: &'a str, analyze: bool) -> BoxFuture<'a, Result<Vec<PlanLine>, Fault>> {
        Box::pin(async move {
            let parameters = Parameters::default();
            let admitted = self.admit(sql).await?;
            let (query, analyze) = match self.read(sql, &parameters, &admitted).await? {
                Parsed::Query(query) => (query, analyze),
                Parsed::Explain { query, analyze: asked } => (query, analyze || asked),
                _ => return Err(Fault::invalid("expected a query, whose plan is to be shown")),
            };
            let (query, planned) = self.plan(&query, &parameters, None).await?;
            explain::lines(&query, planned.plan, analyze).await
        })
    }

    /// Reads and plans a statement, so that its columns are known and it can be run. Nothing is run yet.
    #[boxed]
    pub async fn prepare(&self, sql: &str, parameters: &Parameters) -> Result<Statement, Fault> {
        self.prepare_boxed(sql, parameters).await
    }

    fn prepare_boxed<'a>(&'a self, sql: &'a str, parameters: &'a Parameters) -> BoxFuture<'a, Result<Statement, Fault>> {
        Box::pin(Statement::new(self, sql, parameters))
    }

    /// Reads a query that comes as a Substrait plan over the session's tables, and plans it as [`Session::prepare`] does.
    #[boxed]
    pub async fn prepare_substrait(&self, plan: &[u8]) -> Result<Statement, Fault> {
        let reading = async move {
            check_clock()?;
            let shown = format!("a Substrait plan of {} bytes", plan.len());
            Statement::of(self, &shown, Parsed::Plan(plan.to_vec()), &Parameters::default()).await
        };
        Box::pin(reading).await
    }

    /// Runs a statement within the time that it may take, unless it is cancelled. Neither ends it once it has sent what it changes.
    pub(crate) async fn run_timed(&self, work: Work<'_>, watch: &mut Watch) -> Result<Answer, Fault> {
        check_clock()?;
        let timed = !matches!(work.parsed, Parsed::Set { .. } | Parsed::Drop { .. });
        let limit = Settings::of(&self.state.lock()).statement_timeout().filter(|_| timed);
        let commitment = watch.commitment();
        let run = unless_cancelled(watch.followed(), Box::pin(self.run_parsed(work, watch)));
        match Deadline::after(limit) {
            Some(deadline) => deadline.run(&commitment, run).await,
            None => run.await,
        }
    }

    async fn run_parsed(&self, work: Work<'_>, watch: &mut Watch) -> Result<Answer, Fault> {
        let Work { sql, parsed, parameters, planned } = work;
        let commitment = &watch.commitment();
        match parsed {
            Parsed::Set { name, value } => {
                parameters.refuse("SET")?;
                self.set(name, value).map(|()| Answer::done())
            }
            Parsed::Drop { names, if_exists } => {
                parameters.refuse("DROP TABLE")?;
                dropping::drop_tables(self, names, *if_exists, commitment).await?;
                Ok(Answer::done())
            }
            Parsed::CreateFunction(definition) => {
                parameters.refuse("CREATE FUNCTION")?;
                let state = self.state.lock().clone();
                self.check(Right::Administer, &definition.name.resolve(&self.domain())?.domain)?;
                functions::create(&self.host, &state, definition, self.may_use_files, commitment).await?;
                Ok(Answer::done())
            }
            Parsed::DropFunction(dropped) => {
                parameters.refuse("DROP FUNCTION")?;
                let state = self.state.lock().clone();
                self.check(Right::Administer, &dropped.name.resolve(&self.domain())?.domain)?;
                functions::drop_function(&self.host, &state, dropped, commitment).await?;
                Ok(Answer::done())
            }
            Parsed::History(history) => history.run(self, parameters, commitment).await,
            Parsed::CreateView(definition) => {
                views::create(self, definition, parameters, commitment).await.map(|()| Answer::done())
            }
            Parsed::DropViews(dropped) => {
                views::drop_views(self, dropped, parameters, commitment).await.map(|()| Answer::done())
            }
            Parsed::Write { statement, layout, matches_often, returning } => {
                self.write(statement, (layout, *matches_often), returning.as_deref(), parameters, watch).await
            }
            Parsed::Alter(altering) => {
                parameters.refuse("ALTER TABLE")?;
                self.alter(altering, commitment).await
            }
            Parsed::Truncate(names) => {
                parameters.refuse("TRUNCATE")?;
                truncating::truncate_tables(self, names, commitment).await
            }
            Parsed::Rename(renaming) => renaming.run(self, parameters, commitment).await,
            Parsed::CopyTo { query, file } => self.copy_to(sql, query, file, parameters, watch).await,
            Parsed::CopyFrom { name, columns, file } => {
                parameters.refuse("COPY … FROM")?;
                self.copy_from(name, columns.as_deref(), file, commitment).await
            }
            Parsed::Explain { query, analyze } => {
                let (query, planned) = self.plan_watched(query, parameters, planned, watch).await?;
                explain::explain(&query, planned.plan, *analyze).await
            }
            Parsed::Substrait { query, analyze } => {
                let (query, planned) = self.plan_watched(query, parameters, planned, watch).await?;
                explain_substrait(&query, planned.plan, *analyze).await
            }
            Parsed::Pushdown { query } => {
                let (query, planned) = self.plan_watched(query, parameters, planned, watch).await?;
                explain_pushdown(&query, planned.plan).await
            }
            Parsed::Summarize { query } => {
                let (query, planned) = self.plan_watched(query, parameters, planned, watch).await?;
                summarize::summarize(&query, planned.plan).await
            }
            Parsed::Query(query) => self.query(sql, query, parameters, planned, watch).await,
            Parsed::Plan(plan) => {
                self.tell_slow(sql, watch);
                let (query, planned) = self.plan_of_substrait(plan, planned).await?;
                self.answer(query, planned, watch).await
            }
        }
    }

    fn set(&self, name: &str, value: &str) -> Result<(), Fault> {
        if self.client.lock().is_some() {
            settings::check_of_client(name)?;
        }
        let mut state = self.state.lock();
        self.changed();
        settings::set(&mut state, name, value)
    }

    /// Splits a script into statements; quotes and comments are respected.
    pub fn split(sql: &str) -> Result<Vec<String>, Fault> {
        tokens::split(sql)
    }

    #[boxed]
    async fn query(
        &self,
        sql: &str,
        query: &Syntax,
        parameters: &Parameters,
        planned: Option<&QueryPlan>,
        watch: &mut Watch,
    ) -> Result<Answer, Fault> {
        self.tell_slow(sql, watch);
        let (query, planned) = self.plan_watched(query, parameters, planned, watch).await?;
        self.answer(query, planned, watch).await
    }

    /// A statement's plan over the datasets as they are now, which tells when the next long text may be read.
    #[boxed]
    async fn plan_watched(
        &self,
        query: &Syntax,
        parameters: &Parameters,
        planned: Option<&QueryPlan>,
        watch: &Watch,
    ) -> Result<(Query, QueryPlan), Fault> {
        let (query, planned) = self.plan(query, parameters, planned).await?;
        let query = Query { admitted: watch.admitted(), ..query };
        query.admitted.pause().await;
        Ok((query, planned))
    }

    /// Has a query logged that takes long, where that is wanted.
    fn tell_slow(&self, sql: &str, watch: &mut Watch) {
        let limit_ms = Settings::of(&self.state.lock()).slow_query_ms;
        if limit_ms > 0 {
            watch.tell(Slow { sql: sql.to_owned(), limit: Duration::from_millis(limit_ms as u64), run: None });
        }
    }

    /// Runs a query that is planned.
    #[boxed]
    async fn answer(&self, query: Query, planned: QueryPlan, watch: &mut Watch) -> Result<Answer, Fault> {
        let QueryPlan { plan, optimised, names, .. } = planned;
        let profile = Arc::clone(&query.profile);
        watch.counts(&profile);
        let query = Arc::new(query);
        let prepared = Arc::new(query.prepare_optimised_before(plan, optimised, Mode::Run).await?);
        let rows = query.execute(&prepared).await?;
        watch.runs(&query, prepared);
        let schema = names.schema(&rows.schema());
        let rows = names.rows(rows.map(|batch| batch.map_err(fault_from_datafusion)).boxed(), &schema);
        Ok(Answer { schema, rows, profile, is_query: true, changed: None })
    }

    async fn copy_to(
        &self,
        sql: &str,
        query: &Syntax,
        file: &CopyFile,
        parameters: &Parameters,
        watch: &mut Watch,
    ) -> Result<Answer, Fault> {
        self.check_files()?;
        let CopyFile::To(path, options) = file else { return Err(Fault::bug("COPY … TO has no file to write")) };
        let Answer { schema, rows, profile, .. } = self.query(sql, query, parameters, None, watch).await?;
        let rows = copying::write(path, options, &schema, rows).await?;
        Ok(Answer { profile, changed: Some(rows), ..Answer::done() })
    }

    /// Loads a file, again where others came before it.
    async fn copy_from(
        &self,
        name: &Named,
        columns: Option<&[String]>,
        file: &CopyFile,
        commitment: &Arc<Commitment>,
    ) -> Result<Answer, Fault> {
        self.check_files()?;
        let mut attempt = 1;
        loop {
            match self.copy_over(name, columns, file, commitment).await {
                Err(fault) if begins_again(&fault, attempt) => {
                    commitment.check()?;
                    attempt += 1;
                }
                copied => return copied,
            }
        }
    }

    /// Loads a file into a dataset as it is now.
    async fn copy_over(
        &self,
        name: &Named,
        columns: Option<&[String]>,
        file: &CopyFile,
        commitment: &Arc<Commitment>,
    ) -> Result<Answer, Fault> {
        let CopyFile::From(path, format, csv) = file else { return Err(Fault::bug("COPY … FROM has no file to read")) };
        let domain = self.state.lock().config_options().catalog.default_schema.clone();
        let name = name.resolve(&domain)?;
        self.check(Right::Write, &name.domain)?;
        let before = self.host.fleet().connected().ids();
        let mut snapshot = self.host.fleet().snapshot().await?;
        if snapshot.view(&name).is_some() {
            return Err(is_view(&name));
        }
        if let Err(fault) = snapshot.readable(&name)
            && let Ok(settled) = self.settled_after(fault, &before).await
        {
            snapshot = settled;
        }
        let Some((_, dataset)) = snapshot.dataset(&name) else {
            let fault = Fault::invalid(format!("no dataset {name}")).of_kind(FaultKind::NoTable);
            return Err(fault.hint("make it with CREATE TABLE, or let `pithead load` make it"));
        };
        snapshot.versioned(&name).map_or(Ok(()), |found| found.check_loaded())?;
        let own = dataset.schema.fields().iter().map(|field| field.name());
        if columns.is_some_and(|columns| !own.eq(columns)) {
            return Err(Fault::new(Blame::Unsupported, format!("COPY into some columns of {name}, or in another order"))
                .hint("leave the list of columns out; the file's columns are found by their names, or by their order"));
        }
        let spec = copying::load_spec(name, Arc::new(dataset.clone()), path, *format, csv);
        let report = self.host.load_of(commitment, spec).await?;
        Ok(Answer { changed: Some(report.rows), ..Answer::done() })
    }

    /// Runs a statement that writes, again where others came before it.
    #[boxed]
    async fn write(
        &self,
        statement: &Syntax,
        (layout, matches_often): (&Layout, bool),
        returning: Option<&Syntax>,
        parameters: &Parameters,
        watch: &Watch,
    ) -> Result<Answer, Fault> {
        let (mut attempt, commitment) = (1, &watch.commitment());
        let domain = self.state.lock().config_options().catalog.default_schema.clone();
        let made = statement::made(statement).map(|name| name?.resolve(&domain)).transpose()?;
        if let Some(made) = &made {
            self.check(Right::Write, &made.domain)?;
        }
        loop {
            let (mut query, plan) = self.plan_write(statement, made.as_ref(), parameters).await?;
            query.admitted = watch.admitted();
            query.admitted.pause().await;
            if let Some(name) = writing::changed_dataset(&plan)? {
                self.check(Right::Write, &name.domain)?;
            }
            refuse_broken(&plan)?;
            self.host.functions().ready(&query.state, &plan).await?;
            let returned = match returning {
                Some(list) => Some(Returned::new(&query, list).await?),
                None => None,
            };
            let (layout, returned) = (layout.clone(), returned.as_ref());
            let writing = Writing { query: &query, plan, layout, matches_often, parameters, returned, commitment };
            match writing.run().await {
                Ok(rows) => {
                    let (profile, changed) = (Arc::clone(&query.profile), Some(rows));
                    let Some(returned) = returned else { return Ok(Answer { profile, changed, ..Answer::done() }) };
                    let (schema, rows) = returned.answer().await?;
                    return Ok(Answer { schema, rows, profile, is_query: true, changed });
                }
                Err(fault) if begins_again(&fault, attempt) => {
                    commitment.check()?;
                    attempt += 1;
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    /// The plan of a statement that writes, over the datasets as they are now.
    #[boxed]
    pub(crate) async fn plan_write(
        &self,
        statement: &Syntax,
        made: Option<&DatasetName>,
        parameters: &Parameters,
    ) -> Result<(Query, LogicalPlan), Fault> {
        let before = self.host.fleet().connected().ids();
        let found = match self.host.fleet().snapshot().await {
            Ok(snapshot) => self.plan_write_over(snapshot, statement, made, parameters).await,
            Err(fault) => Err(fault),
        };
        match found {
            Err(fault) => self.plan_write_over(self.settled_after(fault, &before).await?, statement, made, parameters).await,
            found => found,
        }
    }

    #[boxed]
    async fn plan_write_over(
        &self,
        snapshot: Arc<Snapshot>,
        statement: &Syntax,
        made: Option<&DatasetName>,
        parameters: &Parameters,
    ) -> Result<(Query, LogicalPlan), Fault> {
        let (query, _) = self.query_over(Arc::clone(&snapshot), made.cloned(), parameters)?;
        let domain = self.domain();
        let planning = async {
            let statement = writing::with_uuids(statement.clone(), &snapshot, &domain);
            writing::planned(&query.state, statement).await
        };
        let plan = aside_waiting(is_long(statement), planning).await?;
        Ok((query, plan))
    }

    /// Changes a table's columns, again where others came before it.
    async fn alter(&self, altering: &Altering, commitment: &Arc<Commitment>) -> Result<Answer, Fault> {
        let domain = self.state.lock().config_options().catalog.default_schema.clone();
        let name = altering.name.resolve(&domain)?;
        self.check(Right::Write, &name.domain)?;
        let mut attempt = 1;
        loop {
            let snapshot = self.host.fleet().snapshot().await?;
            if snapshot.view(&name).is_some() {
                return Err(is_view(&name).hint(format!("CREATE OR REPLACE VIEW {name} AS … puts another query in its place")));
            }
            let dataset = match snapshot.find(&name) {
                Ok((_, dataset)) => Arc::new(dataset.clone()),
                Err(fault) if altering.if_exists && fault.blame == Blame::User => return Ok(Answer::done()),
                Err(fault) => return Err(fault),
            };
            snapshot.versioned(&name).map_or(Ok(()), |found| found.check_changeable())?;
            let (query, _) = self.query_over(snapshot, None, &Parameters::default())?;
            let profile = Arc::clone(&query.profile);
            match altering.run(query, name.clone(), dataset, commitment).await {
                Ok(()) => return Ok(Answer { profile, ..Answer::done() }),
                Err(fault) if begins_again(&fault, attempt) => {
                    commitment.check()?;
                    attempt += 1;
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    /// A statement's plan over the datasets as they are now: the one that is there already, where it still holds.
    pub(crate) async fn plan(
        &self,
        query: &Syntax,
        parameters: &Parameters,
        planned: Option<&QueryPlan>,
    ) -> Result<(Query, QueryPlan), Fault> {
        let before = self.host.fleet().connected().ids();
        let found = match self.host.fleet().snapshot().await {
            Ok(snapshot) => self.plan_over(snapshot, query, parameters, planned).await,
            Err(fault) => Err(fault),
        };
        match found {
            Err(fault) => self.plan_over(self.settled_after(fault, &before).await?, query, parameters, planned).await,
            found => found,
        }
    }

    /// The datasets once more after a fault, where what was lacking may be on a drive that has not answered yet, or another host may have
    /// made the domain meanwhile; else the fault.
    pub(crate) async fn settled_after(&self, fault: Fault, before: &[DriveId]) -> Result<Arc<Snapshot>, Fault> {
        if fault.blame != Blame::Device {
            return Err(fault);
        }
        self.host.fleet().settled_snapshot(before).await?.ok_or(fault)
    }

    async fn plan_over(
        &self,
        snapshot: Arc<Snapshot>,
        syntax: &Syntax,
        parameters: &Parameters,
        planned: Option<&QueryPlan>,
    ) -> Result<(Query, QueryPlan), Fault> {
        let (query, change) = self.query_over(Arc::clone(&snapshot), None, parameters)?;
        let functions = Registry::of(&query.state);
        let planned = match planned.filter(|planned| planned.holds(&snapshot, change, &functions)) {
            Some(planned) => planned.clone(),
            None => {
                let (unbound, names) = logical_plan(&query.state, syntax.clone()).await?;
                let plan = parameters.put_into(unbound.clone())?;
                self.host.functions().ready(&query.state, &plan).await?;
                let planned = QueryPlan::new(plan, names, change, functions, ViewsRead::of(&query.state))?;
                if parameters.is_empty() { planned } else { planned.of_unbound(unbound) }
            }
        };
        Ok((query, planned))
    }

    /// The settings are others from now on, or what the client may see.
    pub(crate) fn changed(&self) {
        self.change.fetch_add(1, Ordering::Relaxed);
    }

    /// The state of a statement without a catalogue, and the settings that it has.
    fn begun(&self, snapshot: &Arc<Snapshot>) -> (StatementState, u64) {
        let client = self.client.lock().clone();
        let path = client.as_ref().map(|client| client.shown.path());
        let (mut state, change) = {
            let state = self.state.lock();
            let change = self.change.load(Ordering::Relaxed);
            if let Some(idle) = self.idle.take(change, snapshot, path.as_ref()) {
                return (idle, change);
            }
            (state.clone(), change)
        };
        let client = client.map(|client| {
            let facts = client.extend(&mut state, snapshot);
            ClientView { caller: client.caller, facts }
        });
        let made_for = MadeFor { change, snapshot: Arc::clone(snapshot), client, path };
        (StatementState::new(state, &self.idle, made_for), change)
    }

    /// What the views of a statement are planned with. The statement's state gets a list of those that are read.
    fn expander(&self, state: &mut SessionState, frames: &Frames) -> Arc<Expander> {
        state.config_mut().set_extension(Arc::new(ViewsRead::default()));
        Arc::new(Expander { state: state.clone(), host: self.host.clone(), has_frames: !frames.is_empty() })
    }

    /// What the names in the query of a view are looked up in, which is to be made.
    pub(crate) fn scope_of_views(&self, snapshot: Arc<Snapshot>) -> Scope {
        let (mut state, _) = self.begun(&snapshot);
        let client = state.client();
        let (tables, frames) = (Arc::clone(self.host.tables()), Frames::default());
        let expander = Some(self.expander(&mut state, &frames));
        let domain = state.config_options().catalog.default_schema.clone();
        let past = Past { fleet: self.host.fleet().clone(), time_zone: state.config_options().execution.time_zone.clone() };
        let (made, expanding, may_read_files) = (None, Vec::new(), false);
        Scope { snapshot, past, tables, made, frames, domain, client, expander, expanding, may_read_files }
    }

    /// A query to come over the datasets of a snapshot, and the settings that it has, by [`Session::change`].
    pub(crate) fn query_over(
        &self,
        snapshot: Arc<Snapshot>,
        made: Option<DatasetName>,
        parameters: &Parameters,
    ) -> Result<(Query, u64), Fault> {
        let (mut state, change) = self.begun(&snapshot);
        let client = state.client();
        let expander = snapshot.views().next().map(|_| self.expander(&mut state, parameters.frames()));
        let may_read = |domain: &str| self.check(Right::Read, domain).is_ok();
        if self.host.functions().put_into(&mut state, &snapshot, &may_read)? {
            state.keep_apart();
        }
        let tables = Arc::clone(self.host.tables());
        let domain = state.config_options().catalog.default_schema.clone();
        let frames = parameters.frames().clone();
        let expanding = Vec::new();
        let past = Past { fleet: self.host.fleet().clone(), time_zone: state.config_options().execution.time_zone.clone() };
        let may_read_files = self.may_use_files;
        let scope = Scope { snapshot, past, tables, made, frames, domain, client, expander, expanding, may_read_files };
        state.register_catalog_list(catalogs(scope));
        state.config_mut().options_mut().extensions.insert(SessionCalls::default());
        state.mark_start_execution();
        let query = Query {
            host: self.host.clone(),
            settings: Settings::of(&state),
            kept: KeptRows::new(&state),
            admitted: Arc::default(),
            state,
            profile: QueryProfile::start(),
            computed: Mutex::default(),
            shared: Mutex::default(),
            from_above: None,
            pages: None,
            replans_left: REPLANS_MAX,
        };
        Ok((query, change))
    }
}

/// A statement to run.
pub(crate) struct Work<'a> {
    /// As it was written, for the log.
    pub(crate) sql: &'a str,
    pub(crate) parsed: &'a Parsed,
    pub(crate) parameters: &'a Parameters,
    /// Its plan, where it was planned before.
    pub(crate) planned: Option<&'a QueryPlan>,
}

pub(crate) async fn logical_plan(state: &SessionState, statement: Syntax) -> Result<(LogicalPlan, Names), Fault> {
    let is_long = is_long(&statement);
    let (plan, names) = aside_waiting(is_long, repeated::plan(state, statement)).await.map_err(fault_from_datafusion)?;
    let plan = count_repeats(plan).map_err(fault_from_datafusion)?;
    match &plan {
        LogicalPlan::Ddl(_) | LogicalPlan::Dml(_) | LogicalPlan::Copy(_) | LogicalPlan::Statement(_) => {
            Err(Fault::new(Blame::Unsupported, format!("{} is not a statement that this release runs", plan.display())))
        }
        _ => Ok((in_session_zone(state, plan)?, names)),
    }
}

impl Answer {
    /// A statement that did what it says and has no rows.
    pub(crate) fn done() -> Answer {
        let schema = Arc::new(arrow::datatypes::Schema::empty());
        Answer {
            schema,
            rows: futures::stream::empty().boxed(),
            profile: QueryProfile::start(),
            is_query: false,
            changed: None,
        }
    }

    /// Rows that are there already.
    pub(crate) fn of(batch: RecordBatch, profile: Arc<QueryProfile>) -> Answer {
        Answer {
            schema: batch.schema(),
            rows: futures::stream::iter([Ok(batch)]).boxed(),
            profile,
            is_query: true,
            changed: None,
        }
    }
}
