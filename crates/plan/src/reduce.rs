//! Filters from joins: where one side of a join is small, its keys go to the drives before the other side is read, so
//! that rows which the join would drop do not leave them.
//!
//! The other side gets a semi join with the keys (a semi-join program: Bernstein and Chiu 1981), as far down as it can
//! be put: through projections, aliases and aggregates that group by the key, as in decorrelated subqueries (magic
//! sets: Bancilhon et al. 1986; see `docs/bibliography.md`). From then on it is an operator like any other, and the cut
//! ships the keys where that pays. The small side runs first, once, and its rows serve both as the keys and in the
//! join.

use std::sync::Arc;

use datafusion::common::{Column, JoinConstraint, JoinType, NullEquality, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Aggregate, Expr, Join, LogicalPlan, Projection, SubqueryAlias};

use pithead_model::SHIPPED_BYTES_MAX;

use crate::cutter::Cutter;
use crate::known_rows::KnownRows;
use crate::names::own;
use crate::recursion::stands_alone;
use crate::{Catalogue, CutOptions, Estimate, Input, PlanError};

/// The least bytes on the link that a side must cost for a reduction to be considered.
const WORTH_BYTES: f64 = 100e3;
/// The largest share of all bytes on the link that a reduction may leave.
const GAIN: f64 = 0.9;

/// A plan whose large sides are reduced by the keys of small sides.
#[derive(Clone, Debug)]
pub struct Reduced {
    /// The plan.
    pub plan: Arc<LogicalPlan>,
    /// Parts of the plan to compute first, in this order.
    pub first: Vec<First>,
}

/// A part of a plan that is computed first.
#[derive(Clone, Debug)]
pub struct First {
    /// The leaf that represents it in the plan, and in parts that come later.
    pub leaf: LogicalPlan,
    /// The plan that computes it.
    pub input: Arc<Input>,
    plan: Arc<LogicalPlan>,
}

/// Puts semi joins with the keys of small sides where they save bytes on the link.
pub fn reduce_by_joins(
    plan: &LogicalPlan,
    catalogue: &dyn Catalogue,
    state: &SessionState,
    options: &CutOptions,
) -> Result<Reduced, PlanError> {
    let mut reduced = Reduced { plan: Arc::new(plan.clone()), first: Vec::new() };
    if !options.pushdown || !options.joins || nth_join(plan, 0).is_none() {
        return Ok(reduced);
    }
    let mut reducer = Reducer { cutter: Cutter::draft(catalogue, state, options), keys: 0 };
    let mut cost = reducer.cost(&reduced)?;
    let mut number = 0;
    // The order is post-order, so that a side that a join has reduced can reduce what is joined to it above.
    while let Some(found) = nth_join(&reduced.plan, number).cloned() {
        let mut best: Option<(Reduced, f64, Join)> = None;
        for (source, keys) in choices(&found) {
            let Some((candidate, join)) = reducer.candidate(&reduced, &found, source, &keys, number)? else { continue };
            let after = reducer.cost(&candidate)?;
            if best.as_ref().is_none_or(|(_, least, _)| after < *least) {
                best = Some((candidate, after, join));
            }
        }
        if let Some((candidate, after, join)) = best.filter(|(_, after, _)| *after < cost * GAIN && cost - after > WORTH_BYTES)
        {
            // The semi joins that were inserted are joins, too, and come before this one.
            number = (0..).map_while(|n| nth_join(&candidate.plan, n)).position(|found| *found == join).unwrap_or(number);
            (reduced, cost) = (candidate, after);
        }
        number += 1;
    }
    Ok(reduced)
}

/// A side of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// The sides whose keys may reduce the other side: those where rows of the other side without a match do not appear in
/// the result.
fn sources(join_type: JoinType) -> &'static [Side] {
    match join_type {
        JoinType::Inner => &[Side::Left, Side::Right],
        JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => &[Side::Left],
        JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => &[Side::Right],
        JoinType::Full => &[],
    }
}

