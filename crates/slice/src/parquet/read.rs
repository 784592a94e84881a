//! [`ParquetSlice`]: a row group that is read, wherever its bytes are.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};
use pithead_model::PageSet;

use super::body::ORIGINS;
use super::columns::{Columns, origins_of};
use super::footer::{self, MAGIC, TAIL_BYTES, check_group, chunk_range, damaged};
use super::row_group::{OpenRowGroup, leaves};
use super::rows::{Rows, Step};
use super::{grid, whole};
use crate::guard::{check_columns, guarded};
use crate::pages::PageIndex;
use crate::stored::{SliceParts, Stored};
use crate::{Predicate, ReadAt, Scan, ScanRequest, Search, SearchStream, SliceError, SliceReader, SliceStream};

/// An open slice.
#[derive(Debug)]
pub(super) struct ParquetSlice(Arc<OpenRowGroup>);

impl ParquetSlice {
    /// A row group of a file outside of the store.
    pub(super) fn attached(
        columns: Columns,
        read: ArrowReaderMetadata,
        body: Stored,
        index: PageIndex,
        first_row: u64,
        all: bool,
    ) -> Self {
        let (leaves, chunks_end) = (leaves(read.metadata()), body.bytes());
        let (sent, attached, complete) = (None, Some(all), OnceLock::new());
        Self(Arc::new(OpenRowGroup { columns, read, leaves, body, chunks_end, index, sent, first_row, attached, complete }))
    }

    /// Opens a body, or what is at hand of it.
    pub(super) fn open(schema: SchemaRef, body: Stored, pages: Option<&[u8]>) -> Result<Self, SliceError> {
        let end = body.end();
        let (file, index) = PageIndex::split(end.clone(), schema.fields().len())?;
        let size = body.bytes() - (end.len() - file.len()) as u64;
        let end = End { start: size - file.len() as u64, bytes: file };
        let metadata = read_end(&end)?;
        let group = metadata.row_group(0);
        if group.num_rows() as u64 != index.rows {
            return Err(damaged(format!("it has {} rows, and its pages {}", group.num_rows(), index.rows)));
        }
        let ends = group.columns().iter().filter_map(|column| Some(chunk_range(column)?.end));
        let chunks_end = ends.max().unwrap_or(MAGIC.len() as u64);
        let (leaves, origins) = (leaves(&metadata), note(&metadata)?);
        let read = footer::decoder(Arc::new(metadata))?;
        let columns = match origins {
            Some(origins) => {
                let columns = Columns::new(schema, &footer::dataset_schema(read.schema())?, &origins);
                columns.map_err(|error| damaged(format!("its columns are not the dataset's: {error}")))?
            }
            None => Columns::own(check_same(schema, read.schema())?),
        };
        let sent = pages.map(|pages| index.sent(pages)).transpose()?;
        let (first_row, attached, complete) = (0, None, OnceLock::new());
        Ok(Self(Arc::new(OpenRowGroup { columns, read, leaves, body, chunks_end, index, sent, first_row, attached, complete })))
    }

    pub(super) fn opened(&self) -> &Arc<OpenRowGroup> {
        &self.0
    }
}

/// The end of a file, read as if the rest were there.
#[derive(Debug)]
struct End {
    start: u64,
    bytes: Bytes,
}

