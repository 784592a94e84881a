//! A session's switches: `SET pithead.…`.

use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use datafusion::common::{Result, extensions_options};
use datafusion::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Ident, Statement as Sql};
use pithead_door::SessionOptions;
use pithead_model::{Blame, Fault, Level, LevelRule, parse_bytes};
use pithead_plan::{BeforeJoins, CutOptions};

use crate::energy;
use crate::replan::{Replanning, parse_replanning};
use crate::sampler::{Sampling, parse_sampling};
use crate::timeout;

/// PostgreSQL's name of a setting of ours.
const STATEMENT_TIMEOUT: &str = "statement_timeout";
/// Settings that are numbers of bytes.
const BYTES: [&str; 5] = [
    "pithead.slice_cache",
    "pithead.ship_bytes_max",
    "pithead.one_round_bytes_min",
    "pithead.drive_memory",
    "pithead.sample_bytes",
];
/// Bytes that pass by pointer and cost as much as one on a link.
const IN_PROCESS_BYTES: f64 = 64.0;

extensions_options! {
    /// What `SET pithead.name = value` sets and `SHOW pithead.name` shows.
    pub struct Switches {
        /// Run at the drives what they can run. Off: drives send the columns that a query needs; filters only rule out
        /// slices and pages there.
        pub pushdown: bool, default = true
        /// Aggregates and DISTINCT at the drives.
        pub pushdown_aggregates: bool, default = true
        /// Joins at the drives.
        pub pushdown_joins: bool, default = true
        /// Joins in the order that is expected to cost least; off: as they are written.
        pub join_order: bool, default = true
        /// Keys of small sides of joins go to the drives, so that rows which the join would drop stay there.
        pub join_filters: bool, default = true
        /// A side of a join is grouped, and what one side suffices for is computed, before the join. auto: where that keeps many
        /// bytes off the link; always: wherever the answer is the same, for tests; off.
        pub before_joins: String, default = "auto".to_owned()
        /// Groups that a query and its scalar subqueries both need are computed once, where the drives are in this process.
        pub share_parts: bool, default = true
        /// A few pages of tables are looked at before joins are ordered, where bounds do not tell how many rows pass. auto: where it may
        /// be worth it; always: small tables, too; off; lying:SEED: with figures that are wrong, for tests.
        pub sample: String, default = "auto".to_owned()
        /// Most bytes of a table that its sample reads.
        pub sample_bytes: usize, default = 4 << 20
        /// How long samples may take, milliseconds. What is not known by then is judged without.
        pub sample_ms: usize, default = 100
        /// What is left of a query is planned anew while it runs, where its first rows show that another plan would be much sooner.
        /// auto; off; random:SEED: at any point, for tests.
        pub replan: String, default = "auto".to_owned()
        /// Top-k and LIMIT at the drives.
        pub pushdown_top_k: bool, default = true
        /// Bounds of partitions, slices and pages, hashes of keys, and filters of values rule out what need not be asked or read.
        pub zone_maps: bool, default = true
        /// How far drives take slices. auto: each drive decides, by what is measured. 3: the whole slice-wise part; 2: filter and
        /// projection; 1: the pages that may match come as they are stored; 0: nothing, the stored bytes come; random:SEED:
        /// any of them.
        pub level: String, default = "auto".to_owned()
        /// Bytes of slices as stored that the host keeps for later queries, a quarter of its memory at most; 0: none.
        pub slice_cache: usize, default = 256 << 20
        /// Partial aggregates of slices are kept at drives and host, and answer for their slices later.
        pub summary_cache: bool, default = true
        /// Most bytes expected of a table that is shipped for a join, at each drive.
        pub ship_bytes_max: usize, default = 32 << 20
        /// Bytes that must stay off the link for the only partition of a dataset to be taken whole, in one round on one thread,
        /// where rounds side by side would do. In the host's own process it takes 64 times as many.
        pub one_round_bytes_min: usize, default = 1_000_000
        /// Threads to ask of each drive; 0: as many as it gives.
        pub drive_threads: usize, default = 0
        /// Bytes of memory to ask of each drive for a sub-plan.
        pub drive_memory: usize, default = 1 << 30
        /// Seconds to keep asking a drive that is busy.
        pub busy_wait_s: usize, default = 30
        /// A query whose super-plan can be divided runs at the workers, where the host has any.
        pub workers: bool, default = true
        /// A profile of drives, as `pithead device ls` names them: EXPLAIN ANALYZE tells what the drives' part would have taken on them,
        /// in seconds and joules. Empty: none.
        pub device: String, default = String::new()
        /// Queries that take at least so many milliseconds are told of in the log, with their plan; 0: none.
        pub slow_query_ms: usize, default = 0
        /// How long a statement may take until its last row: a duration such as 5s or 2min, or milliseconds; 0: any time.
        pub statement_timeout: String, default = "0".to_owned()
    }
}

