//! [`GeneRow`]: one gene's entries, gathered from several chunks.

use pithead_matrix::{Codec, Row, RowBuffer, Values};
use pithead_model::Fault;

use crate::fault::invalid;

/// A cell that a gene has two values of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Twice(u32);

impl Twice {
    pub(crate) fn fault(self, gene: usize) -> Fault {
        let fault = invalid(format!("cell {} has two values for gene {gene} (both from 0)", self.0));
        fault.hint("a matrix has one value for each cell and gene; add the two up, or leave one out")
    }
}

/// Entries of one gene. Kept between genes, it needs no new memory.
#[derive(Debug, Default)]
pub(crate) struct GeneRow {
    pub(crate) cells: Vec<u32>,
    pub(crate) counts: Vec<u32>,
    pub(crate) floats: Vec<f32>,
}

impl GeneRow {
    pub(crate) fn clear(&mut self) {
        self.cells.clear();
        self.counts.clear();
        self.floats.clear();
    }

    /// Adds entries behind those that are there.
    pub(crate) fn add(&mut self, row: &RowBuffer) {
        self.cells.extend_from_slice(&row.cells);
        match row.values() {
            Values::Counts(counts) if self.floats.is_empty() => self.counts.extend_from_slice(counts),
            Values::Counts(counts) => self.floats.extend(counts.iter().map(|count| *count as f32)),
            Values::Floats(floats) => {
                // From the first value that is no count on, none is.
                self.floats.extend(self.counts.drain(..).map(|count| count as f32));
                self.floats.extend_from_slice(floats);
            }
        }
    }

    /// Brings the cells in order. The error names a cell that comes twice.
    pub(crate) fn sort(&mut self) -> Result<(), Twice> {
        if !self.cells.is_sorted_by(|a, b| a < b) {
            let mut order: Vec<u32> = (0..self.cells.len() as u32).collect();
            order.sort_by_key(|place| self.cells[*place as usize]);
            self.cells = picked(&self.cells, &order);
            if self.floats.is_empty() {
                self.counts = picked(&self.counts, &order);
            } else {
                self.floats = picked(&self.floats, &order);
            }
        }
        match self.cells.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Twice(pair[0])),
            None => Ok(()),
        }
    }

    pub(crate) fn values(&self) -> Values<'_> {
        if self.floats.is_empty() { Values::Counts(&self.counts) } else { Values::Floats(&self.floats) }
    }

    pub(crate) fn encode(&self, n_cells: usize, codec: Codec, out: &mut Vec<u8>) {
        Row { n_cells, cells: &self.cells, values: self.values() }.encode(codec, out);
    }
}

fn picked<T: Copy>(values: &[T], order: &[u32]) -> Vec<T> {
    order.iter().map(|place| values[*place as usize]).collect()
}