/// The keys by which a join may be reduced: all keys of a side, or one of them. One of several may have far fewer
/// values.
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
    /// Bytes on the link for the whole plan.
    fn cost(&mut self, reduced: &Reduced) -> Result<f64> {
        let mut cost = self.cutter.drafted(&reduced.plan)?.host_cost;
        for part in &reduced.first {
            cost += self.cutter.drafted(&part.plan)?.host_cost;
        }
        Ok(cost)
    }

    /// The plan in which the other side of its `number`th join is reduced by these keys of `source`, and that join in
    /// it. None where the reduction is of no use.
    fn candidate(
        &mut self,
        reduced: &Reduced,
        join: &Join,
        source: Side,
        keys: &[usize],
        number: usize,
    ) -> Result<Option<(Reduced, Join)>> {
        if join.null_aware || join.null_equality != NullEquality::NullEqualsNothing || join.on.is_empty() {
            return Ok(None);
        }
        let (small, large) = match source {
            Side::Left => (&join.left, &join.right),
            Side::Right => (&join.right, &join.left),
        };
        let small_is = self.cutter.visit_part(small)?;
        let large_is = self.cutter.visit_part(large)?;
        // The side is computed whole at the host; only its keys are shipped.
        let is_small = small_is.estimate.bytes() <= SHIPPED_BYTES_MAX as f64 && small_is.estimate.rows < large_is.estimate.rows;
        if !is_small || large_is.host_cost < WORTH_BYTES || !stands_alone(small) {
            return Ok(None);
        }
        let on = keys.iter().filter_map(|key| join.on.get(*key));
        let on = on.map(|(left, right)| if source == Side::Left { (left, right) } else { (right, left) });
        let pairs: Option<Vec<_>> = on.map(|(own, other)| Some((own.clone(), other.try_as_col()?.clone()))).collect();
        let Some(pairs) = pairs else { return Ok(None) };
        self.keys += 1;
        let (first, leaf) = self.first(reduced, small, small_is.estimate);
        let keys = keys_of(&leaf, pairs.iter().map(|(own, _)| own), self.keys)?;
        let columns: Vec<Column> = pairs.into_iter().map(|(_, other)| other).collect();
        let large = push(&without(large, small, &leaf)?, &columns, &keys)?;
        let (left, right) = match source {
            Side::Left => (leaf.clone(), large),
            Side::Right => (large, leaf.clone()),
        };
        let join = Join { left: Arc::new(left), right: Arc::new(right), ..join.clone() };
        let plan = replace_join(&reduced.plan, &mut { number }, &LogicalPlan::Join(join.clone()))?;
        let plan = plan.unwrap_or_else(|| LogicalPlan::clone(&reduced.plan));
        Ok(Some((Reduced { plan: Arc::new(without(&plan, small, &leaf)?), first }, join)))
    }

    /// The parts to compute first, including this one, and the leaf that represents it.
    fn first(&self, reduced: &Reduced, part: &Arc<LogicalPlan>, estimate: Estimate) -> (Vec<First>, LogicalPlan) {
        let mut first = reduced.first.clone();
        if first.iter().any(|known| known.leaf == **part) {
            return (first, LogicalPlan::clone(part));
        }
        let name = format!("first_{}", first.len() + 1);
        let leaf =
            KnownRows { name: name.clone(), schema: Arc::clone(part.schema()), estimate: estimate.clone().settled() }.leaf();
        let input = Arc::new(Input { name, plan: LogicalPlan::clone(part), spread: None, estimate });
        first.push(First { leaf: leaf.clone(), input, plan: Arc::clone(part) });
        (first, leaf)
    }
}

/// The plan with `leaf` in every place of `part`.
fn without(plan: &LogicalPlan, part: &LogicalPlan, leaf: &LogicalPlan) -> Result<LogicalPlan> {
    let replaced = rewritten(plan, &mut |node| (node == part).then(|| leaf.clone()))?;
    Ok(replaced.unwrap_or_else(|| plan.clone()))
}

/// The plan in which `rule` has replaced nodes; none if it replaced none. Unchanged subtrees stay in their place in
/// memory, by which drafts recognise them.
fn rewritten(plan: &LogicalPlan, rule: &mut dyn FnMut(&LogicalPlan) -> Option<LogicalPlan>) -> Result<Option<LogicalPlan>> {
    if let Some(other) = rule(plan) {
        return Ok(Some(other));
    }
    let inputs = plan.inputs();
    let changed = inputs.iter().map(|input| rewritten(input, rule)).collect::<Result<Vec<_>>>()?;
    if changed.iter().all(Option::is_none) {
        return Ok(None);
    }
    let inputs = inputs.into_iter().zip(changed).map(|(input, changed)| changed.unwrap_or_else(|| input.clone())).collect();
    plan.with_new_exprs(plan.expressions(), inputs).map(Some)
}

/// The distinct keys of a side, under names of their own.
fn keys_of<'e>(side: &LogicalPlan, exprs: impl Iterator<Item = &'e Expr>, number: usize) -> Result<Keys> {
    let named = exprs.enumerate().map(|(i, expr)| expr.clone().alias(own("key", i))).collect();
    let projected = LogicalPlan::Projection(Projection::try_new(named, Arc::new(side.clone()))?);
    let groups = projected.schema().columns().into_iter().map(Expr::Column).collect();
    let distinct = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(projected), groups, vec![])?);
    let plan = LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(distinct), own("keys", number))?);
    Ok(Keys { columns: plan.schema().columns(), plan })
}

struct Keys {
    plan: LogicalPlan,
    columns: Vec<Column>,
}

/// The plan with only those rows whose `columns` are among the keys. The semi join is put below operators that it
/// commutes with if it gets below an aggregate that way, and on top otherwise.
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

/// The input of an operator that keeps or drops whole rows, and the names of the columns there.
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

/// The names of the columns below an aggregate, if they are among its groups.
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

/// The join at a position in post-order.
fn nth_join(plan: &LogicalPlan, number: usize) -> Option<&Join> {
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
    find(plan, &mut { number })
}

/// The plan with the join at a position in post-order replaced; none if there is no such join.
fn replace_join(plan: &LogicalPlan, left: &mut usize, by: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let inputs = plan.inputs();
    for (index, input) in inputs.iter().enumerate() {
        if let Some(replaced) = replace_join(input, left, by)? {
            let mut inputs: Vec<LogicalPlan> = inputs.into_iter().cloned().collect();
            inputs[index] = replaced;
            return plan.with_new_exprs(plan.expressions(), inputs).map(Some);
        }
    }
    if !matches!(plan, LogicalPlan::Join(_)) {
        return Ok(None);
    }
    if *left == 0 {
        return Ok(Some(by.clone()));
    }
    *left -= 1;
    Ok(None)
}
