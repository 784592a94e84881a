//! [`BatchRows`]: rows of some batches of a file, read column by column.

use std::iter;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::compute::concat;
use arrow::datatypes::SchemaRef;
use arrow::ipc::Block;
use arrow::ipc::reader::FileDecoder;
use futures::stream::{self, StreamExt};
use pithead_model::{ColumnSummary, PAGE_ROWS, PageSet, SliceEntry};

use super::file::{ArrowFile, check_body, damaged, message_of, place};
use super::segments::Segment;
use crate::arrow_ipc::ArrowEncoding;
use crate::arrow_parts::{buffers_by_column, bytes_of};
use crate::arrow_sizes::check_batch;
use crate::guard::{check_columns, guarded};
use crate::pages::PageIndex;
use crate::parquet::{Columns, part_of};
use crate::stored::SliceParts;
use crate::{Encoding, Predicate, ReadStats, Scan, ScanRequest, Search, SliceError, SliceReader};

/// What slices of one file share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) file: Arc<ArrowFile>,
    pub(super) columns: Columns,
}

/// An open slice.
#[derive(Clone, Debug)]
pub(super) struct BatchRows {
    shared: Arc<Shared>,
    segments: Arc<[Segment]>,
    index: PageIndex,
}

impl BatchRows {
    pub(super) fn new(shared: Arc<Shared>, segments: Arc<[Segment]>, entry: &SliceEntry) -> Result<BatchRows, SliceError> {
        let pages = |whole: &ColumnSummary| -> Vec<ColumnSummary> {
            let starts = (0..entry.rows).step_by(PAGE_ROWS);
            starts.map(|start| part_of(whole, (entry.rows - start).min(PAGE_ROWS as u64))).collect()
        };
        let by_column: Vec<Vec<ColumnSummary>> = entry.columns.iter().map(pages).collect();
        Ok(BatchRows { shared, segments, index: PageIndex::of(entry.rows, &by_column)? })
    }

    /// The rows in the encoding `arrow`.
    pub(super) fn encoded(&self) -> Result<Vec<u8>, SliceError> {
        let schema = &self.shared.columns.schema;
        let columns: Vec<usize> = (0..schema.fields().len()).collect();
        let mut scan = PageScan::new(self, &columns, Arc::default())?;
        let pages = (0..self.index.pages()).map(|page| scan.read(self.index.page(page)));
        ArrowEncoding.encode(schema, &pages.collect::<Result<Vec<_>, _>>()?)
    }
}

impl SliceReader for BatchRows {
    fn rows(&self) -> u64 {
        self.index.rows
    }

    fn scan(&self, request: ScanRequest) -> Result<Scan, SliceError> {
        check_columns(&self.shared.columns.schema, &request)?;
        let windows = self.index.wanted(&request, None)?;
        let mut scan = guarded(|| PageScan::new(self, &request.columns, request.stats.clone()))?;
        let stream = stream::iter(windows).map(move |window| guarded(|| scan.read(window)));
        Ok(Scan { stream: stream.boxed(), applied: Vec::new() })
    }

    fn may_match(&self, predicates: &[Predicate]) -> Result<PageSet, SliceError> {
        self.index.may_match(predicates, None)
    }

    fn rows_of(&self, pages: &PageSet) -> u64 {
        self.index.rows_of(pages).map(|rows| rows.end - rows.start).sum()
    }

    fn search(&self, request: ScanRequest) -> Result<Search, SliceError> {
        check_columns(&self.shared.columns.schema, &request)?;
        let windows = self.index.wanted(&request, None)?;
        let mut scan = guarded(|| PageScan::new(self, &request.columns, request.stats.clone()))?;
        let stream = stream::iter(windows.clone()).map(move |window| guarded(|| scan.read(window)).map(Some)).boxed();
        Ok(Search { windows, stream, applied: Vec::new() })
    }

    /// Of the rows in the encoding `arrow`: those of the file may have other types.
    fn parts(&self, columns: &[usize], pages: &PageSet) -> Result<SliceParts, SliceError> {
        let body = guarded(|| self.encoded())?;
        ArrowEncoding.open(&self.shared.columns.schema, body.into())?.parts(columns, pages)
    }
}

