//! [`Registry`]: the functions that a sub-plan may call beyond DataFusion's own.
//!
//! A drive announces its registry at first contact, and OPEN names the functions that its sub-plan calls. A cut leaves at the host
//! what the drives of a dataset do not have. What is not every engine's business, such as functions over expression matrices or a
//! user's own, joins a registry as [`Extension`]s; this crate knows none of them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::context::SessionContext;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::WindowFunctionDefinition;
use datafusion::logical_expr::{AggregateUDF, Expr, LogicalPlan, ScalarUDF};
use pithead_model::{Blame, Fault};

use crate::bit_counts::bit_count_udf;
use crate::byte_texts::byte_text_udf;
use crate::extreme_floats::Side;
use crate::finite_casts::finite_casts_udfs;
use crate::formatted::formatted_udfs;
use crate::hashed::hash_udf;
use crate::in_steps::{Made, finish_udf, made_udaf, merge_udaf};
use crate::list_aggregates::list_aggregates_udfs;
use crate::listed_extremes::{FINISH, Step, listed_of_udf, listed_udaf, name};
use crate::made_moments::made_moment_udf;
use crate::patterns::patterns_udfs;
use crate::product::{PRODUCT, product_udaf};
use crate::ranked::{mad_udaf, percentile_disc_udaf};
use crate::read_texts::read_texts_udfs;
use crate::shapes::Shape;
use crate::text_measures::text_measures_udfs;
use crate::to_char::to_char_udf;
use crate::value_counts::Of;
use crate::{merge_mean_udaf, merge_var_pop_udaf};

/// A function that an engine may lack.
#[derive(Clone, Debug)]
pub struct Extension {
    function: Function,
    version: String,
    merged_by: Option<String>,
    /// The extension that stands for this one where functions are announced.
    announced_as: Option<String>,
    steps: Option<Steps>,
}

/// The functions that together compute what an aggregate computes: the first over rows, the second over the first one's results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The aggregate that gives parts. It says how they are [merged](Extension::merged_by).
    pub part: String,
    /// The function of one row that makes the result of a merged part.
    pub finish: String,
}

#[derive(Clone, Debug)]
enum Function {
    Scalar(Arc<ScalarUDF>),
    Aggregate(Arc<AggregateUDF>),
}

impl Extension {
    /// A function of one row. The version changes when a result may.
    pub fn scalar(function: ScalarUDF, version: impl Into<String>) -> Extension {
        Extension::new(Function::Scalar(Arc::new(function)), version.into())
    }

    /// An aggregate. It is computed where all rows of a group are, unless it is [merged](Extension::merged_by).
    pub fn aggregate(function: AggregateUDF, version: impl Into<String>) -> Extension {
        Extension::new(Function::Aggregate(Arc::new(function)), version.into())
    }

    fn new(function: Function, version: String) -> Extension {
        Extension { function, version, merged_by: None, announced_as: None, steps: None }
    }

    /// The same aggregate, whose results over parts of a group's rows become the result over all of them by the aggregate of this
    /// name: drives compute it in parts.
    #[must_use]
    pub fn merged_by(self, aggregate: impl Into<String>) -> Extension {
        Extension { merged_by: Some(aggregate.into()), ..self }
    }

    /// The same aggregate, which drives compute in parts of another type than its result.
    #[must_use]
    pub fn in_steps(self, steps: Steps) -> Extension {
        Extension { steps: Some(steps), ..self }
    }

    /// The same function, which an engine has if it has the one that is announced by this text.
    #[must_use]
    pub fn announced_as(self, announced: impl Into<String>) -> Extension {
        Extension { announced_as: Some(announced.into()), ..self }
    }

    fn name(&self) -> &str {
        match &self.function {
            Function::Scalar(function) => function.name(),
            Function::Aggregate(function) => function.name(),
        }
    }

    fn announced(&self) -> String {
        self.announced_as.clone().unwrap_or_else(|| format!("{}/{}", self.name(), self.version))
    }
}

