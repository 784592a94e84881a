//! Values that are being written to a segment, and the room that is pinned for them.

use std::sync::Arc;

use super::segment::Segment;
use super::{Extent, Segments};
use crate::StoreError;
use crate::format::io_error;
use crate::record::ValueLocation;

/// Extents whose room stays pinned until this is dropped. By then a commit names them, or they are dead.
#[derive(Debug)]
pub(crate) struct Pinned {
    segments: Arc<Segments>,
    extents: Vec<Extent>,
}

/// A value that is being written. If it is dropped before [`Writing::finish`], its room is dead.
#[derive(Debug)]
pub(crate) struct Writing {
    pub(super) segments: Arc<Segments>,
    pub(super) segment: Option<Arc<Segment>>,
    pub place: ValueLocation,
    pub(super) done: u64,
}

impl Writing {
    /// Writes the next part. Its length is a multiple of the alignment, except for the last part.
    pub fn append(&mut self, part: &[u8]) -> Result<(), StoreError> {
        let Some(segment) = &self.segment else { return Ok(()) };
        if part.is_empty() {
            return Ok(());
        }
        let file = segment.file;
        let written = segment.handle.write_large(self.place.offset + self.done, part);
        self.done += part.len() as u64;
        written.map_err(|error| {
            self.segments.seal(Some(file));
            io_error(&self.segments.path(file), self.place.bytes, error)
        })
    }

    pub fn finish(mut self, checksum: u64) -> Extent {
        let ticket = self.segment.take().map_or(0, |segment| segment.written());
        Extent { place: self.place, checksum, ticket }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if self.segment.take().is_some() {
            self.segments.state.lock().unpin(self.place);
        }
    }
}

impl Pinned {
    pub fn new(segments: Arc<Segments>) -> Self {
        Self { segments, extents: Vec::new() }
    }

    pub fn add(&mut self, extent: Extent) {
        self.extents.push(extent);
    }

    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut state = self.segments.state.lock();
        for extent in &self.extents {
            state.unpin(extent.place);
        }
    }
}
