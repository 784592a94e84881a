//! What the slice directory tells the engine's planner.

use std::sync::{Arc, OnceLock};

use arrow::datatypes::Schema;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Statistics};
use pithead_model::{ColumnSummary, Value, merge_columns, total};
use pithead_slice::{Compare, Predicate};

use crate::SliceRef;
use crate::pruning::Conjunct;
use crate::scalar::scalar_of;

/// Share of the rows taken to satisfy a condition of which nothing is known.
const UNKNOWN: f64 = 0.2;
/// The same for a pattern.
const PATTERN: f64 = 0.1;

/// What the directory entries of a part's slices say together.
#[derive(Debug)]
pub(crate) struct PartFacts {
    rows: u64,
    slices: Arc<[SliceRef]>,
    /// Columns over all slices, once one is asked for: filters that move ask at each slice.
    columns: Box<[OnceLock<Option<ColumnSummary>>]>,
    /// The share of rows that pass the logical scan's conditions, if that is known better than from bounds.
    passing: Option<f64>,
}

impl PartFacts {
    pub(crate) fn new(slices: Arc<[SliceRef]>, passing: Option<f64>) -> Self {
        let columns = slices.first().map_or(0, |slice| slice.entry.columns.len());
        Self {
            columns: (0..columns).map(|_| OnceLock::new()).collect(),
            rows: total(slices.iter().map(|slice| slice.entry.rows)),
            slices,
            passing,
        }
    }

    /// One column over all slices; none if a directory does not have it.
    fn column(&self, column: usize) -> Option<&ColumnSummary> {
        self.columns.get(column)?.get_or_init(|| self.merged(column)).as_ref()
    }

    fn merged(&self, column: usize) -> Option<ColumnSummary> {
        let parts: Vec<&[ColumnSummary]> =
            self.slices.iter().map(|slice| slice.entry.columns.get(column..=column)).collect::<Option<_>>()?;
        merge_columns(parts).pop()
    }

    /// The values of a column that differ, if that is known.
    pub(crate) fn distinct(&self, column: usize) -> Option<u64> {
        self.column(column).map(|summary| summary.distinct).filter(|distinct| *distinct > 0)
    }

    /// Statistics of a scan's output, of whose conditions the first `logical` are the logical scan's. `whole`: all rows of all slices
    /// come out, so that counts are exact and the planner may answer from them; otherwise they are estimates.
    pub(crate) fn statistics(
        &self,
        schema: &Schema,
        projection: &[usize],
        conditions: &[Conjunct],
        logical: usize,
        whole: bool,
    ) -> Arc<Statistics> {
        let by_bounds =
            |conditions: &[Conjunct]| conditions.iter().map(|condition| self.selectivity(condition)).product::<f64>();
        let (scanned, above) = conditions.split_at(logical.min(conditions.len()));
        let share = match self.passing.filter(|_| !scanned.is_empty()) {
            Some(share) => share * by_bounds(above),
            None => by_bounds(conditions),
        };
        let precise = if whole { Precision::Exact } else { Precision::Inexact };
        let column = |index: &usize| match self.column(*index) {
            Some(summary) => column_statistics(summary, schema, *index, whole, share),
            None => ColumnStatistics::new_unknown(),
        };
        Arc::new(Statistics {
            num_rows: precise(scaled(self.rows, share)),
            // The planner would keep the side of a join in memory that has fewer bytes. What counts is how many rows are hashed, and
            // how many of the other side's their keys leave out before they are decoded.
            total_byte_size: Precision::Absent,
            column_statistics: projection.iter().map(column).collect(),
        })
    }

    /// Share of the rows taken to satisfy a condition.
    pub(crate) fn selectivity(&self, condition: &Conjunct) -> f64 {
        condition.converted.as_ref().map_or(UNKNOWN, |converted| self.share(&converted.predicate)).clamp(0.0, 1.0)
    }

