//! [`KnownRows`]: a leaf that represents rows which the host computes first.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::common::{DFSchemaRef, Result};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};

use crate::Estimate;

/// Represents, in every place where it occurs in a plan, a part of that plan which the host computes first.
#[derive(Clone, Debug)]
pub(crate) struct KnownRows {
    /// The name that distinguishes it from others in the same query.
    pub(crate) name: String,
    /// The columns of the part.
    pub(crate) schema: DFSchemaRef,
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
        self.name == other.name && self.schema == other.schema
    }
}

impl Eq for KnownRows {}

impl PartialOrd for KnownRows {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.name.partial_cmp(&other.name)
    }
}

impl Hash for KnownRows {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
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
        &self.schema
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
