//! Counted work: what a query did to each page.

use std::ops::AddAssign;

use crate::profile::Cpu;

/// What one page cost, in steps that every device pays for in its own time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageWork {
    /// Rows of the page.
    pub rows: u64,
    /// Values that were compared.
    pub compares: u64,
    /// Accesses to the memory that pages lie in. An access takes up to a burst of words that lie side by side.
    pub accesses: u64,
    /// Words that these accesses moved.
    pub words: u64,
    /// Rows that passed the filter.
    pub matches: u64,
    /// Values that were added to an aggregate.
    pub sums: u64,
    /// Rows of the answer.
    pub out_rows: u64,
    /// Bytes of the answer.
    pub out_bytes: u64,
    /// A pattern matcher in the path of the medium would throw the page away.
    pub ruled_out: bool,
    /// The page goes to the host as it is stored, which works on it as on one that it reads itself.
    pub stored: bool,
}

impl AddAssign for PageWork {
    fn add_assign(&mut self, other: Self) {
        self.rows += other.rows;
        self.compares += other.compares;
        self.accesses += other.accesses;
        self.words += other.words;
        self.matches += other.matches;
        self.sums += other.sums;
        self.out_rows += other.out_rows;
        self.out_bytes += other.out_bytes;
        self.ruled_out &= other.ruled_out;
        self.stored &= other.stored;
    }
}

impl Cpu {
    /// What a page costs one of the cores, in seconds.
    pub(crate) fn seconds(&self, page: &PageWork) -> f64 {
        let cycles = self.page_cycles.value
            + page.compares as f64 * self.compare_cycles.value
            + page.accesses as f64 * self.access_cycles.value
            + page.words as f64 * self.word_cycles.value
            + page.matches as f64 * self.match_cycles.value
            + page.sums as f64 * self.sum_cycles.value;
        cycles / self.clock_hz.value
    }
}

/// A query's counted work.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// Bytes of each page.
    pub page_bytes: u64,
    /// The pages, in the order in which they are read.
    pub pages: Vec<PageWork>,
    /// Bytes of the answer that exist only when all pages are done, as those of an aggregate.
    pub last_bytes: u64,
    /// Rows of these.
    pub last_rows: u64,
}

impl Work {
    /// The sum of what the pages cost.
    pub fn total(&self) -> PageWork {
        let mut total = PageWork { ruled_out: true, stored: true, ..PageWork::default() };
        self.pages.iter().for_each(|page| total += *page);
        total
    }

    /// Bytes that travel: those of the pages where the host does the work, or else those of the answer.
    pub(crate) fn link_bytes(&self, at_host: bool) -> u64 {
        if at_host { self.page_bytes * self.pages.len() as u64 } else { self.out_bytes() }
    }

    /// Bytes that the answer has.
    pub fn out_bytes(&self) -> u64 {
        self.last_bytes + self.pages.iter().map(|page| page.out_bytes).sum::<u64>()
    }
}
