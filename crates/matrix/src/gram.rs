//! [`Gram`]: the Gram matrix of the cells, or its product with a basis. Genes are rows, so it is a sum over them, and
//! any drive can add its part: Σ x·xᵀ, where x is a gene's values in the cells that count, minus their mean if that is
//! requested. With a basis B it is Σ x·(xᵀ·B).
//!
//! ```text
//! a part of one gene: 0xE7, columns, mean, xᵀ·B (a number for each column), the gene's row
//! a sum: 0xE6, rows, columns, values
//! ```

use crate::blob::{array, put_head};
use crate::bytes::{Malformed, Reader, Result, put_f64, put_varint};
use crate::cells::{BASIS_MAX, COLUMNS_MAX, Cells};
use crate::row::{CELLS_MAX, Codec, Row, RowBuffer, Values};

pub(crate) const TAG: u8 = 0xE6;
const PART_TAG: u8 = 0xE7;
/// Most cells of a whole Gram matrix.
const WHOLE_MAX: usize = 4_096;

/// Turns rows into parts of a Gram matrix. A value that is reused for many rows needs no new memory.
#[derive(Debug, Default)]
pub struct GramParts {
    row: RowBuffer,
    values: Vec<f32>,
    /// The cells that count: their positions, and their numbers among the counting cells.
    places: Vec<u32>,
    numbers: Vec<u32>,
    taken: Vec<f32>,
    product: Vec<f64>,
}

impl GramParts {
    /// Appends the gene's part to `out`, as bytes.
    pub fn row(&mut self, bytes: &[u8], cells: &Cells, out: &mut Vec<u8>) -> Result<()> {
        self.row.decode(bytes)?;
        cells.check(self.row.n_cells)?;
        cells.transform.apply(&self.row.cells, self.row.values(), &mut self.values);
        self.places.clear();
        self.numbers.clear();
        self.taken.clear();
        for (cell, value) in self.row.cells.iter().zip(&self.values) {
            let number = cells.numbers[*cell as usize];
            if number != u32::MAX {
                self.places.push(*cell);
                self.numbers.push(number);
                self.taken.push(*value);
            }
        }
        let n = cells.counting() as f64;
        if cells.unit_variance {
            self.scale(n);
        }
        let mean = if cells.centered { self.taken.iter().map(|value| f64::from(*value)).sum::<f64>() / n } else { 0.0 };
        self.product.clear();
        self.product.extend(cells.column_sums.iter().map(|sum| -mean * sum));
        for (place, value) in self.places.iter().zip(&self.taken) {
            let basis = &cells.basis[*place as usize * cells.columns..][..cells.columns];
            self.product.iter_mut().zip(basis).for_each(|(sum, basis)| *sum += f64::from(*value) * f64::from(*basis));
        }
        out.push(PART_TAG);
        put_varint(out, cells.columns as u64);
        put_f64(out, mean);
        self.product.iter().for_each(|value| put_f64(out, *value));
        let values = Values::Floats(&self.taken);
        Row { n_cells: cells.counting() as usize, cells: &self.numbers, values }.encode(Codec::None, out);
        Ok(())
    }

    /// Divides by the standard deviation of the sample. A constant gene is divided by 1, as scanpy does.
    fn scale(&mut self, n: f64) {
        let values = || self.taken.iter().map(|value| f64::from(*value));
        let mean = values().sum::<f64>() / n;
        let squares = values().map(|value| (value - mean).powi(2)).sum::<f64>() + (n - self.taken.len() as f64) * mean * mean;
        let deviation = (squares / (n - 1.0)).sqrt();
        if deviation > 1e-12 * mean.abs() {
            self.taken.iter_mut().for_each(|value| *value = (f64::from(*value) / deviation) as f32);
        }
    }
}

/// Adds parts up.
#[derive(Debug, Default)]
pub struct Gram {
    row: RowBuffer,
    /// Without a basis, the lower triangle is filled.
    sum: Vec<f64>,
    /// The amount that centring subtracts from each row of the sum.
    offsets: Vec<f64>,
    /// The amount that centring subtracts from every element of a column.
    offset: Vec<f64>,
    n: usize,
    columns: usize,
}

