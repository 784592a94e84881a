//! [`ParquetFile`]: a file that lies outside of the store, and its row groups as slices.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use parquet::basic::{ColumnOrder, Encoding as PageEncoding};
use parquet::file::metadata::{
    ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataBuilder, RowGroupMetaData,
};
use parquet::schema::types::SchemaDescriptor;
use pithead_model::{ColumnSummary, PAGE_ROWS, SLICE_BYTES_MAX, SliceEntry};

use super::columns::{Columns, Origin, Source, origins_text};
use super::footer::{self, check_group, chunk_range, damaged};
use super::read::ParquetSlice;
use super::statistics::{Types, chunk_summary};
use super::{body, grid, whole};
use crate::attached::{AttachedFile, AttachedRows, AttachedSlice};
use crate::bounds::bounds;
use crate::guard::guarded;
use crate::page_sizes::dictionary_values;
use crate::pages::PageIndex;
use crate::{ReadAt, SliceError, SliceReader};

/// The most rows of a slice.
const SLICE_ROWS_MAX: u64 = 1 << 20;
/// What the rows of a part of a row group may take in memory.
const PART_BYTES: u64 = 32 << 20;
/// Row groups of a file whose dictionaries are looked at to tell how many values there are: each is a read.
const DICTIONARY_GROUPS: usize = 4;
/// Bytes at the start of a chunk that tell the size of its dictionary.
const DICTIONARY_HEADER_BYTES: u64 = 64;
/// Bytes of a slice beside its column chunks, at most: bounds of pages, where they lie, and the footer.
const END_BYTES_MAX: u64 = 4 << 20;

/// A Parquet file whose footer was read and checked.
#[derive(Debug)]
pub struct ParquetFile {
    source: Arc<dyn ReadAt>,
    metadata: Arc<ParquetMetaData>,
    schema: SchemaRef,
    /// The leaf of each root column that has no members or items.
    leaves: Vec<Option<usize>>,
    rows: u64,
}

impl ParquetFile {
    /// Reads the footer, and checks that what it names lies within the file. Blocks.
    pub fn open(source: Arc<dyn ReadAt>) -> Result<ParquetFile, SliceError> {
        guarded(|| {
            let metadata = Arc::new(footer::read(&*source)?);
            let within = footer::MAGIC.len() as u64..source.bytes();
            metadata.row_groups().iter().try_for_each(|group| check_group(group, &within))?;
            let rows = metadata.row_groups().iter().try_fold(0_u64, |sum, group| sum.checked_add(group.num_rows() as u64));
            let rows = rows.ok_or_else(|| damaged("it has more rows than can be counted"))?;
            let read = footer::decoder(Arc::clone(&metadata))?;
            let schema = footer::dataset_schema(read.schema())?;
            let leaves = plain_leaves(metadata.file_metadata().schema_descr(), schema.fields().len());
            Ok(ParquetFile { source, metadata, schema, leaves, rows })
        })
    }

    /// The columns with the types that a dataset has them in, without the writer's notes about them.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Rows of all row groups.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The row groups as slices of a dataset. `origins` says for each column of `schema` where it comes from. Blocks: it
    /// may read the sizes of dictionaries.
    pub fn slices(self: &Arc<Self>, schema: &SchemaRef, origins: &[Origin]) -> Result<Vec<AttachedSlice>, SliceError> {
        let columns = Columns::new(Arc::clone(schema), &self.schema, origins)?;
        let shared = Arc::new(Shared { file: Arc::clone(self), columns, origins: origins_text(origins) });
        let mut slices = Vec::new();
        for (number, group) in self.metadata.row_groups().iter().enumerate().filter(|(_, group)| group.num_rows() > 0) {
            let whole = guarded(|| shared.summaries(group, number < DICTIONARY_GROUPS))?;
            let rows = group.num_rows() as u64;
            let each = slice_rows(group);
            for start in (0..rows).step_by(each as usize) {
                let window = start..rows.min(start + each);
                slices.push(AttachedSlice::new(Attached::new(&shared, number, window, rows, &whole)));
            }
        }
        Ok(slices)
    }

    /// The metadata of one row group alone, with its places in the file.
    fn group(&self, number: usize) -> ParquetMetaData {
        let file = self.metadata.file_metadata().clone();
        ParquetMetaDataBuilder::new(file).add_row_group(self.metadata.row_group(number).clone()).build()
    }
}

fn plain_leaves(schema: &SchemaDescriptor, roots: usize) -> Vec<Option<usize>> {
    let mut leaves = vec![None; roots];
    for leaf in (0..schema.num_columns()).filter(|leaf| schema.get_column_root(*leaf).is_primitive()) {
        if let Some(place) = leaves.get_mut(schema.get_column_root_idx(leaf)) {
            // A list in the old form is a repeated column: it has items.
            *place = (schema.column(leaf).max_rep_level() == 0).then_some(leaf);
        }
    }
    leaves
}

