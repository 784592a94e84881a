//! Groups before joins: a side of a join that would have to travel is grouped by what the join and the query's groups need of it, and
//! its parts are merged after the join (eager aggregation, Yan and Larson 1995; see `docs/bibliography.md`).
//!
//! A row of the other side that matches one row of a group matches all of it, so each part counts as often as its rows would have.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::{DFSchema, JoinType, Result};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Aggregate, Expr, Join, LogicalPlan, Projection};

use crate::aggregate::{Split, function, part_name};
use crate::cutter::{Cutter, Outcome};
use crate::early::early;
use crate::expression::any_stays;
use crate::join::{Side, is_supplied, over as join_over};
use crate::never_fails::{digits, is_plain, sum_fits};
use crate::{BeforeJoins, Estimate, ReplanPoint};

/// The share of the bytes on the link below which they must get for anything to be done before a join.
const GAIN: f64 = 0.6;
/// The least rows of a group for which a side is grouped first where no link is.
const ROWS_OF_A_GROUP: f64 = 16.0;
/// The least bytes on the link that an aggregate's inputs must cost at the drives for anything else to be considered.
const WORTH_BYTES: f64 = 100e3;
/// Functions that know nothing of a row without a match, and to which rows of one value are as good as one by one.
const KNOWN: [&str; 16] = [
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "bool_and",
    "bool_or",
    "bit_and",
    "bit_or",
    "bit_xor",
    "var",
    "var_samp",
    "var_pop",
    "stddev",
    "stddev_samp",
    "stddev_pop",
];

/// An aggregate over a join, one side of which may be grouped first.
struct Joined<'a> {
    aggregate: &'a Aggregate,
    join: &'a Join,
}

impl<'a> Joined<'a> {
    /// The sides, and by which columns each is grouped, where it can be.
    fn sides(&self) -> Vec<(Side, Vec<Expr>)> {
        [Side::Left, Side::Right].into_iter().filter_map(|side| Some((side, self.groups(side)?))).collect()
    }

    fn schema(&self, side: Side) -> &'a DFSchema {
        match side {
            Side::Left => self.join.left.schema(),
            Side::Right => self.join.right.schema(),
        }
    }

    /// Columns of a side by which it is grouped; none: its rows cannot be had in groups.
    fn groups(&self, side: Side) -> Option<Vec<Expr>> {
        let schema = self.schema(side);
        if !self.aggregate.aggr_expr.iter().all(|expr| self.is_of(side, expr)) {
            return None;
        }
        let on = self.join.on.iter().flat_map(|(left, right)| [left, right]);
        let mut needed = BTreeSet::new();
        for expr in on.chain(&self.join.filter).chain(&self.aggregate.group_expr) {
            needed.extend(expr.column_refs().into_iter().filter_map(|column| schema.maybe_index_of_column(column)));
        }
        // Both zeros are one group, and are told apart by what is computed from them.
        let is_exact = |index: &usize| {
            let data_type = schema.field(*index).data_type();
            !data_type.is_floating() && !data_type.is_nested()
        };
        let columns = schema.columns();
        let groups =
            needed.iter().all(is_exact).then(|| needed.iter().map(|index| Expr::Column(columns[*index].clone())).collect());
        groups.filter(|groups: &Vec<Expr>| !groups.is_empty())
    }

    /// Whether a function is one of this side's rows alone, and is computed without an error over rows that match nothing.
    fn is_of(&self, side: Side, expr: &Expr) -> bool {
        let Some(AggregateFunction { func, params }) = function(expr) else { return false };
        let schema = self.schema(side);
        let is_own =
            |argument: &Expr| argument.column_refs().into_iter().all(|column| schema.maybe_index_of_column(column).is_some());
        // A count of rows has one for a row without a match.
        let counts_rows = params.args.iter().all(|argument| argument.column_refs().is_empty());
        // A side's rows that match nothing are computed, too, where they are grouped first: none of them may fail.
        let never_fails = |argument: &Expr| is_plain(argument, schema) || digits(argument, schema).is_some();
        KNOWN.contains(&func.name())
            && params.args.iter().all(is_own)
            && !(counts_rows && is_supplied(self.join.join_type, side))
            && params.filter.is_none()
            && params.args.iter().all(never_fails)
    }

    /// Whether no sum of a side's rows that match nothing can overflow.
    fn sums_fit(&self, side: Side, estimate: &Estimate) -> bool {
        let schema = self.schema(side);
        let sums = self.aggregate.aggr_expr.iter().filter_map(function);
        let mut sums = sums.filter(|function| matches!(function.func.name(), "sum" | "avg"));
        sums.all(|function| function.params.args.iter().all(|argument| sum_fits(argument, schema, estimate)))
    }
}