/// [`Switches`] under their full names, which is how SHOW knows them.
#[derive(Clone, Debug, Default)]
pub struct Settings(Switches);

impl Deref for Settings {
    type Target = Switches;

    fn deref(&self) -> &Switches {
        &self.0
    }
}

impl ConfigExtension for Settings {
    const PREFIX: &'static str = "pithead";
}

impl ExtensionOptions for Settings {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        self.0.set(key, value)
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        let full = |entry: ConfigEntry| ConfigEntry { key: format!("pithead.{}", short(&entry.key)), ..entry };
        self.0.entries().into_iter().map(full).collect()
    }
}

impl Settings {
    /// Those of a state.
    pub(crate) fn of(state: &SessionState) -> Settings {
        state.config_options().extensions.get::<Settings>().cloned().unwrap_or_default()
    }

    /// The settings of a sub-plan from above: a level that is forced on it is forced below as well.
    pub(crate) fn for_sub_plan(options: &SessionOptions) -> Settings {
        let level = match options.adapt.level {
            LevelRule::Auto => "auto".to_owned(),
            LevelRule::Only(Level::Whole) => "3".to_owned(),
            LevelRule::Only(Level::Filtered) => "2".to_owned(),
            LevelRule::Only(Level::Hints) => "1".to_owned(),
            LevelRule::Only(Level::Bytes) => "0".to_owned(),
            LevelRule::Random(seed) => format!("random:{seed}"),
        };
        Settings(Switches {
            level,
            zone_maps: options.zone_maps,
            summary_cache: options.adapt.summaries,
            drive_memory: usize::try_from(options.memory).unwrap_or(usize::MAX),
            // The host above has sampled already.
            sample: "off".to_owned(),
            // Each drive below has slices of the same run under the same numbers: a cached slice would be taken for another drive's.
            slice_cache: 0,
            ..Switches::default()
        })
    }

    /// The settings of a sample: the drives run all of it, and nobody keeps its results.
    pub(crate) fn for_sample(&self) -> Settings {
        let switches =
            Switches { level: "3".to_owned(), summary_cache: false, slice_cache: 0, drive_threads: 1, ..self.0.clone() };
        Settings(switches)
    }

    /// Whether partial aggregates that are kept may answer for slices. What a device would have taken is told of all the work.
    pub(crate) fn takes_summaries(&self) -> bool {
        self.summary_cache && self.device.is_empty()
    }

    /// When to sample.
    pub(crate) fn sampling(&self) -> Result<Sampling, Fault> {
        parse_sampling(&self.sample)
    }

    /// When what is left of a query is planned anew.
    pub(crate) fn replanning(&self) -> Result<Replanning, Fault> {
        parse_replanning(&self.replan)
    }

    /// Who decides how far slices are taken.
    pub(crate) fn level_rule(&self) -> Result<LevelRule, Fault> {
        parse_level(&self.level)
    }

    /// How long a statement may take.
    pub(crate) fn statement_timeout(&self) -> Option<Duration> {
        // The text was checked when the setting was made.
        timeout::parse(&self.statement_timeout).unwrap_or_default()
    }

    /// What the cut may do under them. `in_process`: no link is between host and drives.
    pub(crate) fn cut(&self, in_process: bool) -> CutOptions {
        CutOptions {
            pushdown: self.pushdown,
            aggregates: self.pushdown_aggregates,
            joins: self.pushdown_joins,
            top_k: self.pushdown_top_k,
            in_process,
            // The text was checked when the setting was made.
            before_joins: parse_before_joins(&self.before_joins).unwrap_or(BeforeJoins::Auto),
            ship_bytes_max: self.ship_bytes_max as f64,
            one_round_bytes_min: self.one_round_bytes_min as f64 * if in_process { IN_PROCESS_BYTES } else { 1.0 },
            ..CutOptions::default()
        }
    }
}

fn parse_before_joins(text: &str) -> Result<BeforeJoins, Fault> {
    match text.trim().to_ascii_lowercase().as_str() {
        "auto" | "true" => Ok(BeforeJoins::Auto),
        "always" => Ok(BeforeJoins::Always),
        "off" | "false" => Ok(BeforeJoins::Off),
        other => {
            let what = format!("expected auto, always or off, got {other:?}");
            Err(Fault::new(Blame::User, what).hint("SET pithead.before_joins = auto"))
        }
    }
}

