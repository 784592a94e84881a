//! Whether the bounds of rows alone show that none of them matches.

use std::cmp::Ordering;

use pithead_model::{ColumnSummary, Value};

use crate::{Compare, Predicate};

/// Whether any of `rows` rows with these summaries, one for each column, may satisfy all predicates. `false` is
/// certain.
pub fn may_match(predicates: &[Predicate], columns: &[ColumnSummary], rows: u64) -> bool {
    predicates.iter().all(|predicate| may_satisfy(predicate, &|column| columns.get(column), rows))
}

/// The same for one predicate. A column without a summary rules nothing out.
pub(crate) fn may_satisfy<'a>(predicate: &Predicate, summary: &dyn Fn(usize) -> Option<&'a ColumnSummary>, rows: u64) -> bool {
    match predicate {
        Predicate::Any(parts) => parts.iter().any(|part| may_satisfy(part, summary, rows)),
        Predicate::All(parts) => parts.iter().all(|part| may_satisfy(part, summary, rows)),
        Predicate::IsNull(column) => summary(*column).is_none_or(|summary| summary.nulls_unknown || summary.nulls > 0),
        Predicate::IsNotNull(column) => summary(*column).is_none_or(|summary| has_value(summary, rows)),
        Predicate::Compare { column, op, value } => {
            summary(*column).is_none_or(|summary| has_value(summary, rows) && may_compare(summary, *op, value))
        }
        Predicate::In { column, values } => summary(*column).is_none_or(|summary| {
            has_value(summary, rows) && values.iter().any(|value| may_compare(summary, Compare::Eq, value))
        }),
        Predicate::Like { column, pattern, negated } => {
            summary(*column).is_none_or(|summary| has_value(summary, rows) && (*negated || may_be_like(summary, pattern)))
        }
    }
}

/// The columns that a predicate reads.
pub(crate) fn columns_of(predicate: &Predicate, into: &mut Vec<usize>) {
    match predicate {
        Predicate::Any(parts) | Predicate::All(parts) => parts.iter().for_each(|part| columns_of(part, into)),
        Predicate::IsNull(column) | Predicate::IsNotNull(column) => into.push(*column),
        Predicate::Compare { column, .. } | Predicate::In { column, .. } | Predicate::Like { column, .. } => into.push(*column),
    }
}

/// Whether a row may have a value.
fn has_value(summary: &ColumnSummary, rows: u64) -> bool {
    summary.nulls_unknown || summary.nulls < rows
}

fn may_compare(summary: &ColumnSummary, op: Compare, value: &Value) -> bool {
    let min = summary.min.as_ref().and_then(|min| order(min, value));
    let max = summary.max.as_ref().and_then(|max| order(max, value));
    match op {
        Compare::Eq => min != Some(Ordering::Greater) && max != Some(Ordering::Less),
        Compare::Ne => !(summary.exact && min == Some(Ordering::Equal) && max == Some(Ordering::Equal) && !is_zero(value)),
        Compare::Lt => min.is_none_or(|order| order.is_lt() || order.is_eq() && is_zero(value)),
        Compare::Le => min != Some(Ordering::Greater),
        Compare::Gt => max.is_none_or(|order| order.is_gt() || order.is_eq() && is_zero(value)),
        Compare::Ge => max != Some(Ordering::Less),
    }
}

/// The order of a bound and a value. Both zeros of a float count as one, so that a bound rules out only rows that do
/// not match whether or not the zeros are distinguished.
fn order(bound: &Value, value: &Value) -> Option<Ordering> {
    match (bound, value) {
        (Value::Float(bound), Value::Float(value)) => bound.partial_cmp(value),
        _ => bound.compare(value),
    }
}

fn is_zero(value: &Value) -> bool {
    matches!(value, Value::Float(value) if *value == 0.0)
}

