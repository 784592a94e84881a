//! Estimates of joins.

use datafusion::common::{DFSchema, JoinType};
use datafusion::logical_expr::{Expr, Join};

use super::{ColumnEstimate, Estimate, UNKNOWN_SHARE};

impl Estimate {
    /// The estimate after a join with `right`.
    pub(crate) fn join(&self, right: &Estimate, join: &Join) -> Estimate {
        let keys = Keys::of(self, right, join);
        let mut matches = self.rows * right.rows;
        if !join.on.is_empty() {
            matches /= keys.all;
        }
        if join.filter.is_some() {
            matches *= UNKNOWN_SHARE;
        }
        let semi = |rows: f64, other: f64| match join.on.len() {
            0 => rows,
            _ => rows * (other / keys.all).min(1.0),
        };
        let semi_left = semi(self.rows, keys.right);
        let semi_right = semi(right.rows, keys.left);
        let both = || self.columns.iter().chain(&right.columns).cloned().collect::<Vec<_>>();
        let mark = |columns: &[ColumnEstimate]| {
            let mark = ColumnEstimate::of(2.0, 0.125);
            columns.iter().cloned().chain([mark]).collect::<Vec<_>>()
        };
        let (rows, columns) = match join.join_type {
            JoinType::Inner => (matches, both()),
            JoinType::Left => (matches.max(self.rows), both()),
            JoinType::Right => (matches.max(right.rows), both()),
            JoinType::Full => (matches.max(self.rows).max(right.rows), both()),
            JoinType::LeftSemi => (semi_left, self.columns.clone()),
            JoinType::LeftAnti => ((self.rows - semi_left).max(self.rows * 0.1), self.columns.clone()),
            JoinType::LeftMark => (self.rows, mark(&self.columns)),
            JoinType::RightSemi => (semi_right, right.columns.clone()),
            JoinType::RightAnti => ((right.rows - semi_right).max(right.rows * 0.1), right.columns.clone()),
            JoinType::RightMark => (right.rows, mark(&right.columns)),
        };
        let mut joined = Estimate { rows, columns }.with_rows(rows);
        joined.share_keys(self, right, join);
        joined
    }

    /// Keys that are equal have the values that both sides have.
    fn share_keys(&mut self, left: &Estimate, right: &Estimate, join: &Join) {
        let (left_schema, right_schema) = (join.left.schema(), join.right.schema());
        let offset = left.columns.len();
        for (left_key, right_key) in &join.on {
            let keys = Keys::of_pair(left, right, join, left_key, right_key);
            let distinct = match join.on.len() {
                1 => keys.left * keys.right / keys.all,
                _ => keys.left.min(keys.right),
            };
            let domain = left.domain(left_key, left_schema).min(right.domain(right_key, right_schema));
            let (l, r) = (index_of(left_key, left_schema), index_of(right_key, right_schema));
            let places = match join.join_type {
                JoinType::Inner => [l, r.map(|r| offset + r)],
                JoinType::LeftSemi => [l, None],
                JoinType::RightSemi => [r, None],
                _ => [None, None],
            };
            for place in places.into_iter().flatten() {
                if let Some(column) = self.columns.get_mut(place) {
                    column.distinct = column.distinct.min(distinct).max(1.0);
                    column.domain = column.domain.min(domain).max(column.distinct);
                }
            }
        }
    }
}

/// Numbers of keys that a join compares.
struct Keys {
    /// Distinct keys of the left side.
    left: f64,
    /// Distinct keys of the right side.
    right: f64,
    /// Keys of which each side's are a part, chosen without regard to the other's: of one column, the larger domain. Of several
    /// columns together only bounds of the domain are known, far too large for a side that has each key many times; so the smaller
    /// bound, as if that side had each of its keys once, and the other side no others.
    all: f64,
}

impl Keys {
    fn of(left: &Estimate, right: &Estimate, join: &Join) -> Keys {
        if let [(left_key, right_key)] = join.on.as_slice() {
            return Keys::of_pair(left, right, join, left_key, right_key);
        }
        let (left_schema, right_schema) = (join.left.schema(), join.right.schema());
        let keys_left = join.on.iter().map(|(key, _)| left.distinct(key, left_schema)).product::<f64>().min(left.rows);
        let keys_right = join.on.iter().map(|(_, key)| right.distinct(key, right_schema)).product::<f64>().min(right.rows);
        let all_left = left.domain_of(join.on.iter().map(|(key, _)| key), left_schema).max(keys_left);
        let all_right = right.domain_of(join.on.iter().map(|(_, key)| key), right_schema).max(keys_right);
        Keys { left: keys_left, right: keys_right, all: all_left.min(all_right).max(1.0) }
    }

    fn of_pair(left: &Estimate, right: &Estimate, join: &Join, left_key: &Expr, right_key: &Expr) -> Keys {
        let (left_schema, right_schema) = (join.left.schema(), join.right.schema());
        let all = left.domain(left_key, left_schema).max(right.domain(right_key, right_schema)).max(1.0);
        Keys { left: left.distinct(left_key, left_schema), right: right.distinct(right_key, right_schema), all }
    }
}

/// The column, if an expression is one.
fn index_of(expr: &Expr, schema: &DFSchema) -> Option<usize> {
    match expr {
        Expr::Column(column) => schema.index_of_column(column).ok(),
        _ => None,
    }
}
