//! Sub-plans on the wire: Substrait out and in.
//!
//! Substrait loses meaning silently in places, so [`produce`] reads each plan back and compares it with the original
//! before it is sent.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{TableReference, plan_err};
use datafusion::datasource::empty::EmptyTable;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion_substrait::extensions::Extensions;
use datafusion_substrait::logical_plan::consumer::{
    SubstraitConsumer, from_aggregate_rel, from_project_rel, from_substrait_plan_with_consumer, from_substrait_rel,
};
use datafusion_substrait::substrait::proto::read_rel::NamedTable;
use datafusion_substrait::substrait::proto::rel::RelType;
use datafusion_substrait::substrait::proto::{AggregateRel, ExtensionSingleRel, Plan, ProjectRel, Rel, plan_rel};
use datafusion_substrait::substrait::version;
use futures::FutureExt;
use lru::LruCache;
use memchr::memmem;
use parking_lot::Mutex;
use pithead_model::lasting::plain_columns;
use pithead_model::{DatasetName, OPERATORS_MAX, PLAN_BYTES_MAX, boxed};
use prost::Message;

use crate::canonical::Canonical;
use crate::join_keys::with_sided_keys;
use crate::names::named_apart;
use crate::picked::Picked;
use crate::unnest_rel::{self, to_substrait};
use crate::{PlanError, SubPlan};

/// The schema of the tables that are shipped inputs of a sub-plan. No domain can have this name.
pub const INPUT_SCHEMA: &str = "/input";

/// Sub-plans whose checked bytes are kept at most.
const CHECKED_MAX: NonZeroUsize = NonZeroUsize::new(256).unwrap();
/// Bytes of one of them at most.
const CHECKED_BYTES_MAX: usize = 16 << 10;

/// Checked bytes, by what a plan means and the tables that it is over. That is what the check compares, so it holds for every plan
/// of the same meaning.
static CHECKED: LazyLock<Mutex<LruCache<Meaning, Vec<u8>>>> = LazyLock::new(|| Mutex::new(LruCache::new(CHECKED_MAX)));

/// What a plan means, over which tables.
#[derive(PartialEq, Eq, Hash)]
struct Meaning {
    plan: Canonical,
    datasets: Vec<(DatasetName, SchemaRef)>,
    inputs: Vec<(String, Schema)>,
}

impl Meaning {
    fn of(sub_plan: &SubPlan) -> Result<Self, PlanError> {
        let datasets = sub_plan.datasets.iter().map(|facts| (facts.name.clone(), plain_columns(&facts.dataset.schema)));
        Ok(Self {
            plan: Canonical::of(&sub_plan.plan)?,
            datasets: datasets.collect(),
            inputs: sub_plan.inputs.iter().map(|input| (input.name.clone(), input.schema())).collect(),
        })
    }
}

/// A sub-plan as Substrait bytes. They are checked, now or before: read back with `state`'s functions, they give the same
/// plan. The error says what does not survive.
pub(crate) async fn produce_for(sub_plan: &SubPlan, state: &SessionState) -> Result<Vec<u8>, PlanError> {
    let meaning = Meaning::of(sub_plan);
    if let Ok(meaning) = &meaning
        && let Some(bytes) = CHECKED.lock().get(meaning)
    {
        return Ok(bytes.clone());
    }
    let (bytes, back) = produce_and_read_back(sub_plan, state).await?;
    let meaning = meaning?;
    let (sent, read) = (&meaning.plan, Canonical::of(&back)?);
    if *sent != read {
        tracing::debug!(%sent, %read, "a plan does not survive Substrait");
        let difference = difference(&sent.to_string(), &read.to_string());
        return Err(PlanError::Malformed(format!("Substrait does not carry it whole: {difference}")));
    }
    if bytes.len() <= CHECKED_BYTES_MAX {
        CHECKED.lock().put(meaning, bytes.clone());
    }
    Ok(bytes)
}

async fn produce_and_read_back(sub_plan: &SubPlan, state: &SessionState) -> Result<(Vec<u8>, LogicalPlan), PlanError> {
    let mut message = guard(|| Ok(to_substrait(&sub_plan.plan, state)?))?;
    // They come in the order of a hash table. The same plan has to give the same bytes, because others recognise the
    // plan by them.
    message.extensions.sort_by_cached_key(Message::encode_to_vec);
    let bytes = message.encode_to_vec();
    let back = consume_with(&bytes, state, Tables::of(sub_plan)).await?;
    Ok((bytes, back))
}

/// How often a sub-plan's Substrait bytes name a dataset as a table. The function looks for the bytes of such a name
/// anywhere. Bytes that are written in an unusual way may name the dataset without being counted, and the count may be
/// too high.
pub fn references(plan: &[u8], dataset: &DatasetName) -> usize {
    let table = NamedTable { names: vec![dataset.domain.clone(), dataset.dataset.clone()], ..NamedTable::default() };
    memmem::find_iter(plan, &table.encode_to_vec()).count()
}

