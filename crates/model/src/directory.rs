//! The slice directory: a description of each slice, so that it can be planned for and skipped without being read.

use std::collections::BTreeMap;

use arrow_schema::SchemaRef;
use serde::{Deserialize, Serialize};

use crate::{Value, total};

/// The summary of one column over some rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ColumnSummary {
    /// A lower bound of the non-null values; NaN counts as larger than all numbers. None where all values are null or
    /// the type has no bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Value>,
    /// An upper bound of the non-null values. None in the same cases as `min`, and where there is a NaN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Value>,
    /// Whether both bounds are values that occur in the column. They are not where long texts were cut.
    #[serde(default)]
    pub exact: bool,
    /// Nulls among the rows; where `nulls_unknown`, the least that there may be.
    pub nulls: u64,
    /// Whether the number of nulls is not known, as for nested columns of files that lie outside of the store.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nulls_unknown: bool,
    /// An estimate of the number of distinct non-null values; 0 where it is not known.
    #[serde(default)]
    pub distinct: u64,
}

/// One slice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SliceEntry {
    /// Rows in it, at least 1.
    pub rows: u64,
    /// Its stored bytes.
    pub bytes: u64,
    /// One summary for each column, in the schema's order.
    pub columns: Vec<ColumnSummary>,
}

/// A metadata slice: the description of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Directory {
    /// The dataset's schema.
    pub schema: SchemaRef,
    /// Application metadata, stored exactly as the application gave it.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// The slices, in the order of their numbers.
    pub slices: Vec<SliceEntry>,
    /// One summary for each column over all the slices; its distinct counts come from sketches over all rows.
    pub columns: Vec<ColumnSummary>,
}

impl Directory {
    /// Rows over all slices.
    pub fn rows(&self) -> u64 {
        total(self.slices.iter().map(|slice| slice.rows))
    }

    /// Stored bytes over all slices.
    pub fn bytes(&self) -> u64 {
        total(self.slices.iter().map(|slice| slice.bytes))
    }
}

/// The summaries of the rows of all `parts` together. Each distinct count is the largest of the parts' counts, and so a
/// lower bound.
pub fn merge_columns<'a>(parts: impl IntoIterator<Item = &'a [ColumnSummary]>) -> Vec<ColumnSummary> {
    let mut parts = parts.into_iter();
    let mut merged = parts.next().map(<[_]>::to_vec).unwrap_or_default();
    for part in parts {
        for (into, from) in merged.iter_mut().zip(part) {
            into.absorb(from);
        }
    }
    merged
}

impl ColumnSummary {
    /// Whether this is the summary of rows that are all null, which says nothing about values.
    fn all_null(&self) -> bool {
        self.min.is_none() && self.max.is_none() && self.exact
    }

    fn absorb(&mut self, other: &ColumnSummary) {
        self.nulls = self.nulls.saturating_add(other.nulls);
        self.nulls_unknown |= other.nulls_unknown;
        self.distinct = self.distinct.max(other.distinct);
        if other.all_null() {
            return;
        }
        if self.all_null() {
            (self.min, self.max, self.exact) = (other.min.clone(), other.max.clone(), other.exact);
            return;
        }
        self.min = extreme(self.min.take(), &other.min, std::cmp::Ordering::Less);
        self.max = extreme(self.max.take(), &other.max, std::cmp::Ordering::Greater);
        self.exact &= other.exact;
    }
}

fn extreme(a: Option<Value>, b: &Option<Value>, wanted: std::cmp::Ordering) -> Option<Value> {
    let (a, b) = (a?, b.clone()?);
    match b.compare(&a)? {
        order if order == wanted => Some(b),
        _ => Some(a),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(min: i128, max: i128, nulls: u64) -> ColumnSummary {
        let (min, max) = (Some(Value::Int(min)), Some(Value::Int(max)));
        ColumnSummary { min, max, exact: true, nulls, distinct: 2, ..Default::default() }
    }

    #[test]
    fn bounds_widen_and_nulls_add_up() {
        let none = ColumnSummary { nulls: 5, exact: true, ..Default::default() };
        let merged = merge_columns([[ints(3, 9, 1)].as_slice(), &[none], &[ints(-1, 4, 2)]]);
        assert_eq!(merged, [ints(-1, 9, 8)]);
    }

    #[test]
    fn an_unknown_bound_stays_unknown() {
        let unknown = ColumnSummary { max: None, exact: false, ..ints(0, 0, 0) };
        let merged = merge_columns([[ints(3, 9, 0)].as_slice(), &[unknown]]);
        assert_eq!((merged[0].max.clone(), merged[0].min.clone()), (None, Some(Value::Int(0))));
    }

    #[test]
    fn a_number_of_nulls_that_is_not_known_stays_unknown() {
        let unknown = ColumnSummary { nulls_unknown: true, ..Default::default() };
        let merged = merge_columns([[ints(3, 9, 2)].as_slice(), std::slice::from_ref(&unknown), &[ints(3, 9, 1)]]);
        assert_eq!((merged[0].nulls, merged[0].nulls_unknown), (3, true));
        let text = serde_json::to_string(&ints(3, 9, 2)).unwrap();
        assert!(!text.contains("unknown"), "{text}");
        assert_eq!(serde_json::from_str::<ColumnSummary>(&text).unwrap(), ints(3, 9, 2));
        assert_eq!(serde_json::from_str::<ColumnSummary>(&serde_json::to_string(&unknown).unwrap()).unwrap(), unknown);
    }
}
