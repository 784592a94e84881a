//! What is open of a slice of pages, and where its pages lie.

use std::ops::Range;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use pithead_model::PageSet;

use super::file::Footer;
use super::header::{HEADER_BYTES, PageHeader};
use super::shape::{Shape, Width};
use crate::SliceError;
use crate::pages::PageIndex;
use crate::stored::Stored;

/// What a scan shares with the slice that it reads.
#[derive(Debug)]
pub(super) struct OpenPages {
    pub(super) schema: SchemaRef,
    pub(super) shape: Shape,
    /// The pages, their footer, and the index of groups behind it.
    pub(super) body: Stored,
    pub(super) index: PageIndex,
    /// The groups that are at hand; none: all.
    pub(super) sent: Option<PageSet>,
    pub(super) footer: Footer,
}

/// A page, or a run of pages, of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PagePlace {
    /// Where it lies in the file.
    pub(super) bytes: Range<u64>,
    pub(super) width: Width,
    /// Its rows in the slice.
    pub(super) rows: Range<u64>,
}

impl OpenPages {
    /// The pages of a group, as their headers tell.
    pub(super) fn places(&self, group: u64, mark: u8) -> Result<Vec<PagePlace>, SliceError> {
        let (bytes, rows) = (self.footer.group(group)?, self.index.page(group));
        let group = self.body.get(bytes.clone())?;
        let page_bytes = self.footer.page_bytes;
        let mut places = Vec::new();
        let (mut at, mut first_row) = (0, rows.start);
        while at < group.len() {
            let header = PageHeader::read(mark, page_bytes, &group[at..])?;
            let length = (header.run as usize).checked_mul(page_bytes).filter(|length| *length <= group.len() - at);
            let length = length.filter(|length| *length > 0).ok_or_else(|| damaged("a run of pages leaves its group"))?;
            let end = first_row + header.rows as u64;
            let is_sound = header.first_row == first_row && header.rows > 0 && end <= rows.end;
            if !is_sound || header.columns != self.shape.columns() || header.run > 1 && header.rows > 1 {
                return Err(damaged("a page has other rows or columns than it should"));
            }
            let start = bytes.start + at as u64;
            places.push(PagePlace { bytes: start..start + length as u64, width: header.width(), rows: first_row..end });
            (at, first_row) = (at + length, end);
        }
        match first_row == rows.end {
            true => Ok(places),
            false => Err(damaged("the pages of a group have too few rows")),
        }
    }

    /// The bytes of a page.
    pub(super) fn page(&self, place: &PagePlace) -> Result<Bytes, SliceError> {
        debug_assert!(place.bytes.end - place.bytes.start >= HEADER_BYTES as u64);
        self.body.get(place.bytes.clone())
    }
}

fn damaged(what: &str) -> SliceError {
    SliceError::Corrupt(what.to_owned())
}