/// Substrait bytes as a logical plan over the tables of `state`'s catalog. The bytes may be hostile: bounds are checked
/// first, and a panic of the library becomes an error.
#[boxed]
pub async fn consume(bytes: &[u8], state: &SessionState) -> Result<LogicalPlan, PlanError> {
    consume_with(bytes, state, Tables::Catalog).await
}

/// Whether a plan says that something is to be changed. [`consume`] reads no such plan.
pub fn changes_something(plan: &[u8]) -> bool {
    let changes = |rel: &Rel| matches!(rel.rel_type, Some(RelType::Write(_) | RelType::Ddl(_) | RelType::Update(_)));
    let Ok(plan) = Plan::decode(plan) else { return false };
    plan.relations.iter().any(|relation| match &relation.rel_type {
        Some(plan_rel::RelType::Rel(rel)) => changes(rel),
        Some(plan_rel::RelType::Root(root)) => root.input.as_ref().is_some_and(changes),
        None => false,
    })
}

/// The version of Substrait that is read and written.
pub fn substrait_version() -> String {
    let spoken = version::version();
    format!("{}.{}.{}", spoken.major_number, spoken.minor_number, spoken.patch_number)
}

async fn consume_with(bytes: &[u8], state: &SessionState, tables: Tables) -> Result<LogicalPlan, PlanError> {
    if bytes.len() > PLAN_BYTES_MAX {
        return Err(PlanError::TooLarge { what: format!("a sub-plan of {} bytes", bytes.len()), max: PLAN_BYTES_MAX });
    }
    // prost refuses messages nested deeper than 100, which bounds the recursion below.
    let plan = Plan::decode(bytes).map_err(|error| PlanError::Malformed(error.to_string()))?;
    let extensions = Extensions::try_from(&plan.extensions)?;
    let reader = Reader { extensions: &extensions, state, tables };
    match AssertUnwindSafe(from_substrait_plan_with_consumer(&reader, &plan)).catch_unwind().await {
        Ok(plan) => {
            let plan = plan?;
            check_operators(&plan)?;
            Ok(with_sided_keys(plan)?)
        }
        Err(panic) => Err(PlanError::Malformed(panic_text(&*panic))),
    }
}

/// A chain of operators may be flat or balanced while it travels; optimisers nest it one by one.
fn check_operators(plan: &LogicalPlan) -> Result<(), PlanError> {
    let mut operators = 0;
    plan.apply_with_subqueries(|node| {
        operators += 1;
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                operators += usize::from(matches!(part, Expr::BinaryExpr(_) | Expr::Not(_)));
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    match operators > OPERATORS_MAX {
        true => Err(PlanError::TooLarge { what: format!("a sub-plan of {operators} operators"), max: OPERATORS_MAX }),
        false => Ok(()),
    }
}

/// The tables that a plan may name.
enum Tables {
    /// The tables of the session's catalog.
    Catalog,
    /// These tables.
    Named(HashMap<(String, String), Arc<dyn TableProvider>>),
}

impl Tables {
    /// The tables that a sub-plan's drives will have: all of its datasets, and its inputs.
    fn of(sub_plan: &SubPlan) -> Tables {
        let table = |schema: SchemaRef| Arc::new(EmptyTable::new(schema)) as Arc<dyn TableProvider>;
        let datasets = sub_plan.datasets.iter().map(|facts| {
            let name = (facts.name.domain.clone(), facts.name.dataset.clone());
            (name, table(plain_columns(&facts.dataset.schema)))
        });
        let inputs = sub_plan
            .inputs
            .iter()
            .map(|input| ((INPUT_SCHEMA.to_owned(), input.name.clone()), table(Arc::new(input.schema()))));
        Tables::Named(datasets.chain(inputs).collect())
    }
}

/// The library's reader with tables of ours.
struct Reader<'a> {
    extensions: &'a Extensions,
    state: &'a SessionState,
    tables: Tables,
}

#[boxed]
impl SubstraitConsumer for Reader<'_> {
    async fn resolve_table_ref(&self, name: &TableReference) -> datafusion::common::Result<Option<Arc<dyn TableProvider>>> {
        match &self.tables {
            Tables::Catalog => {
                let schema = self.state.schema_for_ref(name.clone())?;
                schema.table(name.table()).await
            }
            Tables::Named(tables) => {
                let key = (name.schema().unwrap_or_default().to_owned(), name.table().to_owned());
                Ok(tables.get(&key).cloned())
            }
        }
    }

    async fn consume_rel(&self, rel: &Rel) -> datafusion::common::Result<LogicalPlan> {
        match Picked::of(rel) {
            Some(picked) => picked.over(self.consume_rel(picked.input).await?),
            None => from_substrait_rel(self, rel).await,
        }
    }

    async fn consume_project(&self, project: &ProjectRel) -> datafusion::common::Result<LogicalPlan> {
        named_apart(from_project_rel(self, project).await?)
    }

    async fn consume_aggregate(&self, aggregate: &AggregateRel) -> datafusion::common::Result<LogicalPlan> {
        named_apart(from_aggregate_rel(self, aggregate).await?)
    }

    async fn consume_extension_single(&self, rel: &ExtensionSingleRel) -> datafusion::common::Result<LogicalPlan> {
        match &rel.input {
            Some(input) => unnest_rel::read(rel, self.consume_rel(input).await?),
            None => plan_err!("expected an input of an extension of a relation"),
        }
    }

    fn get_extensions(&self) -> &Extensions {
        self.extensions
    }

    fn get_function_registry(&self) -> &impl FunctionRegistry {
        self.state
    }
}

