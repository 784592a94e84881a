//! Pages: the row ranges that can be decoded alone, and their bounds, by which a scan skips pages.
//!
//! The bounds follow the bytes that the encoding wrote, so that every encoding skips pages by the same rules and counts
//! them in the same way:
//!
//! ```text
//! +-------------------+-----------------------+-----------------+--------+------------+-----------+---------+---------+
//! | the encoding's    | where column i starts | bounds: column  | rows   | rows of    | columns   | bytes of| "PAGE-  |
//! | own bytes         | 4 × (columns + 1)     | by column, page | 8      | a page 4   | 4         | index 8 | INDX" 8 |
//! |                   |                       | by page         |        |            |           |         |         |
//! +-------------------+-----------------------+-----------------+--------+------------+-----------+---------+---------+
//!                     |<----- index: its bytes are counted in "bytes of index" ------>|
//! ```
//!
//! (The index is the two parts before `rows`.) The bounds of one page are a byte of flags (1: a minimum follows, 2: a
//! maximum follows, 4: both are exact, 8: there may be more nulls), the number of nulls as a base-128 number, and then
//! the bounds, each as a byte of kind, a byte of length, and that many bytes. Behind all of this there may be deletion
//! marks (`marks.rs`): pages and rows are numbered as if no row were gone.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use bytes::Bytes;
use pithead_model::{ColumnSummary, PAGE_ROWS, PageSet, merge_columns};

use crate::bounds::bounds;
use crate::marks::{Marks, split};
use crate::page_entries::{Reader, damaged, write_summary};
use crate::prune::{columns_of, may_satisfy};
use crate::{Predicate, ScanRequest, SliceError};

const MAGIC: [u8; 8] = *b"PAGEINDX";
const TRAILER_BYTES: usize = 32;
/// The most rows of a page that a reader accepts: a few bytes must not cause work without end.
const PAGE_ROWS_MAX: u64 = 1 << 16;

/// The bounds of each page of the rows in `batches`, page by page, with one summary for each column.
pub(crate) fn page_bounds(batches: &[RecordBatch]) -> Vec<Vec<ColumnSummary>> {
    let mut pages = Vec::new();
    let mut parts: Vec<Vec<ColumnSummary>> = Vec::new();
    let mut room = PAGE_ROWS;
    for batch in batches {
        let mut start = 0;
        while start < batch.num_rows() {
            let rows = room.min(batch.num_rows() - start);
            parts.push(batch.slice(start, rows).columns().iter().map(bounds).collect());
            (start, room) = (start + rows, room - rows);
            if room == 0 {
                pages.push(merge_columns(parts.iter().map(Vec::as_slice)));
                parts.clear();
                room = PAGE_ROWS;
            }
        }
    }
    if !parts.is_empty() {
        pages.push(merge_columns(parts.iter().map(Vec::as_slice)));
    }
    pages
}

/// Appends the index of pages to an encoding's bytes.
pub(crate) fn append(body: &mut Vec<u8>, rows: u64, pages: &[Vec<ColumnSummary>]) -> Result<(), SliceError> {
    let columns = pages.first().map_or(0, Vec::len);
    let column = |column: usize| pages.iter().map(move |page| &page[column]);
    PageIndex::new(rows, (0..columns).map(column))?.append_to(body);
    Ok(())
}

/// The pages of a slice and their bounds, which are read column by column when they are needed.
#[derive(Clone, Debug)]
pub(crate) struct PageIndex {
    /// Rows of the slice, those that are gone among them.
    pub(crate) rows: u64,
    /// Rows of each page but the last.
    pub(crate) page_rows: u64,
    columns: usize,
    /// The starts of the columns, then the entries.
    index: Bytes,
    /// The rows that are gone; none: no row is.
    pub(crate) marks: Option<Marks>,
}

impl PageIndex {
    /// Of a slice of so many rows, from the summaries of each column, page by page.
    pub(crate) fn of(rows: u64, columns: &[Vec<ColumnSummary>]) -> Result<Self, SliceError> {
        Self::new(rows, columns.iter().map(|pages| pages.iter()))
    }

