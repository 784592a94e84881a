//! [`Accumulate`], the first partial aggregate of MSG Express (Montana et al. 2023, section 6): from a gene's row to
//! its moments in every group.

use crate::bytes::Result;
use crate::cells::Cells;
use crate::partials::{Moments, Partials};
use crate::row::RowBuffer;

/// Turns rows into partials. A value that is reused for many rows needs no new memory.
#[derive(Debug, Default)]
pub struct Accumulate {
    row: RowBuffer,
    values: Vec<f32>,
    codes: Vec<u16>,
    sums: Vec<Sums>,
}

/// What the passes add up for one group.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    nonzeros: u64,
    values: f64,
    /// In the first pass, the sum of squares of the values; in the second, that of their distances from the mean.
    squares: f64,
    mean: f64,
    distances: f64,
    expm1: f64,
}

/// The share of the sum of squares below which the squared distances from the mean have lost too many digits.
const LOST: f64 = 1e-2;

impl Accumulate {
    /// Appends the gene's partials to `out`, as bytes.
    ///
    /// One pass is enough for most genes, whose means are small beside their deviations. Where a mean is so large that
    /// digits would be lost, a second pass sums squared distances from the mean, and their plain sum corrects the
    /// result (Chan et al. 1983, "Algorithms for computing the sample variance").
    pub fn row(&mut self, bytes: &[u8], cells: &Cells, out: &mut Vec<u8>) -> Result<()> {
        self.row.decode(bytes)?;
        cells.check(self.row.n_cells)?;
        cells.transform.apply(&self.row.cells, self.row.values(), &mut self.values);
        self.sums.clear();
        // There is one more group than the groups and "none": cells that do not count are added up there, and ignored.
        self.sums.resize(cells.n_groups + 2, Sums::default());
        self.codes.clear();
        self.codes.extend(self.row.cells.iter().map(|cell| cells.codes[*cell as usize]));
        for (code, value) in self.codes.iter().zip(&self.values) {
            let sums = &mut self.sums[usize::from(*code)];
            let value = f64::from(*value);
            sums.nonzeros += 1;
            sums.values += value;
            sums.squares += value * value;
        }
        if self.sums.iter_mut().zip(&cells.sizes).map(|(sums, size)| sums.settle(*size)).fold(false, |any, lost| any | lost) {
            self.second_pass(cells);
        }
        if cells.sum_expm1 {
            for (code, value) in self.codes.iter().zip(&self.values) {
                self.sums[usize::from(*code)].expm1 += cells.transform.expm1(*value);
            }
        }
        let groups = self.sums.iter().zip(&cells.sizes).map(|(sums, size)| sums.moments(*size)).collect();
        Partials { groups, has_expm1: cells.sum_expm1 }.encode(out);
        Ok(())
    }

    fn second_pass(&mut self, cells: &Cells) {
        self.sums.iter_mut().for_each(|sums| sums.squares = 0.0);
        for (code, value) in self.codes.iter().zip(&self.values) {
            let sums = &mut self.sums[usize::from(*code)];
            let distance = f64::from(*value) - sums.mean;
            sums.distances += distance;
            sums.squares += distance * distance;
        }
        for (sums, size) in self.sums.iter_mut().zip(&cells.sizes) {
            let zeros = (size - sums.nonzeros) as f64;
            let distances = sums.distances - zeros * sums.mean;
            let squares = sums.squares + zeros * sums.mean * sums.mean;
            sums.squares = squares - distances * distances / *size as f64;
        }
    }
}

impl Sums {
    /// Computes squared distances from the mean from the first pass's squares. Returns whether they lost too many
    /// digits.
    fn settle(&mut self, n: u64) -> bool {
        let size = n as f64;
        self.mean = self.values / size;
        let all = self.squares;
        self.squares -= self.values * self.mean;
        self.squares < LOST * all
    }

