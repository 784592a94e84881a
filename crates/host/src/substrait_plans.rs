//! Queries that come as Substrait plans, and not as SQL.

use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use pithead_functions::Registry;
use pithead_model::{Blame, Fault};
use pithead_plan::{changes_something, consume};

use crate::Parameters;
use crate::aside::aside_waiting;
use crate::query::Query;
use crate::query_plan::QueryPlan;
use crate::repeated::Names;
use crate::session::Session;
use crate::views::ViewsRead;

/// Bytes of a plan whose reading takes long.
const LARGE_PLAN: usize = 32 << 10;

impl Session {
    /// A plan over the datasets as they are now: the one that is there already, where it still holds.
    pub(crate) async fn plan_of_substrait(
        &self,
        bytes: &[u8],
        planned: Option<&QueryPlan>,
    ) -> Result<(Query, QueryPlan), Fault> {
        let snapshot = self.host.fleet().snapshot().await?;
        let (query, change) = self.query_over(Arc::clone(&snapshot), None, &Parameters::default())?;
        let functions = Registry::of(&query.state);
        if let Some(planned) = planned.filter(|planned| planned.holds(&snapshot, change, &functions)) {
            return Ok((query, planned.clone()));
        }
        let refused = || {
            let fault = Fault::new(Blame::Unsupported, "a Substrait plan that changes something");
            fault.hint("queries are taken as Substrait plans; send what writes as SQL")
        };
        if changes_something(bytes) {
            return Err(refused());
        }
        let plan = aside_waiting(bytes.len() > LARGE_PLAN, consume(bytes, &query.state)).await;
        let plan = plan.map_err(|error| Fault::from(error).at("the Substrait plan"))?;
        if let LogicalPlan::Ddl(_) | LogicalPlan::Dml(_) | LogicalPlan::Copy(_) | LogicalPlan::Statement(_) = &plan {
            return Err(refused());
        }
        self.host.functions().ready(&query.state, &plan).await?;
        let views = ViewsRead::of(&query.state);
        Ok((query, QueryPlan::new(plan, Names::default(), change, functions, views)?))
    }
}
