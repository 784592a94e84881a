//! Joins at the drives: of co-partitioned datasets, and with a small side that is shipped.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::common::TableReference;
use datafusion::common::{JoinType, Result};
use datafusion::logical_expr::builder::LogicalTableSource;
use datafusion::logical_expr::{Aggregate, Expr, Join, LogicalPlan};

use crate::cutter::{Cutter, Outcome, renamed_scan};
use crate::expression::any_stays;
use crate::facts::KeyClasses;
use crate::piece::{Layer, Piece, column_index};
use crate::recursion::stands_alone;
pub(crate) use crate::side::Side;
use crate::unshipped::{Unshipped, reason};
use crate::{Estimate, INPUT_SCHEMA, Input};

/// The share of the bytes below which a side without repeats must get to be worth the grouping.
const DISTINCT_GAIN: f64 = 0.6;

/// How a side of a join is shipped to the drives of the other one.
struct Shipped<'o> {
    /// What these drives run.
    piece: &'o Piece,
    /// As [`Input`] has it.
    spread: Option<Vec<usize>>,
    /// Bytes to all of them.
    sent: f64,
}

impl Cutter<'_> {
    pub(crate) fn join(&mut self, plan: &LogicalPlan, join: &Join) -> Result<Outcome> {
        let left = self.visit(&join.left)?;
        let right = self.visit(&join.right)?;
        self.join_outcomes(plan, join, &left, &right)
    }

    /// A join whose sides were looked at already.
    pub(crate) fn join_outcomes(
        &mut self,
        plan: &LogicalPlan,
        join: &Join,
        left: &Outcome,
        right: &Outcome,
    ) -> Result<Outcome> {
        let estimate = left.estimate.join(&right.estimate, join);
        if let Some((distinct, right)) = self.distinct_matches(join, left, right)? {
            // Plans the query that replaces the join and gives the same rows.
            let distinct = Join { right: Arc::new(distinct), ..join.clone() };
            return self.join_of(&LogicalPlan::Join(distinct.clone()), &distinct, left, &right, estimate);
        }
        self.join_of(plan, join, left, right, estimate)
    }

    /// For a join that only asks whether there is a match: the other side without repeats, where it has many of them
    /// and they would have to travel.
    fn distinct_matches(&mut self, join: &Join, left: &Outcome, right: &Outcome) -> Result<Option<(LogicalPlan, Outcome)>> {
        let asks =
            matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark) && join.filter.is_none();
        let together = matches!((&left.piece, &right.piece), (Some(l), Some(r)) if co_located(join, l, r));
        if !asks || together || right.piece.is_none() || !self.options.aggregates || join.right.schema().fields().is_empty() {
            return Ok(None);
        }
        let columns: Vec<Expr> = join.right.schema().columns().into_iter().map(Expr::Column).collect();
        let aggregate = Aggregate::try_new(Arc::clone(&join.right), columns, vec![])?;
        let distinct = LogicalPlan::Aggregate(aggregate.clone());
        // The input is the side as it was visited: joins nest, and each must be looked at only once.
        let outcome = self.aggregate_over(&distinct, &aggregate, right.clone())?;
        Ok((outcome.host_cost < right.host_cost * DISTINCT_GAIN).then_some((distinct, outcome)))
    }

    fn join_of(
        &mut self,
        plan: &LogicalPlan,
        join: &Join,
        left: &Outcome,
        right: &Outcome,
        estimate: Estimate,
    ) -> Result<Outcome> {
        let host = self.built(&join.schema, || over(join, left.host.clone(), right.host.clone()))?;
        let host_cost = left.host_cost + right.host_cost;
        self.joined_rows += left.estimate.rows + right.estimate.rows + estimate.rows;
        let obstacle = self.join_obstacle(plan, join);
        let piece = match obstacle {
            None => self.join_piece(plan, join, left, right)?,
            Some(reason) => {
                self.stayed(plan, || reason);
                None
            }
        };
        self.settle(plan, estimate, host, host_cost, piece)
    }

    fn join_obstacle(&mut self, plan: &LogicalPlan, join: &Join) -> Option<String> {
        if !self.options.pushdown || !self.options.joins {
            return Some("joins are not pushed down (pithead.pushdown, pithead.pushdown_joins)".into());
        }
        if join.null_aware {
            return Some("NOT IN looks at all rows of the other side for a NULL".into());
        }
        if let Some(reason) = self.refusal(plan) {
            return Some(reason);
        }
        any_stays(join.on.iter().flat_map(|(left, right)| [left, right]).chain(&join.filter))
    }

    /// The join at the drives, in the way that puts the fewest bytes on the link.
    fn join_piece(&mut self, plan: &LogicalPlan, join: &Join, left: &Outcome, right: &Outcome) -> Result<Option<Piece>> {
        let mut candidates = Vec::new();
        if let (Some(l), Some(r)) = (&left.piece, &right.piece)
            && co_located(join, l, r)
        {
            candidates.push(self.co_located_piece(plan, join, l, r)?);
        }
        let mut unshipped = Vec::new();
        for (side, own, other) in [(Side::Left, left, right), (Side::Right, right, left)] {
            match self.sendable(join, side, own, other) {
                Ok(shipped) => candidates.push(self.shipping(plan, join, side, &shipped, other)?),
                Err(why) => unshipped.push((side.other(), why)),
            }
        }
        let best = candidates.into_iter().min_by(|a, b| a.cost.total_cmp(&b.cost));
        if best.is_none() {
            self.stayed(plan, || reason(&unshipped));
        }
        Ok(best)
    }

    /// How the other side gets to the drives of `own`, which is this side of the join; or why it does not.
    fn sendable<'o>(&self, join: &Join, side: Side, own: &'o Outcome, other: &Outcome) -> Result<Shipped<'o>, Unshipped> {
        let piece = own.piece.as_ref().ok_or(Unshipped::NoDrives)?;
        if !preserved(join.join_type).contains(&side) {
            return Err(Unshipped::Unmatched);
        }
        let other_plan = if side == Side::Left { &join.right } else { &join.left };
        let spread = spread(join, side, piece);
        let sent = other.estimate.bytes() * if spread.is_some() { 1.0 } else { piece.scheme.copies.len() as f64 };
        let each = sent / piece.scheme.copies.len() as f64;
        // Each is looked at only where the ones before it allow to ship.
        if each > self.options.ship_bytes_max {
            Err(Unshipped::Large)
        } else if sent > own.estimate.bytes() {
            // Where fetching the piece's own rows costs less than shipping to it, the join runs at the host.
            Err(Unshipped::Dear)
        } else if self.options.not_shipped.contains(other_plan) {
            Err(Unshipped::Refused)
        } else if !stands_alone(other_plan) {
            Err(Unshipped::Recursive)
        } else {
            Ok(Shipped { piece, spread, sent })
        }
    }

    /// The join at the drives of a side, with the other side shipped there.
    fn shipping(
        &mut self,
        plan: &LogicalPlan,
        join: &Join,
        side: Side,
        shipped: &Shipped<'_>,
        other: &Outcome,
    ) -> Result<Piece> {
        let Shipped { piece, spread, sent } = shipped;
        let other_plan = if side == Side::Left { &join.right } else { &join.left };
        self.inputs += 1;
        let offset = if side == Side::Left { 0 } else { offset_of_right(join) };
        let keys = moved(&piece.keys, offset);
        let mut grown = Piece::clone(piece);
        grown.cost += other.host_cost + sent;
        grown.keys = equal_columns(join, &keys);
        if self.is_draft() {
            let joined = self.built(&join.schema, || Ok(plan.clone()))?;
            return Ok(self.grown(grown, joined, plan));
        }
        let name = format!("table_{}", self.inputs);
        let leaf = input_leaf(&name, other_plan)?;
        let (l, r) = match side {
            Side::Left => (piece.plan.clone(), leaf.clone()),
            Side::Right => (leaf.clone(), piece.plan.clone()),
        };
        grown.layers.push(Arc::new(Layer::new(&leaf, plan)));
        let (spread, estimate) = (spread.clone(), other.estimate.clone());
        grown.inputs.push(Input { name, plan: LogicalPlan::clone(other_plan), spread, estimate });
        Ok(self.grown(grown, over(join, l, r)?, plan))
    }

    /// The join of rows that are on the same drives.
    fn co_located_piece(&self, plan: &LogicalPlan, join: &Join, left: &Piece, right: &Piece) -> Result<Piece> {
        let joined = self.built(&join.schema, || over(join, left.plan.clone(), right.plan.clone()))?;
        let scans: Vec<_> = left.scans.iter().chain(&right.scans).cloned().collect();
        let offset = offset_of_right(join);
        let keys_of = |side: Side| if side == Side::Left { left.keys.clone() } else { moved(&right.keys, offset) };
        let keys = match (join.join_type, preserved(join.join_type)) {
            (JoinType::Inner, _) if joined_by_keys(join, left, right) => keys_of(Side::Left).merge(&keys_of(Side::Right)),
            (JoinType::Inner, _) => keys_of(Side::Left),
            (_, [side]) => keys_of(*side),
            // The key of either side is NULL in rows without a match, wherever these are.
            _ => KeyClasses::lost(),
        };
        let with_driving = |side: Side, whole: bool| Piece {
            plan: joined.clone(),
            scans: scans.clone(),
            driving: if side == Side::Left { left.driving } else { left.scans.len() + right.driving },
            scheme: left.scheme.clone(),
            keys: equal_columns(join, &keys),
            whole,
            one_round: left.one_round || right.one_round,
            inputs: left.inputs.iter().chain(&right.inputs).cloned().collect(),
            cost: left.cost + right.cost,
            layers: left.layers.iter().chain(&right.layers).cloned().collect(),
        };
        let larger = |piece: &Piece| piece.facts().dataset.rows();
        let slice_wise = preserved(join.join_type)
            .iter()
            .filter(|side| if **side == Side::Left { !left.whole } else { !right.whole })
            .map(|side| with_driving(*side, false))
            .filter(Piece::driving_is_first)
            .max_by_key(larger);
        let piece = match slice_wise {
            Some(piece) => piece,
            None => [Side::Left, Side::Right]
                .map(|side| with_driving(side, true))
                .into_iter()
                .max_by_key(larger)
                .expect("two sides"),
        };
        Ok(self.grown(piece, joined, plan))
    }
}