    fn new<'a, P: Iterator<Item = &'a ColumnSummary>>(
        rows: u64,
        columns: impl ExactSizeIterator<Item = P>,
    ) -> Result<Self, SliceError> {
        let count = columns.len();
        let (mut entries, mut starts) = (Vec::new(), Vec::with_capacity(count + 1));
        for pages in columns {
            starts.push(entries.len());
            pages.for_each(|page| write_summary(&mut entries, page));
        }
        starts.push(entries.len());
        let mut index = Vec::with_capacity(4 * starts.len() + entries.len());
        for start in starts {
            let start =
                u32::try_from(start).map_err(|_| SliceError::TooLarge { bytes: entries.len(), max: u32::MAX as usize })?;
            index.extend_from_slice(&start.to_le_bytes());
        }
        index.append(&mut entries);
        Ok(Self { rows, page_rows: PAGE_ROWS as u64, columns: count, index: index.into(), marks: None })
    }

    /// Appends it to an encoding's bytes.
    pub(crate) fn append_to(&self, body: &mut Vec<u8>) {
        body.extend_from_slice(&self.index);
        body.extend_from_slice(&self.rows.to_le_bytes());
        body.extend_from_slice(&(self.page_rows as u32).to_le_bytes());
        body.extend_from_slice(&(self.columns as u32).to_le_bytes());
        body.extend_from_slice(&self.bytes().to_le_bytes());
        body.extend_from_slice(&MAGIC);
    }

    /// Splits the index, and the marks behind it, from an encoding's bytes, which it returns without them.
    pub(crate) fn split(body: Bytes, columns: usize) -> Result<(Bytes, Self), SliceError> {
        let (body, marks) = split(body)?;
        let Some(trailer_start) = body.len().checked_sub(TRAILER_BYTES) else {
            return Err(damaged("it is too short"));
        };
        let trailer = body.slice(trailer_start..);
        if trailer[24..] != MAGIC {
            return Err(damaged("it has no end"));
        }
        let found = u32_at(&trailer, 12) as usize;
        if found != columns {
            return Err(SliceError::Corrupt(format!("it has {found} columns, and the dataset {columns}")));
        }
        let index_bytes = usize::try_from(u64_at(&trailer, 16)).unwrap_or(usize::MAX);
        let Some(index_start) = trailer_start.checked_sub(index_bytes) else {
            return Err(damaged("it is longer than the slice"));
        };
        let index = body.slice(index_start..trailer_start);
        let (rows, page_rows) = (u64_at(&trailer, 0), u32_at(&trailer, 8).into());
        let page = Self { rows, page_rows, columns, index, marks: None };
        page.check()?;
        let marks = marks.map(|found| found.of(rows)).transpose()?;
        Ok((body.slice(..index_start), Self { marks, ..page }))
    }

    /// Each page takes at least two bytes for each column, so wrong counts are detected before anything is allocated by
    /// them.
    fn check(&self) -> Result<(), SliceError> {
        if self.page_rows == 0 || self.rows == 0 || self.columns == 0 {
            return Err(damaged("it has no rows or columns"));
        }
        if self.page_rows > PAGE_ROWS_MAX {
            return Err(damaged("its pages are too large"));
        }
        let least = (self.columns as u64 + 1)
            .checked_mul(4)
            .and_then(|starts| self.pages().checked_mul(2 * self.columns as u64)?.checked_add(starts));
        match least {
            Some(least) if least <= self.index.len() as u64 => Ok(()),
            _ => Err(damaged("it is too short for its pages")),
        }
    }

    /// The number of pages.
    pub(crate) fn pages(&self) -> u64 {
        self.rows.div_ceil(self.page_rows)
    }

    /// The rows of a page.
    pub(crate) fn page(&self, page: u64) -> Range<u64> {
        page * self.page_rows..((page + 1) * self.page_rows).min(self.rows)
    }

    /// Rows of the slice that are left.
    pub(crate) fn live_rows(&self) -> u64 {
        self.rows - self.marks.as_ref().map_or(0, Marks::gone)
    }

    /// Of a range of rows, those that are left.
    pub(crate) fn live_in(&self, rows: &Range<u64>) -> u64 {
        rows.end - rows.start - self.marks.as_ref().map_or(0, |marks| marks.gone_in(rows))
    }

