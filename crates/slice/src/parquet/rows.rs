//! A running scan: the columns of its conditions are decoded first, and of the other columns the rows that are left.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, BooleanArray, BooleanBufferBuilder, RecordBatch, RecordBatchOptions};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{BatchCoalescer, concat_batches};
use arrow::datatypes::{Field, Schema, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder, RowSelection, RowSelectionPolicy,
};

use super::chunks::Chunks;
use super::footer::damaged;
use super::row_group::OpenRowGroup;
use crate::conditions::Filter;
use crate::marks::Marks;
use crate::{ReadStats, ScanRequest, SliceError};

/// The most rows that are decoded at a time.
const BATCH_ROWS_MAX: usize = 8_192;

/// What a step of a scan gave.
pub(super) enum Step {
    Batch(RecordBatch),
    Nothing,
    Over,
}

/// A running scan.
pub(super) struct Rows {
    slice: Arc<OpenRowGroup>,
    /// Columns of the output, by index in the dataset's schema.
    columns: Vec<usize>,
    output: SchemaRef,
    windows: Vec<Range<u64>>,
    batch_rows: usize,
    stats: Arc<ReadStats>,
    filter: Filter,
    state: ReadPhase,
    /// Of the rows of the windows, those that are left; none: all are.
    left: Option<BooleanBuffer>,
    /// Wanted rows among those of the windows, once they are known.
    mask: Option<BooleanBuffer>,
    /// The last arrays of columns that have one value, by place in the output.
    constants: Vec<Option<ArrayRef>>,
}

/// How far the reading of a row group is.
enum ReadPhase {
    New,
    Filtering(Filtering),
    Reading(Reading),
}

/// The conditions' columns are read.
struct Filtering {
    decoder: Decoder,
    wanted: BooleanBufferBuilder,
    /// Wanted rows of columns that are read for conditions and for the output.
    kept: Option<BatchCoalescer>,
    /// These columns.
    columns: Vec<usize>,
}

/// The other columns are read.
struct Reading {
    /// None: no other column has to be read.
    decoder: Option<Decoder>,
    /// Columns that were read before, and their rows: batch by batch as many as the decoder's.
    kept_columns: Vec<usize>,
    kept: VecDeque<RecordBatch>,
    rows_left: u64,
}

impl Rows {
    pub(super) fn new(slice: Arc<OpenRowGroup>, request: ScanRequest, windows: Vec<Range<u64>>) -> Result<Self, SliceError> {
        let output = Arc::new(slice.columns.schema.project(&request.columns).map_err(damaged)?);
        let columns = &slice.columns;
        let is_stored = |column| columns.root(column).is_some();
        let filter = Filter::new(&request.predicates, &request.keys, &columns.schema, &is_stored);
        let left = slice.index.marks.as_ref().map(|marks| left(marks, &windows));
        Ok(Self {
            constants: vec![None; request.columns.len()],
            columns: request.columns,
            output,
            windows,
            batch_rows: request.batch_rows.clamp(1, BATCH_ROWS_MAX),
            stats: request.stats,
            filter,
            state: ReadPhase::New,
            left,
            mask: None,
            slice,
        })
    }

    pub(super) fn applied(&self) -> &[usize] {
        &self.filter.applied
    }

    /// Decodes one batch.
    pub(super) fn step(&mut self) -> Result<Step, SliceError> {
        match &mut self.state {
            ReadPhase::New => {
                self.begin()?;
                Ok(Step::Nothing)
            }
            ReadPhase::Filtering(filtering) => match filtering.decoder.next()? {
                Some(batch) => {
                    filtering.take(&batch, &self.slice, &mut self.filter, self.left.as_ref())?;
                    Ok(Step::Nothing)
                }
                None => {
                    self.filtered()?;
                    Ok(Step::Nothing)
                }
            },
            ReadPhase::Reading(_) => self.read(),
        }
    }

    fn rows(&self) -> u64 {
        self.windows.iter().map(|window| window.end - window.start).sum()
    }

