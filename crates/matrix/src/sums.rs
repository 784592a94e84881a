//! [`CellSums`]: for each cell, the sum of its values over genes, and how many of these are not zero.

use crate::blob::{array, put_head};
use crate::bytes::{Malformed, Reader, Result};
use crate::row::{CELLS_MAX, RowBuffer, Values};

pub(crate) const TAG: u8 = 0xE5;

/// Adds rows up, cell by cell.
#[derive(Debug, Default)]
pub struct CellSums {
    row: RowBuffer,
    totals: CellTotals,
}

/// The sums for each cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CellTotals {
    /// Sums of values.
    pub sums: Vec<f64>,
    /// The number of values that are not zero.
    pub nonzeros: Vec<f64>,
}

impl CellSums {
    /// Adds a gene's row.
    pub fn row(&mut self, bytes: &[u8]) -> Result<()> {
        self.row.decode(bytes)?;
        if self.totals.sums.is_empty() {
            self.totals.sums.resize(self.row.n_cells, 0.0);
            self.totals.nonzeros.resize(self.row.n_cells, 0.0);
        }
        if self.totals.sums.len() != self.row.n_cells {
            let message = format!("rows of {} and of {} cells cannot be added", self.totals.sums.len(), self.row.n_cells);
            return Err(Malformed::new(message));
        }
        let totals = &mut self.totals;
        let mut add = |cell: u32, value: f64| {
            totals.sums[cell as usize] += value;
            totals.nonzeros[cell as usize] += 1.0;
        };
        match self.row.values() {
            Values::Counts(counts) => self.row.cells.iter().zip(counts).for_each(|(cell, count)| add(*cell, f64::from(*count))),
            Values::Floats(floats) => self.row.cells.iter().zip(floats).for_each(|(cell, value)| add(*cell, f64::from(*value))),
        }
        Ok(())
    }

    /// The sums so far; none if no row was added.
    pub fn totals(&self) -> Option<&CellTotals> {
        Some(&self.totals).filter(|totals| !totals.sums.is_empty())
    }

    /// The bytes of memory that it uses.
    pub fn size(&self) -> usize {
        self.totals.sums.capacity() * 16 + self.row.cells.capacity() * 12
    }
}

impl CellTotals {
    /// The sums as bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_head(out, TAG, &[self.sums.len()]);
        out.extend(self.sums.iter().chain(&self.nonzeros).flat_map(|value| value.to_le_bytes()));
    }

    /// Decodes the bytes.
    pub fn decode(bytes: &[u8]) -> Result<CellTotals> {
        let mut reader = Reader::new(bytes, "sums of cells");
        if reader.u8()? != TAG {
            return Err(reader.wrong("are expected, as cell_sums() gives them"));
        }
        let cells = reader.bounded(CELLS_MAX, "cells")?;
        let totals = CellTotals { sums: array(&mut reader, cells)?, nonzeros: array(&mut reader, cells)? };
        reader.end()?;
        Ok(totals)
    }
}
