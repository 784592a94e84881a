//! The simple encoding: an uncompressed Arrow IPC file with one batch for each page, which is read without a copy. It
//! can hold every type.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::buffer::Buffer;
use arrow::compute::BatchCoalescer;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::reader::{FileDecoder, read_footer_length};
use arrow::ipc::writer::FileWriter;
use arrow::ipc::{Block, MetadataVersion, root_as_footer, root_as_message};
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use pithead_model::PAGE_ROWS;

use crate::guard::{check_columns, guarded};
use crate::nested::rebuild;
use crate::pages::{self, PageIndex};
use crate::{Encoding, ReadStats, Scan, ScanRequest, SliceError, SliceReader};

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
        let (file, index) = PageIndex::split(body, schema.fields().len())?;
        let slice = guarded(|| ArrowSlice::open(schema.clone(), file, index))?;
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
    file: Buffer,
    index: PageIndex,
    version: MetadataVersion,
    dictionaries: Vec<Block>,
    /// One for each page.
    blocks: Vec<Block>,
}

impl ArrowSlice {
    fn open(schema: SchemaRef, file: Bytes, index: PageIndex) -> Result<Self, SliceError> {
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
        Ok(Self { schema, index, version, dictionaries, blocks, file: Buffer::from(file) })
    }

    /// A decoder of these columns, each of them named once, and in ascending order.
    fn decoder(&self, columns: Vec<usize>) -> Result<FileDecoder, SliceError> {
        let mut decoder = FileDecoder::new(self.schema.clone(), self.version).with_projection(columns);
        for block in &self.dictionaries {
            decoder.read_dictionary(block, &self.block(block)?).map_err(damaged)?;
        }
        Ok(decoder)
    }

    fn block(&self, block: &Block) -> Result<Buffer, SliceError> {
        let range = || {
            let start = usize::try_from(block.offset()).ok()?;
            let metadata = usize::try_from(block.metaDataLength()).ok()?;
            let length = metadata.checked_add(usize::try_from(block.bodyLength()).ok()?)?;
            (start.checked_add(length)? <= self.file.len()).then_some((start, metadata, length))
        };
        let (start, metadata, length) = range().ok_or_else(|| damaged("a batch lies outside"))?;
        let bytes = self.file.slice_with_length(start, length);
        check_message(bytes.get(..metadata).unwrap_or_default(), length - metadata)?;
        Ok(bytes)
    }
}

impl SliceReader for ArrowSlice {
    fn rows(&self) -> u64 {
        self.index.rows
    }

    fn scan(&self, request: ScanRequest) -> Result<Scan, SliceError> {
        check_columns(&self.schema, &request)?;
        let wanted = if request.zone_maps { request.predicates.as_slice() } else { &[] };
        let pages = self.index.matching(wanted)?;
        request.stats.pages_skipped.fetch_add(self.index.pages() - pages.len() as u64, Ordering::Relaxed);
        let pages = request.sample.map_or(pages.clone(), |sample| sample.choose(pages));
        let windows = self.index.windows(&pages, request.batch_rows);
        let scan = guarded(|| PageScan::new(self, &request.columns, request.stats.clone()))?;
        let stream = stream::iter(windows).map(move |window| guarded(|| scan.read(window)));
        Ok(Scan { stream: stream.boxed(), applied: Vec::new() })
    }
}

/// The state of a running scan.
struct PageScan {
    slice: ArrowSlice,
    decoder: FileDecoder,
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
        let decoder = slice.decoder(decoded)?;
        Ok(Self { slice: slice.clone(), decoder, places, output, stats })
    }

    /// Rows of one page.
    fn read(&self, window: Range<u64>) -> Result<RecordBatch, SliceError> {
        let index = &self.slice.index;
        let page = window.start / index.page_rows;
        let rows = index.page(page);
        let started = index.pages_started(&window);
        self.stats.pages_read.fetch_add(started, Ordering::Relaxed);
        let count = (window.end - window.start) as usize;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        if self.places.is_empty() {
            return RecordBatch::try_new_with_options(self.output.clone(), Vec::new(), &options).map_err(damaged);
        }
        let block = &self.slice.blocks[page as usize];
        let batch = self.decoder.read_record_batch(block, &self.slice.block(block)?).map_err(damaged)?;
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

/// The number of bytes of the buffers that an array was read from.
fn buffer_bytes(data: &ArrayData) -> usize {
    let own: usize = data.buffers().iter().map(Buffer::len).sum();
    let nulls = data.nulls().map_or(0, |nulls| nulls.buffer().len());
    own + nulls + data.child_data().iter().map(buffer_bytes).sum::<usize>()
}

/// Checks that a body is as long as its buffers together, and not compressed. Otherwise the reader would allocate
/// whatever sizes the body names.
fn check_message(metadata: &[u8], body: usize) -> Result<(), SliceError> {
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
    let bytes =
        batch.buffers().into_iter().flatten().try_fold(0_usize, |sum, buffer| {
            sum.checked_add(usize::try_from(buffer.length()).ok()?).filter(|sum| *sum <= body)
        });
    bytes.map(drop).ok_or_else(|| damaged("the buffers of a batch overlap"))
}

fn check_same(expected: &Schema, stored: &Schema) -> Result<(), SliceError> {
    let same = expected.fields().len() == stored.fields().len()
        && expected
            .fields()
            .iter()
            .zip(stored.fields())
            .all(|(a, b)| a.name() == b.name() && a.data_type().equals_datatype(b.data_type()));
    match same {
        true => Ok(()),
        false => Err(damaged("its columns are not the dataset's")),
    }
}

fn damaged(what: impl std::fmt::Display) -> SliceError {
    SliceError::Corrupt(what.to_string())
}

fn codec(error: ArrowError) -> SliceError {
    SliceError::Codec { encoding: NAME, what: error.to_string() }
}