/// Functions by name. Two registries that announce the same are the same.
#[derive(Clone, Debug)]
pub struct Registry {
    functions: BTreeMap<String, Extension>,
    /// What else the engine can do.
    abilities: Vec<String>,
    announced: Vec<String>,
}

impl Registry {
    /// What every engine has, and these functions. Two of one name are refused.
    pub fn new(extensions: impl IntoIterator<Item = Extension>) -> Result<Registry, Fault> {
        Registry { functions: BTreeMap::new(), abilities: vec![], announced: vec![] }.with(own().into_iter().chain(extensions))
    }

    /// The same with these functions, too. Two of one name are refused.
    pub fn with(&self, extensions: impl IntoIterator<Item = Extension>) -> Result<Registry, Fault> {
        let mut functions = self.functions.clone();
        for extension in extensions {
            let name = extension.name().to_owned();
            if functions.contains_key(&name) {
                return Err(Fault::new(Blame::User, format!("two functions are named {name}")).hint("give one another name"));
            }
            functions.insert(name, extension);
        }
        Ok(Registry::of_all(functions, self.abilities.clone()))
    }

    /// The same, which also announces something that is no function by itself.
    #[must_use]
    pub fn announcing(self, ability: impl Into<String>) -> Registry {
        let abilities = self.abilities.into_iter().chain([ability.into()]).collect();
        Registry::of_all(self.functions, abilities)
    }

    fn of_all(functions: BTreeMap<String, Extension>, abilities: Vec<String>) -> Registry {
        let mut announced: Vec<String> = functions.values().map(Extension::announced).collect();
        announced.dedup();
        announced.extend(abilities.iter().cloned());
        Registry { functions, abilities, announced }
    }

    /// What every engine has.
    pub fn own() -> Arc<Registry> {
        static OWN: LazyLock<Arc<Registry>> = LazyLock::new(|| {
            let functions: BTreeMap<_, _> = own().into_iter().map(|own| (own.name().to_owned(), own)).collect();
            Arc::new(Registry::of_all(functions, vec![]))
        });
        Arc::clone(&OWN)
    }

    /// The functions as `name/version`, by name, and what else was to be announced.
    pub fn announced(&self) -> &[String] {
        &self.announced
    }

    /// The aggregate that merges results of the aggregate `name`; none: it has no parts, or is none of ours.
    pub fn merging(&self, name: &str) -> Option<&str> {
        self.functions.get(name)?.merged_by.as_deref()
    }

    /// How the aggregate `name` is computed in steps; none: it is not, or is none of ours.
    pub fn steps(&self, name: &str) -> Option<&Steps> {
        self.functions.get(name)?.steps.as_ref()
    }

