//! [`RemoteScan`]: the leaf of a super-plan that represents a sub-plan.

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

/// A sub-plan in the form in which it travels.
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
    /// The plan that computes it: a part of the original, optimised plan. It distinguishes the input from the query's
    /// other inputs, over all attempts to plan the query.
    pub plan: LogicalPlan,
    /// The columns, by position, whose hash assigns the rows to partitions as it assigns the driving dataset's rows.
    /// None: each drive gets all rows.
    pub spread: Option<Vec<usize>>,
    /// The estimated size.
    pub estimate: Estimate,
}

/// The sub-plan that runs at each drive of the driving dataset.
#[derive(Clone, Debug)]
pub struct SubPlan {
    /// Its number within the query, from 1.
    pub number: usize,
    /// The plan.
    pub plan: LogicalPlan,
    /// The plan in the form in which it travels.
    pub travelling: Travelling,
    /// The functions of the registry that it calls, `name/version`.
    pub extensions: Vec<String>,
    /// The datasets that it reads, the driving one first, each once.
    pub datasets: Vec<Arc<DatasetFacts>>,
    /// For each of them, the share of its rows that pass the filter over its scan, where samples or queries have told it.
    pub passing: Vec<Option<f64>>,
    /// The drives of each partition, in the order in which to ask them. All the datasets are on the same drives.
    pub copies: Vec<Vec<DriveId>>,
    /// Tables to ship.
    pub inputs: Vec<Input>,
    /// Whether one round must have the whole partition.
    pub whole_partition: bool,
    /// The highest level at which drives may execute it.
    pub level_max: Level,
    /// The output's columns.
    pub schema: SchemaRef,
    /// The estimated output over all drives.
    pub estimate: Estimate,
    /// The steps of the plan's growth from its leaves, with the operator of the query that each step comes from.
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

impl RemoteScan {
    /// The node's scan, if it is one.
    pub fn of(plan: &LogicalPlan) -> Option<&RemoteScan> {
        match plan {
            LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref(),
            _ => None,
        }
    }
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
