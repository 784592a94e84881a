//! [`session_state`]: one set of functions, rules and switches for every engine.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use datafusion::catalog::{CatalogProvider, CatalogProviderList};
use datafusion::catalog::{MemoryCatalogProvider, MemoryCatalogProviderList, MemorySchemaProvider};
use datafusion::common::config::ConfigOptions;
use datafusion::execution::context::SessionContext;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionState;
use datafusion::execution::{SessionStateBuilder, TaskContext};
use datafusion::prelude::SessionConfig;
use parking_lot::Mutex;
use pithead_model::PAGE_ROWS;

use crate::at_zone::at_zone_udf;
use crate::bounded::SessionMemory;
use crate::by_type::by_type_udfs;
use crate::calls::SessionCalls;
use crate::chosen_bytes::coalesce_udf;
use crate::counted_rows::counted_rows_udwfs;
use crate::far_moments::{Extracts, far_moments_udfs};
use crate::has_lists::has_lists_udfs;
use crate::intervals::{Products, age_udf, times_udf};
use crate::keys_of_lists::KeysOfLists;
use crate::list_aggregates::planned_udfs;
use crate::list_sums::list_sum_udf;
use crate::meant_texts::{MeantTexts, interval_text_udf};
use crate::merged_keys::merged_key_udf;
use crate::moment_parts::moment_parts_udfs;
use crate::moment_texts::moment_text_udf;
use crate::named_calls::NamedCalls;
use crate::named_casts::named_cast_udf;
use crate::octets::octets_udfs;
use crate::only_row::only_value_udf;
use crate::ordered_lists::ordered_udafs;
use crate::percentiles::percentile_cont_udaf;
use crate::read_moments::read_moments_udfs;
use crate::ready_to_run::ReadyPlanner;
use crate::rules::{analyzer_rules, optimizer_rules, physical_optimizer_rules};
use crate::series::series_udfs;
use crate::signed_counts::{signed_udafs, signed_udfs};
use crate::split_texts::split_udf;
use crate::spread::spread_udafs;
use crate::text_places::TextPlaces;
use crate::times_of_day::clock_text_udfs;
use crate::uuids::{UuidType, uuid_udfs};
use crate::wall_time::{moment_at_udf, shifted_udf};
use crate::{Registry, avg_udaf, max_udaf, min_udaf, sum_udaf};

/// The most bytes of a join's build keys that reach the other side's scan as a list of values.
const IN_LIST_BYTES_MAX: usize = 1 << 20;
/// The most distinct keys of such a list.
const IN_LIST_VALUES_MAX: usize = 1_024;

/// Time zones and functions of which states are kept at most.
const STATES_MAX: usize = 64;
/// States of one of them that are kept at most.
const IDLE_MAX: usize = 16;

/// What may differ between engines because it does not change an answer.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The most rows of a batch.
    pub batch_rows: usize,
    /// The number of concurrent streams of a plan: 1 on a reactor.
    pub target_partitions: usize,
    /// The session's time zone; none: timestamps without a zone remain without one.
    pub time_zone: Option<String>,
    /// Memory pool and spill files.
    pub runtime: Arc<RuntimeEnv>,
    /// What can be called beyond DataFusion's own functions.
    pub functions: Arc<Registry>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            batch_rows: PAGE_ROWS,
            target_partitions: 1,
            time_zone: None,
            runtime: Arc::new(RuntimeEnv::default()),
            functions: Registry::own(),
        }
    }
}

