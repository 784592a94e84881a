//! How many different values all parts of a dataset have together, from how many each of them has.

use crate::{ColumnSummary, Value};

/// Steps that Newton's method takes. Each at least halves the distance to a root near 0, and near the root squares it.
const STEPS: usize = 12;

/// An estimate of the number of distinct non-null values of a column in all rows, from samples of them, each as rows and the
/// column's summary over them. In n draws of D values, each as likely as the others, D (1 - exp(-n / D)) different ones are
/// expected. What is returned is never less than the largest of the samples' counts, nor more than what as many for each row
/// would be, the rows that have a value, or the integers between the bounds.
pub(crate) fn distinct_of_samples(samples: &[(u64, &ColumnSummary)], rows: u64, whole: &ColumnSummary) -> u64 {
    let counted = || samples.iter().filter(|(_, summary)| summary.distinct > 0);
    let with_value = rows.saturating_sub(whole.nulls) as f64;
    let sampled = counted().map(|(rows, _)| *rows as f64).sum::<f64>() * with_value / (rows as f64).max(1.0);
    let share = counted().map(|(_, summary)| summary.distinct as f64).sum::<f64>() / sampled;
    let most = (share.min(1.0) * with_value).min(values_between(whole));
    let draws = sampled / counted().count() as f64;
    let expected = if share < 1.0 {
        let values = draws / draws_per_value(share);
        values * (1.0 - (-with_value / values).exp())
    } else {
        most
    };
    (expected.min(most) as u64).max(whole.distinct)
}

/// The x at which (1 - exp(-x)) / x is this share, between 0 and 1: draws for each value, where this share of the draws are the
/// first of their value.
fn draws_per_value(share: f64) -> f64 {
    let mut x = 1.0 / share;
    for _ in 0..STEPS {
        x -= (1.0 - (-x).exp() - share * x) / ((-x).exp() - share);
    }
    x
}

/// Integers between the bounds, or infinitely many values.
fn values_between(summary: &ColumnSummary) -> f64 {
    match (&summary.min, &summary.max) {
        (Some(Value::Int(min)), Some(Value::Int(max))) => *max as f64 - *min as f64 + 1.0,
        _ => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The estimate for `parts` parts of `rows` rows and `distinct` values each.
    fn estimate(parts: usize, rows: u64, distinct: u64, max: Option<i128>) -> u64 {
        let bound = |value: i128| max.map(|_| Value::Int(value));
        let (min, max) = (bound(0), bound(max.unwrap_or(0)));
        let summary = ColumnSummary { min, max, exact: true, distinct, ..ColumnSummary::default() };
        distinct_of_samples(&vec![(rows, &summary); parts], rows * parts as u64, &summary)
    }

    #[test]
    fn a_value_of_every_part_counts_once_and_a_rare_one_adds_up() {
        assert_eq!(estimate(4, 1_000_000, 25, None), 25);
        assert_eq!(estimate(4, 1_000, 1_000, None), 4_000);
        assert_eq!(estimate(4, 1_000, 1_020, None), 4_000, "sketches err");
        assert_eq!(estimate(4, 1_000, 1_000, Some(1_499)), 1_500);
        assert_eq!(estimate(4, 0, 0, None), 0);
        // 1,000 draws of 1,000 values: 632 of them are seen; of 4,000 draws, 982.
        assert!((975..990).contains(&estimate(4, 1_000, 632, None)), "{}", estimate(4, 1_000, 632, None));
    }

    #[test]
    fn every_share_has_a_root() {
        for thousandths in 1..1_000 {
            let share = f64::from(thousandths) / 1_000.0;
            let x = draws_per_value(share);
            assert!(((1.0 - (-x).exp()) / x - share).abs() < 1e-3, "{share}: {x}");
        }
    }
}
