//! Pages of TPC-H's `lineitem` as MariaDB keeps them, and a search for one day's bytes in them.

use memchr::memmem::Finder;
use pithead_emulate::{PageWork, Work};
use tpchgen::dates::TPCHDate;
use tpchgen::generators::{LineItem, LineItemGenerator};

/// A page of InnoDB, of which a load leaves a sixteenth free.
const PAGE_BYTES: usize = 16_384;
const HEADER_BYTES: usize = 128;
const FULL_BYTES: usize = PAGE_BYTES * 15 / 16;
/// Before the columns of a row: its header, its transaction, and where its older version is.
const ROW_HEAD_BYTES: usize = 18;
/// `l_shipdate = '1995-1-17'`.
const DAY: (i32, i32, i32) = (1995, 1, 17);

/// What was counted.
pub(super) struct Counted {
    /// The host reads every page, and looks at every row.
    pub(super) host: Work,
    /// The device gives the host the pages that have the day's bytes.
    pub(super) device: Work,
    /// Its cores look at the rows of these pages, and give the host those that have a row of the day.
    pub(super) filtered: Work,
    /// The host reads the pages that have the day's bytes, which the device has named.
    pub(super) named: Work,
    pub(super) rows: u64,
    pub(super) rows_found: u64,
    pub(super) pages_found: u64,
}

/// Fills pages with the rows of this scale, and searches each.
pub(super) fn count(scale_factor: f64) -> Counted {
    let finder = Finder::new(&day_bytes(DAY)).into_owned();
    let work = Work { page_bytes: PAGE_BYTES as u64, ..Work::default() };
    let [host, device, filtered, named] = [(); 4].map(|()| work.clone());
    let mut counted = Counted { host, device, filtered, named, rows: 0, rows_found: 0, pages_found: 0 };
    let mut page = Vec::with_capacity(PAGE_BYTES);
    let (mut rows, mut found) = (0, 0);
    page.resize(HEADER_BYTES, 0);
    for item in LineItemGenerator::new(scale_factor, 1, 1).iter() {
        if page.len() + row_bytes(&item) > FULL_BYTES {
            counted.page(&page, &finder, rows, found);
            page.truncate(HEADER_BYTES);
            (rows, found) = (0, 0);
        }
        put(&mut page, &item);
        rows += 1;
        found += u64::from(ymd(item.l_shipdate) == DAY);
    }
    counted.page(&page, &finder, rows, found);
    counted
}

impl Counted {
    fn page(&mut self, page: &[u8], finder: &Finder, rows: u64, found: u64) {
        let has_day = finder.find(page).is_some();
        self.rows += rows;
        self.rows_found += found;
        self.pages_found += u64::from(has_day);
        let read = PageWork { rows, compares: rows, matches: found, out_rows: found, ..PageWork::default() };
        self.host.pages.push(read);
        if has_day {
            self.named.pages.push(read);
        }
        // The host looks at all rows of a page that comes.
        let out = |comes: bool| if comes { (rows, PAGE_BYTES as u64) } else { (0, 0) };
        let (out_rows, out_bytes) = out(has_day);
        let searched = PageWork { rows, ruled_out: !has_day, ..PageWork::default() };
        self.device.pages.push(PageWork { out_rows, out_bytes, ..searched });
        // In a page of rows, each date is an access of its own.
        let (out_rows, out_bytes) = out(found > 0);
        self.filtered.pages.push(PageWork { compares: rows, accesses: rows, words: rows, out_rows, out_bytes, ..searched });
    }
}

/// A date as MySQL keeps it, the sign's bit turned over: `8F 96 31`.
fn day_bytes((year, month, day): (i32, i32, i32)) -> [u8; 3] {
    let packed = ((year * 16 + month) * 32 + day) as u32 | 0x80_0000;
    [(packed >> 16) as u8, (packed >> 8) as u8, packed as u8]
}

fn ymd(date: TPCHDate) -> (i32, i32, i32) {
    let (year, month, day) = date.to_ymd();
    (if year < 100 { 1900 + year } else { year }, month, day)
}

fn row_bytes(item: &LineItem) -> usize {
    // Four whole numbers, four numbers of eight bytes, two letters, three dates, two texts of a fixed width, and the comment.
    ROW_HEAD_BYTES + 16 + 32 + 2 + 9 + 25 + 10 + 1 + item.l_comment.len()
}

fn put(page: &mut Vec<u8>, item: &LineItem) {
    page.extend([0; ROW_HEAD_BYTES]);
    for key in [item.l_orderkey, item.l_partkey, item.l_suppkey, i64::from(item.l_linenumber)] {
        page.extend((key as i32).to_be_bytes());
    }
    for value in [item.l_quantity, item.l_extendedprice.0, item.l_discount.0, item.l_tax.0] {
        page.extend((value as f64).to_le_bytes());
    }
    page.extend([first(item.l_returnflag), first(item.l_linestatus)]);
    for date in [item.l_shipdate, item.l_commitdate, item.l_receiptdate] {
        page.extend(day_bytes(ymd(date)));
    }
    padded(page, item.l_shipinstruct, 25);
    padded(page, item.l_shipmode, 10);
    page.push(item.l_comment.len() as u8);
    page.extend(item.l_comment.bytes());
}

fn first(text: &str) -> u8 {
    text.bytes().next().unwrap_or(b' ')
}

fn padded(page: &mut Vec<u8>, text: &str, width: usize) {
    page.extend(text.bytes().chain(std::iter::repeat(b' ')).take(width));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_the_bytes_that_yoursql_shows() {
        // Jo et al. 2016 search for 1995-09-01 as 8F 97 21.
        assert_eq!(day_bytes((1995, 9, 1)), [0x8f, 0x97, 0x21]);
    }

    #[test]
    fn pages_hold_all_rows_and_the_matcher_misses_none() {
        let counted = count(0.01);
        assert_eq!(counted.rows, 60_175);
        for (host, device) in counted.host.pages.iter().zip(&counted.device.pages) {
            assert!(host.out_rows == 0 || !device.ruled_out, "a page with a match is not thrown away");
            assert!(host.rows > 80 && host.rows < 130 || host.rows == counted.host.pages.last().unwrap().rows, "{}", host.rows);
        }
        assert!(counted.rows_found > 10);
        assert_eq!(counted.named.pages.len() as u64, counted.pages_found);
        let pages = |work: &Work| work.pages.iter().filter(|page| page.out_bytes > 0).count() as u64;
        assert_eq!(pages(&counted.device), counted.pages_found);
        assert!(pages(&counted.filtered) > 10 && pages(&counted.filtered) <= counted.rows_found, "no page without a row");
        // One of three dates in a row of a hundred: the day, 1 of some 2500.
        assert!(counted.pages_found * 5 < counted.host.pages.len() as u64);
    }
}