/// Rows of the slices of a row group: all, where they make a slice that is not too large.
fn slice_rows(group: &RowGroupMetaData) -> u64 {
    let rows = group.num_rows() as u64;
    let stored = group.columns().iter().filter_map(chunk_range).map(|range| range.end - range.start);
    let stored = stored.fold(0, u64::saturating_add);
    if rows <= SLICE_ROWS_MAX && stored <= SLICE_BYTES_MAX as u64 - END_BYTES_MAX {
        return rows;
    }
    let row_bytes = u64::try_from(group.total_byte_size()).unwrap_or(0).max(stored).div_ceil(rows).max(1);
    let pages = (PART_BYTES / row_bytes).min(SLICE_ROWS_MAX) / PAGE_ROWS as u64;
    pages.max(1) * PAGE_ROWS as u64
}

/// What slices of one file share.
#[derive(Debug)]
struct Shared {
    file: Arc<ParquetFile>,
    columns: Columns,
    /// Where the columns come from, as the footer of a body notes it.
    origins: String,
}

impl Shared {
    fn types<'a>(&'a self, column: usize, root: usize, chunk: &ColumnChunkMetaData) -> Types<'a> {
        Types {
            physical: chunk.column_type(),
            file: self.file.schema.field(root).data_type(),
            dataset: self.columns.schema.field(column).data_type(),
            required: chunk.column_descr().max_def_level() == 0,
        }
    }

    /// Summaries of a row group, one for each column of the dataset.
    fn summaries(&self, group: &RowGroupMetaData, dictionaries: bool) -> Result<Vec<ColumnSummary>, SliceError> {
        let rows = group.num_rows() as u64;
        if dictionaries {
            let wanted = group.columns().iter().filter(|chunk| only_dictionary(chunk)).filter_map(dictionary_header);
            self.file.source.prepare(&wanted.collect::<Vec<_>>())?;
        }
        let column = |(column, source): (usize, &Source)| {
            let root = match source {
                Source::Constant(value) => return Ok(constant_summary(value, rows)),
                Source::Root(root) => *root,
            };
            let Some(leaf) = self.file.leaves[root] else {
                return Ok(ColumnSummary { nulls_unknown: true, ..Default::default() });
            };
            let chunk = group.column(leaf);
            let ordered = is_ordered(&self.file.metadata, leaf);
            let mut summary = chunk_summary(chunk, &self.types(column, root, chunk), rows, ordered);
            if summary.distinct == 0 && dictionaries && only_dictionary(chunk) {
                summary.distinct = self.dictionary_size(chunk)?.filter(|values| *values <= rows).unwrap_or(0);
            }
            Ok(summary)
        };
        self.columns.sources.iter().enumerate().map(column).collect()
    }

    /// The number of values of a chunk's dictionary.
    fn dictionary_size(&self, chunk: &ColumnChunkMetaData) -> Result<Option<u64>, SliceError> {
        let Some(header) = dictionary_header(chunk) else { return Ok(None) };
        Ok(dictionary_values(&self.file.source.read_at(header)?))
    }
}

/// The bytes that tell the size of a chunk's dictionary.
fn dictionary_header(chunk: &ColumnChunkMetaData) -> Option<Range<u64>> {
    let range = chunk_range(chunk)?;
    Some(range.start..range.end.min(range.start + DICTIONARY_HEADER_BYTES))
}

/// Whether the bounds of a column have the order that the format defines.
fn is_ordered(metadata: &ParquetMetaData, leaf: usize) -> bool {
    let orders = metadata.file_metadata().column_orders();
    orders.and_then(|orders| orders.get(leaf)).is_some_and(|order| matches!(order, ColumnOrder::TYPE_DEFINED_ORDER(_)))
}

/// Whether all pages of a chunk point into its dictionary.
fn only_dictionary(chunk: &ColumnChunkMetaData) -> bool {
    use PageEncoding::{PLAIN_DICTIONARY, RLE, RLE_DICTIONARY};
    let of_pages = match chunk.page_encoding_stats_mask() {
        Some(mask) => mask.is_only(PLAIN_DICTIONARY) || mask.is_only(RLE_DICTIONARY),
        // Levels are among these, and a dictionary itself may be; then it is not certain.
        None => chunk.encodings().all(|encoding| [PLAIN_DICTIONARY, RLE_DICTIONARY, RLE].contains(&encoding)),
    };
    of_pages && chunk.dictionary_page_offset().is_some()
}

pub(crate) fn constant_summary(value: &arrow::array::ArrayRef, rows: u64) -> ColumnSummary {
    let one = bounds(value);
    ColumnSummary { nulls: one.nulls * rows, distinct: u64::from(one.nulls == 0), ..one }
}