    /// The bytes of the index without its end.
    pub(crate) fn bytes(&self) -> u64 {
        self.index.len() as u64
    }

    /// The summaries of a column, page by page.
    pub(crate) fn column(&self, column: usize) -> Result<Vec<ColumnSummary>, SliceError> {
        let entries_start = 4 * (self.columns + 1);
        let start = entries_start + u32_at(&self.index, 4 * column) as usize;
        let end = entries_start + u32_at(&self.index, 4 * (column + 1)) as usize;
        let mut entries = Reader(self.index.get(start..end).ok_or_else(|| damaged("a column lies outside"))?);
        (0..self.pages()).map(|_| entries.summary()).collect()
    }

    /// The pages that may have a row that is left and satisfies all predicates, in order.
    pub(crate) fn matching(&self, predicates: &[Predicate]) -> Result<Vec<u64>, SliceError> {
        let mut wanted = Vec::new();
        predicates.iter().for_each(|predicate| columns_of(predicate, &mut wanted));
        let mut summaries = BTreeMap::new();
        for column in wanted {
            if column < self.columns && !summaries.contains_key(&column) {
                summaries.insert(column, self.column(column)?);
            }
        }
        let may_match = |page: &u64| {
            let rows = self.page(*page);
            if self.live_in(&rows) == 0 {
                return false;
            }
            let summary = |column: usize| summaries.get(&column).and_then(|pages| pages.get(*page as usize));
            predicates.iter().all(|predicate| may_satisfy(predicate, &summary, rows.end - rows.start))
        };
        Ok((0..self.pages()).filter(may_match).collect())
    }

    /// The same as a set, of those that are at hand.
    pub(crate) fn may_match(&self, predicates: &[Predicate], sent: Option<&PageSet>) -> Result<PageSet, SliceError> {
        let mut set = PageSet::none(self.count()?);
        let pages = self.matching(predicates)?.into_iter().map(|page| page as u32);
        pages.filter(|page| sent.is_none_or(|sent| sent.contains(*page))).for_each(|page| set.insert(page));
        Ok(set)
    }

    /// The number of pages, as their sets count them.
    pub(crate) fn count(&self) -> Result<u32, SliceError> {
        u32::try_from(self.pages()).map_err(|_| damaged("it has too many pages"))
    }

    /// Reads a bitmap that came with parts of the slice.
    pub(crate) fn sent(&self, bits: &[u8]) -> Result<PageSet, SliceError> {
        PageSet::from_bytes(self.count()?, bits).map_err(|fault| SliceError::Corrupt(fault.message))
    }

    /// The rows of the pages of a set, those that are gone among them.
    pub(crate) fn rows_of<'a>(&'a self, pages: &'a PageSet) -> impl Iterator<Item = Range<u64>> + 'a {
        pages.iter().filter(|page| u64::from(*page) < self.pages()).map(|page| self.page(page.into()))
    }

    /// How many rows of the pages of a set are left.
    pub(crate) fn live_rows_of(&self, pages: &PageSet) -> u64 {
        self.rows_of(pages).map(|rows| self.live_in(&rows)).sum()
    }

    /// What a request is to read: the pages that may match, among those that are at hand.
    pub(crate) fn wanted(&self, request: &ScanRequest, sent: Option<&PageSet>) -> Result<Vec<Range<u64>>, SliceError> {
        let predicates = if request.zone_maps { request.predicates.as_slice() } else { &[] };
        let mut pages = self.matching(predicates)?;
        request.stats.pages_skipped.fetch_add(self.pages() - pages.len() as u64, Ordering::Relaxed);
        if let Some(sent) = sent {
            pages.retain(|page| sent.contains(*page as u32));
        }
        let pages = request.sample.map_or(pages.clone(), |sample| sample.choose(pages));
        Ok(self.windows(&pages, request.batch_rows))
    }

