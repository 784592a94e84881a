//! [`MatrixWriter`]: takes a matrix in pieces, whichever way it is turned, and keeps it by gene.

use std::path::PathBuf;
use std::sync::Arc;

use pithead_matrix::{CELLS_MAX, Codec};
use pithead_model::{Blame, Fault};

use crate::entries::{Chunk, Entry, count};
use crate::fault::invalid;
use crate::spill::Spill;

/// Entries that are turned at a time. They take 8 bytes each.
const CHUNK_ENTRIES: usize = 8 << 20;

/// Told how much is done, of how much.
pub type Progress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// What a matrix has to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValueKind {
    /// Counts if all values are, else floats.
    #[default]
    Auto,
    /// Counts; anything else is an error.
    Counts,
    /// Floats of 32 bits.
    Floats,
}

/// How a matrix is taken.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// What is read, for errors.
    pub source: String,
    /// How rows are compressed.
    pub codec: Codec,
    /// What the values have to be.
    pub kind: ValueKind,
    /// Where chunks wait on disk.
    pub spill_dir: PathBuf,
}

/// A matrix on its way into a dataset. At most some hundred megabytes of it are in memory.
#[derive(Debug)]
pub struct MatrixWriter {
    pub(crate) n_genes: usize,
    pub(crate) options: WriterOptions,
    pub(crate) spill: Spill,
    totals: Vec<f64>,
    nonzeros: Vec<u32>,
    nnz: u64,
    is_counts: bool,
    order: Order,
}

/// What the pieces are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Unknown,
    /// The next cells, with all genes.
    Cells,
    /// The next genes, with all cells: so many so far.
    Genes(usize),
    /// Entries in any order.
    Entries,
}

impl MatrixWriter {
    /// For a matrix of so many genes.
    pub fn new(n_genes: usize, options: WriterOptions) -> Result<Self, Fault> {
        let spill = Spill::new(&options.spill_dir, n_genes)?;
        let (totals, nonzeros) = (Vec::new(), Vec::new());
        Ok(Self { n_genes, options, spill, totals, nonzeros, nnz: 0, is_counts: true, order: Order::Unknown })
    }

    /// Cells so far.
    pub fn n_cells(&self) -> usize {
        self.totals.len()
    }

    /// Values so far that are not zero.
    pub fn nnz(&self) -> u64 {
        self.nnz
    }

    /// Whether all values are counts.
    pub fn is_counts(&self) -> bool {
        self.is_counts && self.options.kind != ValueKind::Floats
    }

    /// Each cell's sum of values.
    pub fn totals(&self) -> &[f64] {
        &self.totals
    }

    /// Each cell's number of values that are not zero.
    pub fn nonzeros(&self) -> &[u32] {
        &self.nonzeros
    }

    /// Takes the next cells. Their values are at `starts[i] - starts[0]` to `starts[i + 1] - starts[0]` of `genes` and `values`.
    pub fn push_rows<G: Copy + Into<i64>, V: Copy>(
        &mut self,
        starts: &[i64],
        genes: &[G],
        values: &[V],
        number: impl Fn(V) -> f64 + Copy,
    ) -> Result<(), Fault> {
        self.expect(Order::Cells)?;
        let starts = &self.offsets(starts, genes.len().min(values.len()))?[..];
        let mut first = 0;
        while first + 1 < starts.len() {
            let room = starts[first + 1..].partition_point(|end| end - starts[first] <= CHUNK_ENTRIES).max(1);
            let last = first + room;
            let cell = self.more_cells(room)?;
            let entries = || {
                (first..last).flat_map(move |row| (starts[row]..starts[row + 1]).map(move |at| (row, at))).map(|(row, at)| {
                    Entry {
                        cell: cell + (row - first) as u32,
                        gene: usize::try_from(genes[at].into()).unwrap_or(usize::MAX - 1),
                        value: number(values[at]),
                    }
                })
            };
            self.add(entries, 0, self.n_genes)?;
            first = last;
        }
        Ok(())
    }