    /// The windows among the rows of the row group; none: they are all of them.
    fn selection(&self) -> Option<RowSelection> {
        let group_rows = self.slice.read.metadata().row_group(0).num_rows() as usize;
        if self.rows() as usize == group_rows {
            return None;
        }
        let first = self.slice.first_row;
        let ranges = self.windows.iter().map(|window| (first + window.start) as usize..(first + window.end) as usize);
        Some(RowSelection::from_consecutive_ranges(ranges, group_rows))
    }

    fn begin(&mut self) -> Result<(), SliceError> {
        let pages: u64 = self.windows.iter().map(|window| self.slice.index.pages_started(window)).sum();
        self.stats.pages_read.fetch_add(pages, Ordering::Relaxed);
        if self.windows.is_empty() || self.filter.columns.is_empty() {
            if let Some(left) = self.left.take() {
                return self.read_wanted(left, Vec::new(), VecDeque::new());
            }
            return self.read_next(self.selection(), Vec::new(), VecDeque::new(), self.rows());
        }
        let decoder = self.decoder(&self.filter.columns, self.selection().as_ref(), RowSelectionPolicy::Selectors)?;
        let columns: Vec<usize> = self.filter.columns.iter().copied().filter(|column| self.columns.contains(column)).collect();
        let schema = kept_schema(&self.slice.columns.schema, &columns);
        let kept = (!columns.is_empty()).then(|| BatchCoalescer::new(schema, self.batch_rows));
        let wanted = BooleanBufferBuilder::new(0);
        self.state = ReadPhase::Filtering(Filtering { decoder, wanted, kept, columns });
        Ok(())
    }

    /// The conditions were evaluated: the other columns are next.
    fn filtered(&mut self) -> Result<(), SliceError> {
        let ReadPhase::Filtering(mut filtering) = std::mem::replace(&mut self.state, ReadPhase::New) else { return Ok(()) };
        let mask = filtering.wanted.finish();
        if mask.len() as u64 != self.rows() {
            return Err(damaged(format!("{} of {} rows are there", mask.len(), self.rows())));
        }
        let mut kept = VecDeque::new();
        if let Some(mut coalescer) = filtering.kept.take() {
            coalescer.finish_buffered_batch().map_err(damaged)?;
            while let Some(batch) = coalescer.next_completed_batch() {
                kept.push_back(batch);
            }
        }
        self.read_wanted(mask, filtering.columns, kept)
    }

    /// Of the rows of the windows, those of `mask` are read.
    fn read_wanted(
        &mut self,
        mask: BooleanBuffer,
        kept_columns: Vec<usize>,
        kept: VecDeque<RecordBatch>,
    ) -> Result<(), SliceError> {
        let rows = mask.count_set_bits();
        let selection = match rows == mask.len() {
            true => self.selection(),
            false => {
                let wanted = RowSelection::from_boolean_buffer(mask.clone());
                Some(self.selection().map_or(wanted.clone(), |windows| windows.and_then(&wanted)))
            }
        };
        self.mask = Some(mask);
        self.read_next(selection, kept_columns, kept, rows as u64)
    }

    fn read_next(
        &mut self,
        selection: Option<RowSelection>,
        kept_columns: Vec<usize>,
        kept: VecDeque<RecordBatch>,
        rows_left: u64,
    ) -> Result<(), SliceError> {
        let mut others: Vec<usize> = self.columns.clone();
        others.retain(|column| self.slice.columns.root(*column).is_some() && !kept_columns.contains(column));
        // Where much between the windows is left out, decoding it to drop it does not pay; nor can it, where it was not sent.
        let group_rows = self.slice.read.metadata().row_group(0).num_rows() as u64;
        let sparse = self.slice.sent.is_some() || self.rows() * 2 < group_rows;
        let policy = if sparse { RowSelectionPolicy::Selectors } else { RowSelectionPolicy::default() };
        let decoder = match others.is_empty() || rows_left == 0 {
            true => None,
            false => Some(self.decoder(&others, selection.as_ref(), policy)?),
        };
        self.state = ReadPhase::Reading(Reading { decoder, kept_columns, kept, rows_left });
        Ok(())
    }

