//! The tables `SYNTHETIC4`, `SYNTHETIC16` and `SYNTHETIC64` of Do et al. 2013: whole numbers in 4, 16 and 64 columns.

use pithead_emulate::{Answer, Layout, PAGE_BYTES, Page, PageWork, Question, Scan, Work};

use crate::ReproError;
use crate::random::Random;

/// Rows of each table in the paper.
pub(crate) const ROWS: u64 = 400_000_000;
/// Values are evenly spread below this.
const VALUES: u32 = 1_000_000;
/// What an average is, as bytes: a sum and a count.
const AVERAGE_BYTES: u64 = 16;
const SEED: u64 = 2013;
/// What an access takes: LDM_CMP's 32 bytes.
pub(crate) const BURST_BYTES: usize = 32;

/// A table that is made, page by page, as it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Synthetic {
    pub(crate) columns: usize,
    pub(crate) rows: u64,
}

/// A question that a share of the rows passes.
pub(crate) fn question(share: f64, scan: Scan) -> Question {
    // COLUMN_1 is compared, COLUMN_2 is wanted.
    Question { filter: 0, below: (share * f64::from(VALUES)).round() as i32, output: 1, scan }
}

/// The rows of `SYNTHETIC4`, `SYNTHETIC16` or `SYNTHETIC64`, by their number of columns, as the experiments scan them: values row by
/// row, some rows at a time. `scale` divides the paper's number of rows.
pub fn synthetic(columns: usize, scale: u64) -> impl Iterator<Item = Vec<i32>> {
    const ROWS_AT_ONCE: usize = 8_192;
    Synthetic { columns, rows: (ROWS / scale.max(1)).max(1) }.rows(ROWS_AT_ONCE)
}

impl Synthetic {
    /// Values row by row, so many rows at a time.
    fn rows(self, at_once: usize) -> impl Iterator<Item = Vec<i32>> {
        let (mut random, mut left) = (Random::new(SEED), self.rows);
        std::iter::from_fn(move || {
            let rows = left.min(at_once as u64);
            left -= rows;
            (rows > 0).then(|| (0..rows as usize * self.columns).map(|_| random.below(VALUES) as i32).collect())
        })
    }

    /// Makes the table in a layout, and has every question look at each page. Gives what each took and found.
    pub(crate) fn count(&self, layout: Layout, questions: &[Question]) -> Result<Vec<(Work, Answer)>, ReproError> {
        let empty = Work { page_bytes: PAGE_BYTES as u64, ..Work::default() };
        let mut counted = vec![(empty, Answer::default()); questions.len()];
        let mut bytes = vec![0; PAGE_BYTES];
        for values in self.rows(Layout::rows_max(self.columns)) {
            layout.write(self.columns, &values, &mut bytes);
            let page = Page::open(&bytes)?;
            for (question, (work, answer)) in questions.iter().zip(&mut counted) {
                work.pages.push(page.run(question, BURST_BYTES, answer)?);
            }
        }
        for (question, (work, _)) in questions.iter().zip(&mut counted) {
            if question.scan == Scan::Average {
                (work.last_bytes, work.last_rows) = (AVERAGE_BYTES, 1);
            }
        }
        Ok(counted)
    }

    /// Pages that the table has.
    pub(crate) fn pages(&self) -> u64 {
        self.rows.div_ceil(Layout::rows_max(self.columns) as u64)
    }
}

/// As many pages that only have to be read.
pub(crate) fn blank(page_bytes: u64, pages: usize) -> Work {
    Work { page_bytes, pages: vec![PageWork::default(); pages], ..Work::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_those_that_are_scanned() {
        let values: Vec<i32> = synthetic(4, 40_000).flatten().collect();
        assert_eq!(values.len(), 4 * 10_000);
        let found = Synthetic { columns: 4, rows: 10_000 }.count(Layout::Nsm, &[question(0.1, Scan::Average)]).unwrap();
        let passing = values.chunks(4).filter(|row| row[0] < 100_000).count() as u64;
        assert_eq!(found[0].1.rows, passing);
        assert_eq!(synthetic(64, u64::MAX).map(|values| values.len()).collect::<Vec<_>>(), [64]);
    }
}
