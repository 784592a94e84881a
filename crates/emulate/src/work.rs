//! Counted work: what a query did to each page.

use std::ops::AddAssign;

use crate::profile::{Cpu, Matcher, Memory};

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

/// What a filter looks for as bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patterns {
    /// How many patterns there are.
    pub count: u64,
    /// Bytes of the longest.
    pub bytes_most: u64,
}

impl Matcher {
    /// Whether it can look for all of them at one time. Otherwise the cores search.
    pub fn takes(&self, patterns: Patterns) -> bool {
        patterns.count <= self.patterns.whole() && patterns.bytes_most <= self.pattern_bytes.whole()
    }
}

impl Memory {
    /// The share of what a session holds that does not fit a core's part of the fast memory.
    pub(crate) fn slow_share(&self, cores: f64, held_bytes: u64) -> f64 {
        let fast_bytes = self.sram_bytes.value / cores;
        if held_bytes == 0 { 0.0 } else { (1.0 - fast_bytes / held_bytes as f64).max(0.0) }
    }

    /// What a session can hold until its last page, beside its two buffers.
    pub(crate) fn held_bytes_max(&self) -> u64 {
        let all = self.dram_bytes.whole() + self.sram_bytes.whole();
        all.saturating_sub(self.page_buffer_bytes.whole() + self.output_buffer_bytes.whole())
    }
}

impl Cpu {
    /// What a page costs one of the cores, in seconds. `slow_share`: of the values that are added, those for which it has to go to
    /// the slow memory, as to a page.
    pub(crate) fn seconds(&self, page: &PageWork, slow_share: f64) -> f64 {
        let cycles = self.page_cycles.value
            + page.compares as f64 * self.compare_cycles.value
            + page.accesses as f64 * self.access_cycles.value
            + page.words as f64 * self.word_cycles.value
            + page.matches as f64 * self.match_cycles.value
            + page.sums as f64 * (self.sum_cycles.value + slow_share * self.access_cycles.value);
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
    /// Bytes that a session at the device holds until its last page, as the groups of an aggregate.
    pub held_bytes: u64,
    /// What the filter looks for, where that are patterns of bytes.
    pub patterns: Patterns,
    /// Pages of a slice, all of which are one core's at the device. 0: each page goes to the core that is free first.
    pub slice_pages: u64,
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