/// The state of a running scan.
struct PageScan {
    rows: BatchRows,
    /// Columns of the output, by index in the dataset's schema.
    columns: Vec<usize>,
    output: SchemaRef,
    /// The file's columns that are decoded, ascending.
    roots: Vec<usize>,
    /// None: no column of the file is wanted.
    decoder: Option<FileDecoder>,
    /// The batch that was decoded last.
    decoded: Option<(usize, RecordBatch)>,
    stats: Arc<ReadStats>,
}

impl PageScan {
    fn new(rows: &BatchRows, columns: &[usize], stats: Arc<ReadStats>) -> Result<PageScan, SliceError> {
        let shared = &rows.shared;
        let mut roots: Vec<usize> = columns.iter().filter_map(|column| shared.columns.root(*column)).collect();
        roots.sort_unstable();
        roots.dedup();
        let output = Arc::new(shared.columns.schema.project(columns).map_err(damaged)?);
        let (columns, decoder, decoded) = (columns.to_vec(), None, None);
        Ok(PageScan { rows: rows.clone(), columns, output, roots, decoder, decoded, stats })
    }

    /// A decoder of the wanted columns, with their dictionaries.
    fn new_decoder(&self) -> Result<FileDecoder, SliceError> {
        let file = &self.rows.shared.file;
        let mut decoder = FileDecoder::new(Arc::clone(&file.own), file.version).with_projection(self.roots.clone());
        let wanted: Vec<i64> =
            self.roots.iter().filter_map(|root| file.dictionaries_of.get(*root)).flatten().copied().collect();
        for (_, block) in file.dictionaries.iter().filter(|(number, _)| wanted.contains(number)) {
            decoder.read_dictionary(block, &self.block(block, false)?).map_err(damaged)?;
        }
        Ok(decoder)
    }