    /// A decoder of these columns of the dataset.
    fn decoder(
        &self,
        columns: &[usize],
        selection: Option<&RowSelection>,
        policy: RowSelectionPolicy,
    ) -> Result<Decoder, SliceError> {
        let roots = columns.iter().filter_map(|column| self.slice.columns.root(*column)).collect();
        Decoder::new(&self.slice, roots, selection, policy, self.batch_rows, &self.stats)
    }

    /// The next rows of the output.
    fn read(&mut self) -> Result<Step, SliceError> {
        let ReadPhase::Reading(reading) = &mut self.state else { return Ok(Step::Over) };
        if reading.rows_left == 0 {
            return Ok(Step::Over);
        }
        let expected = reading.rows_left.min(self.batch_rows as u64) as usize;
        let decoded = reading.decoder.as_mut().map(|decoder| decoder.next()).transpose()?;
        let decoded = decoded.map(|batch| batch.ok_or_else(|| damaged("rows are missing at its end"))).transpose()?;
        let kept = if reading.kept_columns.is_empty() { None } else { reading.kept.pop_front() };
        let wrong = [&decoded, &kept].into_iter().flatten().any(|batch| batch.num_rows() != expected);
        if wrong || kept.is_none() && !reading.kept_columns.is_empty() {
            return Err(damaged("its columns do not have the same rows"));
        }
        reading.rows_left -= expected as u64;
        self.batch(expected, decoded.as_ref(), kept.as_ref()).map(Step::Batch)
    }

    /// The output from columns that were read now and before, and from constants.
    fn batch(
        &mut self,
        rows: usize,
        decoded: Option<&RecordBatch>,
        kept: Option<&RecordBatch>,
    ) -> Result<RecordBatch, SliceError> {
        let ReadPhase::Reading(reading) = &self.state else { return Err(damaged("nothing is read")) };
        let mut columns = Vec::with_capacity(self.columns.len());
        for (place, column) in self.columns.iter().enumerate() {
            let before = reading.kept_columns.iter().position(|kept| kept == column);
            let array = match (before, kept, self.slice.columns.root(*column)) {
                (Some(before), Some(kept), _) => Arc::clone(kept.column(before)),
                (_, _, Some(root)) => {
                    let (decoder, batch) =
                        reading.decoder.as_ref().zip(decoded).ok_or_else(|| damaged("a column is missing"))?;
                    self.slice.columns.values(*column, decoder.column(root, batch)?)?
                }
                _ => constant(&mut self.constants[place], &self.slice, *column, rows)?,
            };
            columns.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.output.clone(), columns, &options).map_err(damaged)
    }

    /// The wanted rows of a window; the windows are asked for in order. `held` has rows that were decoded for the next ones.
    pub(super) fn window(&mut self, window: usize, held: &mut Vec<RecordBatch>) -> Result<Option<RecordBatch>, SliceError> {
        while !matches!(self.state, ReadPhase::Reading(_)) {
            self.step()?;
        }
        let wanted = self.wanted_in(window);
        let mut there: usize = held.iter().map(RecordBatch::num_rows).sum();
        while there < wanted {
            match self.step()? {
                Step::Batch(batch) => {
                    there += batch.num_rows();
                    held.push(batch);
                }
                Step::Nothing => {}
                Step::Over => return Err(damaged("rows are missing at its end")),
            }
        }
        if wanted == 0 {
            return Ok(None);
        }
        let all = if held.len() == 1 { held[0].clone() } else { concat_batches(&self.output, held.iter()).map_err(damaged)? };
        *held = vec![all.slice(wanted, all.num_rows() - wanted)];
        Ok(Some(all.slice(0, wanted)))
    }

    fn wanted_in(&self, window: usize) -> usize {
        let length = |window: &Range<u64>| (window.end - window.start) as usize;
        let rows = length(&self.windows[window]);
        match &self.mask {
            None => rows,
            Some(mask) => {
                let start = self.windows[..window].iter().map(length).sum();
                mask.slice(start, rows).count_set_bits()
            }
        }
    }
}

/// Of the rows of these ranges, which are left.
fn left(marks: &Marks, windows: &[Range<u64>]) -> BooleanBuffer {
    let mut left = BooleanBufferBuilder::new(0);
    windows.iter().for_each(|window| left.append_buffer(&marks.left_in(window)));
    left.finish()
}

