//! [`Cutter`]: rows in slices' worth. Pure.

use arrow::array::RecordBatch;
use pithead_door::batch_bytes;
use pithead_model::SLICE_BYTES_MAX;

/// Bytes of rows, as Arrow buffers, that make a slice however few the rows are. Encoded they are well below the bound
/// of a slice, as a rule; those that are not are halved.
const PIECE_BYTES_MAX: usize = 2 * SLICE_BYTES_MAX;

/// Rows of one slice.
pub(crate) type Piece = Vec<RecordBatch>;

/// Collects batches and gives them back a slice's worth at a time.
#[derive(Debug)]
pub(crate) struct Cutter {
    rows_max: usize,
    bytes_max: usize,
    piece: Piece,
    rows: usize,
    bytes: usize,
}

impl Cutter {
    /// Slices of `rows_max` rows, at least 1, or fewer where they have `bytes_max` bytes.
    pub(crate) fn new(rows_max: usize, bytes_max: Option<usize>) -> Self {
        let bytes_max = bytes_max.unwrap_or(PIECE_BYTES_MAX).min(PIECE_BYTES_MAX);
        Self { rows_max: rows_max.max(1), bytes_max, piece: Vec::new(), rows: 0, bytes: 0 }
    }

    /// Adds a batch; returns the pieces that it completes.
    pub(crate) fn push(&mut self, mut batch: RecordBatch) -> Vec<Piece> {
        let mut pieces = Vec::new();
        while batch.num_rows() > 0 {
            let rows = self.take_rows(&batch);
            let head = batch.slice(0, rows);
            batch = batch.slice(rows, batch.num_rows() - rows);
            self.rows += rows;
            self.bytes += batch_bytes(&head);
            self.piece.push(head);
            if self.rows >= self.rows_max || self.bytes >= self.bytes_max {
                pieces.extend(self.finish());
            }
        }
        pieces
    }

    /// What is left.
    pub(crate) fn finish(&mut self) -> Option<Piece> {
        (self.rows, self.bytes) = (0, 0);
        Some(std::mem::take(&mut self.piece)).filter(|piece| !piece.is_empty())
    }

    /// Rows of a batch that still go into the piece, at least 1.
    fn take_rows(&self, batch: &RecordBatch) -> usize {
        let row_bytes = batch_bytes(batch) / batch.num_rows();
        let by_bytes = (self.bytes_max - self.bytes).checked_div(row_bytes).unwrap_or(usize::MAX);
        (self.rows_max - self.rows).min(by_bytes).clamp(1, batch.num_rows())
    }
}

/// Both halves of a piece by rows; none where it has one row.
pub(crate) fn halve(piece: &[RecordBatch]) -> Option<(Piece, Piece)> {
    let rows: usize = piece.iter().map(RecordBatch::num_rows).sum();
    let mut left = rows / 2;
    if left == 0 {
        return None;
    }
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for batch in piece {
        let head = left.min(batch.num_rows());
        left -= head;
        if head > 0 {
            first.push(batch.slice(0, head));
        }
        if head < batch.num_rows() {
            second.push(batch.slice(head, batch.num_rows() - head));
        }
    }
    Some((first, second))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, AsArray, Int64Array};
    use arrow::datatypes::Int64Type;
    use std::sync::Arc;

    fn batch(values: std::ops::Range<i64>) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
        RecordBatch::try_from_iter([("a", column)]).unwrap()
    }

    fn values(pieces: &[Piece]) -> Vec<Vec<i64>> {
        let of = |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().values().to_vec();
        pieces.iter().map(|piece| piece.iter().flat_map(of).collect()).collect()
    }

    #[test]
    fn pieces_have_the_rows_asked_for_and_keep_their_order() {
        let mut cutter = Cutter::new(4, None);
        let mut pieces = cutter.push(batch(0..3));
        pieces.extend(cutter.push(batch(3..10)));
        pieces.extend(cutter.finish());
        assert_eq!(values(&pieces), [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]);
        assert!(cutter.finish().is_none());
    }

    #[test]
    fn wide_rows_make_smaller_pieces() {
        let mut cutter = Cutter::new(1_000, Some(24));
        let mut pieces = cutter.push(batch(0..7));
        pieces.extend(cutter.finish());
        assert_eq!(values(&pieces), [vec![0, 1, 2], vec![3, 4, 5], vec![6]]);
    }

    #[test]
    fn halves_end_with_one_row() {
        let (first, second) = halve(&[batch(0..1), batch(1..5)]).unwrap();
        assert_eq!(values(&[first, second]), [vec![0, 1], vec![2, 3, 4]]);
        assert!(halve(&[batch(0..1)]).is_none());
    }
}
