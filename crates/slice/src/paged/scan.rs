//! A running scan: of the pages of a window the conditions' columns are decoded first, and then of the others the rows that
//! are left, in pages that have some.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::buffer::BooleanBuffer;
use arrow::compute::filter;
use arrow::datatypes::{DataType, SchemaRef};

use super::layout::Layout;
use super::open::{OpenPages, PagePlace};
use super::sink::{Picked, Sink};
use crate::conditions::Filter;
use crate::{ReadStats, ScanRequest, SliceError};

/// The state of a running scan.
pub(super) struct PageScan<L: Layout> {
    slice: Arc<OpenPages>,
    filter: Filter,
    /// Columns of the output, by index in the dataset's schema.
    columns: Vec<usize>,
    output: SchemaRef,
    stats: Arc<ReadStats>,
    /// The group that was read last, and its pages.
    group: Option<(u64, Vec<PagePlace>)>,
    /// Where the pages end that are counted as read.
    counted: u64,
    /// The pages of the window.
    open: Vec<OpenPage<L>>,
}

/// A page of a window.
struct OpenPage<L: Layout> {
    place: PagePlace,
    /// The rows of the window that it has, counted within it.
    rows: Range<usize>,
    /// None: nothing of it was needed yet.
    page: Option<L::Page>,
}

impl<L: Layout> PageScan<L> {
    pub(super) fn new(slice: Arc<OpenPages>, request: &ScanRequest) -> Result<Self, SliceError> {
        let columns = slice.schema.fields().len();
        let filter = Filter::new(&request.predicates, &request.keys, &slice.schema, &|column| column < columns);
        Ok(Self {
            output: Arc::new(slice.schema.project(&request.columns).map_err(damaged)?),
            filter,
            columns: request.columns.clone(),
            stats: request.stats.clone(),
            group: None,
            counted: 0,
            open: Vec::new(),
            slice,
        })
    }

    /// Which of the request's predicates every row of the output satisfies.
    pub(super) fn applied(&self) -> &[usize] {
        &self.filter.applied
    }

    /// Rows of one group that are left and wanted, if there are any.
    pub(super) fn read(&mut self, window: Range<u64>) -> Result<Option<RecordBatch>, SliceError> {
        let index = &self.slice.index;
        self.stats.pages_read.fetch_add(index.pages_started(&window), Ordering::Relaxed);
        let rows = (window.end - window.start) as usize;
        let mut wanted = match &index.marks {
            Some(marks) => marks.left_in(&window),
            None => BooleanBuffer::new_set(rows),
        };
        if wanted.count_set_bits() == 0 {
            return Ok(None);
        }
        self.enter(&window)?;
        let mut decoded = BTreeMap::new();
        if !self.filter.columns.is_empty() {
            let all: Vec<Picked> = self.open.iter().map(|page| Picked::All(page.rows.clone())).collect();
            for column in self.filter.columns.clone() {
                decoded.insert(column, self.decode(column, rows, &all)?);
            }
            let value = |column: usize| Arc::clone(&decoded[&column]);
            wanted = &wanted & &self.filter.rows(&value, rows)?;
        }
        let left = wanted.count_set_bits();
        if left == 0 {
            return Ok(None);
        }
        self.project(&decoded, &wanted, left).map(Some)
    }

    /// Finds the pages of a window, and opens none.
    fn enter(&mut self, window: &Range<u64>) -> Result<(), SliceError> {
        self.open.clear();
        if self.columns.is_empty() && self.filter.columns.is_empty() {
            return Ok(());
        }
        let group = window.start / self.slice.index.page_rows;
        let places = match self.group.take() {
            Some((known, places)) if known == group => places,
            _ => self.slice.places(group, L::MARK)?,
        };
        let first = places.partition_point(|place| place.rows.end <= window.start);
        for place in places[first..].iter().take_while(|place| place.rows.start < window.end) {
            let within = |row: u64| (row - place.rows.start) as usize;
            let rows = within(place.rows.start.max(window.start))..within(place.rows.end.min(window.end));
            self.open.push(OpenPage { place: place.clone(), rows, page: None });
        }
        self.group = Some((group, places));
        Ok(())
    }

    /// The wanted rows of a window as a batch.
    fn project(
        &mut self,
        decoded: &BTreeMap<usize, ArrayRef>,
        wanted: &BooleanBuffer,
        left: usize,
    ) -> Result<RecordBatch, SliceError> {
        let picked = self.picked(wanted);
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.columns.len());
        for (place, column) in self.columns.clone().into_iter().enumerate() {
            let before = self.columns[..place].iter().position(|other| *other == column);
            let array = match (before, decoded.get(&column)) {
                (Some(before), _) => Arc::clone(&columns[before]),
                (None, Some(values)) if left == wanted.len() => Arc::clone(values),
                (None, Some(values)) => chosen(values, wanted)?,
                (None, None) => self.decode(column, left, &picked)?,
            };
            columns.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(left));
        RecordBatch::try_new_with_options(self.output.clone(), columns, &options).map_err(damaged)
    }

    /// The wanted rows of each page of the window.
    fn picked(&self, wanted: &BooleanBuffer) -> Vec<Picked> {
        let mut start = 0;
        let of_page = |page: &OpenPage<L>| {
            let (first, bits) = (page.rows.start, wanted.slice(start, page.rows.len()));
            start += page.rows.len();
            match bits.count_set_bits() == bits.len() {
                true => Picked::All(page.rows.clone()),
                false => Picked::Some(bits.set_indices().map(|row| first + row).collect()),
            }
        };
        self.open.iter().map(of_page).collect()
    }

    /// So many rows of a column: those that are picked of each page. Pages of which none is are not opened.
    fn decode(&mut self, column: usize, rows: usize, picked: &[Picked]) -> Result<ArrayRef, SliceError> {
        let slice = Arc::clone(&self.slice);
        let form = slice.shape.forms.get(column).copied().ok_or_else(|| damaged("a column is missing"))?;
        let mut sink = Sink::new(slice.schema.field(column).data_type(), form, rows)?;
        for (page, picked) in self.open.iter_mut().zip(picked).filter(|(_, picked)| picked.len() > 0) {
            let opened = match &mut page.page {
                Some(opened) => opened,
                empty => {
                    if page.place.bytes.start >= self.counted {
                        self.counted = page.place.bytes.end;
                        let bytes = page.place.bytes.end - page.place.bytes.start;
                        self.stats.bytes.fetch_add(bytes, Ordering::Relaxed);
                    }
                    let rows = (page.place.rows.end - page.place.rows.start) as usize;
                    empty.insert(L::open(&slice.shape, slice.page(&page.place)?, rows, page.place.width)?)
                }
            };
            sink.take(&L::column(&slice.shape, opened, column)?, picked)?;
        }
        sink.finish()
    }
}

/// The wanted rows of a column. A few of them do not keep the bytes of all others.
fn chosen(values: &ArrayRef, wanted: &BooleanBuffer) -> Result<ArrayRef, SliceError> {
    let found = filter(values, &BooleanArray::new(wanted.clone(), None)).map_err(damaged)?;
    Ok(match found.data_type() {
        DataType::Utf8View if 2 * found.len() < values.len() => Arc::new(found.as_string_view().gc()),
        DataType::BinaryView if 2 * found.len() < values.len() => Arc::new(found.as_binary_view().gc()),
        _ => found,
    })
}

fn damaged(what: impl std::fmt::Display) -> SliceError {
    SliceError::Corrupt(what.to_string())
}
