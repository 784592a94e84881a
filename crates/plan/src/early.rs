//! Expressions before joins: what an aggregate computes from one side of its join alone goes below the join, where a wide column then
//! need not travel for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::{Aggregate, BinaryExpr, Expr, Join, Like, LogicalPlan, Operator, Projection};

use crate::join::{Side, is_supplied, over as join_over};
use crate::names::{own, own_column};
use crate::never_fails::{digits, is_plain};

/// Operators that give NULL where a value is NULL.
const COMPARISONS: [Operator; 6] = [Operator::Eq, Operator::NotEq, Operator::Lt, Operator::LtEq, Operator::Gt, Operator::GtEq];

/// An aggregate over a join of which expressions are computed below.
pub(crate) struct Early {
    /// Over the join of the sides as they are below.
    pub aggregate: Aggregate,
    /// What is computed of each side, where anything is.
    pub left: Option<Projection>,
    pub right: Option<Projection>,
}

/// The aggregate with all of its expressions that one side suffices for computed below the join; none: it has none.
///
/// `projection`: what is between the two.
pub(crate) fn early(aggregate: &Aggregate, projection: Option<&Projection>, join: &Join) -> Result<Option<Early>> {
    let mut sides = [Side::Left, Side::Right].map(|side| SideOf::of(join, side));
    let written = aggregate.group_expr.iter().chain(&aggregate.aggr_expr);
    let mut exprs = Vec::new();
    for (expr, (qualifier, field)) in written.zip(aggregate.schema.iter()) {
        let inlined = inlined(expr, projection)?;
        let below = inlined.transform_down(|part| {
            let computed = sides.iter_mut().find_map(|side| side.computed(&part));
            Ok(computed.map_or_else(|| Transformed::no(part), |column| Transformed::new(column, true, TreeNodeRecursion::Jump)))
        })?;
        exprs.push(match below.data == *expr {
            true => below.data,
            false => below.data.alias_qualified(qualifier.cloned(), field.name()),
        });
    }
    if sides.iter().all(|side| side.exprs.is_empty()) {
        return Ok(None);
    }
    let on = join.on.iter().flat_map(|(left, right)| [left, right]);
    let used: Vec<&Expr> = on.chain(&join.filter).chain(&exprs).collect();
    let [left, right] = sides;
    let (left, right) = (left.projection(&used)?, right.projection(&used)?);
    let side = |own: &Option<Projection>, as_it_is: &Arc<LogicalPlan>| match own {
        Some(projection) => LogicalPlan::Projection(projection.clone()),
        None => LogicalPlan::clone(as_it_is),
    };
    let joined = join_over(join, side(&left, &join.left), side(&right, &join.right))?;
    let functions = exprs.split_off(aggregate.group_expr.len());
    let aggregate = Aggregate::try_new(Arc::new(joined), exprs, functions)?;
    Ok(Some(Early { aggregate, left, right }))
}

/// An expression over a projection, as one over what the projection is over.
fn inlined(expr: &Expr, projection: Option<&Projection>) -> Result<Expr> {
    let Some(projection) = projection else { return Ok(expr.clone()) };
    let inlined = expr.clone().transform_up(|part| {
        let Expr::Column(column) = &part else { return Ok(Transformed::no(part)) };
        let index = projection.schema.maybe_index_of_column(column);
        Ok(match index.and_then(|index| projection.expr.get(index)) {
            Some(known) => Transformed::yes(known.clone().unalias()),
            None => Transformed::no(part),
        })
    })?;
    Ok(inlined.data)
}

/// A side of a join, and what is computed of it before the join.
struct SideOf<'a> {
    side: Side,
    plan: &'a Arc<LogicalPlan>,
    /// Rows of the other side without a match have NULLs for its columns.
    is_supplied: bool,
    exprs: Vec<Expr>,
}

impl<'a> SideOf<'a> {
    fn of(join: &'a Join, side: Side) -> SideOf<'a> {
        let plan = if side == Side::Left { &join.left } else { &join.right };
        SideOf { side, plan, is_supplied: is_supplied(join.join_type, side), exprs: Vec::new() }
    }

    /// The column of an expression that this side suffices for.
    fn computed(&mut self, expr: &Expr) -> Option<Expr> {
        let schema = self.plan.schema();
        let columns = expr.column_refs();
        let is_own = columns.iter().all(|column| schema.maybe_index_of_column(column).is_some());
        let is_more = !matches!(expr, Expr::Column(_) | Expr::Alias(_) | Expr::AggregateFunction(_));
        if columns.is_empty() || !is_own || !is_more || !self.is_early(expr) {
            return None;
        }
        let index = self.exprs.iter().position(|known| known == expr).unwrap_or_else(|| {
            self.exprs.push(expr.clone());
            self.exprs.len() - 1
        });
        Some(own_column(self.kind(), index))
    }

    fn kind(&self) -> &'static str {
        if self.side == Side::Left { "left" } else { "right" }
    }

    /// Whether an expression fails for no row, so that it may be computed for rows that match nothing, and is NULL where all of its
    /// columns are, as they are in rows of the other side without a match.
    fn is_early(&self, expr: &Expr) -> bool {
        let schema: &DFSchema = self.plan.schema();
        let is_plain = |expr: &Expr| is_plain(expr, schema);
        let is_plain_column = |expr: &Expr| is_plain(expr) && !expr.column_refs().is_empty();
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.is_logic_operator() => {
                self.is_early(left) && self.is_early(right)
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if COMPARISONS.contains(op) => {
                is_plain(left) && is_plain(right) && !expr.column_refs().is_empty()
            }
            Expr::Not(inner) => self.is_early(inner),
            // Between two columns, it is false for some that are NULL; in an empty list, for all.
            Expr::Between(Between { expr, low, high, .. }) => is_plain_column(expr) && is_literal(low) && is_literal(high),
            Expr::InList(InList { expr, list, .. }) => is_plain_column(expr) && !list.is_empty() && list.iter().all(is_literal),
            Expr::Like(Like { expr, pattern, escape_char: None, .. }) => is_plain_column(expr) && is_simple_pattern(pattern),
            Expr::IsNull(inner) | Expr::IsNotNull(inner) => !self.is_supplied && is_plain_column(inner),
            other => digits(other, schema).is_some(),
        }
    }

    /// The side with what is computed of it, and those of its columns that are used above; none: nothing is.
    fn projection(self, used: &[&Expr]) -> Result<Option<Projection>> {
        if self.exprs.is_empty() {
            return Ok(None);
        }
        let schema = self.plan.schema();
        let mut kept = BTreeSet::new();
        for expr in used {
            kept.extend(expr.column_refs().into_iter().filter_map(|column| schema.maybe_index_of_column(column)));
        }
        let columns = schema.columns();
        let kept = kept.into_iter().map(|index| Expr::Column(columns[index].clone()));
        let kind = self.kind();
        let computed = self.exprs.into_iter().enumerate().map(|(index, expr)| expr.alias(own(kind, index)));
        Projection::try_new(kept.chain(computed).collect(), Arc::clone(self.plan)).map(Some)
    }
}

fn is_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(..))
}

/// A pattern that can be read: a text, and nothing in it is escaped.
fn is_simple_pattern(pattern: &Expr) -> bool {
    let Expr::Literal(pattern, _) = pattern else { return false };
    pattern.try_as_str().flatten().is_some_and(|pattern| !pattern.contains('\\'))
}
