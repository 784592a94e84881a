//! [`KeySource`]: parts of one side of a join, of which each has all keys that the side can have.

use std::sync::Arc;

use datafusion::common::{Column, JoinType};
use datafusion::logical_expr::{Expr, Join, LogicalPlan};

use crate::join::Side;

/// A part of one side of a join, and what in it are the keys of that side. A part has more keys than the side where what it is joined
/// with has taken rows away, and is known sooner.
#[derive(Debug)]
pub(crate) struct KeySource {
    pub part: Arc<LogicalPlan>,
    pub keys: Vec<Expr>,
    /// It is all of the side.
    pub is_whole: bool,
}

/// The side itself, and the parts of it that its joins are made of, the largest first.
pub(crate) fn key_sources(join: &Join, side: Side, keys: &[usize]) -> Vec<KeySource> {
    let whole = if side == Side::Left { &join.left } else { &join.right };
    let pairs = keys.iter().filter_map(|key| join.on.get(*key));
    let keys: Vec<Expr> = pairs.map(|(left, right)| if side == Side::Left { left } else { right }).cloned().collect();
    let columns: Option<Vec<Column>> = keys.iter().map(|key| key.try_as_col().cloned()).collect();
    let mut sources = vec![KeySource { part: Arc::clone(whole), keys, is_whole: true }];
    let (mut plan, mut columns) = (&**whole, columns);
    while let Some(known) = columns {
        let Some((part, joined, known)) = beneath(plan, &known) else { break };
        if let Some(part) = joined {
            let keys = known.iter().cloned().map(Expr::Column).collect();
            sources.push(KeySource { part: Arc::clone(part), keys, is_whole: false });
        }
        (plan, columns) = (part, Some(known));
    }
    sources
}

type Beneath<'p> = (&'p LogicalPlan, Option<&'p Arc<LogicalPlan>>, Vec<Column>);

/// The input of an operator that has all values of these columns that its rows have; the same if it is joined with another one; and
/// what the columns are called there.
fn beneath<'p>(plan: &'p LogicalPlan, columns: &[Column]) -> Option<Beneath<'p>> {
    let LogicalPlan::Join(join) = plan else {
        let (part, columns) = below(plan, columns)?;
        return Some((part, None, columns));
    };
    let has = |side: &LogicalPlan| columns.iter().all(|column| side.schema().maybe_index_of_column(column).is_some());
    let [from_left, from_right] = match join.join_type {
        JoinType::Inner => [true, true],
        JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => [true, false],
        JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => [false, true],
        JoinType::Full => [false, false],
    };
    let sides = [(&join.left, from_left), (&join.right, from_right)];
    let (part, _) = sides.into_iter().find(|(side, from)| *from && has(side))?;
    Some((part, Some(part), columns.to_vec()))
}

/// The input of an operator that keeps or drops whole rows, and the names of the columns there.
pub(crate) fn below<'p>(plan: &'p LogicalPlan, columns: &[Column]) -> Option<(&'p LogicalPlan, Vec<Column>)> {
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
