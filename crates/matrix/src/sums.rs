//! [`CellSums`]: per cell, the sum of its values over genes, and how many are not zero.

use crate::blob::{array, put_head};
use crate::bytes::{Reader, Result};
use crate::cells::{CELLS_MAX, Cells};
use crate::row::RowBuffer;

pub(crate) const TAG: u8 = 0xE5;

/// Adds rows up, cell by cell.
#[derive(Debug, Default)]
pub struct CellSums {
    row: RowBuffer,
    values: Vec<f32>,
    totals: CellTotals,
}

/// What came together in each cell. Cells that do not count have zeros.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CellTotals {
    /// Sums of values.
    pub sums: Vec<f64>,
    /// Values that are not zero.
    pub nonzeros: Vec<f64>,
}

impl CellSums {
    /// Adds a gene's row.
    pub fn row(&mut self, bytes: &[u8], cells: &Cells) -> Result<()> {
        self.row.decode(bytes)?;
        cells.check(self.row.n_cells)?;
        cells.transform.apply(&self.row.cells, self.row.values(), &mut self.values);
        self.totals.sums.resize(cells.n_cells, 0.0);
        self.totals.nonzeros.resize(cells.n_cells, 0.0);
        for (cell, value) in self.row.cells.iter().map(|cell| *cell as usize).zip(&self.values) {
            if cells.numbers[cell] != u32::MAX {
                self.totals.sums[cell] += f64::from(*value);
                self.totals.nonzeros[cell] += 1.0;
            }
        }
        Ok(())
    }

    /// What came together so far; none: no row did.
    pub fn totals(&self) -> Option<&CellTotals> {
        Some(&self.totals).filter(|totals| !totals.sums.is_empty())
    }

    /// Bytes of memory.
    pub fn size(&self) -> usize {
        self.totals.sums.capacity() * 16 + self.row.cells.capacity() * 12
    }
}

impl CellTotals {
    /// As bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_head(out, TAG, &[self.sums.len()]);
        out.extend(self.sums.iter().chain(&self.nonzeros).flat_map(|value| value.to_le_bytes()));
    }

    /// Those that the bytes stand for.
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