fn parse_level(text: &str) -> Result<LevelRule, Fault> {
    let wrong = || {
        let what = format!("expected auto, 3, 2, 1, 0 or random:SEED as a level, got {text:?}");
        Fault::new(Blame::User, what).hint("SET pithead.level = auto")
    };
    match text.trim().to_ascii_lowercase().as_str() {
        "auto" => Ok(LevelRule::Auto),
        "3" => Ok(LevelRule::Only(Level::Whole)),
        "2" => Ok(LevelRule::Only(Level::Filtered)),
        "1" => Ok(LevelRule::Only(Level::Hints)),
        "0" => Ok(LevelRule::Only(Level::Bytes)),
        other => {
            let seed = other.strip_prefix("random:").and_then(|seed| seed.trim().parse().ok());
            seed.map(LevelRule::Random).ok_or_else(wrong)
        }
    }
}

/// Refuses settings of the engine that are no client's business, such as its memory, which all clients share.
pub(crate) fn check_of_client(name: &str) -> Result<(), Fault> {
    const ENGINE: [&str; 3] = [STATEMENT_TIMEOUT, "datafusion.execution.time_zone", "datafusion.catalog.default_schema"];
    let name = name.trim().to_ascii_lowercase();
    if name.starts_with("pithead.") || ENGINE.contains(&name.as_str()) {
        return Ok(());
    }
    let fault = Fault::new(Blame::Access, format!("{name} is no setting that clients may change"));
    Err(fault.hint("those of Pithead begin with pithead.; SHOW ALL lists them"))
}

/// Sets a switch of ours or of DataFusion. `on` and `off` are true and false.
pub(crate) fn set(state: &mut SessionState, name: &str, value: &str) -> Result<(), Fault> {
    let name = name.trim().to_ascii_lowercase();
    let value = match value.trim().to_ascii_lowercase().as_str() {
        "on" | "yes" => "true".to_owned(),
        "off" | "no" => "false".to_owned(),
        _ => value.trim().to_owned(),
    };
    // The name that PostgreSQL has for it.
    let name = if name == STATEMENT_TIMEOUT { format!("{}.{STATEMENT_TIMEOUT}", Settings::PREFIX) } else { name };
    if let Some(ours) = name.strip_prefix("pithead.") {
        let known: Vec<String> = Settings::default().entries().into_iter().map(|entry| short(&entry.key)).collect();
        if !known.iter().any(|known| known == ours) {
            let near = pithead_model::near_names(ours, known.iter().map(String::as_str)).join(", pithead.");
            let fault = Fault::new(
                Blame::User,
                format!("there is no setting pithead.{ours}; there are pithead.{}", known.join(", pithead.")),
            );
            return Err(if near.is_empty() { fault } else { fault.hint(format!("did you mean pithead.{near}?")) });
        }
    }
    let value = if BYTES.contains(&name.as_str()) { in_bytes(&value)? } else { value };
    if name == "pithead.level" {
        parse_level(&value)?;
    }
    if name == "pithead.sample" {
        parse_sampling(&value)?;
    }
    if name == "pithead.before_joins" {
        parse_before_joins(&value)?;
    }
    if name == "pithead.replan" {
        parse_replanning(&value)?;
    }
    if name == "pithead.device" {
        energy::profile(&value)?;
    }
    if name == "pithead.statement_timeout" {
        timeout::parse(&value)?;
    }
    let refused = |error| {
        let fault = pithead_functions::fault_from_datafusion(error);
        Fault { blame: Blame::User, ..fault.at(format!("SET {name} = {value}")) }
    };
    state.config_mut().options_mut().set(&name, &value).map_err(refused)?;
    refresh_functions(state).map_err(refused)
}

/// A number of bytes from a size such as `256MiB`.
fn in_bytes(text: &str) -> Result<String, Fault> {
    let bytes = parse_bytes(text).map_err(|fault| fault.hint("SET pithead.slice_cache = '256MiB'"))?;
    Ok(bytes.to_string())
}

/// SHOW of a setting that PostgreSQL has becomes SHOW of ours.
pub(crate) fn show_in_full(statement: &mut Statement) {
    if let Statement::Statement(statement) = statement
        && let Sql::ShowVariable { variable } = statement.as_mut()
        && let [name] = variable.as_mut_slice()
        && name.value.eq_ignore_ascii_case(STATEMENT_TIMEOUT)
    {
        let prefix = Ident::new(Settings::PREFIX);
        variable.insert(0, prefix);
    }
}

/// Gives functions that hang on a setting (`now()` on the time zone) the new one.
fn refresh_functions(state: &mut SessionState) -> Result<()> {
    let options = state.config_options();
    let changed: Vec<_> =
        state.scalar_functions().values().filter_map(|udf| udf.inner().with_updated_config(options)).collect();
    for function in changed {
        state.register_udf(Arc::new(function))?;
    }
    Ok(())
}

fn short(key: &str) -> String {
    key.rsplit('.').next().unwrap_or(key).to_owned()
}
