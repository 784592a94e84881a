//! [`Piece`]: a subtree of a plan that a drive can run, as it grows upward.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::DFSchemaRef;
use datafusion::logical_expr::{Expr, LogicalPlan};
use pithead_model::Bytes;

use crate::facts::{KeyClasses, Scheme};
use crate::{DatasetFacts, Input};

/// A subtree that runs at the drives of one scheme.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// The plan, with the original's schema.
    pub(crate) plan: LogicalPlan,
    /// The datasets of its scans in pre-order, with repeats.
    pub(crate) scans: Vec<Arc<DatasetFacts>>,
    /// Which of `scans` is the driving one.
    pub(crate) driving: usize,
    /// How its rows are assigned to drives.
    pub(crate) scheme: Scheme,
    /// The output columns that are equal to the partition key.
    pub(crate) keys: KeyClasses,
    /// Whether it must have the whole partition at once.
    pub(crate) whole: bool,
    /// Whether it needs the whole partition only because there is a single partition. Several rounds at the same time
    /// would do as well, with the host merging them.
    pub(crate) one_round: bool,
    /// Tables to ship.
    pub(crate) inputs: Vec<Input>,
    /// Bytes on the link to get this far, without sending the piece's rows.
    pub(crate) cost: f64,
    /// The steps of its growth: each plan, from the leaves up, with the operator of the query that it comes from.
    pub(crate) layers: Vec<Arc<Layer>>,
}

/// One step of a piece's growth.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) plan: LogicalPlan,
    pub(crate) operator: LogicalPlan,
}

impl Layer {
    pub(crate) fn new(plan: &LogicalPlan, operator: &LogicalPlan) -> Layer {
        Layer { plan: plan.clone(), operator: operator.clone() }
    }
}

impl Piece {
    /// The driving dataset.
    pub(crate) fn facts(&self) -> &Arc<DatasetFacts> {
        &self.scans[self.driving]
    }

    /// Whether all slices of its datasets are read. A partition of which some are left out has no group and no join as a whole.
    pub(crate) fn is_whole(&self) -> bool {
        self.scans.iter().all(|facts| facts.rest.is_none())
    }

    /// The datasets that it reads, the driving one first, each once.
    pub(crate) fn datasets(&self) -> Vec<Arc<DatasetFacts>> {
        let mut datasets = vec![Arc::clone(self.facts())];
        for facts in &self.scans {
            if !datasets.iter().any(|known| known.name == facts.name) {
                datasets.push(Arc::clone(facts));
            }
        }
        datasets
    }

    /// The piece as it is after an operator on top whose columns are these expressions: with the key's new positions.
    pub(crate) fn with_columns(self, exprs: &[Expr]) -> Piece {
        let schema = Arc::clone(self.plan.schema());
        let keys = self.keys.map(|class| carried(class, exprs, &schema));
        Piece { keys, ..self }
    }

    /// Whether the key guarantees that rows which agree on these expressions are all on one drive.
    pub(crate) fn complete_groups(&self, groups: &[Expr]) -> bool {
        let schema = self.plan.schema();
        self.keys.all(|class| !carried(class, groups, schema).is_empty())
    }

    /// Why its rows are had in another way, for `host_cost` bytes on the link instead of `sent`.
    pub(crate) fn too_dear(&self, sent: f64, host_cost: f64) -> String {
        let instead = format!("{} instead of {}", shown(sent), shown(host_cost));
        match self.one_round && sent <= host_cost {
            true => format!("in one round on one thread it would send {instead}, which is too little gained"),
            false => format!("pushed down it would send more: {instead}"),
        }
    }

    /// Whether the driving scan is the first of its dataset in pre-order, which is how a drive finds it.
    pub(crate) fn driving_is_first(&self) -> bool {
        let name = &self.facts().name;
        self.scans.iter().position(|facts| &facts.name == name) == Some(self.driving)
    }
}

/// Estimated bytes; few of them in the unit that has digits for them.
fn shown(bytes: f64) -> String {
    match bytes >= 1e5 {
        true => format!("{:.2} MB", bytes / 1e6),
        false => Bytes(bytes as u64).to_string(),
    }
}

/// The positions among `exprs` that are a column of `class`.
fn carried(class: &BTreeSet<usize>, exprs: &[Expr], schema: &DFSchemaRef) -> BTreeSet<usize> {
    let is_key = |expr: &Expr| column_index(expr, schema).is_some_and(|index| class.contains(&index));
    exprs.iter().enumerate().filter(|(_, expr)| is_key(expr)).map(|(i, _)| i).collect()
}

/// The input column, if an expression is one, below any aliases.
pub(crate) fn column_index(expr: &Expr, schema: &DFSchemaRef) -> Option<usize> {
    match expr {
        Expr::Column(column) => schema.index_of_column(column).ok(),
        Expr::Alias(alias) => column_index(&alias.expr, schema),
        _ => None,
    }
}
