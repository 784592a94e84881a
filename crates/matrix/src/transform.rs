//! [`Transform`]: from stored values to those that are computed with. Size factors and logarithms are not stored: they are
//! rebuilt on the fly, and rounded to 32 bits, as matrices in memory have them.

use crate::row::Values;

/// Counts whose logarithm is kept for every cell. Most counts are among them.
const KEPT: usize = 5;

/// `value · target / total of the cell`, then `ln(1 + value)`, both where asked for.
#[derive(Clone, Debug)]
pub(crate) struct Transform {
    /// For each cell; empty: 1.
    factors: Vec<f64>,
    log1p: bool,
    /// What the natural logarithm is divided by.
    divisor: f64,
    /// For each cell, the transformed values of 1, 2, …; empty where they are as quickly computed.
    kept: Vec<[f32; KEPT]>,
}

impl Transform {
    pub(crate) fn new(totals: &[f64], target_sum: f64, log1p: bool, base: Option<f64>) -> Self {
        // A cell without counts stays without: scanpy divides it by 1.
        let factor = |total: &f64| if *total == 0.0 { 1.0 } else { target_sum / total };
        let factors: Vec<f64> = totals.iter().map(factor).collect();
        let mut transform = Self { factors, log1p, divisor: base.map_or(1.0, f64::ln), kept: Vec::new() };
        if log1p && !transform.factors.is_empty() {
            let kept = |cell| std::array::from_fn(|count| transform.value(cell, (count + 1) as f64));
            transform.kept = (0..totals.len()).map(kept).collect();
        }
        transform
    }

    /// Whether values are as they are stored.
    pub(crate) fn is_none(&self) -> bool {
        self.factors.is_empty() && !self.log1p
    }

    /// A value without the logarithm.
    fn scaled(&self, cell: usize, value: f64) -> f64 {
        self.factors.get(cell).map_or(value, |factor| value * factor)
    }

    fn value(&self, cell: usize, value: f64) -> f32 {
        let scaled = self.scaled(cell, value);
        (if self.log1p { scaled.ln_1p() / self.divisor } else { scaled }) as f32
    }

    /// The transformed values of a row, in place of what `out` holds. Cells have to be below the number described.
    pub(crate) fn apply(&self, cells: &[u32], values: Values<'_>, out: &mut Vec<f32>) {
        out.clear();
        match values {
            Values::Counts(counts) if !self.kept.is_empty() => out.extend(cells.iter().zip(counts).map(|(cell, count)| {
                let cell = *cell as usize;
                match self.kept[cell].get((*count as usize).wrapping_sub(1)) {
                    Some(value) => *value,
                    None => self.value(cell, f64::from(*count)),
                }
            })),
            Values::Counts(counts) if self.is_none() => out.extend(counts.iter().map(|count| *count as f32)),
            Values::Floats(floats) if self.is_none() => out.extend_from_slice(floats),
            Values::Counts(counts) => {
                out.extend(cells.iter().zip(counts).map(|(cell, count)| self.value(*cell as usize, f64::from(*count))));
            }
            Values::Floats(floats) => {
                out.extend(cells.iter().zip(floats).map(|(cell, value)| self.value(*cell as usize, f64::from(*value))));
            }
        }
    }

    /// `expm1` of a transformed value: what a logarithm was taken of, or would be.
    pub(crate) fn expm1(&self, value: f32) -> f64 {
        (f64::from(value) * self.divisor).exp_m1()
    }
}
