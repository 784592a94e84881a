//! [`Pieces`]: a batch in pieces that a join works on for a short time each.

use std::time::Duration;

use arrow::array::RecordBatch;

/// If a join takes less time than this for a piece, the next piece is larger.
const PIECE_MIN: Duration = Duration::from_millis(20);
/// If a join takes more time than this for a piece, the next piece is smaller.
const PIECE_MAX: Duration = Duration::from_millis(100);
/// The most by which a piece is larger than the one before.
const GROWTH: usize = 4;
/// The most pairs of rows that the first piece may make, if each of its rows is compared with the whole build side. A join that
/// rejects all of them looks at about 200 million a second.
const PAIRS_FIRST: usize = 1 << 22;

/// A batch that is handed on in pieces: few rows at first, then as many as the join's time for earlier pieces allows.
pub(crate) struct Pieces {
    rest: Option<RecordBatch>,
    /// The rows of the next piece.
    rows: usize,
    rows_max: usize,
    /// The rows of the last piece, and how long the join had worked when it received that piece.
    given: Option<(usize, Duration)>,
}

impl Pieces {
    /// The rows of the first piece, and the most rows of any piece.
    pub(crate) fn new(rows: usize, rows_max: usize) -> Pieces {
        Pieces { rest: None, rows, rows_max, given: None }
    }

    /// Whether all of the last batch was handed on.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_none()
    }

    /// The next batch, once all of the last one was handed on.
    pub(crate) fn take(&mut self, batch: RecordBatch) {
        self.rest = Some(batch);
    }

    /// Makes the first piece smaller where the build side has so many rows that each row is compared with many.
    pub(crate) fn begin(&mut self, build_rows: usize) {
        self.rows = (PAIRS_FIRST / build_rows.max(1)).clamp(1, self.rows.max(1));
    }

    /// Adapts the size of the next piece to the join's time for the last one.
    pub(crate) fn measure(&mut self, worked: impl FnOnce() -> Duration) {
        let Some((rows, before)) = self.given.take() else { return };
        let took = worked().saturating_sub(before);
        if took > PIECE_MAX {
            let shrink = took.as_nanos().div_ceil(PIECE_MAX.as_nanos()).min(usize::MAX as u128) as usize;
            self.rows = (rows / shrink.saturating_mul(2)).max(1);
        } else if took < PIECE_MIN && rows >= self.rows {
            self.rows = self.rows.saturating_mul(GROWTH).min(self.rows_max);
        }
    }

    /// The next piece, for a join that has worked so long up to now.
    pub(crate) fn next(&mut self, worked: Duration) -> Option<RecordBatch> {
        let batch = self.rest.take()?;
        let rows = self.rows.min(batch.num_rows());
        self.given = Some((rows, worked));
        if rows == batch.num_rows() {
            return Some(batch);
        }
        self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
        Some(batch.slice(0, rows))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use arrow::array::{ArrayRef, Int64Array};

    fn batch(rows: i64) -> RecordBatch {
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        RecordBatch::try_from_iter([("v", values)]).unwrap()
    }

    #[test]
    fn pieces_grow_while_the_join_is_quick_and_shrink_when_it_is_slow() {
        let mut pieces = Pieces { rest: Some(batch(100)), rows: 1, rows_max: 32, given: None };
        let mut clock = Duration::ZERO;
        let mut sizes = Vec::new();
        for took_ms in [1, 1, 1, 1, 300, 50, 0] {
            if let Some(piece) = pieces.next(clock) {
                sizes.push(piece.num_rows());
            }
            clock += Duration::from_millis(took_ms);
            pieces.measure(|| clock);
        }
        assert_eq!(sizes, [1, 4, 16, 32, 32, 5, 5]);
        assert_eq!(pieces.rest.map(|rest| rest.num_rows()), Some(100 - 95));
    }

    #[test]
    fn the_first_piece_is_smaller_beside_a_large_build_side() {
        for (build_rows, rows) in [(0, 16), (1_000, 16), (1 << 19, 8), (100_000_000, 1)] {
            let mut pieces = Pieces { rest: Some(batch(100)), rows: 16, rows_max: 32, given: None };
            pieces.begin(build_rows);
            assert_eq!(pieces.next(Duration::ZERO).map(|piece| piece.num_rows()), Some(rows), "{build_rows}");
        }
    }

    #[test]
    fn no_row_is_lost_or_doubled() {
        let mut pieces = Pieces { rest: Some(batch(1_000)), rows: 1, rows_max: usize::MAX, given: None };
        let mut rows = Vec::new();
        while let Some(piece) = pieces.next(Duration::ZERO) {
            rows.extend_from_slice(piece.column(0).as_any().downcast_ref::<Int64Array>().unwrap().values());
            pieces.measure(|| Duration::ZERO);
        }
        assert_eq!(rows, (0..1_000).collect::<Vec<i64>>());
    }
}
