//! [`Spill`]: chunks on the local disk, each with its genes in order, so that one gene's parts of all chunks can be read together.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pithead_matrix::{Codec, RowBuffer};
use pithead_model::Fault;

use crate::entries::Chunk;
use crate::fault::{io, malformed};
use crate::sorted::GeneRow;

/// Bytes of a read over all chunks.
const READ_BYTES: u64 = 16 << 20;

/// A file without a name: it goes with the process, however that ends.
#[derive(Debug)]
pub(crate) struct Spill {
    file: File,
    place: PathBuf,
    genes: usize,
    end: u64,
    chunks: Vec<Vec<u64>>,
}

impl Spill {
    pub(crate) fn new(folder: &Path, genes: usize) -> Result<Spill, Fault> {
        let file = tempfile::tempfile_in(folder).map_err(|error| {
            io(&format!("cannot make a temporary file in {}", folder.display()), error)
                .hint("name a folder with room as `spill_dir`")
        })?;
        Ok(Spill { file, place: folder.to_owned(), genes, end: 0, chunks: Vec::new() })
    }

    /// Writes a chunk whose genes are `first`, `first` + 1, …
    pub(crate) fn write(&mut self, chunk: &Chunk, first: usize) -> Result<(), Fault> {
        let wrap = |error| io(&format!("cannot write a temporary file in {}", self.place.display()), error);
        let mut out = BufWriter::with_capacity(1 << 20, &self.file);
        let mut offsets = vec![self.end; self.genes + 1];
        let (mut row, mut bytes) = (GeneRow::default(), Vec::new());
        let mut end = self.end;
        let here = chunk.starts.len() - 1;
        for gene in 0..here {
            let (cells, values) = chunk.gene(gene);
            offsets[first + gene] = end;
            if cells.is_empty() {
                continue;
            }
            row.clear();
            row.cells.extend_from_slice(cells);
            match chunk.is_counts {
                true => row.counts.extend_from_slice(values),
                false => row.floats.extend(values.iter().map(|bits| f32::from_bits(*bits))),
            }
            row.sort().map_err(|twice| twice.fault(first + gene))?;
            bytes.clear();
            row.encode(row.cells.last().map_or(0, |last| *last as usize + 1), Codec::None, &mut bytes);
            out.write_all(&bytes).map_err(wrap)?;
            end += bytes.len() as u64;
        }
        offsets[first + here..].iter_mut().for_each(|offset| *offset = end);
        out.flush().map_err(wrap)?;
        drop(out);
        self.end = end;
        self.chunks.push(offsets);
        Ok(())
    }

    /// Hands each gene's entries on, in order of genes.
    pub(crate) fn each_gene(&self, mut take: impl FnMut(usize, &GeneRow) -> Result<(), Fault>) -> Result<(), Fault> {
        let mut buffers = vec![Vec::new(); self.chunks.len()];
        let (mut row, mut whole) = (RowBuffer::default(), GeneRow::default());
        let mut first = 0;
        while first < self.genes {
            let end = self.reach(first);
            for (offsets, buffer) in self.chunks.iter().zip(&mut buffers) {
                let (from, to) = (offsets[first], offsets[end]);
                buffer.resize((to - from) as usize, 0);
                self.file.read_exact_at(buffer, from).map_err(|error| io("cannot read a temporary file", error))?;
            }
            for gene in first..end {
                whole.clear();
                for (offsets, buffer) in self.chunks.iter().zip(&buffers) {
                    let (from, to) = ((offsets[gene] - offsets[first]) as usize, (offsets[gene + 1] - offsets[first]) as usize);
                    if from < to {
                        row.decode(&buffer[from..to]).map_err(malformed)?;
                        whole.add(&row);
                    }
                }
                whole.sort().map_err(|twice| twice.fault(gene))?;
                take(gene, &whole)?;
            }
            first = end;
        }
        Ok(())
    }

    /// The genes from `first` on that are read at once end here.
    fn reach(&self, first: usize) -> usize {
        let bytes = |end: usize| self.chunks.iter().map(|offsets| offsets[end] - offsets[first]).sum::<u64>();
        let mut end = first + 1;
        let mut step = 1;
        while end < self.genes && bytes(end) < READ_BYTES {
            end = (end + step).min(self.genes);
            step *= 2;
        }
        end
    }
}
