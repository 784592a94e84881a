//! An open slice of pages.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use pithead_model::PageSet;

use super::file::Footer;
use super::layout::Layout;
use super::open::OpenPages;
use super::scan::PageScan;
use super::shape::Shape;
use crate::guard::{check_columns, guarded};
use crate::pages::PageIndex;
use crate::stored::{SliceParts, Stored};
use crate::{Predicate, Scan, ScanRequest, Search, SliceError, SliceReader};

/// An open slice.
#[derive(Debug)]
pub(super) struct PagedSlice<L> {
    open: Arc<OpenPages>,
    layout: PhantomData<L>,
}

impl<L: Layout> PagedSlice<L> {
    pub(super) fn open(schema: SchemaRef, body: Stored, pages: Option<&[u8]>) -> Result<Self, SliceError> {
        let end = body.end();
        let (file, index) = PageIndex::split(end.clone(), schema.fields().len())?;
        // Where the end begins in the body, and so in the file.
        let before = body.bytes() - end.len() as u64;
        let footer = Footer::read(L::MARK, &file, before + file.len() as u64, index.pages(), &schema)?;
        let sent = pages.map(|pages| index.sent(pages)).transpose()?;
        let shape = Shape::of(&schema);
        Ok(Self { open: Arc::new(OpenPages { schema, shape, body, index, sent, footer }), layout: PhantomData })
    }

    fn start(&self, request: ScanRequest) -> Result<(PageScan<L>, Vec<Range<u64>>), SliceError> {
        check_columns(&self.open.schema, &request)?;
        let windows = self.open.index.wanted(&request, self.open.sent.as_ref())?;
        Ok((PageScan::new(Arc::clone(&self.open), &request)?, windows))
    }

    /// The footer, and the groups of pages as a whole: a page has values of all columns.
    fn cut(&self, columns: &[usize], pages: &PageSet) -> Result<Vec<(u64, Bytes)>, SliceError> {
        let open = &self.open;
        let wanted = pages.iter().filter(|page| !columns.is_empty() && u64::from(*page) < open.index.pages());
        let mut ranges = wanted.map(|page| open.footer.group(page.into())).collect::<Result<Vec<_>, _>>()?;
        ranges.push(open.footer.start..open.body.bytes());
        open.body.cut(ranges)
    }
}

impl<L: Layout> SliceReader for PagedSlice<L> {
    fn rows(&self) -> u64 {
        self.open.index.live_rows()
    }

    fn scan(&self, request: ScanRequest) -> Result<Scan, SliceError> {
        let (mut scan, windows) = guarded(|| self.start(request))?;
        let applied = scan.applied().to_vec();
        let stream = stream::iter(windows.into_iter().filter_map(move |window| guarded(|| scan.read(window)).transpose()));
        Ok(Scan { stream: stream.boxed(), applied })
    }

    fn may_match(&self, predicates: &[Predicate]) -> Result<PageSet, SliceError> {
        self.open.index.may_match(predicates, self.open.sent.as_ref())
    }

    fn rows_of(&self, pages: &PageSet) -> u64 {
        self.open.index.live_rows_of(pages)
    }

    fn search(&self, request: ScanRequest) -> Result<Search, SliceError> {
        let (mut scan, windows) = guarded(|| self.start(request))?;
        let applied = scan.applied().to_vec();
        let stream = stream::iter(windows.clone()).map(move |window| guarded(|| scan.read(window))).boxed();
        Ok(Search { windows, stream, applied })
    }

    fn parts(&self, columns: &[usize], pages: &PageSet) -> Result<SliceParts, SliceError> {
        let parts = self.cut(columns, pages)?;
        let open = &self.open;
        Ok(SliceParts { encoding: L::ID, rows: open.index.live_rows(), body_bytes: open.body.bytes(), parts })
    }
}
