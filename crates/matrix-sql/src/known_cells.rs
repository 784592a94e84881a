//! A cache of decoded [`Cells`]: every batch of a query brings the same bytes.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use datafusion::common::Result;
use parking_lot::Mutex;
use pithead_matrix::Cells;

use crate::blobs::malformed;

/// The most descriptions in the cache. Queries that run at one time have a few.
const KEPT: usize = 8;
/// The most bytes of all descriptions in the cache, with the bytes that they were decoded from: no session's budget has
/// them. A description that is larger alone stays until another one comes, or else every batch of its query would have
/// it decoded again.
const KEPT_BYTES: usize = 64 << 20;
/// What a cell takes in a description, beside its row of the basis, however small the bytes are that it came as.
const CELL_BYTES: usize = 40;

static KNOWN: Mutex<KnownCells> = Mutex::new(KnownCells { bytes_max: KEPT_BYTES, kept: Vec::new() });

/// The cells that the bytes describe. The bytes may be base64, because an engine that writes literals as text, as
/// DataFusion does in the names of columns, copies a text but spells out bytes.
pub(crate) fn cells(bytes: &[u8], function: &str) -> Result<Arc<Cells>> {
    if let Some(cells) = KNOWN.lock().find(bytes) {
        return Ok(cells);
    }
    let decoded = if bytes.is_ascii() { BASE64_STANDARD.decode(bytes).ok() } else { None };
    let cells = Cells::decode(decoded.as_deref().unwrap_or(bytes)).map_err(|error| malformed(function, error))?;
    Ok(KNOWN.lock().keep(bytes, Arc::new(cells)))
}

/// Descriptions beside the bytes that they came as. The one that was used last comes first.
struct KnownCells {
    bytes_max: usize,
    kept: Vec<(Vec<u8>, Arc<Cells>)>,
}

impl KnownCells {
    fn find(&mut self, bytes: &[u8]) -> Option<Arc<Cells>> {
        let place = self.kept.iter().position(|(known, _)| known == bytes)?;
        self.kept[..=place].rotate_right(1);
        Some(Arc::clone(&self.kept[0].1))
    }

    /// Keeps it, unless another thread has decoded the same bytes meanwhile, and drops those that were not used for
    /// longest as far as there are too many.
    fn keep(&mut self, bytes: &[u8], cells: Arc<Cells>) -> Arc<Cells> {
        if let Some(known) = self.find(bytes) {
            return known;
        }
        self.kept.insert(0, (bytes.to_vec(), Arc::clone(&cells)));
        self.kept.truncate(KEPT);
        while self.kept.len() > 1 && self.size() > self.bytes_max {
            self.kept.pop();
        }
        cells
    }

    fn size(&self) -> usize {
        self.kept.iter().map(|(bytes, cells)| bytes.len() + memory(cells)).sum()
    }
}

/// The bytes that a decoded description takes.
fn memory(cells: &Cells) -> usize {
    cells.n_cells * CELL_BYTES + size_of_val(cells.basis.as_slice()) + size_of_val(cells.sizes.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pithead_matrix::CellsSpec;

    const CELLS: usize = 1_000;
    const COLUMNS: usize = 100;

    /// A basis of 400 kB, as a step of an iteration brings it; each has another one.
    fn step(number: usize) -> Vec<u8> {
        let spec = CellsSpec { n_cells: CELLS, basis: vec![number as f32; CELLS * COLUMNS], ..CellsSpec::default() };
        BASE64_STANDARD.encode(spec.encode().unwrap()).into_bytes()
    }

    fn kept(known: &mut KnownCells, bytes: &[u8]) -> Arc<Cells> {
        let cells = Cells::decode(&BASE64_STANDARD.decode(bytes).unwrap()).unwrap();
        known.keep(bytes, Arc::new(cells))
    }

    #[test]
    fn bases_are_kept_within_a_bound_of_bytes() {
        let mut known = KnownCells { bytes_max: 3 << 20, kept: Vec::new() };
        let steps: Vec<Vec<u8>> = (0..6).map(step).collect();
        for bytes in &steps {
            kept(&mut known, bytes);
            assert!(known.size() <= known.bytes_max, "{} bytes", known.size());
        }
        // Each takes 400 kB decoded, 40 kB for its cells, and 534 kB as text.
        let found: Vec<bool> = steps.iter().map(|bytes| known.find(bytes).is_some()).collect();
        assert_eq!(found, [false, false, false, true, true, true]);
    }

    #[test]
    fn one_that_is_larger_alone_stays_until_another_one_comes() {
        let mut known = KnownCells { bytes_max: 1_000, kept: Vec::new() };
        let large = step(1);
        kept(&mut known, &large);
        assert!(known.find(&large).is_some());
        kept(&mut known, &step(2));
        assert!(known.find(&large).is_none());
        assert_eq!(known.kept.len(), 1);
    }

    #[test]
    fn two_threads_that_decode_the_same_bytes_keep_one_description() {
        let mut known = KnownCells { bytes_max: KEPT_BYTES, kept: Vec::new() };
        let bytes = step(1);
        let (first, second) = (kept(&mut known, &bytes), kept(&mut known, &bytes));
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(known.kept.len(), 1);
    }

    #[test]
    fn the_one_that_was_used_last_stays_longest() {
        let mut known = KnownCells { bytes_max: 2 << 20, kept: Vec::new() };
        kept(&mut known, &step(1));
        kept(&mut known, &step(2));
        known.find(&step(1));
        kept(&mut known, &step(3));
        assert!(known.find(&step(1)).is_some());
        assert!(known.find(&step(2)).is_none());
    }
}
