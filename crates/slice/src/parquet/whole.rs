//! An open slice as bytes again: all of them, or the parts that somebody else needs.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use bytes::Bytes;
use parquet::arrow::arrow_reader::RowSelection;
use pithead_model::{PageSet, SLICE_BYTES_MAX};

use super::ParquetEncoding;
use super::body::end_of;
use super::footer::{chunk_range, damaged};
use super::row_group::OpenRowGroup;
use super::rows::{Rows, Step};
use crate::arrow_ipc::ArrowEncoding;
use crate::header::{HEADER_BYTES, seal, seal_in_place};
use crate::stored::{SliceParts, Stored};
use crate::{Encoding, ScanRequest, SliceError};

/// The slice with its header.
pub(super) fn stored(opened: &Arc<OpenRowGroup>) -> Result<Bytes, SliceError> {
    let columns = opened.columns.schema.fields().len() as u32;
    let bounded = |slice: Vec<u8>| match slice.len() <= SLICE_BYTES_MAX {
        true => Ok(Bytes::from(slice)),
        false => Err(SliceError::TooLarge { bytes: slice.len(), max: SLICE_BYTES_MAX }),
    };
    if !travels(opened)? {
        let body = encoded(opened)?;
        return bounded(seal(ArrowEncoding.id(), opened.index.rows, columns, &body));
    }
    let body = complete(opened)?;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.bytes() as usize);
    bytes.resize(HEADER_BYTES, 0);
    body.copy_to(&mut bytes)?;
    seal_in_place(ParquetEncoding.id(), opened.index.rows, columns, &mut bytes);
    bounded(bytes)
}

/// Whether the slice's own bytes can travel. A part of a row group has none, nor has one over the bound on a slice.
fn travels(opened: &OpenRowGroup) -> Result<bool, SliceError> {
    Ok(opened.attached != Some(false) && complete(opened)?.bytes() + HEADER_BYTES as u64 <= SLICE_BYTES_MAX as u64)
}

/// The whole file, whose end is made when it is first asked for.
fn complete(opened: &OpenRowGroup) -> Result<&Stored, SliceError> {
    if opened.attached.is_none() {
        return Ok(&opened.body);
    }
    if let Some(complete) = opened.complete.get() {
        return Ok(complete);
    }
    let mut end = end_of(opened.read.metadata(), opened.chunks_end)?;
    opened.index.append_to(&mut end);
    let complete = opened.body.with_end(end.into());
    Ok(opened.complete.get_or_init(|| complete))
}

/// The rows in the encoding `arrow`, which any rows have.
fn encoded(opened: &Arc<OpenRowGroup>) -> Result<Vec<u8>, SliceError> {
    let schema = &opened.columns.schema;
    let request = ScanRequest::all_rows((0..schema.fields().len()).collect());
    let windows = opened.index.wanted(&request, None)?;
    let mut rows = Rows::new(Arc::clone(opened), request, windows)?;
    let mut batches: Vec<RecordBatch> = Vec::new();
    loop {
        match rows.step()? {
            Step::Batch(batch) => batches.push(batch),
            Step::Nothing => {}
            Step::Over => return ArrowEncoding.encode(schema, &batches),
        }
    }
}

/// The parts that hold these columns in these pages.
pub(super) fn parts(opened: &Arc<OpenRowGroup>, columns: &[usize], pages: &PageSet) -> Result<SliceParts, SliceError> {
    if !travels(opened)? {
        return ArrowEncoding.open(&opened.columns.schema, encoded(opened)?.into())?.parts(columns, pages);
    }
    let body = complete(opened)?;
    let mut ranges: Vec<Range<u64>> = std::iter::once(opened.chunks_end..body.bytes()).collect();
    let rows: Vec<Range<u64>> = opened.index.rows_of(pages).collect();
    if !rows.is_empty() {
        let metadata = opened.read.metadata();
        let group_rows = metadata.row_group(0).num_rows() as usize;
        let windows = rows.iter().map(|rows| rows.start as usize..rows.end as usize);
        let selection = RowSelection::from_consecutive_ranges(windows, group_rows);
        let pages = metadata.offset_index().and_then(|groups| groups.first());
        let roots = columns.iter().filter_map(|column| opened.columns.root(*column));
        for leaf in roots.flat_map(|root| opened.leaves[root].clone()) {
            let chunk = chunk_range(metadata.row_group(0).column(leaf)).ok_or_else(|| damaged("a chunk lies outside"))?;
            match pages.and_then(|columns| columns.get(leaf)).map(|index| index.page_locations.as_slice()) {
                Some(locations @ [first, ..]) => {
                    ranges.push(chunk.start..first.offset as u64);
                    ranges.extend(selection.scan_ranges(locations));
                }
                _ => ranges.push(chunk),
            }
        }
    }
    let parts = body.cut(ranges)?;
    Ok(SliceParts { encoding: ParquetEncoding.id(), rows: opened.index.live_rows(), body_bytes: body.bytes(), parts })
}