    fn moments(&self, n: u64) -> Moments {
        if n == 0 {
            return Moments::default();
        }
        let size = n as f64;
        // The rounding error of the mean of equal values is not a variance. NaN stays.
        let noise = 4.0 * f64::EPSILON * self.mean;
        let m2 = if self.squares <= size * noise * noise { 0.0 } else { self.squares };
        Moments { n, nonzeros: self.nonzeros, mean: self.mean, m2, sum_expm1: self.expm1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::CellsSpec;
    use crate::row::tests::encoded;
    use crate::row::{Codec, Values};
    use proptest::prelude::*;

    pub(crate) fn partials(values: &[f32], spec: &CellsSpec) -> Partials {
        let (cells, floats): (Vec<u32>, Vec<f32>) =
            (0_u32..).zip(values).filter(|(_, value)| **value != 0.0).map(|(cell, value)| (cell, *value)).unzip();
        let bytes = encoded(values.len(), &cells, Values::Floats(&floats), Codec::Zstd);
        let mut out = Vec::new();
        let cells = Cells::decode(&spec.encode().unwrap()).unwrap();
        Accumulate::default().row(&bytes, &cells, &mut out).unwrap();
        Partials::decode(&out).unwrap()
    }

    fn brute(values: &[f64]) -> (f64, f64) {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (mean, values.iter().map(|value| (value - mean).powi(2)).sum())
    }

    proptest! {
        #[test]
        fn moments_are_those_of_each_group_and_parts_combine_to_the_whole(
            entries in prop::collection::vec((0_u16..4, prop_oneof![Just(0.0_f32), -50.0_f32..50.0, 1e6_f32..1.001e6]), 1..60),
            cut: prop::sample::Index,
        ) {
            let codes: Vec<u16> = entries.iter().map(|(code, _)| *code).collect();
            let values: Vec<f32> = entries.iter().map(|(_, value)| *value).collect();
            let of = |range: std::ops::Range<usize>| {
                let spec = CellsSpec { n_cells: range.len(), n_groups: 2, codes: codes[range.clone()].to_vec(), sum_expm1: true, ..CellsSpec::default() };
                partials(&values[range], &spec)
            };
            let whole = of(0..values.len());
            let cut = cut.index(values.len());
            let mut merged = of(0..cut);
            merged.merge(&of(cut..values.len())).unwrap();
            for group in 0..3_u16 {
                let members: Vec<f64> = entries.iter().filter(|(code, _)| *code == group).map(|(_, value)| f64::from(*value)).collect();
                for found in [whole.groups[usize::from(group)], merged.groups[usize::from(group)]] {
                    prop_assert_eq!(found.n, members.len() as u64);
                    prop_assert_eq!(found.nonzeros, members.iter().filter(|value| **value != 0.0).count() as u64);
                    if !members.is_empty() {
                        let (mean, m2) = brute(&members);
                        let large = members.iter().fold(1.0_f64, |large, value| large.max(value.abs()));
                        prop_assert!((found.mean - mean).abs() <= 1e-13 * large, "{} {mean}", found.mean);
                        prop_assert!((found.m2 - m2).abs() <= 1e-12 * (m2 + large * large * 1e-3), "{} {m2}", found.m2);
                    }
                }
            }
        }
    }

    #[test]
    fn constant_genes_have_no_variance_and_nan_stays() {
        let spec = CellsSpec { n_cells: 7, n_groups: 1, codes: vec![0; 7], ..CellsSpec::default() };
        assert_eq!(partials(&[0.1; 7], &spec).groups[0].m2, 0.0);
        let found = partials(&[1.0, f32::NAN, 0.0, 0.0, 0.0, 2.0, 0.0], &spec).groups[0];
        assert!(found.mean.is_nan() && found.m2.is_nan(), "{found:?}");
    }

    #[test]
    fn size_factors_and_logarithms_are_rebuilt() {
        let spec = CellsSpec {
            n_cells: 3,
            n_groups: 1,
            codes: vec![0; 3],
            totals: vec![10.0, 20.0, 0.0],
            target_sum: 100.0,
            log1p: true,
            sum_expm1: true,
            ..CellsSpec::default()
        };
        let found = partials(&[1.0, 4.0, 0.0], &spec).groups[0];
        let values = [10.0_f64.ln_1p(), 20.0_f64.ln_1p(), 0.0];
        assert!((found.mean - brute(&values).0).abs() < 1e-7, "{found:?}");
        assert!((found.sum_expm1 - 30.0).abs() < 1e-5, "{found:?}");
    }
}