    /// A block as the decoder takes it. Of a batch, only buffers of the wanted columns have their bytes in it.
    fn block(&self, block: &Block, is_batch: bool) -> Result<Buffer, SliceError> {
        let file = &self.rows.shared.file;
        let metadata = file.metadata(block)?;
        let message = message_of(&metadata)?;
        let body = check_body(&message, block)?;
        let batch = message.header_as_record_batch().or_else(|| message.header_as_dictionary_batch()?.data());
        let batch = batch.ok_or_else(|| damaged("a batch has no rows"))?;
        let by_column = if is_batch { buffers_by_column(&file.own, &batch) } else { None };
        let wanted: Option<Vec<Range<usize>>> =
            by_column.and_then(|columns| self.roots.iter().map(|root| columns.get(*root).cloned()).collect());
        let ranges = match &wanted {
            Some(wanted) => wanted.iter().map(|buffers| bytes_of(&batch, buffers)).collect::<Option<Vec<_>>>(),
            None => None,
        };
        let ranges = ranges.unwrap_or_else(|| iter::once(0..body).collect());
        let place = place(block).ok_or_else(|| damaged("a batch lies outside"))?;
        let start = metadata.len();
        let mut buffer = MutableBuffer::from_len_zeroed((place.end - place.start) as usize);
        let bytes = buffer.as_slice_mut();
        let first = place.start + start as u64;
        let in_file = ranges.iter().map(|range| first + range.start.min(body)..first + range.end.min(body));
        file.source.prepare(&in_file.collect::<Vec<_>>())?;
        bytes[..start].copy_from_slice(&metadata);
        for range in ranges.into_iter().filter(|range| !range.is_empty()) {
            let range = range.start.min(body)..range.end.min(body);
            let read = file.source.read_at(first + range.start..first + range.end)?;
            bytes[start + range.start as usize..start + range.end as usize].copy_from_slice(&read);
            self.stats.bytes.fetch_add(read.len() as u64, Ordering::Relaxed);
        }
        let is_wanted =
            |number: usize| wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|buffers| buffers.contains(&number)));
        let mut start_of = |number: usize, at: u64, into: &mut [u8]| {
            let at = start + at as usize;
            into.copy_from_slice(bytes.get(at..at + into.len()).ok_or("a buffer lies outside")?);
            Ok(is_wanted(number))
        };
        check_batch(&batch, body, &mut start_of).map_err(damaged)?;
        Ok(buffer.into())
    }

    /// Rows of one page.
    fn read(&mut self, window: Range<u64>) -> Result<RecordBatch, SliceError> {
        let started = self.rows.index.pages_started(&window);
        self.stats.pages_read.fetch_add(started, Ordering::Relaxed);
        let count = (window.end - window.start) as usize;
        let mut pieces: Vec<Vec<ArrayRef>> = vec![Vec::new(); self.columns.len()];
        if !self.roots.is_empty() {
            for (segment, rows) in pieces_of(&Arc::clone(&self.rows.segments), &window) {
                let batch = self.batch(segment)?.slice(rows.start as usize, (rows.end - rows.start) as usize);
                for (column, pieces) in self.columns.iter().zip(&mut pieces) {
                    let Some(root) = self.rows.shared.columns.root(*column) else { continue };
                    let decoded = batch.column(self.roots.partition_point(|other| *other < root));
                    pieces.push(self.rows.shared.columns.values(*column, decoded)?);
                }
            }
        }
        let columns = self.columns.iter().zip(pieces).map(|(column, pieces)| match pieces.as_slice() {
            [] => self.rows.shared.columns.constant(*column, count)?.ok_or_else(|| damaged("a column has no rows")),
            [one] => Ok(Arc::clone(one)),
            several => {
                let several: Vec<&dyn arrow::array::Array> = several.iter().map(AsRef::as_ref).collect();
                concat(&several).map_err(damaged)
            }
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        RecordBatch::try_new_with_options(Arc::clone(&self.output), columns, &options).map_err(damaged)
    }

    /// The wanted columns of a batch.
    fn batch(&mut self, number: usize) -> Result<&RecordBatch, SliceError> {
        let is_there = self.decoded.as_ref().is_some_and(|(known, _)| *known == number);
        if !is_there {
            // One at a time: it may be large.
            self.decoded = None;
            let batch = self.rows.shared.file.batches[number];
            let decoder = match self.decoder.take() {
                Some(decoder) => decoder,
                None => self.new_decoder()?,
            };
            let bytes = self.block(&batch.block, true)?;
            let decoder = self.decoder.insert(decoder);
            let read = decoder.read_record_batch(&batch.block, &bytes).map_err(damaged)?;
            let read = read.filter(|read| read.num_rows() as u64 == batch.rows);
            self.decoded = Some((number, read.ok_or_else(|| damaged("a batch does not have its rows"))?));
        }
        self.decoded.as_ref().map(|(_, batch)| batch).ok_or_else(|| damaged("a batch was not decoded"))
    }
}

/// What a window has of each batch: its number, and rows among those of the batch.
fn pieces_of<'a>(segments: &'a [Segment], window: &Range<u64>) -> impl Iterator<Item = (usize, Range<u64>)> + use<'a> {
    let window = window.clone();
    let mut before = 0;
    segments.iter().filter_map(move |segment| {
        let own = before..before + segment.len();
        before = own.end;
        let shared = own.start.max(window.start)..own.end.min(window.end);
        let first = segment.rows.start + shared.start.saturating_sub(own.start);
        (!shared.is_empty()).then(|| (segment.batch, first..first + (shared.end - shared.start)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_made_of_pieces_of_batches() {
        let segments =
            [Segment { batch: 3, rows: 10..20 }, Segment { batch: 4, rows: 0..5 }, Segment { batch: 7, rows: 0..100 }];
        let pieces = |window: Range<u64>| pieces_of(&segments, &window).collect::<Vec<_>>();
        assert_eq!(pieces(0..10), [(3, 10..20)]);
        assert_eq!(pieces(9..17), [(3, 19..20), (4, 0..5), (7, 0..2)]);
        assert_eq!(pieces(12..14), [(4, 2..4)]);
        assert_eq!(pieces(100..115), [(7, 85..100)]);
    }
}