fn guard<T>(run: impl FnOnce() -> Result<T, PlanError>) -> Result<T, PlanError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(PlanError::Malformed(panic_text(&*panic))))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("the reader gave up").to_owned()
}

/// The parts around the first difference of two texts.
fn difference(sent: &str, read: &str) -> String {
    let common = sent.chars().zip(read.chars()).take_while(|(a, b)| a == b).count();
    let window = |text: &str| text.chars().skip(common.saturating_sub(20)).take(80).collect::<String>();
    format!("…{}… comes back as …{}…", window(sent), window(read))
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{LogicalPlanBuilder, col, lit};
    use datafusion_substrait::logical_plan::producer::to_substrait_plan;
    use datafusion_substrait::substrait::proto::expression::{RexType, ScalarFunction};
    use datafusion_substrait::substrait::proto::function_argument::ArgType;
    use datafusion_substrait::substrait::proto::{Expression, FilterRel, FunctionArgument, PlanRel, RelRoot};
    use pithead_functions::{EngineOptions, session_state};

    use super::*;

    fn state() -> SessionState {
        let options = EngineOptions { batch_rows: 8_192, ..EngineOptions::default() };
        session_state(&options)
    }

    /// `a <> 0 AND a <> 1 AND …` as a balanced tree, as Substrait's reader makes it of a flat list.
    fn balanced(from: i64, to: i64) -> Expr {
        match to - from {
            0 => col("column1").not_eq(lit(from)),
            _ => balanced(from, (from + to) / 2).and(balanced((from + to) / 2 + 1, to)),
        }
    }

    fn filtered(terms: i64) -> Vec<u8> {
        let values = LogicalPlanBuilder::values(vec![vec![lit(7_i64)]]).unwrap();
        let plan = values.filter(balanced(1, terms)).unwrap().build().unwrap();
        to_substrait_plan(&plan, &state()).unwrap().encode_to_vec()
    }

    #[tokio::test]
    async fn long_chains_are_refused_however_they_travel() {
        assert!(consume(&filtered(1_000), &state()).await.is_ok());
        let error = consume(&filtered(5_000), &state()).await.unwrap_err();
        assert!(matches!(error, PlanError::TooLarge { .. }), "{error}");
        assert!(error.to_string().contains("operators"), "{error}");
    }

    /// A filter whose condition is a function of a function of a function …
    fn nested(depth: usize) -> Vec<u8> {
        let mut condition = Expression::default();
        for _ in 0..depth {
            let argument = FunctionArgument { arg_type: Some(ArgType::Value(condition)) };
            let function = ScalarFunction { arguments: vec![argument], ..ScalarFunction::default() };
            condition = Expression { rex_type: Some(RexType::ScalarFunction(function)) };
        }
        let filter = FilterRel { condition: Some(Box::new(condition)), ..FilterRel::default() };
        let input = Some(Rel { rel_type: Some(RelType::Filter(Box::new(filter))) });
        let root = plan_rel::RelType::Root(RelRoot { input, names: vec![] });
        Plan { relations: vec![PlanRel { rel_type: Some(root) }], ..Plan::default() }.encode_to_vec()
    }

    #[test]
    fn plans_that_change_something_are_told_from_queries() {
        let plan = |rel_type| {
            let root = RelRoot { input: Some(Rel { rel_type: Some(rel_type) }), names: vec![] };
            let relation = PlanRel { rel_type: Some(plan_rel::RelType::Root(root)) };
            Plan { relations: vec![relation], ..Plan::default() }.encode_to_vec()
        };
        assert!(changes_something(&plan(RelType::Write(Box::default()))));
        assert!(changes_something(&plan(RelType::Ddl(Box::default()))));
        assert!(!changes_something(&filtered(3)) && !changes_something(b"") && !changes_something(&[0xff; 9]));
        assert_eq!(substrait_version().split('.').count(), 3);
    }

    #[tokio::test]
    async fn deep_plans_are_refused_before_they_are_read() {
        // The test itself has to make and drop the nested function.
        let make = || [100, 3_000].map(nested);
        let plans = std::thread::Builder::new().stack_size(1 << 30).spawn(make).unwrap().join().unwrap();
        for bytes in plans {
            let error = consume(&bytes, &state()).await.unwrap_err();
            assert!(error.to_string().contains("recursion limit"), "{error}");
        }
    }
}
