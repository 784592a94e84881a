//! [`Transform`]: from stored values to those with which functions compute. Size factors and logarithms are not stored.
//! They are computed on the fly, and rounded to 32 bits as in matrices in memory.

use crate::row::Values;

/// The logarithms of counts up to this one are cached for every cell. Most counts are among them.
const KEPT: usize = 5;

/// `value · target / total of the cell`, then `ln(1 + value)`, each if it is requested.
#[derive(Clone, Debug)]
pub(crate) struct Transform {
    /// The size factor of each cell; empty: 1.
    factors: Vec<f64>,
    log1p: bool,
    /// The number by which the natural logarithm is divided.
    divisor: f64,
    /// For each cell, the transformed values of 1, 2 and so on; empty if they can be computed as quickly.
    kept: Vec<[f32; KEPT]>,
}

impl Transform {
    pub(crate) fn new(totals: &[f64], target_sum: f64, log1p: bool, base: Option<f64>) -> Self {
        // A cell without counts remains without: scanpy divides it by 1.
        let factor = |total: &f64| if *total == 0.0 { 1.0 } else { target_sum / total };
        let factors: Vec<f64> = totals.iter().map(factor).collect();
        let mut transform = Self { factors, log1p, divisor: base.map_or(1.0, f64::ln), kept: Vec::new() };
        if log1p && !transform.factors.is_empty() {
            let kept = |cell| std::array::from_fn(|count| transform.value(cell, (count + 1) as f64));
            transform.kept = (0..totals.len()).map(kept).collect();
        }
        transform
    }

    /// Whether values remain as they are stored.
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

    /// Writes the transformed values of a row to `out`, and replaces what `out` has. There must be a description of
    /// each of the row's cells.
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

    /// `expm1` of a transformed value: the value before the logarithm was taken, or would be.
    pub(crate) fn expm1(&self, value: f32) -> f64 {
        (f64::from(value) * self.divisor).exp_m1()
    }
}
