//! The simple encoding: an uncompressed Arrow IPC file with one batch for each page, which is read without a copy. It
//! can hold every type.

use std::iter;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::compute::{BatchCoalescer, filter_record_batch};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::reader::{FileDecoder, read_footer_length};
use arrow::ipc::writer::FileWriter;
use arrow::ipc::{Block, MetadataVersion, root_as_footer, root_as_message};
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use pithead_model::{PAGE_ROWS, PageSet};

use crate::arrow_parts::{buffer_bytes, buffers_by_column, bytes_of};
use crate::guard::{check_columns, check_same, guarded};
use crate::nested::rebuild;
use crate::pages::{self, PageIndex};
use crate::stored::{SliceParts, Stored};
use crate::{Encoding, Predicate, ReadStats, Scan, ScanRequest, Search, SliceError, SliceReader};

const NAME: &str = "arrow";
/// The bytes at the end of an IPC file that have the length of its footer.
const TAIL_BYTES: usize = 10;

/// Arrow IPC.
#[derive(Debug)]
pub(crate) struct ArrowEncoding;

impl Encoding for ArrowEncoding {
    fn name(&self) -> &'static str {
        NAME
    }

    fn id(&self) -> (u16, u16) {
        (1, 1)
    }

    fn supports(&self, _schema: &SchemaRef) -> Result<(), SliceError> {
        Ok(())
    }

    fn encode(&self, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<u8>, SliceError> {
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let mut body = write_file(schema, batches).map_err(codec)?;
        pages::append(&mut body, rows as u64, &pages::page_bounds(batches))?;
        Ok(body)
    }

    fn open(&self, schema: &SchemaRef, body: Bytes) -> Result<Arc<dyn SliceReader>, SliceError> {
        let slice = guarded(|| ArrowSlice::open(schema.clone(), Stored::whole(body), None))?;
        Ok(Arc::new(slice))
    }

    fn open_parts(&self, schema: &SchemaRef, parts: SliceParts, pages: &[u8]) -> Result<Arc<dyn SliceReader>, SliceError> {
        let body = Stored::some(parts.body_bytes, parts.parts)?;
        let slice = guarded(|| ArrowSlice::open(schema.clone(), body, Some(pages)))?;
        Ok(Arc::new(slice))
    }
}

