//! [`mark`]: takes rows from a slice, without writing anew what is stored of the others.

use std::ops::Range;
use std::sync::Arc;

use arrow::buffer::BooleanBuffer;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use pithead_model::SLICE_BYTES_MAX;

use crate::header::{HEADER_BYTES, Header, seal_in_place};
use crate::marks::{MARKED, Marks, split};
use crate::pages::PageIndex;
use crate::{SliceError, SliceReader, open_verified, unseal, verify};

/// A slice that rows were taken from.
#[derive(Clone, Debug)]
pub struct MarkedSlice {
    /// The whole slice, with its header.
    pub bytes: Bytes,
    /// The bytes of it that the slice had before, at the same place: all between the header and the marks.
    pub kept: Range<usize>,
    /// Rows that are left.
    pub rows: u64,
    /// Rows that are gone, now or before.
    pub gone: u64,
}

/// A slice without some of the rows that it has: `gone` has a bit for each of them, in their order. Marks that it has already are
/// kept. None: no row is left.
pub fn mark(slice: Bytes, gone: &BooleanBuffer) -> Result<Option<MarkedSlice>, SliceError> {
    let (header, body) = unseal(slice.clone())?;
    verify(&header, &body)?;
    let (_, index) = PageIndex::split(body.clone(), header.columns as usize)?;
    if gone.len() as u64 != index.live_rows() {
        return Err(SliceError::Schema(format!("{} marks for a slice of {} rows", gone.len(), index.live_rows())));
    }
    let marks = Marks::of(match &index.marks {
        None => gone.iter().collect(),
        Some(known) => known.and(gone),
    });
    if marks.gone() == index.rows {
        return Ok(None);
    }
    if marks.gone() == 0 {
        let kept = HEADER_BYTES..slice.len();
        return Ok(Some(MarkedSlice { bytes: slice, kept, rows: index.rows, gone: 0 }));
    }
    let (mut bytes, kept) = with_marks(body, &marks)?;
    if bytes.len() > SLICE_BYTES_MAX {
        return Err(SliceError::TooLarge { bytes: bytes.len(), max: SLICE_BYTES_MAX });
    }
    let (rows, gone) = (index.rows - marks.gone(), marks.gone());
    let (encoding, version) = header.encoding;
    seal_in_place((encoding, version | MARKED), rows, header.columns, &mut bytes);
    Ok(Some(MarkedSlice { bytes: bytes.into(), kept, rows, gone }))
}

/// Opens a slice as if it had only the rows that `wanted` has a bit for, of those that it has. Whoever asks has checked its checksum.
pub fn open_rows(schema: &SchemaRef, slice: Bytes, wanted: &BooleanBuffer) -> Result<Arc<dyn SliceReader>, SliceError> {
    let (header, body) = unseal(slice)?;
    let (_, index) = PageIndex::split(body.clone(), header.columns as usize)?;
    let others = !wanted;
    let marks = Marks::of(index.marks.as_ref().map_or_else(|| others.clone(), |known| known.and(&others)));
    if marks.gone() == 0 {
        return open_verified(schema, &header, body);
    }
    let (bytes, _) = with_marks(body, &marks)?;
    let (encoding, version) = header.encoding;
    let header = Header { encoding: (encoding, version | MARKED), rows: index.rows - marks.gone(), ..header };
    open_verified(schema, &header, Bytes::from(bytes).slice(HEADER_BYTES..))
}

/// A body with these marks in place of any that it has, behind the place of its header; and where in it the encoding's own bytes are.
fn with_marks(body: Bytes, marks: &Marks) -> Result<(Vec<u8>, Range<usize>), SliceError> {
    let (body, _) = split(body)?;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len() + marks.rows() / 8 + HEADER_BYTES);
    bytes.resize(HEADER_BYTES, 0);
    bytes.extend_from_slice(&body);
    let kept = HEADER_BYTES..bytes.len();
    marks.append_to(&mut bytes);
    Ok((bytes, kept))
}

impl MarkedSlice {
    /// Opens it. What was made here needs no check.
    pub fn open(&self, schema: &SchemaRef) -> Result<Arc<dyn SliceReader>, SliceError> {
        let (header, body) = unseal(self.bytes.clone())?;
        open_verified(schema, &header, body)
    }
}
