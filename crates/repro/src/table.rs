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

impl Synthetic {
    /// Makes the table in a layout, and has every question look at each page. Gives what each took and found.
    pub(crate) fn count(&self, layout: Layout, questions: &[Question]) -> Result<Vec<(Work, Answer)>, ReproError> {
        let empty = Work { page_bytes: PAGE_BYTES as u64, ..Work::default() };
        let mut counted = vec![(empty, Answer::default()); questions.len()];
        let mut random = Random::new(SEED);
        let mut values = Vec::new();
        let mut bytes = vec![0; PAGE_BYTES];
        let mut left = self.rows;
        while left > 0 {
            let rows = left.min(Layout::rows_max(self.columns) as u64);
            left -= rows;
            values.clear();
            values.extend((0..rows as usize * self.columns).map(|_| random.below(VALUES) as i32));
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
