//! The order of joins: inner joins, and the semi and anti joins among them, are flattened and put together anew by
//! dynamic programming over connected sets of relations (Selinger et al. 1979; Moerkotte and Neumann 2006; see
//! `docs/bibliography.md`).
//!
//! The cost of a set of relations is what it takes to have its rows: the bytes on the link, as the cut ([`Cutter`])
//! estimates them for that very set, and the rows that joins read and produce. An order that keeps a join at the drives
//! is therefore preferred to one that merely starts with few rows.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, ExprSchema, JoinConstraint, JoinType, NullEquality, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{Expr, Filter, Join, LogicalPlan, Projection};
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::{Optimizer, OptimizerContext};
use pithead_functions::conjunction;

use crate::cutter::{Cutter, Outcome};
use crate::{Catalogue, CutOptions, PlanError};

/// The most relations for which all orders are looked at. More relations stay in the order of the query.
const RELATIONS_MAX: usize = 10;
/// Bytes a second of the link for which orders are compared: 1 Gbit/s.
pub(crate) const LINK_BYTES_PER_SECOND: f64 = 125e6;
/// Rows a second that a join reads or produces.
pub(crate) const ROWS_PER_SECOND: f64 = 30e6;

/// The plan with its joins in the order of the least estimated cost.
pub fn order_joins(
    plan: &LogicalPlan,
    catalogue: &dyn Catalogue,
    state: &SessionState,
    options: &CutOptions,
) -> Result<LogicalPlan, PlanError> {
    let mut orderer = Orderer { cutter: Cutter::draft(catalogue, state, options), changed: false };
    let ordered = orderer.order(plan)?;
    if !orderer.changed {
        return Ok(ordered);
    }
    // Columns that only a join below needs are dropped above it.
    let optimizer = Optimizer::with_rules(vec![Arc::new(OptimizeProjections::new())]);
    Ok(optimizer.optimize(ordered, &OptimizerContext::new().with_skip_failing_rules(false), |_, _| {})?)
}

struct Orderer<'a> {
    cutter: Cutter<'a>,
    changed: bool,
}

/// Relations, each a bit.
type Set = u32;

/// Joins that may be put in any order, and the relations that they join.
#[derive(Default)]
struct Region {
    relations: Vec<Relation>,
    /// Conditions with the relations that each needs.
    conditions: Vec<Expr>,
}

struct Relation {
    plan: LogicalPlan,
    /// The semi or anti join whose other side the relation is; none: its columns are part of the result.
    exists: Option<Join>,
}

/// Columns, each of another relation, that inner joins make equal. Equalities that follow from several others count
/// like those in the query, so that relations can be joined although no condition names both.
#[derive(Default)]
struct Class(Vec<(Set, Column)>);

/// The conditions of a region.
struct Conditions {
    classes: Vec<Class>,
    others: Vec<Condition>,
}

/// A condition, resolved.
struct Condition {
    needs: Set,
    expr: Expr,
    /// An equality of the first relations' expression and the second's.
    equality: Option<(Set, Expr, Set, Expr)>,
}

/// A set of relations, joined.
#[derive(Clone)]
struct Joined {
    plan: LogicalPlan,
    outcome: Outcome,
    /// Rows that its joins read and produce.
    rows: f64,
}

impl Joined {
    /// Seconds until its rows are at the host.
    fn seconds(&self) -> f64 {
        self.outcome.host_cost / LINK_BYTES_PER_SECOND + self.rows / ROWS_PER_SECOND
    }

    /// Seconds until its rows are at the drives.
    fn seconds_at_drives(&self) -> f64 {
        let cost = self.outcome.piece.as_ref().map_or(f64::INFINITY, |piece| piece.cost);
        cost / LINK_BYTES_PER_SECOND + self.rows / ROWS_PER_SECOND
    }
}

/// The best ways to have the rows of a set: at the host, and at the drives.
#[derive(Clone, Default)]
struct Best {
    host: Option<Joined>,
    drives: Option<Joined>,
}

impl Best {
    fn offer(&mut self, joined: Joined) {
        if joined.outcome.piece.is_some()
            && self.drives.as_ref().is_none_or(|best| joined.seconds_at_drives() < best.seconds_at_drives())
        {
            self.drives = Some(joined.clone());
        }
        if self.host.as_ref().is_none_or(|best| joined.seconds() < best.seconds()) {
            self.host = Some(joined);
        }
    }

