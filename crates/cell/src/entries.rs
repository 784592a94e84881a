//! [`Chunk`]: some cells of a matrix, turned so that genes come first.

use crate::fault::invalid;
use pithead_model::Fault;

/// A value of a matrix that is not zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) cell: u32,
    pub(crate) gene: usize,
    pub(crate) value: f64,
}

/// Entries by gene. Within a gene they keep the order that they came in.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Where each gene's entries begin, and where the last one's end.
    pub(crate) starts: Vec<usize>,
    pub(crate) cells: Vec<u32>,
    /// Counts, or the bits of floats.
    pub(crate) values: Vec<u32>,
    pub(crate) is_counts: bool,
}

/// The value as a float of 32 bits; none: it is larger than any.
pub(crate) fn float(value: f64) -> Option<f32> {
    let float = value as f32;
    (float.is_finite() || !value.is_finite()).then_some(float)
}

/// The value as a count; none: it is none.
pub(crate) fn count(value: f64) -> Option<u32> {
    // The cast stays within the type's range, so that what was beyond differs.
    let count = value as u32;
    (f64::from(count) == value).then_some(count)
}

impl Chunk {
    /// Of what `entries` gives, twice the same; zeros are left out, and what is zero as a float of 32 bits. Faults number genes from
    /// `first` on. Two passes of a counting sort.
    pub(crate) fn new<I: Iterator<Item = Entry>>(first: usize, genes: usize, entries: impl Fn() -> I) -> Result<Chunk, Fault> {
        let mut starts = vec![0_usize; genes + 1];
        let mut is_counts = true;
        let entries = || entries().filter(|entry| entry.value != 0.0);
        for Entry { cell, gene, value } in entries() {
            let Some(start) = starts.get_mut(gene + 1) else {
                let gene = gene.saturating_add(first);
                return Err(invalid(format!("cell {cell} has a value for gene {gene} (both from 0), of {genes} genes")));
            };
            let Some(float) = float(value) else {
                let what = format!("cell {cell} has {value:e} of gene {} (both from 0)", first + gene);
                return Err(invalid(format!("{what}, and floats of 32 bits end at {:e}", f32::MAX))
                    .hint("scale the values, as by logarithms, before they are loaded"));
            };
            *start += usize::from(float != 0.0);
            is_counts &= count(value).is_some();
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut next = starts.clone();
        let (mut cells, mut values) = (vec![0; sum], vec![0; sum]);
        for Entry { cell, gene, value } in entries().filter(|entry| entry.value as f32 != 0.0) {
            let place = next[gene];
            next[gene] += 1;
            cells[place] = cell;
            values[place] = if is_counts { value as u32 } else { (value as f32).to_bits() };
        }
        Ok(Chunk { starts, cells, values, is_counts })
    }

    /// A gene's cells and values.
    pub(crate) fn gene(&self, gene: usize) -> (&[u32], &[u32]) {
        let range = self.starts[gene]..self.starts[gene + 1];
        (&self.cells[range.clone()], &self.values[range])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_turned_and_zeros_left_out() {
        let entries = [(0, 2, 1.0), (0, 0, 3.0), (1, 2, 0.0), (2, 2, 5.0)];
        let entries = || entries.into_iter().map(|(cell, gene, value)| Entry { cell, gene, value });
        let chunk = Chunk::new(0, 3, entries).unwrap();
        assert!(chunk.is_counts);
        assert_eq!(chunk.gene(0), (&[0][..], &[3][..]));
        assert_eq!(chunk.gene(1), (&[][..], &[][..]));
        assert_eq!(chunk.gene(2), (&[0, 2][..], &[1, 5][..]));
        let fault = Chunk::new(0, 2, entries).unwrap_err();
        assert!(fault.message.contains("gene 2"), "{fault}");
    }

    #[test]
    fn floats_of_32_bits_neither_overflow_nor_keep_zeros() {
        let chunk = |value| Chunk::new(0, 1, move || [Entry { cell: 7, gene: 0, value }].into_iter());
        for value in [1e300, -1e39] {
            let fault = chunk(value).unwrap_err();
            assert!(fault.message.contains("cell 7 has") && fault.message.contains("32 bits"), "{fault}");
        }
        for value in [f64::from(f32::MAX), f64::INFINITY, f64::NEG_INFINITY, f64::from(f32::from_bits(1))] {
            assert_eq!(chunk(value).unwrap().gene(0).1, [(value as f32).to_bits()], "{value}");
        }
        let tiny = chunk(1e-300).unwrap();
        assert!(tiny.cells.is_empty() && !tiny.is_counts);
    }

    #[test]
    fn what_is_no_count_is_told_from_what_is() {
        assert_eq!([1.0, 4_294_967_295.0].map(count), [Some(1), Some(u32::MAX)]);
        for value in [0.5, -1.0, 4_294_967_296.0, f64::NAN, f64::INFINITY] {
            assert_eq!(count(value), None, "{value}");
        }
    }
}
