//! An answer, kept to be compared with others of the same query.

use std::hash::{DefaultHasher, Hash, Hasher};

use arrow::array::RecordBatch;
use arrow::row::{RowConverter, SortField};
use pithead_model::{Blame, Fault};

use crate::answers::difference;

/// Answers of more rows are compared by a sum of their rows' hashes.
const ROWS_WHOLE_MAX: usize = 10_000;

/// An answer, as a bag of rows.
pub(super) enum Answer {
    /// As it is. Floats may differ by rounding.
    Whole(Vec<RecordBatch>),
    /// Rows that were not computed but selected, so they are equal bit by bit.
    Hashed { rows: usize, sum: u64 },
}

impl Answer {
    pub(super) fn of(batches: Vec<RecordBatch>) -> Result<Answer, Fault> {
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        if rows <= ROWS_WHOLE_MAX {
            return Ok(Answer::Whole(batches));
        }
        let mut sum = 0u64;
        for batch in batches.iter().filter(|batch| batch.num_rows() > 0) {
            let fields = batch.schema().fields().iter().map(|field| SortField::new(field.data_type().clone())).collect();
            let converter = RowConverter::new(fields).map_err(bug)?;
            for row in converter.convert_columns(batch.columns()).map_err(bug)?.iter() {
                let mut hasher = DefaultHasher::new();
                row.data().hash(&mut hasher);
                // The order of rows does not count.
                sum = sum.wrapping_add(hasher.finish());
            }
        }
        Ok(Answer::Hashed { rows, sum })
    }

    pub(super) fn rows(&self) -> usize {
        match self {
            Answer::Whole(batches) => batches.iter().map(RecordBatch::num_rows).sum(),
            Answer::Hashed { rows, .. } => *rows,
        }
    }

    /// Fails if `other` is not the same.
    pub(super) fn check(&self, other: &Answer) -> Result<(), Fault> {
        let what = match (self, other) {
            (Answer::Whole(these), Answer::Whole(those)) => difference(these, those)?,
            (Answer::Hashed { rows, sum }, Answer::Hashed { rows: other_rows, sum: other_sum }) => {
                let equal = (rows, sum) == (other_rows, other_sum);
                (!equal).then(|| format!("{rows} and {other_rows} rows, and their hashes differ"))
            }
            _ => Some(format!("{} rows and {} rows", self.rows(), other.rows())),
        };
        what.map_or(Ok(()), |what| Err(Fault::new(Blame::Bug, format!("another answer than before: {what}"))))
    }
}

fn bug(error: impl std::fmt::Display) -> Fault {
    Fault::new(Blame::Bug, error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    fn batch(values: Vec<i64>) -> RecordBatch {
        RecordBatch::try_from_iter([("v", Arc::new(Int64Array::from(values)) as ArrayRef)]).unwrap()
    }

    #[test]
    fn large_answers_are_bags_too() {
        let many: Vec<i64> = (0..20_000).collect();
        let whole = Answer::of(vec![batch(many.clone())]).unwrap();
        let turned = Answer::of(vec![batch(many[7..].to_vec()), batch(many[..7].to_vec())]).unwrap();
        assert!(matches!(whole, Answer::Hashed { rows: 20_000, .. }));
        whole.check(&turned).unwrap();
        let mut other = many.clone();
        other[9] = 10;
        assert!(whole.check(&Answer::of(vec![batch(other)]).unwrap()).is_err());
        assert!(whole.check(&Answer::of(vec![batch(vec![1])]).unwrap()).is_err());
    }
}
