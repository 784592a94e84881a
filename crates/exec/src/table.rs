//! [`SliceTable`]: a dataset's slices as a table of the engine.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, Result};
use datafusion::datasource::TableType;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use pithead_model::{PageSample, boxed};

use crate::pruning::conjuncts;
use crate::read::ReadPlan;
use crate::scan::SliceScanExec;
use crate::statistics::PartFacts;
use crate::{SliceRef, SliceSource};

/// What all scans of one part share.
#[derive(Debug)]
pub(crate) struct TablePart {
    /// Its place among the parts of its session, which tells it from them. The driving part's is 0.
    pub(crate) number: usize,
    pub(crate) name: String,
    pub(crate) schema: SchemaRef,
    pub(crate) slices: Arc<[SliceRef]>,
    pub(crate) facts: PartFacts,
    /// The column that all its rows are sorted by, in the order of its slices.
    pub(crate) order: Option<(usize, SortOptions)>,
    pub(crate) source: Arc<dyn SliceSource>,
    pub(crate) zone_maps: bool,
    /// The pages of its slices that rounds read; none: all.
    pub(crate) sample: Option<PageSample>,
    /// Filters rule out slices and pages, and no more.
    pub(crate) prune_only: bool,
    pub(crate) batch_rows: usize,
    pub(crate) reads: ReadCounters,
}

/// What scans have read of a part.
#[derive(Debug, Default)]
pub(crate) struct ReadCounters {
    pub(crate) slices: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

/// Which slices a scan reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feed {
    /// Those that its round takes, one by one.
    Round,
    /// All.
    All,
}

/// A table over a part.
#[derive(Debug)]
pub(crate) struct SliceTable {
    pub(crate) part: Arc<TablePart>,
    pub(crate) feed: Feed,
}

#[boxed]
impl TableProvider for SliceTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.part.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// A limit is left to the operator above, which stops polling; rows are handed on as soon as there are enough.
    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = projection.cloned().unwrap_or_else(|| (0..self.part.schema.fields().len()).collect());
        let names = DFSchema::try_from(Arc::clone(&self.part.schema))?;
        let mut conditions = Vec::new();
        for filter in filters {
            conditions.extend(conjuncts(&state.create_physical_expr(filter.clone(), &names)?, &self.part.schema));
        }
        let batch_rows = limit.map_or(self.part.batch_rows, |limit| limit.clamp(1, self.part.batch_rows));
        let logical = conditions.len();
        let plan = ReadPlan { part: Arc::clone(&self.part), feed: self.feed, columns, conditions, logical, batch_rows };
        Ok(Arc::new(SliceScanExec::try_new(plan)?))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(pushed_down(filters))
    }
}

/// Which filters a scan of slices takes over.
pub(crate) fn pushed_down(filters: &[&Expr]) -> Vec<TableProviderFilterPushDown> {
    // What needs a plan of its own, or gives another value each time, stays in a filter above.
    let stays = |filter: &Expr| filter.is_volatile() || filter.exists(|part| Ok(is_subquery(part))).unwrap_or(true);
    let support = |filter: &&Expr| {
        if stays(filter) { TableProviderFilterPushDown::Unsupported } else { TableProviderFilterPushDown::Exact }
    };
    filters.iter().map(support).collect()
}

fn is_subquery(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::ScalarSubquery(_)
            | Expr::InSubquery(_)
            | Expr::Exists(_)
            | Expr::SetComparison(_)
            | Expr::OuterReferenceColumn(..)
    )
}