    /// The rows of `pages` as ranges of at most `rows_max` rows, each within one page.
    pub(crate) fn windows(&self, pages: &[u64], rows_max: usize) -> Vec<Range<u64>> {
        let rows_max = (rows_max as u64).max(1);
        let mut windows = Vec::with_capacity(pages.len());
        for page in pages {
            let mut rows = self.page(*page);
            while !rows.is_empty() {
                let end = rows.end.min(rows.start.saturating_add(rows_max));
                windows.push(rows.start..end);
                rows.start = end;
            }
        }
        windows
    }

    /// The number of pages that start in a window. If all windows are read, this adds up to all pages.
    pub(crate) fn pages_started(&self, window: &Range<u64>) -> u64 {
        window.end.div_ceil(self.page_rows) - window.start.div_ceil(self.page_rows)
    }

    /// Summaries of all rows, one for each column.
    pub(crate) fn totals(&self) -> Result<Vec<ColumnSummary>, SliceError> {
        (0..self.columns)
            .map(|column| {
                let pages = self.column(column)?;
                let merged = merge_columns(pages.iter().map(std::slice::from_ref));
                merged.into_iter().next().ok_or_else(|| damaged("a column has no pages"))
            })
            .collect()
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringViewArray};
    use pithead_model::Value;
    use proptest::prelude::*;

    use super::*;
    use crate::Compare;

    fn batch(range: Range<i64>) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(range.clone()));
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter(range.map(|n| (n % 3 != 0).then(|| format!("t{n}")))));
        RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap()
    }

    fn body() -> Vec<u8> {
        let mut body = b"encoded".to_vec();
        append(&mut body, 20_000, &page_bounds(&[batch(0..5_000), batch(5_000..19_999), batch(19_999..20_000)])).unwrap();
        body
    }

    #[test]
    fn pages_are_cut_across_batches_and_skipped_by_their_bounds() {
        let (inner, index) = PageIndex::split(body().into(), 2).unwrap();
        assert_eq!((&inner[..], index.rows, index.pages(), index.page(2)), (&b"encoded"[..], 20_000, 3, 16_384..20_000));
        let predicate = |op, value| Predicate::Compare { column: 0, op, value: Value::Int(value) };
        assert_eq!(index.matching(&[predicate(Compare::Lt, 8_192)]).unwrap(), [0]);
        assert_eq!(index.matching(&[predicate(Compare::Ge, 8_192)]).unwrap(), [1, 2]);
        assert_eq!(index.matching(&[Predicate::IsNull(1)]).unwrap(), [0, 1, 2]);
        assert_eq!(index.matching(&[]).unwrap(), [0, 1, 2]);
        let totals = index.totals().unwrap();
        assert_eq!((totals[0].min.clone(), totals[0].max.clone()), (Some(Value::Int(0)), Some(Value::Int(19_999))));
        assert_eq!((totals[1].nulls, totals[1].exact), (6_667, true));
    }

    #[test]
    fn windows_hold_every_row_of_their_pages_once() {
        let (_, index) = PageIndex::split(body().into(), 2).unwrap();
        assert_eq!(index.windows(&[0, 2], 8_192), [0..8_192, 16_384..20_000]);
        assert_eq!(index.windows(&[0, 1, 2], usize::MAX), [0..8_192, 8_192..16_384, 16_384..20_000]);
        let small = index.windows(&[1], 3_000);
        assert_eq!(small, [8_192..11_192, 11_192..14_192, 14_192..16_384]);
        assert_eq!(small.iter().map(|window| index.pages_started(window)).sum::<u64>(), 1);
        assert_eq!(index.pages_started(&(0..20_000)), 3);
    }

    #[test]
    fn another_number_of_columns_is_refused() {
        assert!(PageIndex::split(body().into(), 3).is_err());
    }

    proptest! {
        #[test]
        fn damaged_indices_never_panic(at in 0usize..4096, with in any::<u8>(), cut in 0usize..64) {
            let mut bytes = body();
            let at = at % bytes.len();
            bytes[at] ^= with;
            bytes.truncate(bytes.len() - if with % 2 == 0 { cut } else { 0 });
            if let Ok((_, index)) = PageIndex::split(bytes.into(), 2) {
                let _ = index.matching(&[Predicate::IsNull(1)]);
                let _ = index.totals();
            }
        }
    }
}