    /// Those that a plan calls, as they are announced.
    pub fn used_by(&self, plan: &LogicalPlan) -> Result<BTreeSet<String>> {
        let mut used = BTreeSet::new();
        plan.apply_with_subqueries(|node| {
            node.apply_expressions(|expr| {
                expr.apply(|part| {
                    used.extend(called(part).and_then(|name| self.functions.get(name)).map(Extension::announced));
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        Ok(used)
    }

    /// The registry that a state was made with.
    pub fn of(state: &SessionState) -> Arc<Registry> {
        state.config().get_extension().unwrap_or_else(Registry::own)
    }

    pub(crate) fn register(&self, context: &SessionContext) {
        for extension in self.functions.values() {
            match &extension.function {
                Function::Scalar(function) => context.register_udf(function.as_ref().clone()),
                Function::Aggregate(function) => context.register_udaf(function.as_ref().clone()),
            }
        }
    }
}

impl PartialEq for Registry {
    fn eq(&self, other: &Self) -> bool {
        self.announced == other.announced
    }
}

impl Eq for Registry {}

impl Hash for Registry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.announced.hash(state);
    }
}

/// The name of the function that an expression calls.
fn called(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::ScalarFunction(call) => Some(call.func.name()),
        Expr::AggregateFunction(call) => Some(call.func.name()),
        Expr::WindowFunction(call) => match &call.fun {
            WindowFunctionDefinition::AggregateUDF(function) => Some(function.name()),
            WindowFunctionDefinition::WindowUDF(_) => None,
        },
        _ => None,
    }
}

/// What merges the parts of means and variances, aggregates that have parts of other kinds, and functions of one row.
fn own() -> Vec<Extension> {
    let [mean, variance] = [merge_mean_udaf(), merge_var_pop_udaf()].map(|merge| merge.as_ref().clone());
    let ranked = [percentile_disc_udaf(), mad_udaf()];
    let whole = [mean, variance].into_iter().chain(ranked).map(|function| Extension::aggregate(function, "1"));
    let product = Extension::aggregate(product_udaf(), "1").merged_by(PRODUCT);
    let scalars = text_measures_udfs()
        .chain(patterns_udfs())
        .chain(list_aggregates_udfs())
        .chain(formatted_udfs())
        .chain(finite_casts_udfs())
        .chain(read_texts_udfs())
        .chain([bit_count_udf(), byte_text_udf(), made_moment_udf(), to_char_udf()])
        .map(|function| Extension::scalar(function, "1"));
    let in_steps = in_steps::<Of>().chain(in_steps::<Shape>()).chain(listed());
    let hash = Extension::scalar(hash_udf(), "2");
    whole.chain([product, hash]).chain(in_steps).chain(scalars).collect()
}

/// Aggregates that are made of the same parts, what gives the parts, and what puts them together.
fn in_steps<M: Made>() -> impl Iterator<Item = Extension> {
    let parts = Extension::aggregate(made_udaf(M::PART, M::PARTS), "1").merged_by(M::MERGE);
    let merge = Extension::aggregate(merge_udaf::<M>(), "1").merged_by(M::MERGE);
    let finished = M::FINISHED.iter().flat_map(|(name, finish, made)| {
        let steps = Steps { part: M::PART.to_owned(), finish: (*finish).to_owned() };
        [Extension::aggregate(made_udaf(name, *made), "1").in_steps(steps), Extension::scalar(finish_udf(finish, *made), "1")]
    });
    [parts, merge].into_iter().chain(finished)
}

/// The first values in an order, their parts, and what makes a list of these.
fn listed() -> impl Iterator<Item = Extension> {
    use Step::{Merge, Part, Whole};
    let aggregates = [Side::Min, Side::Max].into_iter().flat_map(|side| {
        let steps = Steps { part: name(side, Part).to_owned(), finish: FINISH.to_owned() };
        let [whole, part, merge] = [Whole, Part, Merge].map(|step| Extension::aggregate(listed_udaf(side, step), "1"));
        let [part, merge] = [part, merge].map(|parts| parts.merged_by(name(side, Merge)));
        [whole.in_steps(steps), part, merge]
    });
    aggregates.chain([Extension::scalar(listed_of_udf(), "1")])
}

#[cfg(test)]
mod tests {
    use datafusion::common::ScalarValue;
    use datafusion::logical_expr::{LogicalPlanBuilder, col, lit};

    use super::*;
    use crate::{EngineOptions, session_state};

    #[test]
    fn two_functions_of_one_name_are_refused() {
        let fault = Registry::new(own()).unwrap_err();
        assert!(fault.message.contains("two functions are named pithead_merge_mean"), "{fault}");
        assert_eq!(Registry::new([]).unwrap(), *Registry::own());
        let own = Registry::own();
        for announced in ["mode/1", "pithead_merge_mean/1", "pithead_counted/1", "product/1", "hex/1", "list_aggregate/1"] {
            assert!(own.announced().contains(&announced.to_owned()), "{announced}");
        }
    }

    #[test]
    fn steps_of_an_aggregate_are_announced_once() {
        let [sum, part] =
            [merge_mean_udaf(), merge_var_pop_udaf()].map(|function| function.as_ref().clone().with_aliases(["x"]));
        let steps = Steps { part: part.name().to_owned(), finish: "abs".to_owned() };
        let name = sum.name().to_owned();
        let whole = Extension::aggregate(sum, "1").in_steps(steps.clone());
        let part = Extension::aggregate(part, "1").merged_by("merge").announced_as(whole.announced());
        let empty = Registry::of_all(BTreeMap::new(), vec!["able".to_owned()]);
        let registry = empty.with([whole, part]).unwrap();
        assert_eq!(registry.announced(), [format!("{name}/1"), "able".to_owned()]);
        assert_eq!((registry.steps(&name), registry.steps(&steps.part)), (Some(&steps), None));
        assert_eq!(registry.merging(&steps.part), Some("merge"));
    }

    /// Groups of which one has no values, and of which parts have none: as a whole, and in parts of parts that are put together.
    #[tokio::test]
    async fn aggregates_in_steps_give_what_they_give_as_a_whole() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let rows = "(SELECT value % 5 AS g, value % 7 AS part, CASE WHEN value % 5 = 0 OR value % 3 = 1 THEN NULL \
                    ELSE (value * value % 11)::double END AS x FROM range(200))";
        let mut checked = 0;
        for (name, extension) in &Registry::own().functions {
            let Some(Steps { part, finish }) = &extension.steps else { continue };
            let merge = Registry::own().merging(part).unwrap().to_owned();
            let args = if part.starts_with("pithead_least") || part.starts_with("pithead_most") { "x, -x, 3" } else { "x" };
            let whole = format!("SELECT g, {name}({args}) FROM {rows} GROUP BY g ORDER BY g");
            let parts = format!("SELECT g, part % 3 AS p, part, {part}({args}) AS x FROM {rows} GROUP BY g, part");
            let rounds = format!("SELECT g, {merge}(x) AS x FROM ({parts}) GROUP BY g, p");
            let merged = format!("SELECT g, {finish}({merge}(x)) FROM ({rounds}) GROUP BY g ORDER BY g");
            let values = async |sql: &str| {
                let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
                let value = |row| ScalarValue::try_from_array(batches[0].column(1), row).unwrap();
                (0..batches[0].num_rows()).map(value).collect::<Vec<_>>()
            };
            let (whole, merged) = (values(&whole).await, values(&merged).await);
            assert_eq!(whole.len(), 5);
            for (one, other) in whole.iter().zip(&merged) {
                match (one, other) {
                    (ScalarValue::Float64(Some(one)), ScalarValue::Float64(Some(other))) => {
                        assert!((one - other).abs() < 1e-9, "{name}: {one} and {other}");
                    }
                    _ => assert_eq!(one, other, "{name}"),
                }
            }
            checked += 1;
        }
        assert_eq!(checked, 8);
    }

    #[test]
    fn what_a_plan_calls_is_found_wherever_it_stands() {
        let rows = || LogicalPlanBuilder::values(vec![vec![lit(1_i64), lit(2.0)]]).unwrap();
        let merged = || merge_mean_udaf().call(vec![col("column1"), col("column2")]);
        let registry = Registry::own();
        assert!(registry.used_by(&rows().build().unwrap()).unwrap().is_empty());
        let grouped = rows().aggregate(vec![col("column1")], vec![merged()]).unwrap().build().unwrap();
        let wanted = BTreeSet::from(["pithead_merge_mean/1".to_owned()]);
        assert_eq!(registry.used_by(&grouped).unwrap(), wanted);
        let sub_query = datafusion::logical_expr::scalar_subquery(Arc::new(
            rows().aggregate(Vec::<Expr>::new(), vec![merged()]).unwrap().build().unwrap(),
        ));
        let filtered = rows().filter(col("column2").gt(sub_query)).unwrap().build().unwrap();
        assert_eq!(registry.used_by(&filtered).unwrap(), wanted, "in a subquery");
    }

    #[test]
    fn a_state_has_the_functions_of_its_registry() {
        let state = session_state(&EngineOptions::default());
        let has = |name: &str| state.aggregate_functions().contains_key(name);
        assert!(has("pithead_merge_mean") && !has("combine"));
        assert_eq!(Registry::of(&state), Registry::own());
    }
}
