//! [`KnownRows`]: a leaf that represents rows which the host computes first.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::common::{DFSchemaRef, Result};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};

use crate::Estimate;

/// Represents, in every place where it occurs in a plan, a part of that plan which the host computes first.
///
/// Two leaves are equal where their parts are. A statement has several queries, and each of them names its parts anew, so names
/// would take the rows of one for those of another.
#[derive(Clone, Debug)]
pub(crate) struct KnownRows {
    /// The name that EXPLAIN shows.
    pub(crate) name: String,
    /// The part.
    pub(crate) part: Arc<LogicalPlan>,
    /// The estimate of its rows.
    pub(crate) estimate: Estimate,
}

impl KnownRows {
    /// This leaf, as a node of a plan.
    pub(crate) fn leaf(self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(self) })
    }
}

impl PartialEq for KnownRows {
    fn eq(&self, other: &Self) -> bool {
        self.part == other.part
    }
}

impl Eq for KnownRows {}

impl PartialOrd for KnownRows {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.part.partial_cmp(&other.part)
    }
}

impl Hash for KnownRows {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.part.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for KnownRows {
    fn name(&self) -> &str {
        "KnownRows"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.part.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "KnownRows: {}", self.name)
    }

    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, _inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(self.clone())
    }
}