fn kept_schema(schema: &SchemaRef, columns: &[usize]) -> SchemaRef {
    let fields = columns.iter().map(|column| Field::new("", schema.field(*column).data_type().clone(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Rows of a column that has one value; it is kept as long as batches are not longer.
fn constant(last: &mut Option<ArrayRef>, slice: &OpenRowGroup, column: usize, rows: usize) -> Result<ArrayRef, SliceError> {
    if last.as_ref().is_none_or(|array| array.len() < rows) {
        *last = slice.columns.constant(column, rows)?;
    }
    let array = last.as_ref().ok_or_else(|| damaged("a column is missing"))?;
    Ok(array.slice(0, rows))
}

impl Filtering {
    /// Evaluates the conditions over a batch. `left` has a bit for each row of the windows, where not all are left.
    fn take(
        &mut self,
        batch: &RecordBatch,
        slice: &OpenRowGroup,
        filter: &mut Filter,
        left: Option<&BooleanBuffer>,
    ) -> Result<(), SliceError> {
        let each = filter.columns.iter().map(|column| {
            let root = slice.columns.root(*column).ok_or_else(|| damaged("a column is missing"))?;
            Ok((*column, slice.columns.values(*column, self.decoder.column(root, batch)?)?))
        });
        let values = each.collect::<Result<Vec<(usize, ArrayRef)>, SliceError>>()?;
        let value = |column: usize| {
            let place = values.partition_point(|(other, _)| *other < column);
            Arc::clone(&values[place].1)
        };
        let mut wanted = filter.rows(&value, batch.num_rows())?;
        if let Some(left) = left {
            if self.wanted.len() + wanted.len() > left.len() {
                return Err(damaged("there are more rows than its pages have"));
            }
            wanted = &wanted & &left.slice(self.wanted.len(), wanted.len());
        }
        if let Some(kept) = &mut self.kept {
            let columns = self.columns.iter().map(|column| value(*column)).collect();
            let batch = RecordBatch::try_new(kept.schema(), columns).map_err(damaged)?;
            kept.push_batch_with_filter(batch, &BooleanArray::new(wanted.clone(), None)).map_err(damaged)?;
        }
        self.wanted.append_buffer(&wanted);
        Ok(())
    }
}

/// Decodes some columns of a row group.
struct Decoder {
    reader: ParquetRecordBatchReader,
    chunks: Chunks,
    /// The root columns, ascending.
    roots: Vec<usize>,
}

impl Decoder {
    fn new(
        slice: &OpenRowGroup,
        mut roots: Vec<usize>,
        selection: Option<&RowSelection>,
        policy: RowSelectionPolicy,
        batch_rows: usize,
        stats: &Arc<ReadStats>,
    ) -> Result<Self, SliceError> {
        roots.sort_unstable();
        roots.dedup();
        let metadata = slice.read.metadata();
        let leaves = roots.iter().flat_map(|root| slice.leaves[*root].clone());
        let chunks = Chunks::new(slice.body.clone(), metadata, leaves, selection, Arc::clone(stats))?;
        let mask = ProjectionMask::roots(slice.read.parquet_schema(), roots.iter().copied());
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(chunks.clone(), slice.read.clone());
        let builder = builder.with_batch_size(batch_rows).with_projection(mask).with_row_selection_policy(policy);
        let builder = match selection {
            Some(selection) => builder.with_row_selection(selection.clone()),
            None => builder,
        };
        let reader = builder.build().map_err(|error| chunks.error(error))?;
        Ok(Self { reader, chunks, roots })
    }

    fn next(&mut self) -> Result<Option<RecordBatch>, SliceError> {
        self.reader.next().transpose().map_err(|error| self.chunks.error(error))
    }

    /// A root column of a batch.
    fn column<'a>(&self, root: usize, batch: &'a RecordBatch) -> Result<&'a ArrayRef, SliceError> {
        let place = self.roots.binary_search(&root).map_err(|_| damaged("a column is missing"))?;
        batch.columns().get(place).ok_or_else(|| damaged("a column is missing"))
    }
}