    /// Share of the rows that satisfy a predicate, if values lie evenly between their bounds.
    fn share(&self, predicate: &Predicate) -> f64 {
        match predicate {
            Predicate::IsNull(column) => self.nulls(*column),
            Predicate::IsNotNull(column) => 1.0 - self.nulls(*column),
            Predicate::Like { negated, .. } => {
                if *negated {
                    1.0 - PATTERN
                } else {
                    PATTERN
                }
            }
            Predicate::In { column, values } => values.len() as f64 * self.one_value(*column),
            Predicate::Any(parts) => parts.iter().map(|part| self.share(part)).sum(),
            Predicate::All(parts) => parts.iter().map(|part| self.share(part)).product(),
            Predicate::Compare { column, op, value } => match op {
                Compare::Eq => self.one_value(*column),
                Compare::Ne => 1.0 - self.one_value(*column),
                Compare::Lt | Compare::Le => self.below(*column, value),
                Compare::Gt | Compare::Ge => 1.0 - self.below(*column, value),
            },
        }
        .clamp(0.0, 1.0)
    }

    fn nulls(&self, column: usize) -> f64 {
        match self.column(column) {
            Some(summary) if summary.nulls_unknown => UNKNOWN,
            Some(summary) => summary.nulls as f64 / self.rows.max(1) as f64,
            None => 0.0,
        }
    }

    fn one_value(&self, column: usize) -> f64 {
        match self.column(column) {
            Some(summary) if summary.distinct > 0 => 1.0 / summary.distinct as f64,
            _ => PATTERN,
        }
    }

    fn below(&self, column: usize, value: &Value) -> f64 {
        let bounds = self.column(column).and_then(|summary| summary.min.as_ref().zip(summary.max.as_ref()));
        let Some((min, max)) = bounds else {
            return 1.0 / 3.0;
        };
        let (min, max, value) = (min.position(), max.position(), value.position());
        if max > min { ((value - min) / (max - min)).clamp(0.0, 1.0) } else { 0.5 }
    }
}

fn scaled(count: u64, share: f64) -> usize {
    (count as f64 * share).ceil() as usize
}

fn column_statistics(summary: &ColumnSummary, schema: &Schema, index: usize, whole: bool, share: f64) -> ColumnStatistics {
    let data_type = schema.field(index).data_type();
    let bound = |value: &Option<Value>| match value.as_ref().and_then(|value| scalar_of(value, data_type)) {
        Some(bound) if whole && summary.exact => Precision::Exact(bound),
        Some(bound) => Precision::Inexact(bound),
        None => Precision::Absent,
    };
    let nulls = match scaled(summary.nulls, share) {
        _ if summary.nulls_unknown => Precision::Absent,
        nulls if whole => Precision::Exact(nulls),
        nulls => Precision::Inexact(nulls),
    };
    ColumnStatistics {
        null_count: nulls,
        min_value: bound(&summary.min),
        max_value: bound(&summary.max),
        distinct_count: if summary.distinct > 0 { Precision::Inexact(summary.distinct as usize) } else { Precision::Absent },
        ..ColumnStatistics::new_unknown()
    }
}

#[cfg(test)]
mod tests {
    use pithead_model::{DatasetId, LoadId, SliceEntry, SliceKey};

    use super::*;

    #[test]
    fn a_column_is_put_together_once() {
        let run = SliceKey { name: "t".parse().unwrap(), dataset: DatasetId(1), load: LoadId(1), partition: 0, number: None };
        let slice = |number: u32| {
            let (min, max) = (Value::Int(i128::from(number)), Value::Int(i128::from(number) + 10));
            let summary =
                ColumnSummary { min: Some(min), max: Some(max), distinct: 3, exact: true, ..ColumnSummary::default() };
            let entry = Arc::new(SliceEntry { rows: 5, bytes: 50, columns: vec![summary] });
            SliceRef { key: run.slice(number), ordinal: number, entry, fit: None, filtered: None, came: None }
        };
        let facts = PartFacts::new((0..3).map(slice).collect(), None);
        let column = facts.column(0).unwrap();
        assert_eq!((&column.min, &column.max), (&Some(Value::Int(0)), &Some(Value::Int(12))));
        assert!(std::ptr::eq(column, facts.column(0).unwrap()));
        assert!(facts.column(1).is_none() && PartFacts::new(Arc::new([]), None).column(0).is_none());
        assert_eq!(facts.distinct(0), Some(3));
    }
}
