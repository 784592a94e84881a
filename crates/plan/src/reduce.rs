//! Filters from joins: where one side of a join is small, its keys go to the drives before the other side is read, so that rows
//! which the join would drop do not leave them.
//!
//! The other side gets a semi join with the keys (a semi-join program: Bernstein and Chiu, 1981), as far down as it can be
//! put: through projections, aliases and aggregates that group by the key, as in decorrelated subqueries (magic sets: Bancilhon
//! et al., 1986). It is an operator like any other then, and the cut ships the keys where that pays. The small side runs first,
//! once; its rows serve the keys and the join.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, JoinConstraint, JoinType, NullEquality, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Aggregate, Expr, Join, LogicalPlan, Projection, SubqueryAlias};

use pithead_model::SHIPPED_BYTES_MAX;

use crate::decompose::{Cutter, input_key};
use crate::{Catalogue, CutOptions, Input, PlanError};

/// Bytes on the link that a side must cost to be worth a look.
const WORTH_BYTES: f64 = 100e3;
/// Share of all bytes on the link that must be left at most.
const GAIN: f64 = 0.9;

/// A plan whose large sides are reduced by the keys of small ones.
#[derive(Clone, Debug)]
pub struct Reduced {
    /// The plan.
    pub plan: LogicalPlan,
    /// Parts of it to compute first, in this order. Each may be in the plan more than once, and in later parts.
    pub first: Vec<Input>,
}

/// Puts semi joins with the keys of small sides where they save bytes on the link.
pub fn reduce_by_joins(
    plan: &LogicalPlan,
    catalogue: &dyn Catalogue,
    state: &SessionState,
    options: &CutOptions,
) -> Result<Reduced, PlanError> {
    let mut reduced = Reduced { plan: plan.clone(), first: Vec::new() };
    if !options.pushdown || !options.joins || nth_join(plan, 0).is_none() {
        return Ok(reduced);
    }
    let mut reducer = Reducer { cutter: Cutter::new(catalogue, state, options, Default::default()), keys: 0 };
    let mut cost = reducer.cost(&reduced)?;
    let mut join = 0;
    // Post-order, so that what a join reduces can reduce what is joined to it above.
    while let Some(found) = nth_join(&reduced.plan, join) {
        let mut best: Option<(Reduced, f64, Side)> = None;
        for (source, keys) in choices(&found) {
            let Some(candidate) = reducer.candidate(&reduced, &found, source, &keys, join)? else { continue };
            let after = reducer.cost(&candidate)?;
            if best.as_ref().is_none_or(|(_, least, _)| after < *least) {
                best = Some((candidate, after, source));
            }
        }
        if let Some((candidate, after, source)) =
            best.filter(|(_, after, _)| *after < cost * GAIN && cost - after > WORTH_BYTES)
        {
            // The semi joins that came in are joins, too, and come before this one.
            join = position_of(&candidate.plan, &found, source).unwrap_or(join);
            (reduced, cost) = (candidate, after);
        }
        join += 1;
    }
    Ok(reduced)
}

/// A side of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// The sides whose keys may reduce the other: where rows of the other that have no match do not show.
fn sources(join_type: JoinType) -> &'static [Side] {
    match join_type {
        JoinType::Inner => &[Side::Left, Side::Right],
        JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => &[Side::Left],
        JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => &[Side::Right],
        JoinType::Full => &[],
    }
}

/// What a join may be reduced by: the keys of a side, all of them or one. One of several may have far fewer values.
fn choices(join: &Join) -> Vec<(Side, Vec<usize>)> {
    let all: Vec<usize> = (0..join.on.len()).collect();
    let each = all.iter().map(|key| vec![*key]).filter(|_| all.len() > 1);
    let keys: Vec<Vec<usize>> = std::iter::once(all.clone()).chain(each).collect();
    sources(join.join_type).iter().flat_map(|source| keys.iter().map(|keys| (*source, keys.clone()))).collect()
}

struct Reducer<'a> {
    cutter: Cutter<'a>,
    keys: usize,
}

