//! Pages of 8 KiB with rows of whole numbers, row by row (NSM) or column by column (PAX), and queries over them that
//! count what they touch.
//!
//! Both layouts start with 96 bytes of header:
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | `PHPG` |
//! | 4 | 1: NSM, 2: PAX |
//! | 5 | 0 |
//! | 6..8 | columns |
//! | 8..10 | rows |
//! | 10..96 | 0 |
//!
//! All numbers are little-endian. The header's size and the rows of NSM are those of SQL Server's pages, so that as many
//! rows fit as in Do et al. 2013: 323 of 4 columns, 109 of 16, 29 of 64.

mod nsm;
mod pax;
mod scan;

use crate::work::PageWork;

pub use scan::{Answer, Question, Scan};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 8192;
/// Bytes before the first row.
const HEADER_BYTES: usize = 96;
const MAGIC: &[u8; 4] = b"PHPG";
/// Bytes of a value.
const VALUE_BYTES: usize = 4;
/// More columns than this leave no page a row.
const COLUMNS_MAX: usize = 1024;

/// How a page is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Row by row, with slots at the page's end.
    Nsm,
    /// Column by column.
    Pax,
}

/// What is wrong with a page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// It is no page of ours.
    #[error("not a page: {0}")]
    Header(&'static str),
    /// A row lies outside of it.
    #[error("row {row} of the page lies at byte {offset}, outside of the rows")]
    Slot {
        /// Which row.
        row: usize,
        /// Where its slot says that it is.
        offset: usize,
    },
    /// A question names a column that it does not have.
    #[error("the page has {columns} columns, and no column {column}")]
    Column {
        /// Columns that there are.
        columns: usize,
        /// The one asked for, from 0 on.
        column: usize,
    },
}

impl Layout {
    /// Both.
    pub const ALL: [Layout; 2] = [Layout::Nsm, Layout::Pax];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Nsm => "NSM",
            Layout::Pax => "PAX",
        }
    }

    /// Rows that a page holds. It is the same for both layouts, so that a table has as many pages in each.
    pub fn rows_max(columns: usize) -> usize {
        (PAGE_BYTES - HEADER_BYTES) / (nsm::row_bytes(columns) + nsm::SLOT_BYTES)
    }

    /// A page of these values, row by row: `columns` values a row, at most [`Layout::rows_max`] rows.
    ///
    /// # Panics
    ///
    /// When the values are no whole rows, or too many.
    pub fn page(self, columns: usize, values: &[i32]) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        self.write(columns, values, &mut page);
        page
    }

    /// Writes such a page over [`PAGE_BYTES`] bytes.
    ///
    /// # Panics
    ///
    /// When the values are no whole rows, or too many, or the bytes are no page.
    pub fn write(self, columns: usize, values: &[i32], page: &mut [u8]) {
        assert!(columns > 0 && values.len().is_multiple_of(columns), "a page has whole rows");
        let rows = values.len() / columns;
        assert!(rows <= Layout::rows_max(columns), "{rows} rows of {columns} columns do not fit a page");
        assert_eq!(page.len(), PAGE_BYTES, "a page has {PAGE_BYTES} bytes");
        page[..HEADER_BYTES].fill(0);
        page[..4].copy_from_slice(MAGIC);
        page[4] = self as u8 + 1;
        page[6..8].copy_from_slice(&(columns as u16).to_le_bytes());
        page[8..10].copy_from_slice(&(rows as u16).to_le_bytes());
        match self {
            Layout::Nsm => nsm::write(columns, values, page),
            Layout::Pax => pax::write(columns, values, page),
        }
    }
}

/// A page that was checked.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    bytes: &'a [u8],
    layout: Layout,
    columns: usize,
    rows: usize,
}

