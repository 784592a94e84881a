//! [`SharedRows`]: what a query has in common with its scalar subqueries, computed once, before them.
//!
//! Only where no link is between host and drives. Over one, groups that a query does without are better left where they are: the
//! subquery's value goes to the drives as a literal, and their filter keeps most groups there.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::logical_expr::LogicalPlan;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use pithead_functions::fault_from_datafusion;
use pithead_model::{Fault, SHIPPED_BYTES_MAX};
use pithead_plan::{PartTable, ScalarQuery, SharedPart, is_volatile};

use crate::query::{Mode, PreparedInput, Query};

/// The parts that a statement's queries have in common with their scalar subqueries, each with its rows; none where it was found too
/// large. A part that occurs in several of these queries has the same rows in all of them.
pub(crate) type SharedParts = Mutex<Vec<(SharedPart, Option<Arc<SharedTable>>)>>;

/// A part, and its rows.
pub(crate) struct SharedTable {
    part: SharedPart,
    table: PartTable,
    input: Arc<PreparedInput>,
}

/// The parts of one query.
#[derive(Default)]
pub(crate) struct SharedRows(Vec<Arc<SharedTable>>);

impl SharedRows {
    /// The query, where it reads the rows of these parts.
    pub(crate) fn in_place(&self, plan: LogicalPlan) -> Result<LogicalPlan, Fault> {
        let replaced = self.0.iter().try_fold(plan, |plan, shared| shared.part.replaced(plan, &shared.table));
        replaced.map_err(fault_from_datafusion)
    }

    /// The inputs that computed the rows.
    pub(crate) fn prepared(self) -> Vec<Arc<PreparedInput>> {
        self.0.iter().map(|shared| Arc::clone(&shared.input)).collect()
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
        let Some(part) = part else { return Ok(query.plan.clone()) };
        let Some(found) = self.shared_table(part).await? else { return Ok(query.plan.clone()) };
        let value = found.part.value_of(query, &found.table).map_err(fault_from_datafusion)?;
        if !shared.0.iter().any(|known| Arc::ptr_eq(known, &found)) {
            shared.0.push(found);
        }
        Ok(value)
    }

    /// A part's rows, which are computed where no query of the statement has done so; none where they are many.
    async fn shared_table(&self, part: SharedPart) -> Result<Option<Arc<SharedTable>>, Fault> {
        let known = self.shared.lock().iter().find(|(known, _)| *known == part).map(|(_, found)| found.clone());
        if let Some(known) = known {
            return Ok(known);
        }
        let input = self.input_of(&part).await?;
        let mut all = self.shared.lock();
        let found = match input {
            Some(input) => {
                let rows = MemTable::try_new(Arc::new(part.schema()), vec![input.batches.clone()]);
                let source = provider_as_source(Arc::new(rows.map_err(fault_from_datafusion)?));
                let table = PartTable { number: all.len() + 1, source };
                Some(Arc::new(SharedTable { part: part.clone(), table, input: Arc::new(input) }))
            }
            None => None,
        };
        all.push((part, found.clone()));
        Ok(found)
    }

    /// What has computed a part's rows; none where they are many, or where the part fails: the query may need less of it.
    async fn input_of(&self, part: &SharedPart) -> Result<Option<PreparedInput>, Fault> {
        if is_volatile(&part.plan).map_err(fault_from_datafusion)? {
            return Ok(None);
        }
        Ok(self.rows_of(part).await.unwrap_or_else(|fault| {
            tracing::debug!(%fault, "a part in common failed; planning without");
            None
        }))
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