impl ReadAt for End {
    fn bytes(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn read_at(&self, range: Range<u64>) -> Result<Bytes, SliceError> {
        let from = range.start.checked_sub(self.start).filter(|_| range.start <= range.end && range.end <= self.bytes());
        let from = from.ok_or_else(|| damaged("its index of pages lies outside of its end"))? as usize;
        Ok(self.bytes.slice(from..from + (range.end - range.start) as usize))
    }
}

/// Reads the footer of a file of one row group, and where its pages lie.
fn read_end(end: &End) -> Result<ParquetMetaData, SliceError> {
    let bytes = footer::footer_bytes(&end.bytes, end.bytes())? as usize;
    let footer_end = end.bytes.len() - TAIL_BYTES;
    let start = footer_end.checked_sub(bytes).ok_or_else(|| damaged("its footer is longer than itself"))?;
    let metadata = footer::parse(&end.bytes[start..footer_end])?;
    if metadata.num_row_groups() != 1 {
        return Err(damaged(format!("it has {} row groups", metadata.num_row_groups())));
    }
    check_group(metadata.row_group(0), &(MAGIC.len() as u64..end.start + start as u64))?;
    let plain = metadata.clone();
    let indexed = footer::read_index(end, metadata, PageIndexPolicy::Optional, PageIndexPolicy::Skip)?;
    Ok(indexed.filter(|indexed| grid::locations(indexed).is_some()).unwrap_or(plain))
}

/// Where the dataset's columns come from, if the footer notes it.
fn note(metadata: &ParquetMetaData) -> Result<Option<Vec<super::Origin>>, SliceError> {
    let notes = metadata.file_metadata().key_value_metadata().into_iter().flatten();
    let Some(note) = notes.into_iter().find(|note| note.key == ORIGINS) else { return Ok(None) };
    let origins = note.value.as_deref().and_then(origins_of);
    origins.map(Some).ok_or_else(|| damaged("it does not say where its columns come from"))
}

fn check_same(schema: SchemaRef, read: &SchemaRef) -> Result<SchemaRef, SliceError> {
    let pairs = || schema.fields().iter().zip(read.fields());
    let same = schema.fields().len() == read.fields().len()
        && pairs().all(|(a, b)| a.name() == b.name() && a.data_type().equals_datatype(b.data_type()));
    if same { Ok(schema) } else { Err(damaged("its columns are not the dataset's")) }
}

impl SliceReader for ParquetSlice {
    fn rows(&self) -> u64 {
        self.0.index.live_rows()
    }

    fn scan(&self, request: ScanRequest) -> Result<Scan, SliceError> {
        check_columns(&self.0.columns.schema, &request)?;
        let windows = self.0.index.wanted(&request, self.0.sent.as_ref())?;
        let rows = guarded(|| Rows::new(Arc::clone(&self.0), request, windows))?;
        let applied = rows.applied().to_vec();
        Ok(Scan { stream: run(rows), applied })
    }

    fn may_match(&self, predicates: &[Predicate]) -> Result<PageSet, SliceError> {
        self.0.index.may_match(predicates, self.0.sent.as_ref())
    }

    fn rows_of(&self, pages: &PageSet) -> u64 {
        self.0.index.live_rows_of(pages)
    }

    fn search(&self, request: ScanRequest) -> Result<Search, SliceError> {
        check_columns(&self.0.columns.schema, &request)?;
        let windows = self.0.index.wanted(&request, self.0.sent.as_ref())?;
        let rows = guarded(|| Rows::new(Arc::clone(&self.0), request, windows.clone()))?;
        let applied = rows.applied().to_vec();
        Ok(Search { stream: run_by_window(rows, windows.len()), windows, applied })
    }

    fn parts(&self, columns: &[usize], pages: &PageSet) -> Result<SliceParts, SliceError> {
        guarded(|| whole::parts(&self.0, columns, pages))
    }
}

/// Each poll decodes one batch, even if it has no wanted row.
fn run(mut rows: Rows) -> SliceStream {
    let mut over = false;
    let next = move |context: &mut Context<'_>| {
        let step = if over { Ok(Step::Over) } else { guarded(|| rows.step()) };
        match step {
            Ok(Step::Batch(batch)) => Poll::Ready(Some(Ok(batch))),
            Ok(Step::Nothing) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Ok(Step::Over) => Poll::Ready(None),
            Err(error) => {
                over = true;
                Poll::Ready(Some(Err(error)))
            }
        }
    };
    stream::poll_fn(next).boxed()
}

/// One item for each window.
fn run_by_window(mut rows: Rows, windows: usize) -> SearchStream {
    let mut held: Vec<RecordBatch> = Vec::new();
    let mut failed = false;
    let item = move |window: usize| {
        if failed {
            return Err(damaged("it could not be read before"));
        }
        let found = guarded(|| rows.window(window, &mut held));
        failed = found.is_err();
        found
    };
    stream::iter((0..windows).map(item)).boxed()
}