impl<'a> Page<'a> {
    /// Checks a page: its header, and that every row and column lies within it.
    pub fn open(bytes: &'a [u8]) -> Result<Self, PageError> {
        if bytes.len() != PAGE_BYTES {
            return Err(PageError::Header("it does not have 8192 bytes"));
        }
        if !bytes.starts_with(MAGIC) {
            return Err(PageError::Header("it does not begin with PHPG"));
        }
        let layout = match bytes[4] {
            1 => Layout::Nsm,
            2 => Layout::Pax,
            _ => return Err(PageError::Header("its layout is neither NSM nor PAX")),
        };
        let (columns, rows) = (usize::from(u16_at(bytes, 6)), usize::from(u16_at(bytes, 8)));
        if columns == 0 || columns > COLUMNS_MAX {
            return Err(PageError::Header("it has no columns, or too many"));
        }
        if rows > Layout::rows_max(columns) {
            return Err(PageError::Header("it claims more rows than fit"));
        }
        let page = Self { bytes, layout, columns, rows };
        if layout == Layout::Nsm {
            nsm::check(bytes, columns, rows)?;
        }
        Ok(page)
    }

    /// How it is laid out.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// One value.
    ///
    /// # Panics
    ///
    /// When there is no such row or column.
    pub fn value(&self, row: usize, column: usize) -> i32 {
        assert!(row < self.rows && column < self.columns, "the page has {} rows of {}", self.rows, self.columns);
        let at = match self.layout {
            Layout::Nsm => nsm::value_at(self.bytes, row, column),
            Layout::Pax => pax::value_at(self.columns, row, column),
        };
        i32_at(self.bytes, at)
    }

    /// Runs a question over the page. Its matches are added to `answer`; what it cost is returned. An access takes
    /// `burst_bytes` that lie side by side, or fewer.
    pub fn run(&self, question: &Question, burst_bytes: usize, answer: &mut Answer) -> Result<PageWork, PageError> {
        scan::run(self, question, burst_bytes, answer)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn as_many_rows_fit_as_in_the_paper() {
        assert_eq!([4, 16, 64].map(Layout::rows_max), [323, 109, 29]);
        assert_eq!(Layout::rows_max(COLUMNS_MAX), 1);
    }

    /// What every layout has to do.
    fn conforms(layout: Layout, columns: usize, values: &[i32]) {
        let bytes = layout.page(columns, values);
        let page = Page::open(&bytes).unwrap();
        assert_eq!((page.layout(), page.columns(), page.rows()), (layout, columns, values.len() / columns));
        for (number, value) in values.iter().enumerate() {
            assert_eq!(page.value(number / columns, number % columns), *value);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn what_is_written_is_read(columns in 1..80_usize, share in 0.0..=1.0_f64, seed: i32) {
            let rows = (Layout::rows_max(columns) as f64 * share) as usize;
            let values: Vec<i32> = (0..rows * columns).map(|n| (n as i32).wrapping_mul(seed | 1)).collect();
            Layout::ALL.iter().for_each(|layout| conforms(*layout, columns, &values));
        }

        #[test]
        fn damaged_pages_are_refused_or_read_and_nothing_else(
            nsm: bool,
            damage in prop::collection::vec((0..PAGE_BYTES, any::<u8>()), 1..20),
        ) {
            let layout = if nsm { Layout::Nsm } else { Layout::Pax };
            let mut bytes = layout.page(4, &(0..400).collect::<Vec<i32>>());
            for (at, value) in damage {
                bytes[at] = value;
            }
            if let Ok(page) = Page::open(&bytes) {
                let question = Question { filter: 0, below: 50, output: page.columns() - 1, scan: Scan::Select };
                let work = page.run(&question, 32, &mut Answer::default()).unwrap();
                prop_assert_eq!(work.rows, page.rows() as u64);
            }
        }
    }

    #[test]
    fn what_is_no_page_is_refused() {
        assert!(Page::open(&[]).is_err());
        let mut bytes = Layout::Nsm.page(2, &[1, 2]);
        assert!(Page::open(&bytes[1..]).is_err());
        bytes[8] = 0xff;
        bytes[9] = 0xff;
        assert_eq!(Page::open(&bytes).unwrap_err(), PageError::Header("it claims more rows than fit"));
        let mut slot = Layout::Nsm.page(2, &[1, 2]);
        slot[PAGE_BYTES - 2..].copy_from_slice(&8190_u16.to_le_bytes());
        assert_eq!(Page::open(&slot).unwrap_err(), PageError::Slot { row: 0, offset: 8190 });
    }
}