/// The state with which host and drives plan and run: all of DataFusion's default functions, ours, and those of the registry, which
/// is found as an extension of the state's configuration.
///
/// It can open no file: DataFusion's table factories and file formats are left out, so neither SQL nor a sub-plan can
/// name one.
pub fn session_state(options: &EngineOptions) -> SessionState {
    let state = SessionStateBuilder::new()
        .with_config(session_config(options))
        .with_runtime_env(Arc::clone(&options.runtime))
        .with_expr_planners(vec![Arc::new(Products), Arc::new(MeantTexts), Arc::new(TextPlaces), Arc::new(Extracts)])
        .with_relation_planners(vec![Arc::new(KeysOfLists), Arc::new(NamedCalls)])
        .with_type_planner(Arc::new(UuidType))
        .with_default_features()
        .with_analyzer_rules(analyzer_rules())
        .with_optimizer_rules(optimizer_rules())
        .with_physical_optimizer_rules(physical_optimizer_rules())
        .with_query_planner(Arc::new(ReadyPlanner))
        .with_table_factories(HashMap::new())
        .with_file_formats(Vec::new())
        .build();
    let context = SessionContext::new_with_state(state);
    let checked = [sum_udaf(), avg_udaf(), min_udaf(), max_udaf(), percentile_cont_udaf()];
    for aggregate in checked.into_iter().chain(ordered_udafs()) {
        context.register_udaf(aggregate.as_ref().clone());
    }
    spread_udafs().into_iter().chain(signed_udafs()).for_each(|aggregate| context.register_udaf(aggregate));
    counted_rows_udwfs().for_each(|function| context.register_udwf(function));
    context.register_udf(named_cast_udf());
    context.register_udf(merged_key_udf());
    context.register_udf(at_zone_udf());
    context.register_udf(moment_at_udf());
    context.register_udf(shifted_udf());
    context.register_udf(age_udf());
    context.register_udf(times_udf());
    context.register_udf(list_sum_udf());
    context.register_udf(split_udf());
    context.register_udf(moment_text_udf());
    context.register_udf(only_value_udf());
    uuid_udfs().into_iter().for_each(|function| context.register_udf(function));
    by_type_udfs()
        .chain(far_moments_udfs())
        .chain(series_udfs())
        .chain(octets_udfs())
        .chain(has_lists_udfs())
        .chain([coalesce_udf(), interval_text_udf()])
        .chain(read_moments_udfs())
        .chain(moment_parts_udfs())
        .chain(clock_text_udfs())
        .chain(planned_udfs())
        .chain(signed_udfs())
        .chain(crate::whole_decimals::whole_decimals_udfs())
        .for_each(|function| context.register_udf(function));
    options.functions.register(&context);
    context.state()
}

/// What a state hangs on: a time zone and functions.
type Key = (Option<String>, Arc<Registry>);

/// The states of one key.
struct Made {
    prototype: Arc<SessionState>,
    /// Those that nobody uses at the moment.
    idle: Vec<SessionState>,
}

static MADE: LazyLock<Mutex<HashMap<Key, Made>>> = LazyLock::new(Mutex::default);

/// A state for one who plans and optimises with it, and runs what comes of it in a task context of its own: its runtime is nobody's.
/// Making a state takes a millisecond and copying one a tenth of that, while a small session at a drive takes half a millisecond in all.
/// So those that were made are kept by what functions hang on, and used again. Each has a catalogue of its own, without tables.
pub struct PlanningState {
    /// There until it is dropped.
    state: Option<SessionState>,
    key: Key,
    /// Whether tables may have been put into its catalogue.
    may_have_tables: bool,
}

impl PlanningState {
    /// A state with these options.
    pub fn new(options: &EngineOptions) -> PlanningState {
        let key = (options.time_zone.clone(), Arc::clone(&options.functions));
        let mut state = taken(&key);
        *state.config_mut() = session_config(options);
        // Expressions take the settings, and with them the session's memory, from here.
        state.mark_start_execution();
        PlanningState { state: Some(state), key, may_have_tables: false }
    }

    /// The state, for tables to be put into its catalogue, until [`PlanningState::forget_tables`] or its end.
    pub fn for_tables(&mut self) -> &SessionState {
        self.may_have_tables = true;
        self
    }

    /// Takes all tables out of its catalogue.
    pub fn forget_tables(&mut self) {
        if std::mem::take(&mut self.may_have_tables)
            && let Some(state) = &mut self.state
        {
            without_tables(state);
        }
    }
}

impl Deref for PlanningState {
    type Target = SessionState;

    fn deref(&self) -> &SessionState {
        self.state.as_ref().unwrap_or_else(|| unreachable!("a state is there until it is dropped"))
    }
}

impl fmt::Debug for PlanningState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlanningState").field("time_zone", &self.key.0).finish_non_exhaustive()
    }
}

impl Drop for PlanningState {
    fn drop(&mut self) {
        self.forget_tables();
        let Some(mut state) = self.state.take() else { return };
        // A session's memory ends with it.
        *state.config_mut() = NOBODYS.clone();
        state.mark_start_execution();
        if let Some(made) = MADE.lock().get_mut(&self.key)
            && made.idle.len() < IDLE_MAX
        {
            made.idle.push(state);
        }
    }
}

/// The settings of states that nobody uses.
static NOBODYS: LazyLock<SessionConfig> = LazyLock::new(SessionConfig::new);

/// A state of a key that nobody else uses.
fn taken(key: &Key) -> SessionState {
    let mut states = MADE.lock();
    if states.len() >= STATES_MAX && !states.contains_key(key) {
        states.clear();
    }
    let make = || {
        let (time_zone, functions) = key.clone();
        let mut state = session_state(&EngineOptions { time_zone, functions, ..EngineOptions::default() });
        without_tables(&mut state);
        Made { prototype: Arc::new(state), idle: Vec::new() }
    };
    let made = states.entry(key.clone()).or_insert_with(make);
    if let Some(idle) = made.idle.pop() {
        return idle;
    }
    let prototype = Arc::clone(&made.prototype);
    drop(states);
    let mut copy = prototype.as_ref().clone();
    without_tables(&mut copy);
    copy
}

