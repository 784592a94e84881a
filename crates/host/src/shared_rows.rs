//! [`SharedRows`]: what a query has in common with its scalar subqueries, computed once, before them.
//!
//! Only where no link is between host and drives. Over one, groups that a query does without are better left where they are: the
//! subquery's value goes to the drives as a literal, and their filter keeps most groups there.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::logical_expr::{LogicalPlan, TableSource};
use futures::FutureExt;
use futures::future::BoxFuture;
use pithead_functions::fault_from_datafusion;
use pithead_model::{Fault, SHIPPED_BYTES_MAX};
use pithead_plan::{ScalarQuery, SharedPart, is_volatile};

use crate::query::{Mode, PreparedInput, Query};

/// The parts of one query that were computed, or that were found too large for it.
#[derive(Default)]
pub(crate) struct SharedRows {
    computed: Vec<SharedTable>,
    left: Vec<SharedPart>,
}

struct SharedTable {
    part: SharedPart,
    table: Arc<dyn TableSource>,
    input: PreparedInput,
}

impl SharedRows {
    /// The query, where it reads the rows of these parts.
    pub(crate) fn in_place(&self, plan: LogicalPlan) -> Result<LogicalPlan, Fault> {
        let replaced = self.computed.iter().try_fold(plan, |plan, shared| shared.part.replaced(plan, &shared.table));
        replaced.map_err(fault_from_datafusion)
    }

    /// The inputs that computed the rows.
    pub(crate) fn prepared(self) -> Vec<PreparedInput> {
        self.computed.into_iter().map(|shared| shared.input).collect()
    }
}

impl Query {
    /// A scalar subquery, which reads rows that the query around it needs as well from where both can find them.
    pub(crate) async fn over_shared(
        &self,
        plan: &LogicalPlan,
        query: &ScalarQuery,
        shared: &mut SharedRows,
    ) -> Result<LogicalPlan, Fault> {
        let is_whole = self.from_above.is_none() && self.pages.is_none();
        if !self.settings.share_parts || !is_whole || !self.is_in_process() {
            return Ok(query.plan.clone());
        }
        let part = SharedPart::of(plan, query).map_err(fault_from_datafusion)?;
        let Some(part) = part.filter(|part| !shared.left.contains(part)) else { return Ok(query.plan.clone()) };
        if !shared.computed.iter().any(|known| known.part == part) {
            match self.table_of(&part).await? {
                Some((table, input)) => shared.computed.push(SharedTable { part: part.clone(), table, input }),
                None => shared.left.push(part.clone()),
            }
        }
        match shared.computed.iter().find(|known| known.part == part) {
            Some(known) => part.value_of(query, &known.table).map_err(fault_from_datafusion),
            None => Ok(query.plan.clone()),
        }
    }

    /// A part's rows as a table; none where they are many, or where the part fails: the query may need less of it.
    async fn table_of(&self, part: &SharedPart) -> Result<Option<(Arc<dyn TableSource>, PreparedInput)>, Fault> {
        if is_volatile(&part.plan).map_err(fault_from_datafusion)? {
            return Ok(None);
        }
        let Some(input) = self.rows_of(part).await.unwrap_or_else(|fault| {
            tracing::debug!(%fault, "a part in common failed; planning without");
            None
        }) else {
            return Ok(None);
        };
        let table = MemTable::try_new(Arc::new(part.schema()), vec![input.batches.clone()]).map_err(fault_from_datafusion)?;
        Ok(Some((provider_as_source(Arc::new(table)), input)))
    }

    fn rows_of<'a>(&'a self, part: &'a SharedPart) -> BoxFuture<'a, Result<Option<PreparedInput>, Fault>> {
        async move {
            let prepared = self.prepare(part.plan.clone(), Mode::Run).await?;
            let expected: f64 = prepared.decomposition.sub_plans.iter().map(|sub_plan| sub_plan.estimate.bytes()).sum();
            if expected > SHIPPED_BYTES_MAX as f64 / 2.0 {
                return Ok(None);
            }
            let batches: Option<Vec<RecordBatch>> = self.collect(Arc::new(part.schema()), &prepared).await?;
            Ok(batches.map(|batches| PreparedInput { plan: part.plan.clone(), prepared, batches }))
        }
        .boxed()
    }
}
