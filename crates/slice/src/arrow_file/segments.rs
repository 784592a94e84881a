//! Which rows of which batches make a slice.

use std::ops::Range;

use pithead_model::{PAGE_ROWS, SLICE_ROWS_DEFAULT};

/// What the rows of a slice may take in memory, as far as a batch tells.
const SLICE_BYTES: u64 = 32 << 20;

/// Rows of one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// The batch's number.
    pub(super) batch: usize,
    /// The rows among those of the batch.
    pub(super) rows: Range<u64>,
}

impl Segment {
    pub(super) fn len(&self) -> u64 {
        self.rows.end - self.rows.start
    }
}

/// Puts batches together, each given by its rows and their bytes, in order: as many as make a slice of the usual size. Only a batch
/// that is too large for one is taken apart.
pub(super) fn slices(batches: impl Iterator<Item = (u64, u64)>) -> Vec<Vec<Segment>> {
    let mut slices = Vec::new();
    let (mut slice, mut slice_rows, mut slice_bytes) = (Vec::new(), 0_u64, 0_u64);
    for (batch, (rows, bytes)) in batches.enumerate().filter(|(_, (rows, _))| *rows > 0) {
        let fits = slice_rows + rows <= SLICE_ROWS_DEFAULT as u64 && slice_bytes.saturating_add(bytes) <= SLICE_BYTES;
        if !fits && !slice.is_empty() {
            slices.push(std::mem::take(&mut slice));
            (slice_rows, slice_bytes) = (0, 0);
        }
        let each = rows_of_part(rows, bytes);
        if rows > each {
            let parts = (0..rows).step_by(each as usize);
            slices.extend(parts.map(|start| vec![Segment { batch, rows: start..rows.min(start + each) }]));
            continue;
        }
        slice.push(Segment { batch, rows: 0..rows });
        (slice_rows, slice_bytes) = (slice_rows + rows, slice_bytes.saturating_add(bytes));
    }
    if !slice.is_empty() {
        slices.push(slice);
    }
    slices
}

/// Rows of a batch that make a slice: all, or whole pages.
fn rows_of_part(rows: u64, bytes: u64) -> u64 {
    if rows <= SLICE_ROWS_DEFAULT as u64 && bytes <= SLICE_BYTES {
        return rows;
    }
    let row_bytes = bytes.div_ceil(rows).max(1);
    let pages = (SLICE_BYTES / row_bytes).min(SLICE_ROWS_DEFAULT as u64) / PAGE_ROWS as u64;
    pages.max(1) * PAGE_ROWS as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes(batches: &[(u64, u64)]) -> Vec<Vec<(usize, u64)>> {
        let made = slices(batches.iter().copied());
        let covered = |batch| made.iter().flatten().filter(move |segment| segment.batch == batch);
        for (batch, (rows, _)) in batches.iter().enumerate() {
            let mut at = 0;
            for segment in covered(batch) {
                assert_eq!(segment.rows.start, at, "each row is in one slice, in order");
                at = segment.rows.end;
            }
            assert_eq!(at, *rows);
        }
        made.iter().map(|slice| slice.iter().map(|segment| (segment.batch, segment.len())).collect()).collect()
    }

    #[test]
    fn small_batches_go_together_and_large_ones_are_taken_apart() {
        assert_eq!(shapes(&[(100, 800), (0, 0), (200, 1_600)]), [[(0, 100), (2, 200)]]);
        assert_eq!(shapes(&[(200_000, 1), (100_000, 1)]), [[(0, 200_000)], [(1, 100_000)]]);
        assert_eq!(shapes(&[(9, 20 << 20), (9, 20 << 20)]).len(), 2, "bytes count, too");
        assert_eq!(shapes(&[(300_000, 8)]), [[(0, 262_144)], [(0, 37_856)]]);
        assert_eq!(shapes(&[(20_000, 2_000 << 20)]), [[(0, 8_192)], [(0, 8_192)], [(0, 3_616)]], "a page at least");
        assert!(shapes(&[]).is_empty());
    }
}