/// Whether a projection only chooses columns.
fn is_choice(projection: &Projection) -> bool {
    projection.expr.iter().all(|expr| matches!(expr, Expr::Column(_)))
}

/// What is between an aggregate and the join below it.
struct Between<'a> {
    /// A projection at most, and where the plan may be changed while it runs, from the top.
    operators: Vec<&'a LogicalPlan>,
    projection: Option<&'a Projection>,
    join_plan: &'a LogicalPlan,
    join: &'a Join,
}

impl<'a> Between<'a> {
    /// None: the aggregate is over something else.
    fn of(aggregate: &'a Aggregate) -> Option<Between<'a>> {
        let (mut operators, mut projection, mut plan) = (Vec::new(), None, &*aggregate.input);
        let join = loop {
            let input = match plan {
                LogicalPlan::Join(join) => break join,
                LogicalPlan::Projection(own) if projection.is_none() => {
                    projection = Some(own);
                    &*own.input
                }
                _ => &ReplanPoint::of(plan)?.input,
            };
            operators.push(plan);
            plan = input;
        };
        let is_known = matches!(join.join_type, JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full);
        let between = projection.map_or(&[][..], |projection| projection.expr.as_slice());
        let exprs = aggregate.group_expr.iter().chain(&aggregate.aggr_expr).chain(&join.filter).chain(between);
        (is_known && any_stays(exprs).is_none()).then_some(Between { operators, projection, join_plan: plan, join })
    }
}

/// The best way so far to have an aggregate over a join.
struct Best {
    outcome: Outcome,
    /// Rows of joins and tables to ship that were counted for it.
    counted: (f64, usize),
}

impl Cutter<'_> {
    /// The aggregate over a join, of which something may be done before; none: it is over something else.
    pub(crate) fn aggregate_of_join(&mut self, plan: &LogicalPlan, aggregate: &Aggregate) -> Result<Option<Outcome>> {
        let rule = self.options.before_joins;
        if !self.options.pushdown || !self.options.aggregates || rule == BeforeJoins::Off {
            return Ok(None);
        }
        let Some(Between { operators, projection, join_plan, join }) = Between::of(aggregate) else { return Ok(None) };
        // Where no link is, a wide column costs no more than what would be computed of rows that match nothing.
        let is_narrower = !self.options.in_process || rule == BeforeJoins::Always;
        let early = if is_narrower { early(aggregate, projection, join)? } else { None };
        let sides = if projection.is_none_or(is_choice) { Joined { aggregate, join }.sides() } else { Vec::new() };
        let is_computed = operators.iter().any(|plan| self.is_computed(plan)) || self.is_computed(join_plan);
        if is_computed || sides.is_empty() && early.is_none() {
            return Ok(None);
        }
        let (left, right) = (self.visit(&join.left)?, self.visit(&join.right)?);
        let before = self.counted();
        let mut input = self.join_outcomes(join_plan, join, &left, &right)?;
        for operator in operators.into_iter().rev() {
            input = match (operator, ReplanPoint::of(operator)) {
                (LogicalPlan::Projection(projection), _) => self.projection_over(operator, projection, input)?,
                (_, Some(point)) => self.replan_point_over(point, input),
                _ => input,
            };
        }
        let late = self.aggregate_over(plan, aggregate, input)?;
        // What drives compute whole, of what they have, leaves nothing to gain.
        if late.piece.as_ref().is_some_and(|piece| piece.cost < WORTH_BYTES) && rule != BeforeJoins::Always {
            return Ok(Some(late));
        }
        let mut best = Best { outcome: late, counted: self.counted() };
        self.group_first(&Joined { aggregate, join }, sides, [&left, &right], before, &mut best)?;
        if let Some(early) = early
            && let LogicalPlan::Join(join) = &*early.aggregate.input
        {
            (self.joined_rows, self.inputs) = before;
            let (left, right) = (self.computed_of(early.left, left)?, self.computed_of(early.right, right)?);
            let before = self.counted();
            let rows = self.join_outcomes(&early.aggregate.input, join, &left, &right)?;
            let outcome = self.aggregate_over(&LogicalPlan::Aggregate(early.aggregate.clone()), &early.aggregate, rows)?;
            self.prefer(outcome, &mut best);
            let joined = Joined { aggregate: &early.aggregate, join };
            self.group_first(&joined, joined.sides(), [&left, &right], before, &mut best)?;
        }
        (self.joined_rows, self.inputs) = best.counted;
        Ok(Some(best.outcome))
    }

    /// What the outcomes so far have counted: rows of joins, and tables to ship.
    fn counted(&self) -> (f64, usize) {
        (self.joined_rows, self.inputs)
    }

    fn is_computed(&self, plan: &LogicalPlan) -> bool {
        self.options.computed.iter().any(|(part, _)| part == plan)
    }

