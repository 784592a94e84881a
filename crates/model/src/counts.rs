//! What work came to: rows and bytes, as rounds count them.

use serde::{Deserialize, Serialize};

use crate::{Annotation, ByLevel};

/// Work of drives, over any number of rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Rows of the slices that were read.
    pub rows: u64,
    /// Bytes that were read of them.
    pub read_bytes: u64,
    /// Bytes that these slices have as they are stored.
    pub stored_bytes: u64,
    /// Rows that passed the filters.
    pub passed_rows: u64,
    /// Their bytes.
    pub passed_bytes: u64,
    /// Rows of the answer.
    pub out_rows: u64,
    /// Their bytes.
    pub out_bytes: u64,
}

impl Counts {
    /// What one round counted.
    pub fn of(round: &Annotation) -> Counts {
        Counts {
            rows: round.rows_in,
            read_bytes: round.medium_bytes,
            stored_bytes: round.stored_bytes,
            passed_rows: round.scan.rows,
            passed_bytes: round.scan.bytes,
            out_rows: round.rows_out,
            out_bytes: round.batch_bytes,
        }
    }

    /// Adds other work.
    pub fn add(&mut self, other: Counts) {
        let sums = [
            (&mut self.rows, other.rows),
            (&mut self.read_bytes, other.read_bytes),
            (&mut self.stored_bytes, other.stored_bytes),
            (&mut self.passed_rows, other.passed_rows),
            (&mut self.passed_bytes, other.passed_bytes),
            (&mut self.out_rows, other.out_rows),
            (&mut self.out_bytes, other.out_bytes),
        ];
        for (sum, count) in sums {
            *sum = sum.saturating_add(count);
        }
    }
}

impl ByLevel<Counts> {
    /// What rounds counted, by the level that they were taken to.
    pub fn of<'a>(rounds: impl IntoIterator<Item = &'a Annotation>) -> ByLevel<Counts> {
        let mut work = ByLevel::<Counts>::default();
        rounds.into_iter().for_each(|round| work.get_mut(round.level).add(Counts::of(round)));
        work
    }

    /// Adds other work, level by level.
    pub fn add(&mut self, other: &ByLevel<Counts>) {
        for level in ByLevel::<Counts>::LEVELS {
            self.get_mut(level).add(*other.get(level));
        }
    }

    /// All levels together.
    pub fn sum(&self) -> Counts {
        let mut sum = Counts::default();
        self.to_array().into_iter().for_each(|counts| sum.add(counts));
        sum
    }
}
