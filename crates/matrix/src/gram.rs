//! [`Gram`]: the Gram matrix of the cells, or its product with a basis. Genes are rows, so it is a sum over them, and any drive can
//! add its part.

use crate::blob::{array, put_head};
use crate::bytes::{Malformed, Reader, Result};
use crate::cells::{CELLS_MAX, Cells};
use crate::row::RowBuffer;

pub(crate) const TAG: u8 = 0xE6;
/// Most cells of a whole Gram matrix.
const WHOLE_MAX: usize = 4_096;

/// Adds rows up to Σ x·xᵀ over genes, with x a gene's values in the cells that count, less their mean where that is asked for. With
/// a basis B: to Σ x·(xᵀ·B).
#[derive(Debug, Default)]
pub struct Gram {
    row: RowBuffer,
    values: Vec<f32>,
    /// The gene's cells that count, by their number, with their values.
    entries: Vec<(u32, f64)>,
    /// Without a basis, the lower triangle is filled.
    sum: Vec<f64>,
    /// What centring takes from each row of the sum.
    offsets: Vec<f64>,
    /// What centring takes from every place.
    offset: Vec<f64>,
    /// Sums of the basis' columns, over cells that count.
    column_sums: Vec<f64>,
    n: usize,
    columns: usize,
}

/// A sum of [`Gram`], row by row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GramResult {
    /// Rows: cells that count.
    pub rows: usize,
    /// Columns: as many, or those of the basis.
    pub columns: usize,
    /// The values.
    pub values: Vec<f64>,
}

impl Gram {
    /// Adds a gene's row.
    pub fn row(&mut self, bytes: &[u8], cells: &Cells) -> Result<()> {
        self.row.decode(bytes)?;
        cells.check(self.row.n_cells)?;
        if self.sum.is_empty() {
            self.start(cells)?;
        }
        cells.transform.apply(&self.row.cells, self.row.values(), &mut self.values);
        let number = |(cell, value): (&u32, &f32)| (cells.numbers[*cell as usize], f64::from(*value));
        self.entries.clear();
        self.entries.extend(self.row.cells.iter().zip(&self.values).map(number).filter(|(number, _)| *number != u32::MAX));
        let n = self.n as f64;
        let mean = self.entries.iter().map(|(_, value)| value).sum::<f64>() / n;
        if cells.unit_variance {
            let squares: f64 = self.entries.iter().map(|(_, value)| (value - mean).powi(2)).sum();
            let deviation = ((squares + (n - self.entries.len() as f64) * mean * mean) / (n - 1.0)).sqrt();
            // A constant gene is divided by 1, as scanpy does.
            let deviation = if deviation > 0.0 { deviation } else { 1.0 };
            self.entries.iter_mut().for_each(|(_, value)| *value /= deviation);
        }
        let mean = self.entries.iter().map(|(_, value)| value).sum::<f64>() / n;
        let mean = if cells.centered { mean } else { 0.0 };
        if self.columns == 0 { self.add_square(mean) } else { self.add_product(cells, mean) }
        Ok(())
    }

    fn start(&mut self, cells: &Cells) -> Result<()> {
        (self.n, self.columns) = (cells.counting() as usize, cells.columns);
        if self.columns == 0 && self.n > WHOLE_MAX {
            let message = format!("a Gram matrix of {} cells is too large; at most {WHOLE_MAX}, or give a basis to multiply it with", self.n);
            return Err(Malformed::new(message));
        }
        let width = if self.columns == 0 { self.n } else { self.columns };
        self.sum = vec![0.0; self.n * width];
        self.offsets = vec![0.0; self.n];
        self.offset = vec![0.0; self.columns.max(1)];
        self.column_sums = vec![0.0; self.columns];
        if self.columns > 0 {
            let counting = cells.basis.chunks_exact(self.columns).zip(&cells.numbers).filter(|(_, number)| **number != u32::MAX);
            for (row, _) in counting {
                self.column_sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value));
            }
        }
        Ok(())
    }

    fn add_square(&mut self, mean: f64) {
        for (i, (row, a)) in self.entries.iter().enumerate() {
            let line = &mut self.sum[*row as usize * self.n..][..self.n];
            for (column, b) in &self.entries[..=i] {
                line[*column as usize] += a * b;
            }
            self.offsets[*row as usize] += mean * a;
        }
        self.offset[0] += mean * mean;
    }

    fn add_product(&mut self, cells: &Cells, mean: f64) {
        let columns = self.columns;
        let mut product: Vec<f64> = self.column_sums.iter().map(|sum| -mean * sum).collect();
        let counting = self.row.cells.iter().filter(|cell| cells.numbers[**cell as usize] != u32::MAX);
        for (cell, (_, value)) in counting.zip(&self.entries) {
            let basis = &cells.basis[*cell as usize * columns..][..columns];
            product.iter_mut().zip(basis).for_each(|(sum, basis)| *sum += value * f64::from(*basis));
        }
        for (row, value) in &self.entries {
            let line = &mut self.sum[*row as usize * columns..][..columns];
            line.iter_mut().zip(&product).for_each(|(sum, product)| *sum += value * product);
        }
        self.offset.iter_mut().zip(&product).for_each(|(sum, product)| *sum += mean * product);
    }

    /// The sum so far; none: no row was added.
    pub fn result(&self) -> Option<GramResult> {
        if self.sum.is_empty() {
            return None;
        }
        let mut values = self.sum.clone();
        if self.columns > 0 {
            let rows = values.chunks_exact_mut(self.columns);
            rows.for_each(|row| row.iter_mut().zip(&self.offset).for_each(|(value, offset)| *value -= offset));
            return Some(GramResult { rows: self.n, columns: self.columns, values });
        }
        for i in 0..self.n {
            for j in 0..=i {
                let value = self.sum[i * self.n + j] - self.offsets[i] - self.offsets[j] + self.offset[0];
                values[i * self.n + j] = value;
                values[j * self.n + i] = value;
            }
        }
        Some(GramResult { rows: self.n, columns: self.n, values })
    }

    /// Bytes of memory.
    pub fn size(&self) -> usize {
        (self.sum.capacity() + self.entries.capacity() * 2) * 8
    }
}