    /// Takes the next cells, each with a value for every gene.
    pub fn push_dense<V: Copy>(&mut self, values: &[V], number: impl Fn(V) -> f64 + Copy) -> Result<(), Fault> {
        self.expect(Order::Cells)?;
        let genes = self.n_genes;
        if genes == 0 || !values.len().is_multiple_of(genes) {
            return Err(self.wrong(format!("{} values are no whole rows of {genes} genes", values.len())));
        }
        for block in values.chunks((CHUNK_ENTRIES / genes).max(1) * genes) {
            let first = self.more_cells(block.len() / genes)?;
            let entries = || {
                block.chunks_exact(genes).zip(first..).flat_map(move |(row, cell)| {
                    row.iter().enumerate().map(move |(gene, value)| Entry { cell, gene, value: number(*value) })
                })
            };
            self.add(entries, 0, genes)?;
        }
        Ok(())
    }

    /// Takes the next genes, each with its values in all of `n_cells` cells, laid out as [`Self::push_rows`] has them.
    pub fn push_columns<C: Copy + Into<i64>, V: Copy>(
        &mut self,
        starts: &[i64],
        cells: &[C],
        values: &[V],
        n_cells: usize,
        number: impl Fn(V) -> f64 + Copy,
    ) -> Result<(), Fault> {
        let done = if let Order::Genes(done) = self.order { done } else { 0 };
        self.expect(Order::Genes(done))?;
        self.all_cells(n_cells)?;
        let starts = &self.offsets(starts, cells.len().min(values.len()))?[..];
        let here = starts.len() - 1;
        if done + here > self.n_genes {
            return Err(self.wrong(format!("it has more than {} genes", self.n_genes)));
        }
        if let Some(beyond) = cells.iter().map(|cell| (*cell).into()).find(|cell| !(0..n_cells as i64).contains(cell)) {
            return Err(self.wrong(format!("it has a value for cell {beyond} (from 0), of {n_cells} cells")));
        }
        let mut first = 0;
        while first < here {
            let room = starts[first + 1..].partition_point(|end| end - starts[first] <= CHUNK_ENTRIES).max(1);
            let entries = || {
                (0..room)
                    .flat_map(|gene| (starts[first + gene]..starts[first + gene + 1]).map(move |at| (gene, at)))
                    .map(|(gene, at)| Entry { cell: cells[at].into() as u32, gene, value: number(values[at]) })
            };
            self.add(entries, done + first, room)?;
            first += room;
        }
        self.order = Order::Genes(done + here);
        Ok(())
    }

    /// Takes entries of any cells and genes.
    pub(crate) fn push_entries(&mut self, entries: &[Entry], n_cells: usize) -> Result<(), Fault> {
        self.expect(Order::Entries)?;
        self.all_cells(n_cells)?;
        self.add(|| entries.iter().copied(), 0, self.n_genes)
    }

    /// Takes entries of genes from `first` on, `genes` of them.
    fn add<I: Iterator<Item = Entry>>(&mut self, entries: impl Fn() -> I, first: usize, genes: usize) -> Result<(), Fault> {
        let named = |fault: Fault| Fault { hint: fault.hint, ..self.wrong(fault.message) };
        let chunk = Chunk::new(first, genes, &entries).map_err(named)?;
        if !chunk.is_counts && self.options.kind == ValueKind::Counts {
            let wrong = entries().find(|entry| entry.value != 0.0 && count(entry.value).is_none());
            let Entry { cell, gene, value } = wrong.unwrap_or(Entry { cell: 0, gene: 0, value: 0.0 });
            let what = format!("cell {cell} has {value} of gene {} (both from 0), which is no count", first + gene);
            return Err(self
                .wrong(what)
                .hint("counts are whole numbers from 0 on; load it with kind=\"floats\", or name the layer of counts"));
        }
        self.is_counts &= chunk.is_counts;
        self.nnz += chunk.cells.len() as u64;
        for (place, cell) in chunk.cells.iter().enumerate() {
            let bits = chunk.values[place];
            self.nonzeros[*cell as usize] += 1;
            self.totals[*cell as usize] += if chunk.is_counts { f64::from(bits) } else { f64::from(f32::from_bits(bits)) };
        }
        self.spill.write(&chunk, first).map_err(|fault| match fault.blame {
            Blame::User => Fault { message: format!("{}: {}", self.options.source, fault.message), ..fault },
            _ => fault,
        })
    }