/// Gives a state a new catalogue.
fn without_tables(state: &mut SessionState) {
    let catalog = MemoryCatalogProvider::new();
    let names = &state.config_options().catalog;
    // A new catalogue takes any schema.
    let _ = catalog.register_schema(&names.default_schema, Arc::new(MemorySchemaProvider::new()));
    let catalogs = MemoryCatalogProviderList::new();
    catalogs.register_catalog(names.default_catalog.clone(), Arc::new(catalog));
    state.register_catalog_list(Arc::new(catalogs));
}

/// What a plan runs in. Functions are in the plan already, so the context has none, which only those need that read plans.
pub fn run_context(state: &SessionState, config: SessionConfig, runtime: Arc<RuntimeEnv>) -> Arc<TaskContext> {
    let session = state.session_id().to_owned();
    let (scalar, aggregate, window, higher_order) = Default::default();
    Arc::new(TaskContext::new(None, session, config, scalar, higher_order, aggregate, window, runtime))
}

fn session_config(options: &EngineOptions) -> SessionConfig {
    let mut config = SessionConfig::new()
        .with_batch_size(options.batch_rows.max(1))
        .with_target_partitions(options.target_partitions.max(1))
        // The host switches it on for itself. A drive has no catalogue to show.
        .with_information_schema(false);
    config.set_extension(Arc::clone(&options.functions));
    config.options_mut().extensions.insert(SessionMemory(Arc::clone(&options.runtime.memory_pool)));
    config.options_mut().extensions.insert(SessionCalls::default());
    set_options(config.options_mut(), options);
    config
}

