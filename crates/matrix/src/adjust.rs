//! Corrections for testing many genes.

use serde::Deserialize;

/// How p-values are corrected for their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Correction {
    /// The false discovery rate (Benjamini and Hochberg 1995).
    BenjaminiHochberg,
    /// The family-wise error rate (Bonferroni): each p-value times the number of p-values.
    Bonferroni,
}

/// The corrected p-values, in the same order. NaN counts as 1.
pub fn adjust(p_values: &[f64], correction: Correction) -> Vec<f64> {
    let count = p_values.len() as f64;
    let known = |p: f64| if p.is_nan() { 1.0 } else { p };
    match correction {
        Correction::Bonferroni => p_values.iter().map(|p| (known(*p) * count).min(1.0)).collect(),
        Correction::BenjaminiHochberg => {
            // As numbers, floats that are not negative keep their order, and sort faster.
            let mut order: Vec<(u64, u32)> = (0..).zip(p_values).map(|(at, p)| (known(*p).to_bits(), at)).collect();
            order.sort_unstable();
            let mut adjusted = vec![1.0; p_values.len()];
            let mut least = 1.0_f64;
            for (rank, (bits, at)) in order.iter().enumerate().rev() {
                least = least.min(f64::from_bits(*bits) * count / (rank as f64 + 1.0));
                adjusted[*at as usize] = least;
            }
            adjusted
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corrections_are_those_of_the_books() {
        let p = [0.01, 0.04, 0.03, f64::NAN];
        assert_eq!(adjust(&p, Correction::Bonferroni), [0.04, 0.16, 0.12, 1.0]);
        let fdr = adjust(&p, Correction::BenjaminiHochberg);
        for (found, wanted) in fdr.iter().zip([0.04, 4.0 / 75.0, 4.0 / 75.0, 1.0]) {
            assert!((found - wanted).abs() < 1e-15, "{fdr:?}");
        }
        assert!(adjust(&[], Correction::BenjaminiHochberg).is_empty());
    }
}