fn write_file(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<u8>, ArrowError> {
    let mut writer = FileWriter::try_new(Vec::new(), schema)?;
    let mut pages = BatchCoalescer::new(schema.clone(), PAGE_ROWS);
    for batch in batches {
        pages.push_batch(batch.clone())?;
        while let Some(page) = pages.next_completed_batch() {
            writer.write(&compact(&page)?)?;
        }
    }
    pages.finish_buffered_batch()?;
    while let Some(page) = pages.next_completed_batch() {
        writer.write(&compact(&page)?)?;
    }
    writer.into_inner()
}

/// The rows of a page are a part of longer columns, and would otherwise be written with all the texts of these.
fn compact(page: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let leaf = |leaf: &ArrayRef, _: &DataType| -> Result<ArrayRef, ArrowError> {
        Ok(match leaf.data_type() {
            DataType::Utf8View => Arc::new(leaf.as_string_view().gc()),
            DataType::BinaryView => Arc::new(leaf.as_binary_view().gc()),
            _ => leaf.clone(),
        })
    };
    let columns = page.columns().iter().map(|column| rebuild(column, column.data_type(), &leaf)).collect::<Result<_, _>>()?;
    RecordBatch::try_new(page.schema(), columns)
}

/// An open slice.
#[derive(Clone, Debug)]
struct ArrowSlice {
    schema: SchemaRef,
    /// The file, and the index of pages behind it.
    body: Stored,
    index: PageIndex,
    /// The pages that are at hand; none: all.
    sent: Option<PageSet>,
    version: MetadataVersion,
    dictionaries: Vec<Block>,
    /// One for each page.
    blocks: Vec<Block>,
    /// Where the file's footer starts.
    footer_start: u64,
}

/// Where a batch lies in the file: its message and, behind it, its buffers.
#[derive(Clone, Copy)]
struct BatchPlace {
    start: u64,
    body: u64,
    end: u64,
}

impl ArrowSlice {
    fn open(schema: SchemaRef, body: Stored, pages: Option<&[u8]>) -> Result<Self, SliceError> {
        let end = body.end();
        let (file, index) = PageIndex::split(end.clone(), schema.fields().len())?;
        let tail = file.last_chunk::<TAIL_BYTES>().ok_or_else(|| damaged("it is too short for an Arrow file"))?;
        let footer_end = file.len() - TAIL_BYTES;
        let footer_bytes = read_footer_length(*tail).map_err(damaged)?;
        let footer_start = footer_end.checked_sub(footer_bytes).ok_or_else(|| damaged("its footer is longer than itself"))?;
        let footer = root_as_footer(&file[footer_start..footer_end]).map_err(damaged)?;
        let stored = footer.schema().ok_or_else(|| damaged("it has no schema"))?;
        check_same(&schema, &fb_to_schema(stored))?;
        let blocks: Vec<Block> = footer.recordBatches().iter().flatten().copied().collect();
        if blocks.len() as u64 != index.pages() {
            return Err(damaged(format!("it has {} batches and {} pages", blocks.len(), index.pages())));
        }
        let dictionaries = footer.dictionaries().iter().flatten().copied().collect();
        let version = footer.version();
        let footer_start = body.bytes() - end.len() as u64 + footer_start as u64;
        let sent = pages.map(|pages| index.sent(pages)).transpose()?;
        let slice = Self { schema, body, index, sent, version, dictionaries, blocks, footer_start };
        slice.check_places()?;
        Ok(slice)
    }

    /// Checks that batches do not share bytes. Where parts were sent, each of them is copied.
    fn check_places(&self) -> Result<(), SliceError> {
        let mut bytes = 0_u64;
        for block in &self.blocks {
            let place = self.place(block)?;
            bytes = bytes.saturating_add(place.end - place.start);
        }
        if bytes <= self.footer_start { Ok(()) } else { Err(damaged("its batches overlap")) }
    }

    /// A decoder of these columns, each of them named once, and in ascending order.
    fn decoder(&self, columns: Vec<usize>) -> Result<FileDecoder, SliceError> {
        let mut decoder = FileDecoder::new(self.schema.clone(), self.version).with_projection(columns);
        for block in &self.dictionaries {
            decoder.read_dictionary(block, &self.block(block, None)?).map_err(damaged)?;
        }
        Ok(decoder)
    }

    fn place(&self, block: &Block) -> Result<BatchPlace, SliceError> {
        let place = || {
            let start = u64::try_from(block.offset()).ok()?;
            let body = start.checked_add(u64::try_from(block.metaDataLength()).ok()?)?;
            let end = body.checked_add(u64::try_from(block.bodyLength()).ok()?)?;
            (end <= self.footer_start).then_some(BatchPlace { start, body, end })
        };
        place().ok_or_else(|| damaged("a batch lies outside"))
    }

    /// Where the message of a batch and the buffers of these columns lie.
    fn ranges(&self, place: BatchPlace, columns: &[usize]) -> Result<Vec<Range<u64>>, SliceError> {
        let metadata = self.body.get(place.start..place.body)?;
        let batch = message(&metadata, place.end - place.body)?;
        let whole = || Ok(iter::once(place.start..place.end).collect());
        let Some(by_column) = buffers_by_column(&self.schema, &batch) else { return whole() };
        let mut ranges: Vec<_> = iter::once(place.start..place.body).collect();
        for column in columns {
            let Some(bytes) = by_column.get(*column).and_then(|buffers| bytes_of(&batch, buffers)) else { return whole() };
            let (start, end) = (place.body.saturating_add(bytes.start), place.body.saturating_add(bytes.end));
            ranges.push(start..end.min(place.end));
        }
        Ok(ranges)
    }

    /// A batch as the decoder takes it. Where the file was not sent as a whole, only buffers of `columns` have their bytes
    /// in it; none: all have.
    fn block(&self, block: &Block, columns: Option<&[usize]>) -> Result<Buffer, SliceError> {
        let place = self.place(block)?;
        let Some(columns) = columns.filter(|_| self.sent.is_some()) else {
            let bytes = self.body.get(place.start..place.end)?;
            message(&bytes[..(place.body - place.start) as usize], place.end - place.body)?;
            return Ok(Buffer::from(bytes));
        };
        let mut buffer = MutableBuffer::from_len_zeroed((place.end - place.start) as usize);
        for range in self.ranges(place, columns)?.into_iter().filter(|range| !range.is_empty()) {
            let bytes = self.body.get(range.clone())?;
            let at = (range.start - place.start) as usize;
            buffer.as_slice_mut()[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(buffer.into())
    }

    fn cut(&self, columns: &[usize], pages: &PageSet) -> Result<Vec<(u64, Bytes)>, SliceError> {
        let mut ranges: Vec<_> = iter::once(self.footer_start..self.body.bytes()).collect();
        for block in &self.dictionaries {
            let place = self.place(block)?;
            ranges.push(place.start..place.end);
        }
        let pages = pages.iter().filter(|_| !columns.is_empty());
        for block in pages.filter_map(|page| self.blocks.get(page as usize)) {
            ranges.extend(self.ranges(self.place(block)?, columns)?);
        }
        self.body.cut(ranges)
    }
}

impl SliceReader for ArrowSlice {
    fn rows(&self) -> u64 {
        self.index.live_rows()
    }

    fn scan(&self, request: ScanRequest) -> Result<Scan, SliceError> {
        check_columns(&self.schema, &request)?;
        let windows = self.index.wanted(&request, self.sent.as_ref())?;
        let scan = guarded(|| PageScan::new(self, &request.columns, request.stats.clone()))?;
        let stream = stream::iter(windows.into_iter().filter_map(move |window| guarded(|| scan.read(window)).transpose()));
        Ok(Scan { stream: stream.boxed(), applied: Vec::new() })
    }

    fn may_match(&self, predicates: &[Predicate]) -> Result<PageSet, SliceError> {
        self.index.may_match(predicates, self.sent.as_ref())
    }

    fn rows_of(&self, pages: &PageSet) -> u64 {
        self.index.live_rows_of(pages)
    }

    fn search(&self, request: ScanRequest) -> Result<Search, SliceError> {
        check_columns(&self.schema, &request)?;
        let windows = self.index.wanted(&request, self.sent.as_ref())?;
        let scan = guarded(|| PageScan::new(self, &request.columns, request.stats.clone()))?;
        let stream = stream::iter(windows.clone()).map(move |window| guarded(|| scan.read(window))).boxed();
        Ok(Search { windows, stream, applied: Vec::new() })
    }

    fn parts(&self, columns: &[usize], pages: &PageSet) -> Result<SliceParts, SliceError> {
        let parts = guarded(|| self.cut(columns, pages))?;
        Ok(SliceParts { encoding: ArrowEncoding.id(), rows: self.index.live_rows(), body_bytes: self.body.bytes(), parts })
    }
}

/// The state of a running scan.
struct PageScan {
    slice: ArrowSlice,
    decoder: FileDecoder,
    /// The columns that are decoded, ascending.
    decoded: Vec<usize>,
    /// For each column of the output, its position among the decoded columns.
    places: Vec<usize>,
    output: SchemaRef,
    stats: Arc<ReadStats>,
}

impl PageScan {
    fn new(slice: &ArrowSlice, columns: &[usize], stats: Arc<ReadStats>) -> Result<Self, SliceError> {
        let mut decoded = columns.to_vec();
        decoded.sort_unstable();
        decoded.dedup();
        let places = columns.iter().map(|column| decoded.partition_point(|other| other < column)).collect();
        let output = Arc::new(slice.schema.project(columns).map_err(damaged)?);
        let decoder = slice.decoder(decoded.clone())?;
        Ok(Self { slice: slice.clone(), decoder, decoded, places, output, stats })
    }

    /// Rows of one page that are left, if there are any.
    fn read(&self, window: Range<u64>) -> Result<Option<RecordBatch>, SliceError> {
        let index = &self.slice.index;
        if index.live_in(&window) == 0 {
            return Ok(None);
        }
        let batch = self.read_all(&window)?;
        Ok(Some(match index.marks.as_ref().filter(|marks| marks.gone_in(&window) > 0) {
            None => batch,
            Some(marks) => {
                let left = BooleanArray::new(marks.left_in(&window), None);
                filter_record_batch(&batch, &left).map_err(damaged)?
            }
        }))
    }

    /// Rows of one page, those that are gone among them.
    fn read_all(&self, window: &Range<u64>) -> Result<RecordBatch, SliceError> {
        let index = &self.slice.index;
        let page = window.start / index.page_rows;
        let rows = index.page(page);
        let started = index.pages_started(window);
        self.stats.pages_read.fetch_add(started, Ordering::Relaxed);
        let count = (window.end - window.start) as usize;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        if self.places.is_empty() {
            return RecordBatch::try_new_with_options(self.output.clone(), Vec::new(), &options).map_err(damaged);
        }
        let block = &self.slice.blocks[page as usize];
        let batch = self.decoder.read_record_batch(block, &self.slice.block(block, Some(&self.decoded))?).map_err(damaged)?;
        let batch = batch.filter(|batch| batch.num_rows() as u64 == rows.end - rows.start);
        let batch = batch.ok_or_else(|| damaged("a batch does not have its page's rows"))?;
        if started > 0 {
            let bytes: usize = batch.columns().iter().map(|column| buffer_bytes(&column.to_data())).sum();
            self.stats.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        let batch = batch.slice((window.start - rows.start) as usize, count);
        let columns = self.places.iter().map(|place| batch.column(*place).clone()).collect();
        RecordBatch::try_new_with_options(self.output.clone(), columns, &options).map_err(damaged)
    }
}

/// The message of a batch, once it is known that its body is as long as its buffers together, and not compressed.
/// Otherwise the reader would allocate whatever sizes the body names.
fn message(metadata: &[u8], body: u64) -> Result<arrow::ipc::RecordBatch<'_>, SliceError> {
    // The message is behind a mark and its length.
    let message = metadata.get(8..).ok_or_else(|| damaged("a batch has no header"))?;
    let message = root_as_message(message).map_err(damaged)?;
    let batch = message.header_as_record_batch().or_else(|| message.header_as_dictionary_batch()?.data());
    let batch = batch.ok_or_else(|| damaged("a batch has no rows"))?;
    if batch.compression().is_some() {
        return Err(damaged("a batch is compressed"));
    }
    // The reader copies buffers that are not aligned. If buffers could overlap, that would multiply the size of a
    // slice.
    let bytes = batch
        .buffers()
        .into_iter()
        .flatten()
        .try_fold(0_u64, |sum, buffer| sum.checked_add(u64::try_from(buffer.length()).ok()?).filter(|sum| *sum <= body));
    bytes.map(|_| batch).ok_or_else(|| damaged("the buffers of a batch overlap"))
}

fn damaged(what: impl std::fmt::Display) -> SliceError {
    SliceError::Corrupt(what.to_string())
}

fn codec(error: ArrowError) -> SliceError {
    SliceError::Codec { encoding: NAME, what: error.to_string() }
}
