//! Sub-plans on the wire: Substrait out and in.
//!
//! Substrait loses meaning silently in places, so [`produce`] reads each plan back and compares it with the original
//! before it is sent.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::datasource::empty::EmptyTable;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::LogicalPlan;
use datafusion_substrait::extensions::Extensions;
use datafusion_substrait::logical_plan::consumer::{SubstraitConsumer, from_substrait_plan_with_consumer};
use datafusion_substrait::logical_plan::producer::to_substrait_plan;
use datafusion_substrait::substrait::proto::Plan;
use futures::FutureExt;
use pithead_model::PLAN_BYTES_MAX;
use prost::Message;

use crate::canonical::canonical;
use crate::{PlanError, SubPlan};

/// The schema that shipped inputs are tables of, in a sub-plan.
pub const INPUT_SCHEMA: &str = "input";

/// A sub-plan as Substrait bytes, checked: read back with `state`'s functions it is the same. The error says what does
/// not survive.
pub(crate) async fn produce_for(sub_plan: &SubPlan, state: &SessionState) -> Result<Vec<u8>, PlanError> {
    let tables = Tables::of(sub_plan);
    let plan = &sub_plan.plan;
    let message = guard(|| Ok(to_substrait_plan(plan, state)?))?;
    let bytes = message.encode_to_vec();
    let back = consume_with(&bytes, state, tables).await?;
    let (sent, read) = (canonical(plan)?, canonical(&back)?);
    if sent != read {
        tracing::debug!(%sent, %read, "a plan does not survive Substrait");
        return Err(PlanError::Malformed(format!("Substrait does not carry it whole: {}", difference(&sent, &read))));
    }
    Ok(bytes)
}

/// Substrait bytes as a logical plan over the tables of `state`'s catalog. The bytes may be anything: bounds are checked
/// first, and a panic of the library is an error.
pub async fn consume(bytes: &[u8], state: &SessionState) -> Result<LogicalPlan, PlanError> {
    consume_with(bytes, state, Tables::Catalog).await
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
        Ok(plan) => Ok(plan?),
        Err(panic) => Err(PlanError::Malformed(panic_text(&*panic))),
    }
}

/// The tables that a plan may name.
enum Tables {
    /// Those of the session's catalog.
    Catalog,
    /// These.
    Named(HashMap<(String, String), Arc<dyn TableProvider>>),
}

impl Tables {
    /// What a sub-plan's drives will know: its datasets whole, and its inputs.
    fn of(sub_plan: &SubPlan) -> Tables {
        let table = |schema: SchemaRef| Arc::new(EmptyTable::new(schema)) as Arc<dyn TableProvider>;
        let datasets = sub_plan.datasets.iter().map(|facts| {
            let name = (facts.name.domain.clone(), facts.name.dataset.clone());
            (name, table(Arc::clone(&facts.dataset.schema)))
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

#[async_trait]
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