/// Switches that have DataFusion 55's defaults are set here, too, where an answer depends on them, so that a new
/// release cannot change an answer silently.
fn set_options(config: &mut ConfigOptions, options: &EngineOptions) {
    // `now()`, `current_date` and casts between timestamps and text read it.
    config.execution.time_zone.clone_from(&options.time_zone);
    // Datasets have Utf8View: literals and casts of the same type need no conversion.
    config.sql_parser.map_string_types_to_utf8view = true;
    config.optimizer.expand_views_at_output = false;
    // `SortedInputs` drops the orders of subqueries that nobody sees, and no others.
    config.sql_parser.enable_subquery_sort_elimination = false;
    // NULL is the largest value in every ORDER BY that does not say otherwise.
    config.sql_parser.default_null_ordering = "nulls_max".to_owned();
    // `crate::checked` checks arithmetic; this mode concerns Spark's functions only.
    config.execution.enable_ansi_mode = false;
    // A plan may be planned with other nullability than it was optimised with, such as a count that a LEFT JOIN may
    // leave out. It still gives the right rows.
    config.execution.skip_physical_aggregate_schema_check = true;
    // A rule that fails is a bug that must be reported, and must not lead to a plan that differs from the host's.
    config.optimizer.skip_failed_rules = false;
    // Our slice directories determine the sides of a join.
    config.execution.collect_statistics = true;
    config.optimizer.join_reordering = true;
    // Planning children concurrently gains nothing on a reactor.
    config.execution.planning_concurrency = options.target_partitions.max(1);
    // The build side is complete before the probe side is polled, and so is the filter that it sends.
    config.execution.hash_join_buffering_capacity = 0;
    config.optimizer.enable_dynamic_filter_pushdown = true;
    config.optimizer.enable_join_dynamic_filter_pushdown = true;
    config.optimizer.enable_topk_dynamic_filter_pushdown = true;
    config.optimizer.hash_join_inlist_pushdown_max_size = IN_LIST_BYTES_MAX;
    config.optimizer.hash_join_inlist_pushdown_max_distinct_values = IN_LIST_VALUES_MAX;
    // Left joins in the place of scalar subqueries give wrong rows where a subquery returns several.
    config.optimizer.enable_physical_uncorrelated_scalar_subquery = true;
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::common::ScalarValue;

    fn context() -> SessionContext {
        SessionContext::new_with_state(session_state(&EngineOptions::default()))
    }

    async fn error_of(sql: &str) -> String {
        let frame = match context().sql(sql).await {
            Ok(frame) => frame,
            Err(error) => return error.to_string(),
        };
        frame.collect().await.expect_err("an error").to_string()
    }

    #[tokio::test]
    async fn sum_is_the_checked_one_in_every_shape_of_query() {
        let rows = "(VALUES (1, 9223372036854775807), (1, 1)) AS t(k, v)";
        for sql in [
            format!("SELECT sum(v) FROM {rows}"),
            format!("SELECT k, sum(v) FROM {rows} GROUP BY k"),
            format!("SELECT sum(DISTINCT v) FROM {rows}"),
            format!("SELECT sum(DISTINCT v), count(DISTINCT k) FROM {rows}"),
            format!("SELECT sum(v) OVER (ORDER BY v DESC) FROM {rows}"),
            format!("SELECT sum(v) FILTER (WHERE v > 0) FROM {rows}"),
            format!("SELECT sum(v + 0), sum(v - 1 + 1) FROM {rows}"),
        ] {
            let error = error_of(&sql).await;
            assert!(error.contains("overflow in sum"), "{sql}: {error}");
        }
    }

    #[tokio::test]
    async fn extremes_do_not_hang_on_the_order_of_rows() {
        let sql = "SELECT min(v), max(v) FROM (VALUES (1, 2.5), (1, 'NaN'::double), (1, 7.0)) AS t(k, v)";
        for sql in [sql.to_owned(), format!("{sql} GROUP BY k")] {
            let batches = context().sql(&sql).await.unwrap().collect().await.unwrap();
            let value = |column: usize| ScalarValue::try_from_array(batches[0].column(column), 0).unwrap().to_string();
            assert_eq!((value(0), value(1)), ("2.5".to_owned(), "NaN".to_owned()), "{sql}");
        }
    }

    #[tokio::test]
    async fn a_state_for_planning_is_the_same_and_shares_no_tables() {
        let zone = Some("Asia/Tokyo".to_owned());
        let options = EngineOptions { time_zone: zone.clone(), batch_rows: 77, ..EngineOptions::default() };
        let (one, other) = (PlanningState::new(&options), PlanningState::new(&EngineOptions::default()));
        let made = session_state(&options);
        assert_eq!(one.config_options().entries().len(), made.config_options().entries().len());
        assert_eq!((one.config().batch_size(), other.config().batch_size()), (77, PAGE_ROWS));
        assert_eq!((&one.config_options().execution.time_zone, &other.config_options().execution.time_zone), (&zone, &None));
        let told =
            |state: &SessionState| state.execution_props().config_options().map(|options| options.execution.batch_size.get());
        assert_eq!((told(&one), told(&other)), (Some(77), Some(PAGE_ROWS)), "what expressions see");
        assert_eq!(one.scalar_functions().len(), made.scalar_functions().len());
        assert_eq!(one.aggregate_functions().len(), made.aggregate_functions().len());
        let (one, other) = (SessionContext::new_with_state(one.clone()), SessionContext::new_with_state(other.clone()));
        one.sql("CREATE VIEW v AS SELECT 1 AS x").await.unwrap();
        assert!(one.sql("SELECT x FROM v").await.is_ok());
        assert!(other.sql("SELECT x FROM v").await.is_err());
        let again = SessionContext::new_with_state(PlanningState::new(&options).clone());
        assert!(again.sql("SELECT x FROM v").await.is_err());
        let zoned = again.sql("SELECT now() AS x").await.unwrap().schema().field(0).data_type().to_string();
        assert!(zoned.contains("Asia/Tokyo"), "{zoned}");
    }

    #[tokio::test]
    async fn a_join_on_nothing_has_no_rows() {
        for on in ["false", "1 = 0", "NULL::boolean"] {
            let one = "(SELECT min(v) AS x FROM (VALUES (1)) AS t(v)) AS a";
            let sql = format!("SELECT a.x FROM {one} LEFT JOIN (VALUES (1)) AS b(k) ON {on} WHERE b.k < 5");
            let batches = context().sql(&sql).await.unwrap().collect().await.unwrap();
            assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 0, "{sql}");
        }
    }

    #[tokio::test]
    async fn files_cannot_be_named() {
        let error = error_of("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'").await;
        assert!(error.contains("CSV"), "{error}");
        assert!(error_of("COPY (SELECT 1) TO '/tmp/x.csv' STORED AS CSV").await.contains("csv"));
    }

    #[tokio::test]
    async fn sums_keep_datafusions_types() {
        let sql = "SELECT arrow_typeof(sum(a)), arrow_typeof(sum(b)), arrow_typeof(sum(c)), arrow_typeof(sum(d)) FROM (SELECT \
                   1::int AS a, 1.5::float AS b, 1.5::decimal(10,2) AS c, 1::bigint unsigned AS d)";
        let batches = context().sql(sql).await.unwrap().collect().await.unwrap();
        let types: Vec<String> =
            (0..4).map(|column| ScalarValue::try_from_array(batches[0].column(column), 0).unwrap().to_string()).collect();
        assert_eq!(types, ["Int64", "Float64", "Decimal128(20, 2)", "UInt64"]);
    }
}