/// The sides whose rows are all preserved or are matched one by one, so that the other side may be looked at from any
/// drive.
fn preserved(join_type: JoinType) -> &'static [Side] {
    match join_type {
        JoinType::Inner => &[Side::Left, Side::Right],
        JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => &[Side::Left],
        JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => &[Side::Right],
        JoinType::Full => &[],
    }
}

/// Whether rows of the other side without a match have NULLs for the columns of this one.
pub(crate) fn is_supplied(join_type: JoinType, side: Side) -> bool {
    match join_type {
        JoinType::Left => side == Side::Right,
        JoinType::Right => side == Side::Left,
        JoinType::Full => true,
        _ => false,
    }
}

/// The columns of the other side that are equal to the partition key of `piece`, where the join's equalities name the
/// whole key. A row of that side can match on one drive only, which the hash of these columns finds.
fn spread(join: &Join, side: Side, piece: &Piece) -> Option<Vec<usize>> {
    if !piece.scheme.is_hash() || piece.scheme.single() {
        return None;
    }
    let other_schema = if side == Side::Left { join.right.schema() } else { join.left.schema() };
    let partner = |class: &BTreeSet<usize>| {
        join.on.iter().find_map(|(left, right)| {
            let (own, other) = if side == Side::Left { (left, right) } else { (right, left) };
            let is_key = column_index(own, piece.plan.schema()).is_some_and(|index| class.contains(&index));
            column_index(other, other_schema).filter(|_| is_key)
        })
    };
    piece.keys.find_each(partner)
}

