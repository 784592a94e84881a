//! What the cut may do, and what is known before it.

use std::fmt;
use std::sync::Arc;

use datafusion::logical_expr::{LogicalPlan, TableSource};
use pithead_model::SHIPPED_BYTES_MAX;

/// What may be pushed down.
#[derive(Clone, Debug)]
pub struct CutOptions {
    /// Anything. If not, drives send the columns that a query needs, and use its filters only to rule out slices and pages.
    pub pushdown: bool,
    /// Aggregates and DISTINCT.
    pub aggregates: bool,
    /// Joins.
    pub joins: bool,
    /// Top-k and LIMIT.
    pub top_k: bool,
    /// Most bytes expected of a table that is shipped, at each drive.
    pub ship_bytes_max: f64,
    /// Bytes that must stay off the link for a single partition to be taken whole, on one thread.
    pub one_round_bytes_min: f64,
    /// Inputs that turned out too large to ship.
    pub not_shipped: Vec<LogicalPlan>,
    /// Parts of the plan that were computed already: the host has their rows, and their sizes are known.
    pub computed: Vec<(LogicalPlan, Computed)>,
}

/// A part of a plan that was computed.
#[derive(Clone)]
pub struct Computed {
    /// Its rows, under the column names of [`crate::Input::schema`].
    pub table: Arc<dyn TableSource>,
    /// How many.
    pub rows: f64,
    /// Their bytes as Arrow.
    pub bytes: f64,
}

impl fmt::Debug for Computed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Computed").field("rows", &self.rows).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Default for CutOptions {
    fn default() -> Self {
        Self {
            pushdown: true,
            aggregates: true,
            joins: true,
            top_k: true,
            ship_bytes_max: SHIPPED_BYTES_MAX as f64 / 2.0,
            one_round_bytes_min: 1e6,
            not_shipped: Vec::new(),
            computed: Vec::new(),
        }
    }
}
