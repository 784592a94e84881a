//! What the cut may do, and what is known before it is made.

use std::fmt;
use std::sync::Arc;

use datafusion::logical_expr::{LogicalPlan, TableSource};
use pithead_model::SHIPPED_BYTES_MAX;

use crate::Samples;

/// What may be pushed down.
#[derive(Clone, Debug)]
pub struct CutOptions {
    /// Anything at all. If false, drives send the columns that a query needs, and use its filters only to skip slices
    /// and pages (level 1).
    pub pushdown: bool,
    /// Aggregates and DISTINCT.
    pub aggregates: bool,
    /// Joins.
    pub joins: bool,
    /// Top-k and LIMIT.
    pub top_k: bool,
    /// The most bytes, by estimate, of a table that is shipped, at each drive.
    pub ship_bytes_max: f64,
    /// The least number of bytes to keep off the link for which a single partition is executed whole, on one thread.
    pub one_round_bytes_min: f64,
    /// All drives are in the host's own process: rows pass by pointer, and what takes time is to compute them.
    pub in_process: bool,
    /// What of aggregates is done before their joins.
    pub before_joins: BeforeJoins,
    /// Inputs that turned out to be too large to ship.
    pub not_shipped: Vec<LogicalPlan>,
    /// Parts of the plan that were computed already: the host has their rows, and their sizes are known.
    pub computed: Vec<(LogicalPlan, Computed)>,
    /// What samples told of predicates.
    pub samples: Samples,
}

/// When a side of a join is grouped, and what it suffices for is computed, before the join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeforeJoins {
    Off,
    /// Where that keeps many bytes off the link.
    Auto,
    /// Wherever the answer is the same, for tests.
    Always,
}

/// A part of a plan that was computed already.
#[derive(Clone)]
pub struct Computed {
    /// Its rows, under the column names of [`crate::Input::schema`].
    pub table: Arc<dyn TableSource>,
    /// The number of rows.
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
            in_process: false,
            before_joins: BeforeJoins::Auto,
            not_shipped: Vec::new(),
            computed: Vec::new(),
            samples: Samples::default(),
        }
    }
}
