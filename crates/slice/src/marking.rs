//! [`mark`]: takes rows from a slice, without writing anew what is stored of the others.

use std::ops::Range;

use arrow::buffer::BooleanBuffer;
use bytes::Bytes;
use pithead_model::SLICE_BYTES_MAX;

use crate::header::{HEADER_BYTES, seal_in_place};
use crate::marks::{MARKED, Marks, split};
use crate::pages::PageIndex;
use crate::{SliceError, unseal, verify};

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
    let (body, _) = split(body)?;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len() + index.rows as usize / 8 + HEADER_BYTES);
    bytes.resize(HEADER_BYTES, 0);
    bytes.extend_from_slice(&body);
    let kept = HEADER_BYTES..bytes.len();
    marks.append_to(&mut bytes);
    if bytes.len() > SLICE_BYTES_MAX {
        return Err(SliceError::TooLarge { bytes: bytes.len(), max: SLICE_BYTES_MAX });
    }
    let (rows, gone) = (index.rows - marks.gone(), marks.gone());
    let (encoding, version) = header.encoding;
    seal_in_place((encoding, version | MARKED), rows, header.columns, &mut bytes);
    Ok(Some(MarkedSlice { bytes: bytes.into(), kept, rows, gone }))
}