/// Whether all rows that can match are on the same drive.
fn co_located(join: &Join, left: &Piece, right: &Piece) -> bool {
    let alone = left.scheme.single() && left.scheme.is_beside(&right.scheme);
    left.is_whole() && right.is_whole() && (alone || joined_by_keys(join, left, right))
}

/// Whether the sides have the same placement, and the equalities name all columns of both keys.
fn joined_by_keys(join: &Join, left: &Piece, right: &Piece) -> bool {
    let joined = |l: &BTreeSet<usize>, r: &BTreeSet<usize>| {
        join.on.iter().any(|(left_key, right_key)| {
            column_index(left_key, left.plan.schema()).is_some_and(|index| l.contains(&index))
                && column_index(right_key, right.plan.schema()).is_some_and(|index| r.contains(&index))
        })
    };
    left.scheme.matches(&right.scheme) && left.keys.all_pairs(&right.keys, joined)
}

/// The classes of a side whose columns start at `offset` in the output.
fn moved(keys: &KeyClasses, offset: usize) -> KeyClasses {
    keys.map(|class| class.iter().map(|i| i + offset).collect())
}

/// Where the right side's columns start in the join's output.
fn offset_of_right(join: &Join) -> usize {
    match join.join_type {
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => 0,
        _ => join.left.schema().fields().len(),
    }
}