    fn ways(&self) -> impl Iterator<Item = &Joined> {
        self.host.iter().chain(&self.drives)
    }
}

impl Orderer<'_> {
    fn order(&mut self, plan: &LogicalPlan) -> Result<LogicalPlan> {
        if is_region(plan) {
            let mut region = Region::default();
            region.flatten(plan);
            if (3..=RELATIONS_MAX).contains(&region.relations.len())
                && let Some(ordered) = self.region(plan, region)?
            {
                self.changed = true;
                return Ok(ordered);
            }
        }
        let ordered = plan.clone().map_children(|child| self.order(&child).map(Transformed::yes))?;
        Ok(ordered.data)
    }

    /// The region in its best order, under the columns of `plan`. None if it cannot be ordered.
    fn region(&mut self, plan: &LogicalPlan, mut region: Region) -> Result<Option<LogicalPlan>> {
        for relation in &mut region.relations {
            relation.plan = self.order(&relation.plan)?;
        }
        let Some(conditions) = region.resolve() else { return Ok(None) };
        for cross in [false, true] {
            if let Some(best) = self.search(&region, &conditions, cross)? {
                let columns = plan.schema().columns().into_iter().map(Expr::Column).collect();
                return Projection::try_new(columns, Arc::new(best.plan)).map(|plan| Some(LogicalPlan::Projection(plan)));
            }
        }
        Ok(None)
    }

    fn search(&mut self, region: &Region, conditions: &Conditions, cross: bool) -> Result<Option<Joined>> {
        let count = region.relations.len();
        let all: Set = (1 << count) - 1;
        let mut best: Vec<Best> = vec![Best::default(); 1 << count];
        for (index, relation) in region.relations.iter().enumerate() {
            let outcome = self.cutter.drafted(&Arc::new(relation.plan.clone()))?;
            let leaf = Joined { plan: relation.plan.clone(), outcome, rows: 0.0 };
            let own = conditions.others.iter().filter(|condition| condition.needs == 1 << index);
            let leaf = self.filtered(leaf, own.map(|condition| condition.expr.clone()).collect())?;
            best[1 << index].offer(leaf);
        }
        for set in 1..=all {
            if set.count_ones() < 2 {
                continue;
            }
            let mut found = Best::default();
            // This loop goes through every way to split the set in two.
            let mut left = (set - 1) & set;
            while left > 0 {
                let right = set & !left;
                if let Some(link) = region.link(conditions, left, right, cross) {
                    let pairs = best[left as usize].ways().flat_map(|l| best[right as usize].ways().map(move |r| (l, r)));
                    for (l, r) in pairs {
                        found.offer(self.join(region, &link, l, r)?);
                    }
                }
                left = (left - 1) & set;
            }
            best[set as usize] = found;
        }
        Ok(best.swap_remove(all as usize).host)
    }

    fn join(&mut self, region: &Region, link: &Link, left: &Joined, right: &Joined) -> Result<Joined> {
        let exists = link.exists.and_then(|index| region.relations[index].exists.as_ref());
        let mut on = link.on.clone();
        let (mut left, mut right) = (left, right);
        if exists.is_none() && left.outcome.estimate.rows > right.outcome.estimate.rows {
            // The smaller side comes first, because a hash join keeps it in memory.
            (left, right) = (right, left);
            on = on.into_iter().map(|(l, r)| (r, l)).collect();
        }
        let join = match exists {
            Some(join) => Join::try_new(
                Arc::new(left.plan.clone()),
                Arc::new(right.plan.clone()),
                join.on.clone(),
                join.filter.clone(),
                join.join_type,
                join.join_constraint,
                join.null_equality,
                join.null_aware,
            )?,
            None => Join::try_new(
                Arc::new(left.plan.clone()),
                Arc::new(right.plan.clone()),
                on,
                // This is not a filter above the join: there DataFusion's physical planner would confuse columns of the
                // same name.
                conjunction(link.filters.clone()),
                JoinType::Inner,
                JoinConstraint::On,
                NullEquality::NullEqualsNothing,
                false,
            )?,
        };
        let plan = LogicalPlan::Join(join.clone());
        let outcome = self.cutter.join_outcomes(&plan, &join, &left.outcome, &right.outcome)?;
        let sides = left.outcome.estimate.rows + right.outcome.estimate.rows;
        let rows = left.rows + right.rows + sides + outcome.estimate.rows;
        Ok(Joined { plan, outcome, rows })
    }

    fn filtered(&mut self, joined: Joined, conditions: Vec<Expr>) -> Result<Joined> {
        let Some(predicate) = conjunction(conditions) else { return Ok(joined) };
        let filter = Filter::try_new(predicate, Arc::new(joined.plan))?;
        let plan = LogicalPlan::Filter(filter.clone());
        let outcome = self.cutter.filter_over(&plan, &filter, joined.outcome)?;
        Ok(Joined { plan, outcome, rows: joined.rows })
    }
}