    /// A side of a join with what is computed of it.
    fn computed_of(&mut self, projection: Option<Projection>, side: Outcome) -> Result<Outcome> {
        match projection {
            Some(projection) => self.projection_over(&LogicalPlan::Projection(projection.clone()), &projection, side),
            None => Ok(side),
        }
    }

    /// Takes another way if it is much better, or wherever it can be taken. Its rows are expected to be as many.
    fn prefer(&self, other: Outcome, best: &mut Best) {
        let is_better = match (&best.outcome.piece, &other.piece) {
            (None, _) => other.host_cost < best.outcome.host_cost * GAIN,
            (Some(own), Some(piece)) => piece.cost < own.cost * GAIN && other.host_cost <= best.outcome.host_cost,
            // What drives might do above it cannot make up for what its own inputs cost.
            (Some(own), None) => other.host_cost < own.cost * GAIN,
        };
        if is_better || self.options.before_joins == BeforeJoins::Always {
            let estimate = best.outcome.estimate.clone();
            *best = Best { outcome: Outcome { estimate, ..other }, counted: self.counted() };
        }
    }

    /// Tries to group each of the sides first.
    fn group_first(
        &mut self,
        joined: &Joined<'_>,
        sides: Vec<(Side, Vec<Expr>)>,
        [left, right]: [&Outcome; 2],
        before: (f64, usize),
        best: &mut Best,
    ) -> Result<()> {
        for (side, groups) in sides {
            (self.joined_rows, self.inputs) = before;
            if let Some(outcome) = self.grouped_first(joined, side, groups, left, right)? {
                self.prefer(outcome, best);
            }
        }
        Ok(())
    }

    /// The aggregate with this side of its join grouped first.
    fn grouped_first(
        &mut self,
        joined: &Joined<'_>,
        side: Side,
        groups: Vec<Expr>,
        left: &Outcome,
        right: &Outcome,
    ) -> Result<Option<Outcome>> {
        let Joined { aggregate, join } = joined;
        let (own, own_outcome) = if side == Side::Left { (&join.left, left) } else { (&join.right, right) };
        let is_for_nothing = own_outcome.piece.is_none() && self.options.before_joins != BeforeJoins::Always;
        if is_for_nothing || !joined.sums_fit(side, &own_outcome.estimate) {
            return Ok(None);
        }
        let whole = Aggregate::try_new(Arc::clone(own), groups, aggregate.aggr_expr.clone())?;
        let Ok(split) = Split::of(&whole, self.state) else { return Ok(None) };
        let parts = Aggregate::try_new(Arc::clone(own), split.groups.clone(), split.parts.clone())?;
        let grouped = self.aggregate_over(&LogicalPlan::Aggregate(parts.clone()), &parts, own_outcome.clone())?;
        // To find the group of each row takes as long as to find its match: without a link there have to be far fewer groups than rows.
        let are_few = grouped.estimate.rows * ROWS_OF_A_GROUP <= own_outcome.estimate.rows;
        if self.options.in_process && !are_few && self.options.before_joins != BeforeJoins::Always {
            return Ok(None);
        }
        // The join finds its columns under their names; parts are known by their numbers.
        let columns: Vec<Expr> = parts.schema.columns().into_iter().map(Expr::Column).collect();
        let own_groups = whole.group_expr.len();
        let merged = columns.iter().enumerate().filter(|(index, _)| *index >= own_groups || split.merges(*index));
        let merged = merged.map(|(index, column)| column.clone().alias(part_name(index)));
        let columns = columns.iter().take(own_groups).cloned().chain(merged).collect();
        let named = Projection::try_new(columns, Arc::new(LogicalPlan::Aggregate(parts)))?;
        let named_plan = LogicalPlan::Projection(named.clone());
        let grouped = self.projection_over(&named_plan, &named, grouped)?;
        let over_plan = match side {
            Side::Left => join_over(join, named_plan, LogicalPlan::clone(&join.right))?,
            Side::Right => join_over(join, LogicalPlan::clone(&join.left), named_plan)?,
        };
        let LogicalPlan::Join(over) = &over_plan else { return Ok(None) };
        let (left, right) = if side == Side::Left { (&grouped, right) } else { (left, &grouped) };
        let rows = self.join_outcomes(&over_plan, over, left, right)?;
        let (step, merged) = split.merge_by(aggregate, aggregate.group_expr.clone(), over_plan)?;
        let rows = self.aggregate_over(&LogicalPlan::Aggregate(step.clone()), &step, rows)?;
        let merged_plan = LogicalPlan::Projection(merged.clone());
        let outcome = self.projection_over(&merged_plan, &merged, rows)?;
        self.stayed(&outcome.host, || "merges parts that were grouped before the join");
        Ok(Some(outcome))
    }
}
