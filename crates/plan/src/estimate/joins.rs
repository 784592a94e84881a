//! Estimates of joins.

use datafusion::common::{DFSchema, JoinType};
use datafusion::logical_expr::{Expr, Join};

use super::{ColumnEstimate, Estimate, UNKNOWN_SHARE};

impl Estimate {
    /// The estimate after a join with `right`.
    pub(crate) fn join(&self, right: &Estimate, join: &Join) -> Estimate {
        let (left_schema, right_schema) = (join.left.schema(), join.right.schema());
        let keys_left: f64 = join.on.iter().map(|(key, _)| self.distinct(key, left_schema)).product::<f64>().min(self.rows);
        let keys_right: f64 = join.on.iter().map(|(_, key)| right.distinct(key, right_schema)).product::<f64>().min(right.rows);
        let mut matches = self.rows * right.rows;
        if !join.on.is_empty() {
            matches /= keys_left.max(keys_right).max(1.0);
        }
        if join.filter.is_some() {
            matches *= UNKNOWN_SHARE;
        }
        let semi =
            |rows: f64, own: f64, other: f64| if join.on.is_empty() { rows } else { rows * (other / own.max(1.0)).min(1.0) };
        let semi_left = semi(self.rows, keys_left, keys_right);
        let semi_right = semi(right.rows, keys_right, keys_left);
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

    /// Keys that are equal have the values that both sides have: as many as the side with fewer values.
    fn share_keys(&mut self, left: &Estimate, right: &Estimate, join: &Join) {
        let (left_schema, right_schema) = (join.left.schema(), join.right.schema());
        let offset = left.columns.len();
        for (left_key, right_key) in &join.on {
            let distinct = left.distinct(left_key, left_schema).min(right.distinct(right_key, right_schema));
            let (l, r) = (index_of(left_key, left_schema), index_of(right_key, right_schema));
            let places = match join.join_type {
                JoinType::Inner => [l, r.map(|r| offset + r)],
                JoinType::LeftSemi => [l, None],
                JoinType::RightSemi => [r, None],
                _ => [None, None],
            };
            for place in places.into_iter().flatten() {
                if let Some(column) = self.columns.get_mut(place) {
                    column.distinct = column.distinct.min(distinct);
                }
            }
        }
    }
}

/// The column, if an expression is one.
fn index_of(expr: &Expr, schema: &DFSchema) -> Option<usize> {
    match expr {
        Expr::Column(column) => schema.index_of_column(column).ok(),
        _ => None,
    }
}