    /// Where rows begin and end, from 0 on, all within so many values.
    fn offsets(&self, starts: &[i64], values: usize) -> Result<Vec<usize>, Fault> {
        let base = starts.first().copied().unwrap_or(0);
        let in_order =
            starts.is_sorted() && starts.last().is_some_and(|end| (0..=values as i64).contains(&end.saturating_sub(base)));
        if !in_order {
            return Err(self.wrong("its row pointers do not ascend within its values".into()));
        }
        Ok(starts.iter().map(|start| (start - base) as usize).collect())
    }

    /// Pieces of one kind make a matrix.
    fn expect(&mut self, order: Order) -> Result<(), Fault> {
        if self.order == Order::Unknown {
            self.order = order;
        }
        if self.order == order {
            Ok(())
        } else {
            Err(invalid("a matrix is taken by cells, by genes or by entries, not by several"))
        }
    }

    fn more_cells(&mut self, more: usize) -> Result<u32, Fault> {
        let first = self.totals.len();
        if first + more > CELLS_MAX {
            return Err(self
                .wrong(format!("it has more than {CELLS_MAX} cells"))
                .hint("load it as several datasets of one domain"));
        }
        self.totals.resize(first + more, 0.0);
        self.nonzeros.resize(first + more, 0);
        Ok(first as u32)
    }

    fn all_cells(&mut self, n_cells: usize) -> Result<(), Fault> {
        match self.totals.len() {
            0 => self.more_cells(n_cells).map(|_| ()),
            known if known == n_cells => Ok(()),
            known => Err(self.wrong(format!("it has {n_cells} cells, and had {known}"))),
        }
    }

    /// Whether every gene came, where they come in order.
    pub(crate) fn check_complete(&self) -> Result<(), Fault> {
        match self.order {
            Order::Genes(done) if done != self.n_genes => Err(self.wrong(format!("it has {done} genes, not {}", self.n_genes))),
            _ => Ok(()),
        }
    }

