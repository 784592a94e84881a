//! Reading a Vortex file in memory: first the pages that may match, and filters before the columns for which they
//! select rows.

use std::cell::{Cell, OnceCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use ::vortex::array::arrays::StructArray;
use ::vortex::array::buffer::BufferHandle;
use ::vortex::array::dtype::{DType, FieldName};
use ::vortex::array::validity::Validity;
use ::vortex::array::{ExecutionCtx, IntoArray, VortexSessionExecute};
use ::vortex::arrow::{ArrowExportOptions, ArrowSessionExt, CompactBuffers};
use ::vortex::buffer::{BitBuffer, ByteBuffer};
use ::vortex::error::{VortexResult, vortex_err};
use ::vortex::file::{DeserializeStep, Footer, SegmentSpec};
use ::vortex::layout::segments::SegmentId;
use ::vortex::mask::Mask;
use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{FilterBuilder, FilterPredicate};
use arrow::datatypes::{Field, FieldRef, SchemaRef};
use arrow::error::ArrowError;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use pithead_model::PageSet;

use super::column::Column;
use super::members::in_set;
use super::predicate::{Conjunct, FEW_NUMBERS, conjuncts};
use super::sound::{Sound, check_values};
use super::types::{retype, row_type, stored_name, stored_schema, stored_type};
use super::{SESSION, VortexEncoding, damaged};
use crate::guard::{check_columns, guarded};
use crate::pages::PageIndex;
use crate::stored::{SliceParts, Stored};
use crate::{Encoding, KeySet, Predicate, ReadStats, Scan, ScanRequest, Search, SliceError, SliceReader, SliceStream};

/// From this share of a window's rows on, numbers are decoded before rows are selected.
const LATE_SHARE_MIN: f64 = 0.03;
/// The same of all other values, whose checks are remembered for whole windows.
const LATE_SHARE_MIN_OTHERS: f64 = 0.75;
/// Rows on which a set of keys is tried.
const TRIAL_ROWS: usize = 4 * 8_192;
/// Windows without a row to return that one poll reads at most.
const WINDOWS_MAX: usize = 8;

/// An open slice.
pub(super) struct VortexSlice {
    schema: SchemaRef,
    footer: Footer,
    /// The file, and the index of pages behind it.
    body: Stored,
    file_bytes: u64,
    index: PageIndex,
    /// The pages that are at hand; none: all.
    sent: Option<PageSet>,
    sound: Arc<Sound>,
}

impl std::fmt::Debug for VortexSlice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VortexSlice").field("rows", &self.index.rows).field("bytes", &self.file_bytes).finish_non_exhaustive()
    }
}

impl VortexSlice {
    /// Opens a body, or what was sent of it together with the bitmap of the pages that count.
    pub(super) fn open(schema: SchemaRef, body: Stored, pages: Option<&[u8]>) -> Result<Self, SliceError> {
        let end = body.end();
        let (file_end, index) = PageIndex::split(end.clone(), schema.fields().len())?;
        let file_bytes = body.bytes() - (end.len() - file_end.len()) as u64;
        let footer = read_footer(&ByteBuffer::from(file_end), file_bytes).map_err(damaged)?;
        let sent = pages.map(|pages| index.sent(pages)).transpose()?;
        if footer.row_count() != index.rows {
            return Err(SliceError::Corrupt(format!("its file has {} rows, its pages {}", footer.row_count(), index.rows)));
        }
        let expected = row_type(&stored_schema(&schema)).map_err(damaged)?;
        if *footer.dtype() != expected {
            return Err(SliceError::Corrupt(format!("its columns are {}, and the dataset's {expected}", footer.dtype())));
        }
        let sound = Arc::new(Sound::new(schema.fields().len(), index.pages(), index.page_rows));
        Ok(Self { schema, footer, body, file_bytes, index, sent, sound })
    }

