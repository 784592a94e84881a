//! Work as a drive counts it, and what a core of another device takes for it.

use std::time::Duration;

/// Work that a drive has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedWork {
    /// Bytes that were read.
    pub bytes: u64,
    /// Rows of what was read.
    pub rows: u64,
    /// Rows that passed the filters.
    pub matches: u64,
    /// Rows that an aggregate, a top-k or a limit took in.
    pub sums: u64,
}

/// What one core of a device takes for counted work, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoreCosts {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// For a page, whatever is in it.
    pub page_s: f64,
    /// For a row.
    pub row_s: f64,
    /// For a row that passes, besides.
    pub match_s: f64,
    /// For a row that is taken in, besides.
    pub sum_s: f64,
}

impl CoreCosts {
    /// What one core takes for all of it. A part of a page costs its part.
    pub fn takes(&self, work: &CountedWork) -> Duration {
        let pages = work.bytes as f64 / self.page_bytes.max(1) as f64;
        let of = |count: u64, each_s: f64| count as f64 * each_s;
        let rows = of(work.rows, self.row_s) + of(work.matches, self.match_s) + of(work.sums, self.sum_s);
        Duration::try_from_secs_f64(pages * self.page_s + rows).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_costs_its_own() {
        let costs = CoreCosts { page_bytes: 1000, page_s: 1e-3, row_s: 2e-6, match_s: 3e-6, sum_s: 5e-6 };
        let work = CountedWork { bytes: 2500, rows: 1000, matches: 100, sums: 10 };
        assert_eq!(costs.takes(&work), Duration::from_nanos(2_500_000 + 2_000_000 + 300_000 + 50_000));
        assert_eq!(costs.takes(&CountedWork::default()), Duration::ZERO);
        let endless = CoreCosts { row_s: 1e9, ..costs };
        assert_eq!(endless.takes(&CountedWork { rows: u64::MAX, ..work }), Duration::MAX);
    }
}
