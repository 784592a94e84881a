//! Summaries of columns over what several drives have.

use pithead_model::{ColumnSummary, merge_columns, total};

/// Summaries of all rows, from the rows and summaries of each part. Slices are dealt to the parts in turn. So a value that
/// occurs often is in every part, and one that occurs a few times is likely to be in one part only.
pub(crate) fn summaries<'a>(parts: impl IntoIterator<Item = (u64, &'a [ColumnSummary])>) -> Vec<ColumnSummary> {
    const REPEATS_OFTEN: u64 = 20;
    let parts: Vec<(u64, &[ColumnSummary])> = parts.into_iter().collect();
    let rows = total(parts.iter().map(|(rows, _)| *rows));
    let mut merged = merge_columns(parts.iter().map(|(_, columns)| *columns));
    for (index, summary) in merged.iter_mut().enumerate() {
        let distinct = || parts.iter().filter_map(|(_, columns)| columns.get(index)).map(|column| column.distinct);
        if total(distinct()).saturating_mul(REPEATS_OFTEN) > rows {
            summary.distinct = total(distinct()).min(rows);
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use pithead_model::Value;

    use super::*;

    #[test]
    fn values_that_repeat_often_are_not_counted_once_a_part() {
        let parts = [(1000, [summary(3)]), (1000, [summary(4)])];
        assert_eq!(summaries(parts.iter().map(|(rows, columns)| (*rows, columns.as_slice())))[0].distinct, 4);
    }

    fn summary(distinct: u64) -> ColumnSummary {
        let (min, max) = (Some(Value::Int(1)), Some(Value::Int(i128::from(distinct))));
        ColumnSummary { min, max, exact: true, nulls: 1, nulls_unknown: false, distinct }
    }
}