    pub(crate) fn wrong(&self, what: String) -> Fault {
        invalid(format!("{}: {what}", self.options.source))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use pithead_matrix::Values;
    use proptest::prelude::*;

    pub(crate) fn writer(genes: usize, kind: ValueKind) -> MatrixWriter {
        let (source, spill_dir) = ("it".to_owned(), std::env::temp_dir());
        MatrixWriter::new(genes, WriterOptions { source, codec: Codec::Zstd, kind, spill_dir }).unwrap()
    }

    /// The matrix as rows of cells.
    pub(crate) fn dense(writer: &MatrixWriter) -> Vec<Vec<f64>> {
        let mut rows = vec![vec![0.0; writer.n_genes]; writer.n_cells()];
        let take = |gene: usize, row: &crate::sorted::GeneRow| {
            for (place, cell) in row.cells.iter().enumerate() {
                rows[*cell as usize][gene] = match row.values() {
                    Values::Counts(counts) => f64::from(counts[place]),
                    Values::Floats(floats) => f64::from(floats[place]),
                };
            }
            Ok(())
        };
        writer.spill.each_gene(take).unwrap();
        rows
    }

    proptest! {
        #[test]
        fn a_matrix_is_the_same_whichever_way_it_comes(
            rows in prop::collection::vec(prop::collection::vec(prop_oneof![3 => Just(0.0), 2 => (1_u8..9).prop_map(f64::from), 1 => Just(0.5)], 4), 1..12),
            cut: prop::sample::Index, shift in 0_i64..3,
        ) {
            let cut = cut.index(rows.len() + 1);
            let n_cells = rows.len();
            let entries: Vec<Entry> = rows.iter().zip(0..).flat_map(|(row, cell)| row.iter().enumerate().map(move |(gene, value)| Entry { cell, gene, value: *value })).collect();
            let (mut by_rows, mut by_dense, mut by_columns, mut by_entries) =
                (writer(4, ValueKind::Auto), writer(4, ValueKind::Auto), writer(4, ValueKind::Auto), writer(4, ValueKind::Auto));
            for part in [&rows[..cut], &rows[cut..]].into_iter().filter(|part| !part.is_empty()) {
                let flat = part.concat();
                by_dense.push_dense(&flat, |value| value).unwrap();
                let starts: Vec<i64> = (0..=part.len() as i64).map(|row| shift + row * 4).collect();
                let genes: Vec<i32> = (0..flat.len() as i32).map(|at| at % 4).collect();
                by_rows.push_rows(&starts, &genes, &flat, |value| value).unwrap();
            }
            for genes in [0..3_usize, 3..4] {
                let values: Vec<f64> = genes.clone().flat_map(|gene| rows.iter().map(move |row| row[gene])).collect();
                let cells: Vec<i64> = (0..values.len()).map(|at| (at % n_cells) as i64).collect();
                let starts: Vec<i64> = (0..=genes.len()).map(|gene| (gene * n_cells) as i64).collect();
                by_columns.push_columns(&starts, &cells, &values, n_cells, |value| value).unwrap();
            }
            let mut reversed = entries.clone();
            reversed.reverse();
            let cut = cut * 4;
            by_entries.push_entries(&reversed[..cut], n_cells).unwrap();
            by_entries.push_entries(&reversed[cut..], n_cells).unwrap();
            for writer in [&by_rows, &by_dense, &by_columns, &by_entries] {
                prop_assert_eq!(&dense(writer), &rows);
                prop_assert_eq!(writer.is_counts(), !rows.concat().contains(&0.5));
                let totals: Vec<f64> = rows.iter().map(|row| row.iter().sum()).collect();
                prop_assert_eq!(writer.totals(), &totals[..]);
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let said = |result: Result<(), Fault>| result.unwrap_err().to_string();
        let push = |kind, genes: &[i32], values: &[f64]| writer(3, kind).push_rows(&[0, 2, 3], genes, values, |value| value);
        assert!(said(push(ValueKind::Auto, &[0, 0, 1], &[1.0; 3])).contains("cell 0 has two values for gene 0"));
        assert!(said(push(ValueKind::Auto, &[0, 3, 1], &[1.0; 3])).contains("gene 3"));
        assert!(said(push(ValueKind::Auto, &[0, -1, 1], &[1.0; 3])).contains("of 3 genes"));
        assert!(said(push(ValueKind::Counts, &[0, 1, 1], &[1.0, 2.0, -3.0])).contains("cell 1 has -3 of gene 1"));
        assert!(said(push(ValueKind::Auto, &[0, 1, 1], &[1.0, 1e300, 3.0])).contains("cell 0 has 1e300 of gene 1"));
        assert!(said(push(ValueKind::Auto, &[0, 1], &[1.0; 2])).contains("row pointers"));
        assert!(said(writer(3, ValueKind::Auto).push_dense(&[1.0; 4], |value| value)).contains("whole rows"));
        assert!(said(writer(1, ValueKind::Auto).push_columns(&[0, 1], &[7], &[1.0], 5, |value| value)).contains("cell 7"));
        let mut part = writer(3, ValueKind::Auto);
        part.push_columns(&[0, 1], &[0], &[1.0], 5, |value| value).unwrap();
        assert!(part.check_complete().unwrap_err().message.contains("1 genes, not 3"));
        assert!(part.push_dense(&[1.0; 3], |value| value).is_err());
    }
}