/// Key classes, with the columns that an inner join's equalities add to them.
fn equal_columns(join: &Join, keys: &KeyClasses) -> KeyClasses {
    if join.join_type != JoinType::Inner {
        return keys.clone();
    }
    let offset = join.left.schema().fields().len();
    let equal = |(left, right): &(Expr, Expr)| {
        Some((column_index(left, join.left.schema())?, offset + column_index(right, join.right.schema())?))
    };
    let equal: Vec<(usize, usize)> = join.on.iter().filter_map(equal).collect();
    keys.map(|class| {
        let mut class = class.clone();
        for (left, right) in &equal {
            if class.contains(left) || class.contains(right) {
                class.extend([left, right]);
            }
        }
        class
    })
}

/// The same join over other plans with the same columns.
pub(crate) fn over(join: &Join, left: LogicalPlan, right: LogicalPlan) -> Result<LogicalPlan> {
    let joined = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        join.on.clone(),
        join.filter.clone(),
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?;
    Ok(LogicalPlan::Join(joined))
}

/// A scan of a shipped table, with the columns and names of the plan that computes it.
fn input_leaf(name: &str, plan: &LogicalPlan) -> Result<LogicalPlan> {
    let schema = Arc::new(input_schema(plan.schema().as_arrow()));
    renamed_scan(TableReference::partial(INPUT_SCHEMA, name), Arc::new(LogicalTableSource::new(schema)), plan)
}

/// The columns of a shipped table: those of the plan that computes it, by position, under names that cannot clash.
pub(crate) fn input_schema(schema: &Schema) -> Schema {
    let fields = schema.fields().iter().enumerate();
    Schema::new(
        fields
            .map(|(i, field)| Field::new(format!("c{i}"), field.data_type().clone(), field.is_nullable()))
            .collect::<Vec<_>>(),
    )
}

impl Input {
    /// The columns that its batches must have.
    pub fn schema(&self) -> Schema {
        input_schema(self.plan.schema().as_arrow())
    }

    /// The estimate of its rows.
    pub fn estimate(&self) -> &Estimate {
        &self.estimate
    }
}