/// A sum of parts, row by row. See [`Gram`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GramResult {
    /// The number of rows: cells that count.
    pub rows: usize,
    /// The number of columns: the same, or the columns of the basis.
    pub columns: usize,
    /// The values.
    pub values: Vec<f64>,
}

impl Gram {
    /// Adds a gene's part.
    pub fn part(&mut self, bytes: &[u8]) -> Result<()> {
        let mut reader = Reader::new(bytes, "a part of a Gram matrix");
        if reader.u8()? != PART_TAG {
            return Err(reader.wrong("is expected, as gram_part() gives it"));
        }
        let columns = reader.bounded(COLUMNS_MAX, "columns")?;
        let mean = reader.f64()?;
        let product = array(&mut reader, columns)?;
        self.row.decode(reader.rest())?;
        if self.sum.is_empty() {
            self.start(columns)?;
        }
        if (self.n, self.columns) != (self.row.n_cells, columns) {
            return Err(Malformed::new("parts of different Gram matrices cannot be added"));
        }
        let values: Vec<f64> = match self.row.values() {
            Values::Counts(counts) => counts.iter().map(|count| f64::from(*count)).collect(),
            Values::Floats(floats) => floats.iter().map(|value| f64::from(*value)).collect(),
        };
        if columns == 0 {
            self.add_square(&values, mean)
        } else {
            self.add_product(&values, mean, &product)
        }
        Ok(())
    }

    fn start(&mut self, columns: usize) -> Result<()> {
        (self.n, self.columns) = (self.row.n_cells, columns);
        if columns == 0 && self.n > WHOLE_MAX {
            let n = self.n;
            let message =
                format!("a Gram matrix of {n} cells is too large; at most {WHOLE_MAX}, or give a basis to multiply it with");
            return Err(Malformed::new(message));
        }
        if self.n * columns > BASIS_MAX {
            let n = self.n;
            return Err(Malformed::new(format!(
                "a product of {n} cells and {columns} columns is too large; take fewer at a time"
            )));
        }
        self.sum = vec![0.0; self.n * if columns == 0 { self.n } else { columns }];
        self.offsets = vec![0.0; self.n];
        self.offset = vec![0.0; columns.max(1)];
        Ok(())
    }

    fn add_square(&mut self, values: &[f64], mean: f64) {
        for (i, (row, a)) in self.row.cells.iter().zip(values).enumerate() {
            let line = &mut self.sum[*row as usize * self.n..][..self.n];
            for (column, b) in self.row.cells[..=i].iter().zip(values) {
                line[*column as usize] += a * b;
            }
            self.offsets[*row as usize] += mean * a;
        }
        self.offset[0] += mean * mean;
    }

    fn add_product(&mut self, values: &[f64], mean: f64, product: &[f64]) {
        for (row, value) in self.row.cells.iter().zip(values) {
            let line = &mut self.sum[*row as usize * self.columns..][..self.columns];
            line.iter_mut().zip(product).for_each(|(sum, product)| *sum += value * product);
        }
        self.offset.iter_mut().zip(product).for_each(|(sum, product)| *sum += mean * product);
    }

    /// The sum so far; none if no row was added.
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

    /// The bytes of memory that it uses.
    pub fn size(&self) -> usize {
        (self.sum.capacity() + self.offsets.capacity() + self.row.cells.capacity()) * 8
    }
}

impl GramResult {
    /// The sum as bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_head(out, TAG, &[self.rows, self.columns]);
        out.extend(self.values.iter().flat_map(|value| value.to_le_bytes()));
    }

    /// Decodes the bytes.
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
                let mut part = Vec::new();
                GramParts::default().row(&encoded(6, &at, Values::Floats(&floats), Codec::None), &cells, &mut part).unwrap();
                gram.part(&part).unwrap();
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
                prop_assert!((found - wanted).abs() < 1e-5, "{found} for {wanted}");
            }
            prop_assert_eq!(found.values.len(), wanted.len());
        }
    }
}
