//! [`RemoteScan`]: the leaf of a super-plan that stands for a sub-plan.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{DFSchemaRef, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};
use pithead_model::{DatasetName, DriveId, Level};

use crate::piece::Layer;
use crate::{DatasetFacts, Estimate};

/// A sub-plan in the form that goes onto the wire.
#[derive(Clone, Debug, PartialEq)]
pub enum Travelling {
    /// Substrait bytes.
    Substrait(Vec<u8>),
    /// A bare scan of these columns, where Substrait cannot name a type.
    Scan(Vec<String>),
}

/// A table that the host computes and ships to the drives with OPEN.
#[derive(Clone, Debug)]
pub struct Input {
    /// Its table name in the sub-plan.
    pub name: String,
    /// What computes it: part of the original, optimised plan. It tells the input from others of the query, over all attempts
    /// to plan it.
    pub plan: LogicalPlan,
    /// Columns, by position, by whose hash its rows go to partitions as the driving dataset's rows do; none: each drive
    /// gets all.
    pub spread: Option<Vec<usize>>,
    /// Expected size.
    pub estimate: Estimate,
}

/// What runs at each drive of the driving dataset.
#[derive(Clone, Debug)]
pub struct SubPlan {
    /// Number within the query, from 1.
    pub number: usize,
    /// The plan.
    pub plan: LogicalPlan,
    /// The plan as it travels.
    pub travelling: Travelling,
    /// The datasets it reads, the driving one first, each once.
    pub datasets: Vec<Arc<DatasetFacts>>,
    /// Drives of each partition, the one to ask first first; the same drives for all the datasets.
    pub copies: Vec<Vec<DriveId>>,
    /// Tables to ship.
    pub inputs: Vec<Input>,
    /// Whether one round must see the whole partition.
    pub whole_partition: bool,
    /// How far the drives may go.
    pub level_max: Level,
    /// The output's columns.
    pub schema: SchemaRef,
    /// Expected output over all drives.
    pub estimate: Estimate,
    /// How the plan grew from its leaves, with the operator that each step comes from.
    pub(crate) layers: Vec<Arc<Layer>>,
}

impl SubPlan {
    /// The dataset whose slices are the units of work.
    pub fn driving(&self) -> &DatasetName {
        &self.datasets[0].name
    }
}

/// A leaf that yields the rows of a sub-plan, from all drives.
#[derive(Clone, Debug)]
pub struct RemoteScan {
    /// What the drives run.
    pub sub_plan: Arc<SubPlan>,
    /// The output's columns with their qualifiers.
    pub schema: DFSchemaRef,
}

impl PartialEq for RemoteScan {
    fn eq(&self, other: &Self) -> bool {
        self.sub_plan.number == other.sub_plan.number
            && self.sub_plan.plan == other.sub_plan.plan
            && self.schema == other.schema
    }
}

impl Eq for RemoteScan {}

impl PartialOrd for RemoteScan {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal).or_else(|| self.sub_plan.number.partial_cmp(&other.sub_plan.number))
    }
}

impl Hash for RemoteScan {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.sub_plan.number.hash(state);
        self.sub_plan.plan.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for RemoteScan {
    fn name(&self) -> &str {
        "RemoteScan"
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
        write!(
            f,
            "RemoteScan: sub-plan {} at {} partitions of {}",
            self.sub_plan.number,
            self.sub_plan.copies.len(),
            self.sub_plan.driving()
        )
    }

    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, _inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(self.clone())
    }
}