/// A row group, or a part of its rows, as a slice of a dataset.
#[derive(Debug)]
struct Attached {
    shared: Arc<Shared>,
    /// The row group's number.
    group: usize,
    /// The slice's rows among those of the row group.
    window: Range<u64>,
    /// Whether these are all.
    all: bool,
    entry: Arc<SliceEntry>,
    opened: OnceLock<Arc<ParquetSlice>>,
}

impl Attached {
    fn new(shared: &Arc<Shared>, group: usize, window: Range<u64>, group_rows: u64, whole: &[ColumnSummary]) -> Self {
        let rows = window.end - window.start;
        let all = rows == group_rows;
        let columns = match all {
            true => whole.to_vec(),
            false => whole.iter().map(|summary| grid::part_of(summary, rows)).collect(),
        };
        let stored = shared.file.metadata.row_group(group).columns().iter().filter_map(chunk_range);
        let stored: u64 = stored.map(|range| range.end - range.start).sum();
        let bytes = (u128::from(stored) * u128::from(rows) / u128::from(group_rows)) as u64;
        let entry = Arc::new(SliceEntry { rows, bytes: bytes.max(1), columns });
        Self { shared: Arc::clone(shared), group, window, all, entry, opened: OnceLock::new() }
    }

    fn opened(&self) -> Result<Arc<ParquetSlice>, SliceError> {
        if let Some(opened) = self.opened.get() {
            return Ok(Arc::clone(opened));
        }
        let opened = Arc::new(guarded(|| self.read())?);
        Ok(Arc::clone(self.opened.get_or_init(|| opened)))
    }

    /// Reads where the row group's pages lie and what their bounds are, as far as the file tells.
    fn read(&self) -> Result<ParquetSlice, SliceError> {
        let file = &self.shared.file;
        let index = |offsets, bounds| footer::read_index(&*file.source, file.group(self.group), offsets, bounds);
        let pages = index(PageIndexPolicy::Optional, PageIndexPolicy::Skip)?;
        let locations = pages.as_ref().and_then(grid::locations);
        let bounds = match locations {
            Some(_) => index(PageIndexPolicy::Skip, PageIndexPolicy::Optional)?,
            None => None,
        };
        let bounds = bounds.as_ref().and_then(|bounds| bounds.column_index()?.first());
        let plain = file.group(self.group);
        let group = plain.row_group(0);
        let column = |(column, whole): (usize, &ColumnSummary)| {
            let root = self.shared.columns.root(column);
            let leaf = root.and_then(|root| Some((root, file.leaves[root]?)));
            let Some((root, leaf)) = leaf else { return self.alike(whole) };
            let types = self.shared.types(column, root, group.column(leaf));
            let index = bounds.and_then(|bounds| bounds.get(leaf)).zip(locations.as_ref());
            let index = index.map(|(index, locations)| (index, locations[leaf], group.num_rows() as u64));
            grid::column_pages(&self.window, whole, index, &types)
        };
        let by_column: Vec<Vec<ColumnSummary>> = self.entry.columns.iter().enumerate().map(column).collect();
        let index = PageIndex::of(self.entry.rows, &by_column)?;
        let body = body::lay_out(&file.source, &plain, locations.as_deref(), self.shared.origins.clone())?;
        let read = footer::decoder(body.metadata)?;
        Ok(ParquetSlice::attached(self.shared.columns.clone(), read, body.chunks, index, self.window.start, self.all))
    }

    /// Pages of which no more is known than of all rows.
    fn alike(&self, whole: &ColumnSummary) -> Vec<ColumnSummary> {
        let starts = (0..self.entry.rows).step_by(PAGE_ROWS);
        starts.map(|start| grid::part_of(whole, (self.entry.rows - start).min(PAGE_ROWS as u64))).collect()
    }
}

impl AttachedRows for Attached {
    /// From the footer's statistics.
    fn entry(&self) -> &Arc<SliceEntry> {
        &self.entry
    }

    fn is_far(&self) -> bool {
        self.shared.file.source.is_far()
    }

    fn open(&self) -> Result<Arc<dyn SliceReader>, SliceError> {
        Ok(self.opened()?)
    }

    fn stored(&self) -> Result<Bytes, SliceError> {
        let opened = self.opened()?;
        let named = |error| match error {
            SliceError::TooLarge { bytes, max } => {
                let group = self.group;
                SliceError::Schema(format!("row group {group} makes a slice of {bytes} bytes, over the bound of {max}"))
            }
            other => other,
        };
        guarded(|| whole::stored(opened.opened())).map_err(named)
    }
}

impl AttachedFile for ParquetFile {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn encoding(&self) -> &'static str {
        super::NAME
    }

    fn attach(self: Arc<Self>, schema: &SchemaRef, origins: &[Origin]) -> Result<Vec<AttachedSlice>, SliceError> {
        self.slices(schema, origins)
    }
}
