//! Parquet files: one part a row group.

mod part;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use pithead_model::Fault;
use pithead_slice::{check_pages, normalise};

use self::part::{ParquetLocation, PartBytes};
use crate::input::Input;
use crate::seconds::{as_noted, converted};
use crate::source::{Chunk, Chunks, Source, damaged};

/// Bytes of a batch, as the footer tells them.
const BATCH_BYTES_MAX: i64 = 32 << 20;

#[derive(Debug)]
pub(crate) struct ParquetSource {
    place: ParquetLocation,
    bytes: u64,
    metadata: ArrowReaderMetadata,
    /// The columns as they were before our own writer wrote them.
    schema: SchemaRef,
}

impl ParquetSource {
    /// Reads the footer, and checks that what it names lies within the file.
    pub(crate) fn open(input: &Input) -> Result<Self, Fault> {
        let path = input.name();
        let place = ParquetLocation::new(input)?;
        let (bytes, end) = place.end()?;
        let metadata = ArrowReaderMetadata::load(&end, ArrowReaderOptions::new()).map_err(|error| damaged(path, error))?;
        for group in metadata.metadata().row_groups() {
            check_group(path, group, bytes)?;
        }
        let noted = as_noted(metadata.schema());
        let is_noted = noted.fields() != metadata.schema().fields();
        let metadata = as_stored(metadata);
        let schema = match normalise(&noted) {
            Ok(schema) if is_noted => schema,
            _ => Arc::clone(metadata.schema()),
        };
        Ok(Self { place, bytes, metadata, schema })
    }

    /// The file's bytes shared out over row groups by their stored size.
    fn part_bytes(&self, part: usize) -> u64 {
        let size = |group: &RowGroupMetaData| u64::try_from(group.compressed_size()).unwrap_or(0).max(1);
        let groups = self.metadata.metadata().row_groups();
        let all: u64 = groups.iter().map(size).sum();
        (u128::from(self.bytes) * u128::from(size(&groups[part])) / u128::from(all.max(1))) as u64
    }

    /// Where the chunks of a row group lie, of all columns or of one: ascending, those that touch as one.
    fn ranges(&self, part: usize, only: Option<usize>) -> Vec<Range<u64>> {
        let descriptor = self.metadata.parquet_schema();
        let columns = self.metadata.metadata().row_group(part).columns().iter().enumerate();
        let wanted = columns.filter(|(leaf, _)| only.is_none_or(|only| descriptor.get_column_root_idx(*leaf) == only));
        let range = |(_, column): (usize, &ColumnChunkMetaData)| {
            let (start, bytes) = column.byte_range();
            start..start.saturating_add(bytes)
        };
        let mut ranges: Vec<Range<u64>> = wanted.map(range).filter(|range| !range.is_empty()).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        ranges.dedup_by(|next, last| {
            let touches = next.start <= last.end;
            if touches {
                last.end = last.end.max(next.end);
            }
            touches
        });
        ranges
    }

    /// Checks what the pages of a row group ask for, of all columns or of one.
    fn check_sizes(&self, file: &PartBytes, part: usize, only: Option<usize>) -> Result<(), Fault> {
        let descriptor = self.metadata.parquet_schema();
        let read = |at: u64, bytes: &mut [u8]| file.fill(bytes, at).map_err(|error| error.to_string());
        for (leaf, column) in self.metadata.metadata().row_group(part).columns().iter().enumerate() {
            if only.is_none_or(|only| descriptor.get_column_root_idx(leaf) == only) {
                let (start, bytes) = column.byte_range();
                check_pages(&read, start, start.saturating_add(bytes)).map_err(|what| {
                    let name = column.column_path().string();
                    damaged(self.place.name(), format_args!("column {name}: {what}")).hint("write it with smaller pages")
                })?;
            }
        }
        Ok(())
    }

    /// Rows of a batch, fewer than asked for where rows are large.
    fn rows_within_bound(&self, part: usize, batch_rows: usize) -> usize {
        let group = self.metadata.metadata().row_group(part);
        let row_bytes = (group.total_byte_size().max(1) / group.num_rows().max(1)).saturating_add(1);
        let rows_max = usize::try_from(BATCH_BYTES_MAX / row_bytes).unwrap_or(1).max(1);
        batch_rows.min(rows_max)
    }
}

impl Source for ParquetSource {
    fn path(&self) -> &Path {
        self.place.name()
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn parts(&self) -> usize {
        self.metadata.metadata().num_row_groups()
    }

    fn read(&self, part: usize, batch_rows: usize, only: Option<usize>) -> Result<Chunks, Fault> {
        let file = self.place.part(&self.ranges(part, only), self.bytes)?;
        self.check_sizes(&file, part, only)?;
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
            .with_row_groups(vec![part])
            .with_batch_size(self.rows_within_bound(part, batch_rows));
        if let Some(column) = only {
            builder = builder.with_projection(ProjectionMask::roots(self.metadata.parquet_schema(), [column]));
        }
        let schema = match only {
            Some(column) => Arc::new(self.schema.project(&[column]).map_err(Fault::bug)?),
            None => Arc::clone(&self.schema),
        };
        let path = self.place.name().to_owned();
        let reader = builder.build().map_err(|error| damaged(&path, error))?;
        let rows = u64::try_from(self.metadata.metadata().row_group(part).num_rows()).unwrap_or(0).max(1);
        let bytes = self.part_bytes(part);
        Ok(Box::new(reader.map(move |batch| {
            let batch = batch.and_then(|batch| converted(batch, &schema)).map_err(|error| damaged(&path, error))?;
            let share = u128::from(bytes) * batch.num_rows() as u128 / u128::from(rows);
            Ok(Chunk { batch, bytes: share as u64 })
        })))
    }
}

/// The decoder allocates what the footer asks for, so that has to be true.
fn check_group(path: &Path, group: &RowGroupMetaData, file_bytes: u64) -> Result<(), Fault> {
    if group.num_rows() < 0 {
        return Err(damaged(path, "a row group has fewer than no rows"));
    }
    for column in group.columns() {
        let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
        let end = start.checked_add(column.compressed_size());
        let within = start >= 0 && column.compressed_size() >= 0 && end.is_some_and(|end| end.unsigned_abs() <= file_bytes);
        if !within {
            let name = column.column_path().string();
            return Err(damaged(path, format_args!("column {name} should lie beyond the file's {file_bytes} bytes")));
        }
    }
    Ok(())
}

/// Lets the decoder give the types that are stored (texts as views of the pages, say), where it can.
fn as_stored(metadata: ArrowReaderMetadata) -> ArrowReaderMetadata {
    let Ok(schema) = normalise(metadata.schema()) else {
        return metadata;
    };
    let options = ArrowReaderOptions::new().with_schema(schema);
    ArrowReaderMetadata::try_new(metadata.metadata().clone(), options).unwrap_or(metadata)
}
