//! What a decoder reads of a body: the planned bytes of each column chunk in one piece, when it first needs them.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::{Buf, Bytes};
use parquet::arrow::arrow_reader::RowSelection;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{ChunkReader, Length};

use super::footer::{chunk_range, damaged};
use crate::page_sizes::check_pages;
use crate::stored::Stored;
use crate::{ReadStats, SliceError};

/// The bytes of a body for one decoder.
#[derive(Clone, Debug)]
pub(super) struct Chunks(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    stored: Stored,
    /// Ascending.
    planned: Vec<Planned>,
    /// Whether the file was told what is planned.
    told: AtomicBool,
    /// Whether the library knows where each page lies, and asks for them one by one. Else it goes from header to header.
    by_page: bool,
    stats: Arc<ReadStats>,
    /// Why bytes could not be had: the library keeps only its text.
    failed: Mutex<Option<SliceError>>,
}

/// Whole pages that lie together.
#[derive(Debug)]
struct Planned {
    range: Range<u64>,
    bytes: OnceLock<Bytes>,
}

impl Chunks {
    /// The chunks of these leaf columns; of their pages those with selected rows, where it is known which these are.
    pub(super) fn new(
        stored: Stored,
        metadata: &ParquetMetaData,
        leaves: impl Iterator<Item = usize>,
        selection: Option<&RowSelection>,
        stats: Arc<ReadStats>,
    ) -> Result<Self, SliceError> {
        let mut ranges = Vec::new();
        let pages = metadata.offset_index().and_then(|groups| groups.first());
        for leaf in leaves {
            let chunk = chunk_range(metadata.row_group(0).column(leaf)).ok_or_else(|| damaged("a chunk lies outside"))?;
            let locations = pages.and_then(|columns| columns.get(leaf)).map(|index| index.page_locations.as_slice());
            match (locations, selection) {
                (Some([first, ..]), Some(selection)) => {
                    let dictionary = chunk.start..first.offset as u64;
                    let locations = locations.unwrap_or_default();
                    join(&mut ranges, [dictionary].into_iter().chain(selection.scan_ranges(locations)));
                }
                _ => ranges.push(chunk),
            }
        }
        ranges.retain(|range| !range.is_empty());
        ranges.sort_unstable_by_key(|range| range.start);
        let planned = ranges.into_iter().map(|range| Planned { range, bytes: OnceLock::new() }).collect();
        let (by_page, told) = (pages.is_some(), AtomicBool::new(false));
        Ok(Self(Arc::new(Inner { stored, planned, told, by_page, stats, failed: Mutex::new(None) })))
    }

    /// The error for which the library has only a text, or that text.
    pub(super) fn error(&self, error: impl std::fmt::Display) -> SliceError {
        let failed = self.0.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.unwrap_or_else(|| damaged(error))
    }

    /// The planned bytes from a place on.
    fn from(&self, start: u64) -> Result<Option<Bytes>, SliceError> {
        let after = self.0.planned.partition_point(|planned| planned.range.start <= start);
        let planned = after.checked_sub(1).map(|place| &self.0.planned[place]).filter(|planned| start < planned.range.end);
        let Some(planned) = planned else { return Ok(None) };
        let bytes = match planned.bytes.get() {
            Some(bytes) => bytes,
            None => {
                if !self.0.told.swap(true, Ordering::Relaxed) {
                    self.0.stored.prepare(self.0.planned.iter().map(|planned| planned.range.clone()))?;
                }
                let read = self.read(planned.range.clone())?;
                planned.bytes.get_or_init(|| read)
            }
        };
        Ok(Some(bytes.slice((start - planned.range.start) as usize..)))
    }

    /// Reads whole pages.
    fn read(&self, range: Range<u64>) -> Result<Bytes, SliceError> {
        let bytes = self.0.stored.get(range)?;
        self.0.stats.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if !self.0.by_page {
            check(&bytes)?;
        }
        Ok(bytes)
    }

    fn find(&self, start: u64, length: Option<usize>) -> Result<Bytes, SliceError> {
        let bytes = match (self.from(start)?, length) {
            (Some(bytes), None) => return Ok(bytes),
            (Some(bytes), Some(length)) if length <= bytes.len() => bytes.slice(..length),
            (None, Some(length)) => self.read(start..start.saturating_add(length as u64))?,
            _ => return Err(damaged(format!("a page at {start} lies outside of its column"))),
        };
        if self.0.by_page {
            check(&bytes)?;
        }
        Ok(bytes)
    }

    fn get(&self, start: u64, length: Option<usize>) -> Result<Bytes, ParquetError> {
        self.find(start, length).map_err(|error| {
            let text = error.to_string();
            *self.0.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            ParquetError::General(text)
        })
    }
}

/// Checks what pages ask for.
fn check(pages: &[u8]) -> Result<(), SliceError> {
    let read = |at: u64, into: &mut [u8]| {
        let there = pages.get(at as usize..).and_then(|rest| rest.get(..into.len())).ok_or("a page ends early")?;
        into.copy_from_slice(there);
        Ok(())
    };
    check_pages(&read, 0, pages.len() as u64).map_err(damaged)
}

/// Adds ranges that ascend; those that touch become one.
fn join(ranges: &mut Vec<Range<u64>>, more: impl Iterator<Item = Range<u64>>) {
    let first = ranges.len();
    for range in more {
        match ranges[first..].last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => ranges.push(range),
        }
    }
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.0.stored.bytes()
    }
}

impl ChunkReader for Chunks {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(self.get(start, None)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.get(start, Some(length))
    }
}