/// How two disjoint sets are joined.
struct Link {
    on: Vec<(Expr, Expr)>,
    filters: Vec<Expr>,
    /// The right set is the other side of a semi or anti join.
    exists: Option<usize>,
}

impl Region {
    fn flatten(&mut self, plan: &LogicalPlan) {
        match plan {
            LogicalPlan::Join(join) if is_inner(join) => {
                self.flatten(&join.left);
                self.flatten(&join.right);
                let equal = |(left, right): &(Expr, Expr)| left.clone().eq(right.clone());
                self.conditions.extend(join.on.iter().map(equal));
                self.conditions.extend(join.filter.iter().cloned().flat_map(split_conjunction_owned));
            }
            LogicalPlan::Join(join) if is_exists(join) => {
                self.flatten(&join.left);
                let plan = LogicalPlan::clone(&join.right);
                self.relations.push(Relation { plan, exists: Some(join.clone()) });
            }
            LogicalPlan::Filter(filter) if is_region(plan) => {
                self.flatten(&filter.input);
                self.conditions.extend(split_conjunction_owned(filter.predicate.clone()));
            }
            LogicalPlan::Projection(projection) if is_region(plan) => self.flatten(&projection.input),
            _ => self.relations.push(Relation { plan: plan.clone(), exists: None }),
        }
    }

    /// The conditions, with the relations that each needs. None if a column belongs to no relation, or to several.
    fn resolve(&self) -> Option<Conditions> {
        let mut conditions = Conditions { classes: Vec::new(), others: Vec::new() };
        let mut equal: Vec<Class> = Vec::new();
        for expr in &self.conditions {
            if expr.is_volatile() {
                return None;
            }
            let needs = self.needs(expr).filter(|needs| *needs != 0)?;
            let equality = match expr {
                Expr::BinaryExpr(binary) if binary.op == datafusion::logical_expr::Operator::Eq => {
                    let (left, right) = (self.needs(&binary.left)?, self.needs(&binary.right)?);
                    let apart = left != 0 && right != 0 && left & right == 0;
                    apart.then(|| (left, (*binary.left).clone(), right, (*binary.right).clone()))
                }
                _ => None,
            };
            match &equality {
                Some((left, Expr::Column(a), right, Expr::Column(b))) if self.same_type(a, b) => {
                    join_classes(&mut equal, [(*left, a.clone()), (*right, b.clone())]);
                }
                _ => conditions.others.push(Condition { needs, expr: expr.clone(), equality }),
            }
        }
        for class in equal {
            conditions.add(class);
        }
        // The columns that semi and anti joins look at must be known, too.
        self.relations
            .iter()
            .filter_map(|relation| relation.exists.as_ref())
            .all(|join| self.outer_needs(join).is_some())
            .then_some(conditions)
    }

    /// The relations whose columns an expression reads.
    fn needs(&self, expr: &Expr) -> Option<Set> {
        expr.column_refs().into_iter().try_fold(0, |set, column| Some(set | 1 << self.owner(column)?))
    }

    fn owner(&self, column: &Column) -> Option<usize> {
        let has = |relation: &Relation| relation.exists.is_none() && relation.plan.schema().has_column(column);
        let mut owners = self.relations.iter().enumerate().filter(|(_, relation)| has(relation)).map(|(index, _)| index);
        let owner = owners.next()?;
        owners.next().is_none().then_some(owner)
    }

    fn same_type(&self, a: &Column, b: &Column) -> bool {
        let type_of = |column: &Column| {
            let relation = &self.relations[self.owner(column)?];
            Some(relation.plan.schema().field_from_column(column).ok()?.data_type().clone())
        };
        type_of(a).is_some_and(|found| Some(found) == type_of(b))
    }

