//! Selections and aggregates over one page, which count what they touch.

use super::{Layout, Page, PageError, VALUE_BYTES, nsm};
use crate::work::PageWork;

/// What is wanted of the rows that pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// Their values of the output column.
    Select,
    /// The average of these.
    Average,
}

/// `SELECT output FROM … WHERE filter < below`, or the average of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The column that is compared, from 0 on.
    pub filter: usize,
    /// Values below this pass.
    pub below: i32,
    /// The column that is wanted.
    pub output: usize,
    /// What is wanted of it.
    pub scan: Scan,
}

/// What a question found so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Rows that passed.
    pub rows: u64,
    /// The sum of their values.
    pub sum: i64,
    /// A hash of their values that does not depend on their order.
    pub hash: u64,
}

impl Answer {
    fn add(&mut self, value: i32) {
        self.rows += 1;
        self.sum += i64::from(value);
        self.hash = self.hash.wrapping_add(mixed(u64::from(value as u32)));
    }
}

/// The finaliser of SplitMix64 (Steele et al. 2014).
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

pub(super) fn run(page: &Page, question: &Question, burst_bytes: usize, answer: &mut Answer) -> Result<PageWork, PageError> {
    let columns = page.columns();
    if let Some(column) = [question.filter, question.output].into_iter().find(|column| *column >= columns) {
        return Err(PageError::Column { columns, column });
    }
    let mut work = match page.layout() {
        Layout::Nsm => by_rows(page, burst_bytes),
        Layout::Pax => by_columns(page, burst_bytes),
    };
    work.rows = page.rows() as u64;
    for row in 0..page.rows() {
        work.compares += 1;
        if page.value(row, question.filter) < question.below {
            answer.add(page.value(row, question.output));
            work += passed(question.scan);
        }
    }
    work.ruled_out = work.matches == 0;
    Ok(work)
}

/// What it takes to get at the values of the filter's column: slots lie side by side, values do not.
fn by_rows(page: &Page, burst_bytes: usize) -> PageWork {
    let rows = page.rows() as u64;
    let slot_bytes = rows * nsm::SLOT_BYTES as u64;
    let slots = PageWork {
        accesses: slot_bytes.div_ceil(burst_bytes.max(1) as u64),
        words: slot_bytes.div_ceil(VALUE_BYTES as u64),
        ..PageWork::default()
    };
    PageWork { accesses: slots.accesses + rows, words: slots.words + rows, ..slots }
}

/// The same where they lie side by side.
fn by_columns(page: &Page, burst_bytes: usize) -> PageWork {
    let bytes = (page.rows() * VALUE_BYTES) as u64;
    PageWork { accesses: bytes.div_ceil(burst_bytes.max(1) as u64), words: page.rows() as u64, ..PageWork::default() }
}

/// What a row costs that passes: its value of the output column is read, and written or added.
fn passed(scan: Scan) -> PageWork {
    let read = PageWork { matches: 1, accesses: 1, words: 1, ..PageWork::default() };
    match scan {
        Scan::Select => PageWork { accesses: 2, words: 2, out_rows: 1, out_bytes: VALUE_BYTES as u64, ..read },
        Scan::Average => PageWork { sums: 1, ..read },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten rows of three columns: 0..10, their negatives, their squares.
    fn page(layout: Layout) -> Vec<u8> {
        layout.page(3, &(0..10).flat_map(|n| [n, -n, n * n]).collect::<Vec<i32>>())
    }

    fn asked(layout: Layout, scan: Scan) -> (PageWork, Answer) {
        let (bytes, mut answer) = (page(layout), Answer::default());
        let question = Question { filter: 0, below: 4, output: 2, scan };
        let work = Page::open(&bytes).unwrap().run(&question, 32, &mut answer).unwrap();
        (work, answer)
    }

    #[test]
    fn work_is_what_a_hand_counts() {
        let (work, answer) = asked(Layout::Pax, Scan::Select);
        // 10 values of 4 bytes are two bursts; each of 4 matches reads one and writes one.
        let expected = PageWork {
            rows: 10,
            compares: 10,
            accesses: 2 + 8,
            words: 10 + 8,
            matches: 4,
            out_rows: 4,
            out_bytes: 16,
            ..PageWork::default()
        };
        assert_eq!(work, expected);
        assert_eq!((answer.rows, answer.sum), (4, 1 + 4 + 9));

        let (work, _) = asked(Layout::Nsm, Scan::Average);
        // 20 bytes of slots are one burst; each value is an access of its own.
        let expected = PageWork {
            rows: 10,
            compares: 10,
            accesses: 1 + 10 + 4,
            words: 5 + 10 + 4,
            matches: 4,
            sums: 4,
            ..PageWork::default()
        };
        assert_eq!(work, expected);
    }

    #[test]
    fn layouts_answer_alike() {
        for scan in [Scan::Select, Scan::Average] {
            assert_eq!(asked(Layout::Nsm, scan).1, asked(Layout::Pax, scan).1);
        }
    }

    #[test]
    fn a_column_that_is_not_there_is_an_error() {
        let bytes = page(Layout::Nsm);
        let question = Question { filter: 3, below: 4, output: 2, scan: Scan::Select };
        let error = Page::open(&bytes).unwrap().run(&question, 32, &mut Answer::default()).unwrap_err();
        assert_eq!(error.to_string(), "the page has 3 columns, and no column 3");
    }
}