    /// Where all of the file is that belongs to no segment: its footer, and the index of pages.
    fn around(&self) -> Range<u64> {
        let end = |segment: &SegmentSpec| segment.offset.saturating_add(segment.length.into());
        self.footer.segment_map().iter().map(end).max().unwrap_or(0).min(self.file_bytes)..self.body.bytes()
    }

    /// The segments that hold a column's rows, by number.
    fn segments_of(&self, column: usize, rows: &[Range<u64>], found: &mut Vec<usize>) -> VortexResult<()> {
        let child = self.footer.layout().slot(column + 1)?.ok_or_else(|| vortex_err!("column {column} is not there"))?;
        Column::new(&child)?.segments(rows, found);
        Ok(())
    }

    fn cut(&self, columns: &[usize], pages: &PageSet) -> Result<Vec<(u64, Bytes)>, SliceError> {
        let rows: Vec<Range<u64>> = self.index.rows_of(pages).collect();
        let mut found = Vec::new();
        columns.iter().try_for_each(|column| self.segments_of(*column, &rows, &mut found)).map_err(damaged)?;
        let segments = self.footer.segment_map();
        let range = |segment: usize| {
            let segment = segments.get(segment)?;
            Some(segment.offset..segment.offset.checked_add(segment.length.into())?)
        };
        let ranges = found.into_iter().map(range).chain([Some(self.around())]).collect::<Option<Vec<_>>>();
        self.body.cut(ranges.ok_or_else(|| SliceError::Corrupt("it has no such segment".to_owned()))?)
    }
}

/// Reads the footer from the last bytes of a file of so many.
fn read_footer(end: &ByteBuffer, file_bytes: u64) -> VortexResult<Footer> {
    let mut deserializer = Footer::deserializer(end.clone(), SESSION.clone()).with_size(file_bytes);
    match deserializer.deserialize()? {
        DeserializeStep::Done(footer) => Ok(footer),
        _ => Err(vortex_err!("the footer lies outside the file")),
    }
}

impl SliceReader for VortexSlice {
    fn rows(&self) -> u64 {
        self.index.live_rows()
    }

    fn scan(&self, request: ScanRequest) -> Result<Scan, SliceError> {
        check_columns(&self.schema, &request)?;
        let windows = self.index.wanted(&request, self.sent.as_ref())?;
        let (scan, applied) = guarded(|| WindowScan::new(self, request).map_err(damaged))?;
        Ok(Scan { stream: run(scan, windows), applied })
    }

    fn may_match(&self, predicates: &[Predicate]) -> Result<PageSet, SliceError> {
        self.index.may_match(predicates, self.sent.as_ref())
    }

    fn rows_of(&self, pages: &PageSet) -> u64 {
        self.index.live_rows_of(pages)
    }

    fn search(&self, request: ScanRequest) -> Result<Search, SliceError> {
        check_columns(&self.schema, &request)?;
        let windows = self.index.wanted(&request, self.sent.as_ref())?;
        let (scan, applied) = guarded(|| WindowScan::new(self, request).map_err(damaged))?;
        let stream = stream::iter(windows.clone()).map(move |window| guarded(|| scan.read(window))).boxed();
        Ok(Search { windows, stream, applied })
    }

    fn parts(&self, columns: &[usize], pages: &PageSet) -> Result<SliceParts, SliceError> {
        let parts = guarded(|| self.cut(columns, pages))?;
        let encoding = VortexEncoding.id();
        Ok(SliceParts { encoding, rows: self.index.live_rows(), body_bytes: self.body.bytes(), parts })
    }
}

