//! [`RollUp`]: when the partial results of one sub-plan serve another, which groups by less.

use datafusion::logical_expr::{Expr, LogicalPlan};

use crate::combine::core;
use crate::literal::{shown, text};
use crate::{Shape, shape};

/// A partial aggregate, apart from what it groups and computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollUp {
    /// What it reads, as text: equal texts read the same rows, be it in other columns.
    pub base: String,
    /// What it groups by, as text, in the order of its columns.
    pub groups: Vec<String>,
    /// What it computes, as text, in the order of its columns, which follow those of the groups.
    pub functions: Vec<String>,
}

impl RollUp {
    /// None: the sub-plan's rows are no partial aggregates.
    pub fn of(plan: &LogicalPlan) -> Option<RollUp> {
        let LogicalPlan::Aggregate(aggregate) = core(plan) else { return None };
        if shape(plan) != Shape::Partials {
            return None;
        }
        let texts = |exprs: &[Expr]| exprs.iter().map(|expr| text(expr.clone().unalias())).collect();
        let mut base = String::new();
        describe(&aggregate.input, &mut base);
        Some(RollUp { base, groups: texts(&aggregate.group_expr), functions: texts(&aggregate.aggr_expr) })
    }

    /// The columns of `finer`'s partial results that are partial results of this one, in the order of its columns: rows of the same
    /// group come several times then, and are merged as those of several rounds are. None: they do not serve.
    pub fn columns_of(&self, finer: &RollUp) -> Option<Vec<usize>> {
        if self.base != finer.base {
            return None;
        }
        let group = |text: &String| finer.groups.iter().position(|other| other == text);
        let function = |text: &String| finer.functions.iter().position(|other| other == text);
        let groups = self.groups.iter().map(group);
        let functions = self.functions.iter().map(|text| function(text).map(|place| finer.groups.len() + place));
        groups.chain(functions).collect()
    }
}

/// A plan as text, without which columns it carries along.
fn describe(plan: &LogicalPlan, text: &mut String) {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let filters: Vec<String> = scan.filters.iter().cloned().map(crate::literal::text).collect();
            text.push_str(&format!("scan {} [{}] {:?};", scan.table_name, filters.join(", "), scan.fetch));
        }
        LogicalPlan::Projection(projection) if projection.expr.iter().all(|expr| matches!(expr, Expr::Column(_))) => {
            describe(&projection.input, text);
        }
        plan => {
            text.push_str(&shown(plan));
            text.push('(');
            plan.inputs().into_iter().for_each(|input| describe(input, text));
            text.push(')');
        }
    }
}