impl GramResult {
    /// As bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_head(out, TAG, &[self.rows, self.columns]);
        out.extend(self.values.iter().flat_map(|value| value.to_le_bytes()));
    }

    /// The one that the bytes stand for.
    pub fn decode(bytes: &[u8]) -> Result<GramResult> {
        let mut reader = Reader::new(bytes, "a Gram matrix");
        if reader.u8()? != TAG {
            return Err(reader.wrong("is expected, as gram() gives it"));
        }
        let (rows, columns) = (reader.bounded(CELLS_MAX, "rows")?, reader.bounded(CELLS_MAX, "columns")?);
        let values = array(&mut reader, rows.saturating_mul(columns))?;
        reader.end()?;
        Ok(GramResult { rows, columns, values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::CellsSpec;
    use crate::row::tests::encoded;
    use crate::row::{Codec, Values};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn gram_matrices_are_those_by_definition(
            genes in prop::collection::vec(prop::collection::vec(prop_oneof![Just(0.0_f32), -3.0_f32..3.0], 6), 1..6), scaled: bool, whole: bool
        ) {
            let codes = vec![0, 0, 9, 0, 0, 0];
            let counting: Vec<usize> = (0..6).filter(|cell| codes[*cell] == 0).collect();
            let basis: Vec<f32> = if whole { vec![] } else { (0_u8..12).map(|i| f32::from(i) * 0.25 - 1.0).collect() };
            let spec = CellsSpec { n_cells: 6, codes: codes.clone(), centered: true, unit_variance: scaled, basis: basis.clone(), ..CellsSpec::default() };
            let cells = Cells::decode(&spec.encode().unwrap()).unwrap();
            let mut gram = Gram::default();
            let mut wanted = vec![0.0; 25];
            for gene in &genes {
                let (at, floats): (Vec<u32>, Vec<f32>) = (0_u32..).zip(gene).filter(|(_, value)| **value != 0.0).map(|(cell, value)| (cell, *value)).unzip();
                gram.row(&encoded(6, &at, Values::Floats(&floats), Codec::None), &cells).unwrap();
                let values: Vec<f64> = counting.iter().map(|cell| f64::from(gene[*cell])).collect();
                let mean = values.iter().sum::<f64>() / 5.0;
                let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 4.0;
                let deviation = if scaled && variance > 0.0 { variance.sqrt() } else { 1.0 };
                let x: Vec<f64> = values.iter().map(|value| (value - mean) / deviation).collect();
                (0..25).for_each(|at| wanted[at] += x[at / 5] * x[at % 5]);
            }
            if !whole {
                let rows: Vec<&[f32]> = counting.iter().map(|cell| &basis[cell * 2..][..2]).collect();
                wanted = (0..10).map(|at| (0..5).map(|k| wanted[at / 2 * 5 + k] * f64::from(rows[k][at % 2])).sum()).collect();
            }
            let mut bytes = Vec::new();
            gram.result().unwrap().encode(&mut bytes);
            let found = GramResult::decode(&bytes).unwrap();
            for (found, wanted) in found.values.iter().zip(&wanted) {
                prop_assert!((found - wanted).abs() < 1e-9, "{found} for {wanted}");
            }
            prop_assert_eq!(found.values.len(), wanted.len());
        }
    }
}