impl Reducer<'_> {
    /// Bytes on the link for all of it.
    fn cost(&mut self, reduced: &Reduced) -> Result<f64> {
        self.cutter.first.clear();
        let mut cost = 0.0;
        for part in &reduced.first {
            cost += self.cutter.visit(&part.plan)?.host_cost;
            self.cutter.first.insert(part.key.clone());
        }
        Ok(cost + self.cutter.visit(&reduced.plan)?.host_cost)
    }

    /// The plan with the other side of its `number`th join reduced by these keys of `source`; none where it is of no use.
    fn candidate(
        &mut self,
        reduced: &Reduced,
        join: &Join,
        source: Side,
        keys: &[usize],
        number: usize,
    ) -> Result<Option<Reduced>> {
        if join.null_aware || join.null_equality != NullEquality::NullEqualsNothing || join.on.is_empty() {
            return Ok(None);
        }
        let (small, large) = match source {
            Side::Left => (&join.left, &join.right),
            Side::Right => (&join.right, &join.left),
        };
        let small_is = self.cutter.visit(small)?;
        let large_is = self.cutter.visit(large)?;
        let known = self.cutter.first.contains(&input_key(small));
        // It is computed whole at the host; only its keys are shipped.
        let is_small = small_is.estimate.bytes() <= SHIPPED_BYTES_MAX as f64 && small_is.estimate.rows < large_is.estimate.rows;
        if !is_small || large_is.host_cost < WORTH_BYTES {
            return Ok(None);
        }
        let on = keys.iter().filter_map(|key| join.on.get(*key));
        let on = on.map(|(left, right)| if source == Side::Left { (left, right) } else { (right, left) });
        let pairs: Option<Vec<_>> = on.map(|(own, other)| Some((own.clone(), other.try_as_col()?.clone()))).collect();
        let Some(pairs) = pairs else { return Ok(None) };
        self.keys += 1;
        let keys = keys_of(small, pairs.iter().map(|(own, _)| own), self.keys)?;
        let columns: Vec<Column> = pairs.into_iter().map(|(_, other)| other).collect();
        let large = push(large, &columns, &keys)?;
        let (left, right) = match source {
            Side::Left => (LogicalPlan::clone(small), large),
            Side::Right => (large, LogicalPlan::clone(small)),
        };
        let join = LogicalPlan::Join(Join { left: Arc::new(left), right: Arc::new(right), ..join.clone() });
        let plan = replace_join(&reduced.plan, number, join)?;
        let mut first = reduced.first.clone();
        if !known {
            let (plan, key, estimate) = (LogicalPlan::clone(small), input_key(small), small_is.estimate);
            first.push(Input { name: format!("first_{}", first.len() + 1), plan, key, spread: None, estimate });
        }
        Ok(Some(Reduced { plan, first }))
    }
}

/// The distinct keys of a side, under names of their own.
fn keys_of<'e>(side: &LogicalPlan, exprs: impl Iterator<Item = &'e Expr>, number: usize) -> Result<Keys> {
    let named = exprs.enumerate().map(|(i, expr)| expr.clone().alias(format!("k{i}"))).collect();
    let projected = LogicalPlan::Projection(Projection::try_new(named, Arc::new(side.clone()))?);
    let groups = projected.schema().columns().into_iter().map(Expr::Column).collect();
    let distinct = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(projected), groups, vec![])?);
    let plan = LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(distinct), format!("{KEYS}{number}"))?);
    Ok(Keys { columns: plan.schema().columns(), plan })
}

/// Name of keys, before their number.
const KEYS: &str = "keys_";

struct Keys {
    plan: LogicalPlan,
    columns: Vec<Column>,
}

