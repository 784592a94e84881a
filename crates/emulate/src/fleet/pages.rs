//! Counted work as pages of a drive.

use pithead_model::Counts;

use super::Level;
use crate::profile::Parts;
use crate::work::{PageWork, Work};

/// The most pages of a drive that are modelled one by one. Of more, an even part is, and the outcome is multiplied.
const PAGES_MAX: u64 = 100_000;

/// Bytes that drives move.
pub(super) struct Moved {
    pub(super) medium: u64,
    pub(super) link: u64,
}

impl Moved {
    pub(super) fn of(counts: &Counts, level: Level) -> Moved {
        match level {
            Level::Whole => Moved { medium: counts.read_bytes, link: counts.out_bytes },
            Level::Filtered | Level::Hints { .. } => Moved { medium: counts.read_bytes, link: counts.passed_bytes },
            Level::Bytes => Moved { medium: counts.stored_bytes, link: counts.stored_bytes },
        }
    }
}

/// A drive's counted work as pages, one of so many parts of them.
pub(super) fn work_of_one(parts: &Parts, counts: &Counts, level: Level) -> (Work, u64) {
    let page_bytes = parts.medium.page_bytes.whole();
    let all = Moved::of(counts, level).medium.div_ceil(page_bytes);
    let share = all.div_ceil(PAGES_MAX).max(1);
    let pages = (all / share).max(u64::from(all > 0));
    let spread = Spread { page_bytes, pages, share, whole: whole_page(parts) };
    let work = match level {
        Level::Hints { patterns } => Work { patterns: patterns.unwrap_or_default(), ..spread.hints(counts) },
        Level::Whole | Level::Filtered | Level::Bytes => spread.work(counts, level),
    };
    (work, share)
}

/// What a page costs that is gone through from its first to its last word, whatever is in it.
pub(crate) fn whole_page(parts: &Parts) -> PageWork {
    let page_bytes = parts.medium.page_bytes.whole();
    let burst_bytes = parts.cpu.as_ref().map_or(1, |cpu| cpu.burst_bytes.whole());
    PageWork { accesses: page_bytes.div_ceil(burst_bytes), words: page_bytes / 4, ..PageWork::default() }
}

/// How totals become pages.
struct Spread {
    page_bytes: u64,
    /// Pages that are modelled.
    pages: u64,
    /// One of so many parts of the drive's pages is.
    share: u64,
    /// What a page costs in any case.
    whole: PageWork,
}

impl Spread {
    /// What of a total is at one of so many places. The first ones get what does not divide.
    fn part(&self, total: u64, places: u64, place: u64) -> u64 {
        let total = total.div_ceil(self.share);
        total / places + u64::from(place < total % places)
    }

    fn work(&self, counts: &Counts, level: Level) -> Work {
        let (out_rows, out_bytes) = match level {
            Level::Whole => (counts.out_rows, counts.out_bytes),
            _ => (counts.passed_rows, counts.passed_bytes),
        };
        let sums = level == Level::Whole && counts.out_rows < counts.passed_rows;
        let page = |page: u64| {
            let part = |total: u64| self.part(total, self.pages, page);
            let (rows, passed) = (part(counts.rows), part(counts.passed_rows));
            PageWork {
                rows,
                compares: rows,
                matches: passed,
                sums: if sums { passed } else { 0 },
                out_rows: part(out_rows),
                out_bytes: part(out_bytes),
                ..self.whole
            }
        };
        // What was answered without a page, as by what is known of slices, comes at the end.
        let (last_rows, last_bytes) = if self.pages == 0 { (out_rows, out_bytes) } else { (0, 0) };
        // The groups of an aggregate are there until its last page, and are none the fewer where a part of the pages is modelled.
        let held_bytes = if sums { counts.out_bytes } else { 0 };
        let pages = (0..self.pages).map(page).collect();
        Work { page_bytes: self.page_bytes, pages, last_bytes, last_rows, held_bytes, ..Work::default() }
    }

    /// Pages that are searched, and evenly among them those that go on to the host.
    fn hints(&self, counts: &Counts) -> Work {
        let sent = counts.passed_bytes.div_ceil(self.share).div_ceil(self.page_bytes).min(self.pages);
        let searched = self.pages - sent;
        let page = |page: u64| {
            let sent_before = page * sent / self.pages;
            if sent_before < (page + 1) * sent / self.pages {
                let part = |total: u64| self.part(total, sent, sent_before);
                let (rows, out_rows, out_bytes) = (part(counts.passed_rows), part(counts.out_rows), part(counts.passed_bytes));
                return PageWork { rows, out_rows, out_bytes, stored: true, ..PageWork::default() };
            }
            let rows = self.part(counts.rows, searched, page - sent_before);
            PageWork { rows, compares: rows, ruled_out: true, ..self.whole }
        };
        Work { page_bytes: self.page_bytes, pages: (0..self.pages).map(page).collect(), ..Work::default() }
    }
}
