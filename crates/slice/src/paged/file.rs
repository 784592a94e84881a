//! Pages behind one another, and the footer that says where each group of them starts.

use std::marker::PhantomData;
use std::ops::Range;

use arrow::array::RecordBatch;
use arrow::compute::BatchCoalescer;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::convert::{IpcSchemaEncoder, fb_to_schema};
use arrow::ipc::root_as_schema;
use pithead_model::{PAGE_ROWS, SLICE_BYTES_MAX};

use super::header::{PAGE_BYTES, PAGE_BYTES_KNOWN, PageHeader};
use super::layout::Layout;
use super::shape::{Shape, Width};
use super::source::Source;
use crate::SliceError;
use crate::guard::check_same;

const MAGIC: &[u8; 8] = b"PHPAGES1";
/// Bytes of a page, groups, bytes of the columns, layout, magic.
const TRAILER_BYTES: usize = 24;

/// The rows as pages, with the footer.
pub(super) fn write<L: Layout>(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<u8>, SliceError> {
    let codec = |error: arrow::error::ArrowError| SliceError::Codec { encoding: L::NAME, what: error.to_string() };
    let shape = Shape::of(schema);
    let mut writer = Writer { shape, bytes: Vec::new(), starts: Vec::new(), rows: 0, layout: PhantomData::<L> };
    let mut groups = BatchCoalescer::new(schema.clone(), PAGE_ROWS);
    for batch in batches {
        groups.push_batch(batch.clone()).map_err(codec)?;
        while let Some(group) = groups.next_completed_batch() {
            writer.group(&group)?;
        }
    }
    groups.finish_buffered_batch().map_err(codec)?;
    while let Some(group) = groups.next_completed_batch() {
        writer.group(&group)?;
    }
    Ok(writer.finish(schema))
}

struct Writer<L> {
    shape: Shape,
    bytes: Vec<u8>,
    /// The first page of each group.
    starts: Vec<u32>,
    rows: u64,
    layout: PhantomData<L>,
}

impl<L: Layout> Writer<L> {
    fn pages(&self) -> u32 {
        (self.bytes.len() / PAGE_BYTES) as u32
    }

    fn group(&mut self, group: &RecordBatch) -> Result<(), SliceError> {
        self.starts.push(self.pages());
        let sources: Vec<Source> = (group.columns().iter().zip(&self.shape.forms))
            .map(|(column, form)| Source::new(column, *form))
            .collect::<Result<_, _>>()
            .map_err(|error| SliceError::Codec { encoding: L::NAME, what: error.to_string() })?;
        let variable: Vec<&Source> =
            (sources.iter().zip(&self.shape.forms)).filter(|(_, form)| form.is_variable()).map(|(source, _)| source).collect();
        let bytes = |row: usize| variable.iter().map(|source| source.bytes(row).len()).sum();
        let bytes: Vec<usize> = (0..group.num_rows()).map(bytes).collect();
        let mut row = 0;
        while row < group.num_rows() {
            let rows = self.fitting(&bytes[row..]);
            self.page(&sources, row..row + rows.max(1), if rows == 0 { Width::Wide } else { Width::Narrow }, bytes[row]);
            row += rows.max(1);
            if self.bytes.len() > SLICE_BYTES_MAX {
                return Err(SliceError::TooLarge { bytes: self.bytes.len(), max: SLICE_BYTES_MAX });
            }
        }
        self.rows += group.num_rows() as u64;
        Ok(())
    }

    /// How many of the next rows a page holds. `bytes` has those of their values without a width.
    fn fitting(&self, bytes: &[usize]) -> usize {
        let (mut rows, mut sum) = (0, 0);
        for bytes in bytes.iter().take(u16::MAX.into()) {
            sum += bytes;
            if L::bytes(&self.shape, rows + 1, sum, Width::Narrow) > PAGE_BYTES {
                break;
            }
            rows += 1;
        }
        rows
    }

    /// Writes these rows of a group: a page, or a run with one row of which `bytes` are without a width.
    fn page(&mut self, sources: &[Source], rows: Range<usize>, width: Width, bytes: usize) {
        let run = match width {
            Width::Narrow => 1,
            Width::Wide => L::bytes(&self.shape, 1, bytes, width).div_ceil(PAGE_BYTES),
        };
        let first_row = self.rows + rows.start as u64;
        let header = PageHeader { columns: self.shape.columns(), rows: rows.len(), run: run as u32, first_row };
        let start = self.bytes.len();
        self.bytes.resize(start + run * PAGE_BYTES, 0);
        let page = &mut self.bytes[start..];
        header.write(L::MARK, PAGE_BYTES, page);
        L::write(&self.shape, sources, rows, page, width);
    }

    fn finish(mut self, schema: &Schema) -> Vec<u8> {
        self.starts.push(self.pages());
        let mut encoder = IpcSchemaEncoder::new();
        let columns = encoder.schema_to_fb(schema);
        let columns = columns.finished_data();
        self.bytes.extend_from_slice(columns);
        self.starts.iter().for_each(|start| self.bytes.extend_from_slice(&start.to_le_bytes()));
        let numbers = [PAGE_BYTES as u32, self.starts.len() as u32 - 1, columns.len() as u32, L::MARK.into()];
        numbers.iter().for_each(|number| self.bytes.extend_from_slice(&number.to_le_bytes()));
        self.bytes.extend_from_slice(MAGIC);
        self.bytes
    }
}

/// What the footer says.
#[derive(Debug)]
pub(super) struct Footer {
    /// Bytes of a page.
    pub(super) page_bytes: usize,
    /// The first page of each group, and the number of pages.
    pub(super) starts: Vec<u32>,
    /// Where the footer starts in the file, and the pages end.
    pub(super) start: u64,
}

impl Footer {
    /// Reads the footer of a file of so many bytes from the end of it. There are `groups`, and the columns are `schema`.
    pub(super) fn read(mark: u8, end: &[u8], file_bytes: u64, groups: u64, schema: &Schema) -> Result<Footer, SliceError> {
        let (before, trailer) = end.split_last_chunk::<TRAILER_BYTES>().ok_or_else(|| damaged("its footer is cut off"))?;
        let number = |at: usize| u32::from_le_bytes([trailer[at], trailer[at + 1], trailer[at + 2], trailer[at + 3]]);
        if trailer[16..] != *MAGIC || number(12) != u32::from(mark) {
            return Err(damaged("it does not end as pages of this layout do"));
        }
        let page_bytes = number(0) as usize;
        if !page_bytes.is_power_of_two() || !PAGE_BYTES_KNOWN.contains(&page_bytes) {
            return Err(damaged("its pages have a size that no page has"));
        }
        if u64::from(number(4)) != groups {
            return Err(damaged("it has not as many groups of pages as bounds"));
        }
        let start_bytes = usize::try_from(4 * (groups + 1)).unwrap_or(usize::MAX);
        let (before, starts) = before.split_at_checked(before.len().wrapping_sub(start_bytes)).ok_or_else(cut_off)?;
        let columns = before.len().checked_sub(number(8) as usize).ok_or_else(cut_off)?;
        let stored = root_as_schema(&before[columns..]).map_err(|error| SliceError::Corrupt(error.to_string()))?;
        check_same(schema, &fb_to_schema(stored))?;
        let starts: Vec<u32> =
            starts.chunks_exact(4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect();
        let start = file_bytes - (end.len() - columns) as u64;
        let pages = starts.last().copied().unwrap_or(0);
        let ascend = starts.first() == Some(&0) && starts.windows(2).all(|pair| pair[0] < pair[1]);
        match ascend && u64::from(pages) * page_bytes as u64 == start {
            true => Ok(Footer { page_bytes, starts, start }),
            false => Err(damaged("its pages are not where it says")),
        }
    }

    /// Where the pages of a group lie in the file.
    pub(super) fn group(&self, group: u64) -> Result<Range<u64>, SliceError> {
        let pair = usize::try_from(group).ok().and_then(|group| Some((self.starts.get(group)?, self.starts.get(group + 1)?)));
        let (start, end) = pair.ok_or_else(|| damaged("it has no such group of pages"))?;
        Ok(u64::from(*start) * self.page_bytes as u64..u64::from(*end) * self.page_bytes as u64)
    }
}

fn cut_off() -> SliceError {
    damaged("its footer is cut off")
}

fn damaged(what: &str) -> SliceError {
    SliceError::Corrupt(what.to_owned())
}