/// The plan with only those rows whose `columns` are among the keys. The semi join is put below what it commutes with, where
/// there is an aggregate to get below, else on top.
fn push(plan: &LogicalPlan, columns: &[Column], keys: &Keys) -> Result<LogicalPlan> {
    if let Some((child, columns)) = below(plan, columns)
        && has_aggregate(child)
    {
        let pushed = push(child, &columns, keys)?;
        return plan.with_new_exprs(plan.expressions(), vec![pushed]);
    }
    if let LogicalPlan::Aggregate(aggregate) = plan
        && let Some(columns) = grouped(aggregate, columns)
    {
        let pushed = push(&aggregate.input, &columns, keys)?;
        return plan.with_new_exprs(plan.expressions(), vec![pushed]);
    }
    let on = columns.iter().zip(&keys.columns).map(|(own, key)| (Expr::Column(own.clone()), Expr::Column(key.clone())));
    let join = Join::try_new(
        Arc::new(plan.clone()),
        Arc::new(keys.plan.clone()),
        on.collect(),
        None,
        JoinType::LeftSemi,
        JoinConstraint::On,
        NullEquality::NullEqualsNothing,
        false,
    )?;
    Ok(LogicalPlan::Join(join))
}

/// The input of an operator that keeps or drops whole rows, and what the columns are called there.
fn below<'p>(plan: &'p LogicalPlan, columns: &[Column]) -> Option<(&'p LogicalPlan, Vec<Column>)> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => {
            let inner = alias.input.schema().columns();
            let rename = |column: &Column| Some(inner.get(alias.schema.maybe_index_of_column(column)?)?.clone());
            Some((&alias.input, columns.iter().map(rename).collect::<Option<_>>()?))
        }
        LogicalPlan::Projection(projection) => {
            let rename = |column: &Column| {
                let expr = projection.expr.get(projection.schema.maybe_index_of_column(column)?)?;
                expr.clone().unalias().try_as_col().cloned()
            };
            Some((&projection.input, columns.iter().map(rename).collect::<Option<_>>()?))
        }
        LogicalPlan::Filter(filter) => Some((&filter.input, columns.to_vec())),
        _ => None,
    }
}

/// Where the columns are groups of an aggregate: what they are called below it.
fn grouped(aggregate: &Aggregate, columns: &[Column]) -> Option<Vec<Column>> {
    let group = |column: &Column| {
        let index = aggregate.schema.maybe_index_of_column(column)?;
        aggregate.group_expr.get(index)?.clone().unalias().try_as_col().cloned()
    };
    let sets = aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_)));
    if sets { None } else { columns.iter().map(group).collect() }
}

/// Whether there is an aggregate below operators that [`below`] looks through.
fn has_aggregate(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(_) => true,
        LogicalPlan::SubqueryAlias(alias) => has_aggregate(&alias.input),
        LogicalPlan::Projection(projection) => has_aggregate(&projection.input),
        LogicalPlan::Filter(filter) => has_aggregate(&filter.input),
        _ => false,
    }
}

/// The join at a place in post-order.
fn nth_join(plan: &LogicalPlan, number: usize) -> Option<Join> {
    fn find<'p>(plan: &'p LogicalPlan, left: &mut usize) -> Option<&'p Join> {
        if let Some(found) = plan.inputs().into_iter().find_map(|input| find(input, left)) {
            return Some(found);
        }
        let LogicalPlan::Join(join) = plan else { return None };
        if *left == 0 {
            return Some(join);
        }
        *left -= 1;
        None
    }
    find(plan, &mut { number }).cloned()
}

/// The plan with the join at a place in post-order replaced.
fn replace_join(plan: &LogicalPlan, number: usize, by: LogicalPlan) -> Result<LogicalPlan> {
    let (mut seen, mut by) = (0, Some(by));
    let replaced = plan.clone().transform_up(|node| {
        if !matches!(node, LogicalPlan::Join(_)) {
            return Ok(Transformed::no(node));
        }
        seen += 1;
        match by.take_if(|_| seen == number + 1) {
            Some(by) => Ok(Transformed::yes(by)),
            None => Ok(Transformed::no(node)),
        }
    })?;
    Ok(replaced.data)
}

/// Where a join is after its other side was reduced: its equalities are as they were.
fn position_of(plan: &LogicalPlan, join: &Join, source: Side) -> Option<usize> {
    let own = if source == Side::Left { &join.left } else { &join.right };
    let same = |found: &Join| {
        let side = if source == Side::Left { &found.left } else { &found.right };
        found.on == join.on && found.join_type == join.join_type && side == own
    };
    (0..).map_while(|number| nth_join(plan, number)).position(|found| same(&found))
}
