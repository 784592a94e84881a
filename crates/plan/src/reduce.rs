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
use crate::join::Side;
use crate::key_sources::{KeySource, below, key_sources};
use crate::known_rows::KnownRows;
use crate::names::own;
use crate::recursion::stands_alone;
use crate::{Catalogue, CutOptions, Estimate, Input, PlanError, is_volatile};

/// The least bytes on the link that a side must cost for a reduction to be considered.
const WORTH_BYTES: f64 = 100e3;
/// The largest share of the keys there are that a part of a side may have to be looked at by itself.
const KEYS_SHARE_MAX: f64 = 0.9;
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
        let sources = choices(&found).into_iter().flat_map(|(side, keys)| {
            key_sources(&found, side, &keys).into_iter().map(move |source| (side, keys.clone(), source))
        });
        for (side, keys, source) in sources.collect::<Vec<_>>() {
            let Some((candidate, join)) = reducer.candidate(&reduced, &found, (side, &keys), &source, number)? else {
                continue;
            };
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

    /// The plan in which the other side of its `number`th join is reduced by these keys of a side, from this part of it, and that join
    /// in it. None where the reduction is of no use.
    fn candidate(
        &mut self,
        reduced: &Reduced,
        join: &Join,
        (side, keys): (Side, &[usize]),
        source: &KeySource,
        number: usize,
    ) -> Result<Option<(Reduced, Join)>> {
        if join.null_aware || join.null_equality != NullEquality::NullEqualsNothing || join.on.is_empty() {
            return Ok(None);
        }
        let (small, large) = match side {
            Side::Left => (&join.left, &join.right),
            Side::Right => (&join.right, &join.left),
        };
        let Some(estimate) = self.judged(source, large)? else { return Ok(None) };
        let columns = keys.iter().filter_map(|key| join.on.get(*key));
        let columns = columns.map(|(left, right)| if side == Side::Left { right } else { left });
        let Some(columns) = columns.map(|key| key.try_as_col().cloned()).collect::<Option<Vec<Column>>>() else {
            return Ok(None);
        };
        self.keys += 1;
        let (first, leaf) = self.first(reduced, &source.part, estimate);
        let keys = keys_of(&leaf, source.keys.iter(), self.keys)?;
        let large = push(&without(large, &source.part, &leaf)?, &columns, &keys)?;
        let small = if source.is_whole { leaf.clone() } else { without(small, &source.part, &leaf)? };
        let (left, right) = if side == Side::Left { (small, large) } else { (large, small) };
        let join = Join { left: Arc::new(left), right: Arc::new(right), ..join.clone() };
        let plan = replace_join(&reduced.plan, &mut { number }, &LogicalPlan::Join(join.clone()))?;
        let plan = plan.unwrap_or_else(|| LogicalPlan::clone(&reduced.plan));
        Ok(Some((Reduced { plan: Arc::new(without(&plan, &source.part, &leaf)?), first }, join)))
    }

    /// The estimate of a part whose keys may reduce what it is joined with; none: that would be of no use, or be wrong.
    fn judged(&mut self, source: &KeySource, large: &LogicalPlan) -> Result<Option<Estimate>> {
        let part_is = self.cutter.visit_part(&source.part)?;
        let large_is = self.cutter.visit_part(large)?;
        // The part is computed whole at the host; only its keys are shipped.
        let is_small = part_is.estimate.bytes() <= SHIPPED_BYTES_MAX as f64 && part_is.estimate.rows < large_is.estimate.rows;
        // A side with random values has others in each place where it occurs, and one leaf would stand for all of them.
        if !is_small || large_is.host_cost < WORTH_BYTES || !stands_alone(&source.part) || is_volatile(&source.part)? {
            return Ok(None);
        }
        // Of a part that is joined first, all keys are as good as none.
        let schema = source.part.schema();
        let is_choice = |key: &Expr| {
            part_is.estimate.column(key, schema).is_some_and(|column| column.distinct < column.domain * KEYS_SHARE_MAX)
        };
        Ok((source.is_whole || source.keys.iter().any(is_choice)).then_some(part_is.estimate))
    }

    /// The parts to compute first, including this one, and the leaf that represents it.
    fn first(&self, reduced: &Reduced, part: &Arc<LogicalPlan>, estimate: Estimate) -> (Vec<First>, LogicalPlan) {
        let mut first = reduced.first.clone();
        if first.iter().any(|known| known.leaf == **part) {
            return (first, LogicalPlan::clone(part));
        }
        let name = format!("first_{}", first.len() + 1);
        let leaf = KnownRows { name: name.clone(), part: Arc::clone(part), estimate: estimate.clone().settled() }.leaf();
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