    /// The relations that a semi or anti join must have on its left.
    fn outer_needs(&self, join: &Join) -> Option<Set> {
        let keys = join.on.iter().try_fold(0, |set, (left, _)| Some(set | self.needs(left)?))?;
        let inner = join.right.schema();
        let columns = join.filter.iter().flat_map(Expr::column_refs).filter(|column| !inner.has_column(column));
        columns.into_iter().try_fold(keys, |set, column| Some(set | 1 << self.owner(column)?))
    }

    /// How `right` is joined to `left`, if it may be.
    fn link(&self, conditions: &Conditions, left: Set, right: Set, cross: bool) -> Option<Link> {
        let only_exists = |set: Set| {
            let index = set.trailing_zeros() as usize;
            (set.count_ones() == 1 && self.relations[index].exists.is_some()).then_some(index)
        };
        if only_exists(left).is_some() {
            return None;
        }
        if let Some(index) = only_exists(right) {
            let needs = self.outer_needs(self.relations[index].exists.as_ref()?)?;
            return (needs != 0 && needs & left == needs).then_some(Link { on: vec![], filters: vec![], exists: Some(index) });
        }
        // Each pair of sets is looked at once.
        (left.trailing_zeros() < right.trailing_zeros()).then(|| inner_link(conditions, left, right, cross)).flatten()
    }
}

impl Class {
    /// A column that relations of a set have.
    fn of(&self, set: Set) -> Option<Expr> {
        self.0.iter().find(|(relation, _)| relation & set != 0).map(|(_, column)| Expr::Column(column.clone()))
    }
}

impl Conditions {
    /// Adds a class. If it has two columns of one relation, these must be equal within that relation, too: its first
    /// column is then made equal to each of the others.
    fn add(&mut self, class: Class) {
        let mut kept: Vec<(Set, Column)> = Vec::new();
        for (relation, column) in class.0 {
            match kept.iter().find(|(known, _)| *known == relation) {
                None => kept.push((relation, column)),
                Some((_, first)) => {
                    let expr = Expr::Column(first.clone()).eq(Expr::Column(column));
                    self.others.push(Condition { needs: relation, expr, equality: None });
                }
            }
        }
        self.classes.push(Class(kept));
    }
}

/// Puts two equal columns into one class, together with everything that either is equal to.
fn join_classes(classes: &mut Vec<Class>, columns: [(Set, Column); 2]) {
    let mut joined = Class::default();
    for column in columns {
        let found = classes.iter().position(|class| class.0.contains(&column));
        let class = found.map_or_else(|| Class(vec![column]), |index| classes.swap_remove(index));
        joined.0.extend(class.0);
    }
    classes.push(joined);
}

/// The equalities and other conditions between two sets. None if nothing connects them.
fn inner_link(conditions: &Conditions, left: Set, right: Set, cross: bool) -> Option<Link> {
    let mut link = Link { on: vec![], filters: vec![], exists: None };
    // One equality is enough: within a side, the columns of a class are equal already.
    link.on.extend(conditions.classes.iter().filter_map(|class| Some((class.of(left)?, class.of(right)?))));
    for condition in &conditions.others {
        let here = condition.needs & (left | right) == condition.needs;
        if !here || condition.needs & left == 0 || condition.needs & right == 0 {
            continue;
        }
        match &condition.equality {
            Some((l, a, r, b)) if l & left == *l && r & right == *r => link.on.push((a.clone(), b.clone())),
            Some((l, a, r, b)) if l & right == *l && r & left == *r => link.on.push((b.clone(), a.clone())),
            _ => link.filters.push(condition.expr.clone()),
        }
    }
    (cross || !link.on.is_empty()).then_some(link)
}

/// Whether joins below may be put in another order: an inner, semi or anti join, also below filters and projections of
/// columns.
fn is_region(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Join(join) => is_inner(join) || is_exists(join),
        LogicalPlan::Filter(filter) => is_region(&filter.input),
        LogicalPlan::Projection(projection) => {
            projection.expr.iter().all(|expr| matches!(expr, Expr::Column(_))) && is_region(&projection.input)
        }
        _ => false,
    }
}

fn is_inner(join: &Join) -> bool {
    join.join_type == JoinType::Inner && join.null_equality == NullEquality::NullEqualsNothing && !join.null_aware
}

/// A semi or anti join, which only keeps or drops rows of its left side.
fn is_exists(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti) && !join.null_aware && !join.on.is_empty()
}
