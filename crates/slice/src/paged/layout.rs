//! [`Layout`]: what one kind of pages does in its own way.

use std::fmt::Debug;
use std::ops::Range;

use bytes::Bytes;

use super::shape::{Shape, Width};
use super::source::Source;
use crate::SliceError;

/// How rows lie in a page.
pub(crate) trait Layout: Debug + Send + Sync + 'static {
    /// The encoding's name.
    const NAME: &'static str;
    /// The encoding's number and version.
    const ID: (u16, u16);
    /// What stands for the layout in headers of pages.
    const MARK: u8;
    /// A page that was opened.
    type Page: Debug + Send;
    /// A column of such a page.
    type Column<'a>: PageColumn<'a>;

    /// Bytes of so many rows, whose values without a width have so many bytes together, with the header.
    fn bytes(shape: &Shape, rows: usize, variable_bytes: usize, width: Width) -> usize;

    /// Writes rows into a page that is all zeros and large enough. Where the values end, its directory aside.
    fn write(shape: &Shape, sources: &[Source], rows: Range<usize>, page: &mut [u8], width: Width);

    /// Opens a page, or a run of pages, of so many rows. What a later read of a column relies on is checked here or when the
    /// column is looked up.
    fn open(shape: &Shape, bytes: Bytes, rows: usize, width: Width) -> Result<Self::Page, SliceError>;

    /// Looks a column of a page up.
    fn column<'a>(shape: &Shape, page: &'a Self::Page, column: usize) -> Result<Self::Column<'a>, SliceError>;
}

/// A column of a page, whose places were checked. Rows are counted within the page, and are below its number of rows.
pub(crate) trait PageColumn<'a> {
    /// Whether a row is NULL.
    fn is_null(&self, row: usize) -> bool;

    /// Whether no row is NULL, if that is known at once.
    fn has_no_nulls(&self) -> bool {
        false
    }

    /// A value of a width.
    fn fixed(&self, row: usize) -> &'a [u8];

    /// The values of a width of these rows, if they lie side by side.
    fn together(&self, rows: &Range<usize>) -> Option<&'a [u8]> {
        let _ = rows;
        None
    }

    /// A truth.
    fn truth(&self, row: usize) -> bool;

    /// A value without a width.
    fn bytes(&self, row: usize) -> &'a [u8];
}