/// All texts that are LIKE a pattern begin with the part of the pattern before its first wildcard.
fn may_be_like(summary: &ColumnSummary, pattern: &str) -> bool {
    let Some(end) = pattern.find(['%', '_']) else {
        return may_compare(summary, Compare::Eq, &Value::Text(pattern.into()));
    };
    let prefix = &pattern.as_bytes()[..end];
    let above = |max: &Value| matches!(max, Value::Text(max) if max.as_bytes() < prefix);
    let below = |min: &Value| match min {
        Value::Text(min) => &min.as_bytes()[..min.len().min(end)] > prefix,
        _ => false,
    };
    !summary.max.as_ref().is_some_and(above) && !summary.min.as_ref().is_some_and(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(min: i128, max: i128, nulls: u64) -> ColumnSummary {
        ColumnSummary { min: Some(Value::Int(min)), max: Some(Value::Int(max)), exact: true, nulls, ..Default::default() }
    }

    fn texts(min: &str, max: &str) -> ColumnSummary {
        ColumnSummary {
            min: Some(Value::Text(min.into())),
            max: Some(Value::Text(max.into())),
            exact: true,
            ..Default::default()
        }
    }

    fn may(predicate: Predicate, summary: ColumnSummary) -> bool {
        may_match(&[predicate], &[summary], 10)
    }

    fn compare(op: Compare, value: i128) -> Predicate {
        Predicate::Compare { column: 0, op, value: Value::Int(value) }
    }

    #[test]
    fn comparisons_are_ruled_out_at_the_bounds() {
        let cases = [
            (Compare::Eq, [4, 5, 9, 10], [false, true, true, false]),
            (Compare::Lt, [4, 5, 6, 10], [false, false, true, true]),
            (Compare::Le, [4, 5, 6, 10], [false, true, true, true]),
            (Compare::Gt, [4, 8, 9, 10], [true, true, false, false]),
            (Compare::Ge, [4, 8, 9, 10], [true, true, true, false]),
            (Compare::Ne, [4, 5, 9, 10], [true, true, true, true]),
        ];
        for (op, values, expected) in cases {
            assert_eq!(values.map(|value| may(compare(op, value), ints(5, 9, 0))), expected, "{op:?}");
        }
        assert!(!may(compare(Compare::Ne, 5), ints(5, 5, 3)));
        assert!(may(compare(Compare::Ne, 5), ColumnSummary { exact: false, ..ints(5, 5, 0) }));
    }

    #[test]
    fn nulls_satisfy_only_is_null() {
        let all_null = ColumnSummary { nulls: 10, exact: true, ..Default::default() };
        assert!(!may(compare(Compare::Ne, 5), all_null.clone()));
        assert!(!may(Predicate::Like { column: 0, pattern: "a".into(), negated: true }, all_null.clone()));
        assert!(!may(Predicate::IsNotNull(0), all_null.clone()));
        assert!(may(Predicate::IsNull(0), all_null));
        assert!(!may(Predicate::IsNull(0), ints(1, 2, 0)));
    }

    #[test]
    fn unknown_bounds_and_other_kinds_rule_nothing_out() {
        assert!(may(compare(Compare::Eq, 5), ColumnSummary::default()));
        assert!(may(compare(Compare::Eq, 5), texts("a", "b")));
        assert!(may_match(&[compare(Compare::Eq, 5)], &[], 10));
    }

    #[test]
    fn patterns_are_ruled_out_by_their_prefix() {
        let like =
            |pattern: &str| may(Predicate::Like { column: 0, pattern: pattern.into(), negated: false }, texts("bab", "bz"));
        for (pattern, expected) in [
            ("b%", true),
            ("ba%", true),
            ("baa%", false),
            ("bz_", true),
            ("c%", false),
            ("%x", true),
            ("bab", true),
            ("ba", false),
        ] {
            assert_eq!(like(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn any_needs_one_and_all_needs_each() {
        let (yes, no) = (compare(Compare::Eq, 5), compare(Compare::Eq, 50));
        assert!(may(Predicate::Any(vec![no.clone(), yes.clone()]), ints(5, 9, 0)));
        assert!(!may(Predicate::All(vec![no.clone(), yes]), ints(5, 9, 0)));
        assert!(!may(Predicate::In { column: 0, values: vec![Value::Int(3), Value::Int(12)] }, ints(5, 9, 0)));
    }

    #[test]
    fn both_zeros_are_one() {
        let zero =
            ColumnSummary { min: Some(Value::Float(-0.0)), max: Some(Value::Float(-0.0)), exact: true, ..Default::default() };
        for op in [Compare::Eq, Compare::Lt, Compare::Ge, Compare::Ne] {
            assert!(may(Predicate::Compare { column: 0, op, value: Value::Float(0.0) }, zero.clone()), "{op:?}");
        }
    }
}