/// Each poll reads windows until one has rows to return, and gives way after a few that have none. Nothing is spawned,
/// and nothing waits, since the file is in memory.
fn run(scan: WindowScan, windows: Vec<Range<u64>>) -> SliceStream {
    let mut windows = windows.into_iter();
    let next = move |context: &mut Context<'_>| {
        for _ in 0..WINDOWS_MAX {
            let Some(window) = windows.next() else { return Poll::Ready(None) };
            match guarded(|| scan.read(window)) {
                Ok(Some(batch)) => return Poll::Ready(Some(Ok(batch))),
                Ok(None) => {}
                Err(error) => {
                    windows = Vec::new().into_iter();
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    };
    stream::poll_fn(next).boxed()
}

/// The state of a running scan.
struct WindowScan {
    /// The columns that are read, by index in the dataset's schema.
    columns: BTreeMap<usize, Column>,
    segments: CountedSegments,
    index: PageIndex,
    sound: Arc<Sound>,
    conjuncts: Vec<Conjunct>,
    keyed: Vec<Keyed>,
    /// Columns of the output, by index in the dataset's schema, and their types in the file.
    projection: Vec<(usize, Field)>,
    output: SchemaRef,
    options: ArrowExportOptions,
}

impl WindowScan {
    fn new(slice: &VortexSlice, request: ScanRequest) -> VortexResult<(Self, Vec<usize>)> {
        let layout = slice.footer.layout();
        let (conjuncts, applied) = conjuncts(&request.predicates, layout.dtype())?;
        let fields = layout.dtype().as_struct_fields_opt();
        let field = |column| fields.as_ref().and_then(|fields| fields.field(stored_name(column)));
        let is_whole =
            |column| field(column).is_some_and(|field| matches!(field, DType::Primitive(ptype, _) if ptype.is_int()));
        let keyed: Vec<Keyed> = request.keys.into_iter().filter(|(column, _)| is_whole(*column)).map(Keyed::new).collect();
        let mut columns = BTreeMap::new();
        let asked = conjuncts.iter().flat_map(|conjunct| &conjunct.columns).chain(keyed.iter().map(|keyed| &keyed.column));
        for index in request.columns.iter().chain(asked) {
            if !columns.contains_key(index) {
                // Slot 0 is for rows that are NULL as a whole, and there are none.
                let child = layout.slot(index + 1)?.ok_or_else(|| vortex_err!("column {index} is not there"))?;
                columns.insert(*index, Column::new(&child)?);
            }
        }
        let output = Arc::new(slice.schema.project(&request.columns)?);
        let stored = |field: &FieldRef| Field::new("", stored_type(field.data_type()), field.is_nullable());
        let selects = !conjuncts.is_empty() || !keyed.is_empty() || slice.index.marks.is_some();
        let scan = Self {
            columns,
            segments: CountedSegments::new(slice, request.stats),
            index: slice.index.clone(),
            sound: Arc::clone(&slice.sound),
            // A few rows of a page must not keep all of the page's texts in memory.
            options: ArrowExportOptions::default().with(CompactBuffers(selects)),
            conjuncts,
            keyed,
            projection: request.columns.iter().copied().zip(output.fields().iter().map(stored)).collect(),
            output,
        };
        Ok((scan, applied))
    }

    /// The rows of a window that are left and satisfy the conjuncts, if there are any.
    fn read(&self, window: Range<u64>) -> Result<Option<RecordBatch>, SliceError> {
        let pages = self.index.pages_started(&window);
        self.segments.stats.pages_read.fetch_add(pages, Ordering::Relaxed);
        let mut context = SESSION.create_execution_ctx();
        let mask = self.filter(&window, &mut context).map_err(damaged)?;
        let rows = mask.true_count();
        if rows == 0 {
            return Ok(None);
        }
        let chosen = Chosen::new(mask);
        let decoded = self
            .projection
            .iter()
            .map(|(column, stored)| self.project(*column, stored, &window, &chosen, &mut context))
            .collect::<VortexResult<Vec<_>>>()
            .map_err(damaged)?;
        self.batch(&decoded, rows).map(Some).map_err(|error| SliceError::Corrupt(error.to_string()))
    }

    fn column(&self, index: usize) -> VortexResult<&Column> {
        self.columns.get(&index).ok_or_else(|| vortex_err!("column {index} is not read"))
    }

    fn filter(&self, window: &Range<u64>, context: &mut ExecutionCtx) -> VortexResult<Mask> {
        let mut mask = match &self.index.marks {
            None => Mask::new_true((window.end - window.start) as usize),
            Some(marks) => Mask::from_buffer(BitBuffer::from(marks.left_in(window))),
        };
        if mask.all_false() {
            return Ok(mask);
        }
        let mut order: Vec<&Conjunct> = self.conjuncts.iter().collect();
        order.sort_by_key(|conjunct| conjunct.rank());
        for conjunct in order {
            let rows_in = mask.true_count();
            mask = match conjunct.columns.as_slice() {
                [column] => self.column(*column)?.filter(window.clone(), &conjunct.condition, mask, &self.segments, context)?,
                columns => self.filter_row(columns, conjunct, window, mask, context)?,
            };
            conjunct.observe(rows_in, mask.true_count());
            if mask.all_false() {
                return Ok(mask);
            }
        }
        for keyed in self.keyed.iter().filter(|keyed| keyed.pays()) {
            mask = self.filter_keys(keyed, window, mask, context)?;
        }
        Ok(mask)
    }

    /// The rows whose numbers are in the set.
    fn filter_keys(&self, keyed: &Keyed, window: &Range<u64>, mask: Mask, context: &mut ExecutionCtx) -> VortexResult<Mask> {
        let kept = self.among_keys(keyed, window, &mask, context)?;
        keyed.rows_in.set(keyed.rows_in.get() + mask.true_count());
        keyed.rows_out.set(keyed.rows_out.get() + kept.true_count());
        Ok(kept)
    }

    fn among_keys(&self, keyed: &Keyed, window: &Range<u64>, mask: &Mask, context: &mut ExecutionCtx) -> VortexResult<Mask> {
        let (column, is_few) = (self.column(keyed.column)?, mask.density() < FEW_NUMBERS);
        if !is_few && let Some((runs, rows)) = column.runs(window, &self.segments, context)? {
            return runs.select(rows, mask, |numbers| in_set(&keyed.keys, numbers, context));
        }
        let numbers = column.rows(window.clone(), &self.segments, context)?;
        match is_few {
            true => Ok(mask.intersect_by_rank(&in_set(&keyed.keys, numbers.filter(mask.clone())?, context)?)),
            false => Ok(mask & &in_set(&keyed.keys, numbers, context)?),
        }
    }

    /// A conjunct that needs more than one column.
    fn filter_row(
        &self,
        columns: &[usize],
        conjunct: &Conjunct,
        window: &Range<u64>,
        mask: Mask,
        context: &mut ExecutionCtx,
    ) -> VortexResult<Mask> {
        let names: Vec<FieldName> = columns.iter().map(|column| stored_name(*column).into()).collect();
        let parts = columns
            .iter()
            .map(|column| self.column(*column)?.rows(window.clone(), &self.segments, context))
            .collect::<VortexResult<Vec<_>>>()?;
        let row = StructArray::try_new(names.into(), parts, mask.len(), Validity::NonNullable)?.into_array();
        conjunct.condition.test.among(row, mask, conjunct.condition.few, context)
    }

    /// The selected rows of a column. Numbers are decoded for the whole window before rows are selected, unless few
    /// rows are selected: that is cheaper than selecting among packed bits. Other values are where most rows are selected.
    fn project(
        &self,
        column: usize,
        stored: &Field,
        window: &Range<u64>,
        chosen: &Chosen,
        context: &mut ExecutionCtx,
    ) -> VortexResult<ArrayRef> {
        let mut rows = self.column(column)?.rows(window.clone(), &self.segments, context)?;
        let from = if stored.data_type().is_numeric() { LATE_SHARE_MIN } else { LATE_SHARE_MIN_OTHERS };
        let late = chosen.all || chosen.share >= from;
        if !late {
            rows = rows.filter(chosen.mask.clone())?;
        }
        let decoded = SESSION.arrow().exporter(&self.options).execute_arrow(rows, Some(stored), context)?;
        match late || chosen.all {
            true => self.sound.check_window(column, window, &decoded)?,
            false => check_values(&decoded)?,
        }
        match late && !chosen.all {
            true => Ok(chosen.among(&decoded)?),
            false => Ok(decoded),
        }
    }

    /// The columns of the output, in the dataset's types.
    fn batch(&self, decoded: &[ArrayRef], rows: usize) -> Result<RecordBatch, ArrowError> {
        let columns = decoded.iter().zip(self.output.fields());
        let columns = columns.map(|(column, field)| retype(column, field.data_type())).collect::<Result<_, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.output.clone(), columns, &options)
    }
}

/// A column whose numbers are to be in a set.
struct Keyed {
    column: usize,
    keys: Arc<KeySet>,
    rows_in: Cell<usize>,
    rows_out: Cell<usize>,
}

impl Keyed {
    fn new((column, keys): (usize, Arc<KeySet>)) -> Self {
        Self { column, keys, rows_in: Cell::new(0), rows_out: Cell::new(0) }
    }

    /// Whether the set has left out enough rows to be asked on.
    fn pays(&self) -> bool {
        self.rows_in.get() < TRIAL_ROWS || self.rows_out.get() < self.rows_in.get() / 2
    }
}

/// The rows of a window that satisfy the conjuncts.
struct Chosen {
    mask: Mask,
    all: bool,
    /// The share of the window's rows, from 0 to 1.
    share: f64,
    filter: OnceCell<FilterPredicate>,
}

impl Chosen {
    fn new(mask: Mask) -> Self {
        Self { all: mask.all_true(), share: mask.density(), mask, filter: OnceCell::new() }
    }

    /// The selected rows among a window's decoded rows.
    fn among(&self, decoded: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        let filter = self.filter.get_or_init(|| {
            let bits = BooleanBuffer::from(self.mask.to_bit_buffer());
            FilterBuilder::new(&BooleanArray::new(bits, None)).optimize().build()
        });
        filter.filter(decoded)
    }
}

/// The segments of the file in memory. Each is counted when a scan first reads it.
pub(super) struct CountedSegments {
    body: Stored,
    file_bytes: u64,
    segments: Arc<[SegmentSpec]>,
    seen: Vec<AtomicBool>,
    pub(super) stats: Arc<ReadStats>,
}

impl CountedSegments {
    fn new(slice: &VortexSlice, stats: Arc<ReadStats>) -> Self {
        let segments = slice.footer.segment_map().clone();
        let seen = segments.iter().map(|_| AtomicBool::new(false)).collect();
        Self { body: slice.body.clone(), file_bytes: slice.file_bytes, segments, seen, stats }
    }

    /// The bytes of a segment, with the alignment that it needs.
    pub(super) fn segment(&self, id: SegmentId) -> VortexResult<BufferHandle> {
        let index = *id as usize;
        let segment = self.segments.get(index).ok_or_else(|| vortex_err!("there is no segment {id}"))?;
        let end = segment.offset.checked_add(segment.length.into()).filter(|end| *end <= self.file_bytes);
        let end = end.ok_or_else(|| vortex_err!("segment {id} lies outside the file"))?;
        let bytes = self.body.get(segment.offset..end).map_err(|error| vortex_err!("segment {id}: {error}"))?;
        if !self.seen[index].swap(true, Ordering::Relaxed) {
            self.stats.bytes.fetch_add(segment.length.into(), Ordering::Relaxed);
        }
        Ok(BufferHandle::new_host(ByteBuffer::from(bytes).aligned(segment.alignment)))
    }
}
