//! Footers: reading and checking them. What a footer says of places and sizes is checked before anybody goes there.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::ARROW_SCHEMA_META_KEY;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, KeyValue, PageIndexPolicy, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
    ParquetStatisticsPolicy, RowGroupMetaData,
};
use parquet::file::reader::{ChunkReader, Length};
use pithead_model::RESERVED;

use crate::{ReadAt, SliceError, normalise};

pub(super) const MAGIC: [u8; 4] = *b"PAR1";
/// The magic of a file whose footer is encrypted.
const ENCRYPTED: [u8; 4] = *b"PARE";
/// A footer's length, and the magic.
pub(super) const TAIL_BYTES: usize = 8;
/// The bytes at a file's end that are read at first: most footers are within.
const END_BYTES: u64 = 64 << 10;
const FOOTER_BYTES_MAX: u64 = 256 << 20;
/// The most rows of a row group.
const GROUP_ROWS_MAX: i64 = 1 << 31;

pub(super) fn damaged(what: impl std::fmt::Display) -> SliceError {
    SliceError::Corrupt(what.to_string())
}

/// Reads a file's footer, with at most two reads.
pub(super) fn read(file: &dyn ReadAt) -> Result<ParquetMetaData, SliceError> {
    let size = file.bytes();
    let mut end = file.read_at(size.saturating_sub(END_BYTES)..size)?;
    let bytes = footer_bytes(&end, size)?;
    if bytes + TAIL_BYTES as u64 > end.len() as u64 {
        end = file.read_at(size - TAIL_BYTES as u64 - bytes..size)?;
    }
    let footer_end = end.len() - TAIL_BYTES;
    parse(&end[footer_end - bytes as usize..footer_end])
}

/// The length of the footer of a file of `size` bytes, from its last bytes.
pub(super) fn footer_bytes(end: &[u8], size: u64) -> Result<u64, SliceError> {
    let tail = end.last_chunk::<TAIL_BYTES>().ok_or_else(|| damaged("it is too short for a Parquet file"))?;
    let (length, magic) = tail.split_at(4);
    if magic == ENCRYPTED {
        return Err(SliceError::Schema("its footer is encrypted, which this release cannot read".into()));
    }
    if magic != MAGIC {
        return Err(damaged("it does not end as a Parquet file does"));
    }
    let bytes = u64::from(u32::from_le_bytes([length[0], length[1], length[2], length[3]]));
    let room = size.saturating_sub((TAIL_BYTES + MAGIC.len()) as u64).min(FOOTER_BYTES_MAX);
    if bytes > room { Err(damaged(format!("its footer has {bytes} bytes, and at most {room} can be"))) } else { Ok(bytes) }
}

/// Parses a footer. Where only the statistics cannot be read, the file is read without them.
pub(super) fn parse(footer: &[u8]) -> Result<ParquetMetaData, SliceError> {
    let plain = ParquetMetaDataOptions::new();
    let error = match ParquetMetaDataReader::decode_metadata_with_options(footer, Some(&plain)) {
        Ok(found) => return Ok(found),
        Err(error) => error,
    };
    let without = plain.with_column_stats_policy(ParquetStatisticsPolicy::SkipAll);
    ParquetMetaDataReader::decode_metadata_with_options(footer, Some(&without)).map_err(|_| damaged(error))
}

/// Checks a row group whose chunks lie in these bytes of a file.
pub(super) fn check_group(group: &RowGroupMetaData, within: &Range<u64>) -> Result<(), SliceError> {
    let rows = group.num_rows();
    if !(0..=GROUP_ROWS_MAX).contains(&rows) {
        return Err(damaged(format!("a row group has {rows} rows")));
    }
    if group.num_columns() != group.schema_descr().num_columns() {
        return Err(damaged("a row group has other columns than the file"));
    }
    if rows == 0 {
        // Nothing of it is read, and writers say of its chunks what they like.
        return Ok(());
    }
    group.columns().iter().try_for_each(|column| {
        check_chunk(column, rows, within).map_err(|what| damaged(format!("column {}: {what}", column.column_path().string())))
    })
}

fn check_chunk(column: &ColumnChunkMetaData, rows: i64, within: &Range<u64>) -> Result<(), String> {
    if column.file_path().is_some() {
        return Err("it lies in another file".into());
    }
    let range = chunk_range(column).filter(|range| within.start <= range.start && range.end <= within.end);
    let range = range.ok_or_else(|| format!("it should lie outside of bytes {} to {}", within.start, within.end))?;
    if !range.contains(&(column.data_page_offset() as u64)) {
        return Err("its pages lie outside of it".into());
    }
    // Values of lists are more than rows; of other columns, one for each.
    let flat = column.column_descr().max_rep_level() == 0;
    if column.num_values() < 0 || flat && column.num_values() != rows {
        return Err(format!("it has {} values for {rows} rows", column.num_values()));
    }
    Ok(())
}

/// Where a column chunk lies.
pub(super) fn chunk_range(column: &ColumnChunkMetaData) -> Option<Range<u64>> {
    let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
    let start = u64::try_from(start).ok()?;
    u64::try_from(column.data_page_offset()).ok()?;
    Some(start..start.checked_add(u64::try_from(column.compressed_size()).ok()?)?)
}

/// The decoder's view of a file: the types that datasets have, where it can give them itself.
pub(super) fn decoder(metadata: Arc<ParquetMetaData>) -> Result<ArrowReaderMetadata, SliceError> {
    let noted = ArrowReaderMetadata::try_new(Arc::clone(&metadata), ArrowReaderOptions::new());
    // The Arrow schema that a writer noted may be of another release, or of no use.
    let plain = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let read = noted.or_else(|_| ArrowReaderMetadata::try_new(metadata, plain)).map_err(damaged)?;
    let Ok(normal) = normalise(read.schema()) else { return Ok(read) };
    if normal.fields() == read.schema().fields() {
        return Ok(read);
    }
    let options = ArrowReaderOptions::new().with_schema(normal);
    Ok(ArrowReaderMetadata::try_new(Arc::clone(read.metadata()), options).unwrap_or(read))
}

/// The columns as datasets have them, without the writer's notes about them.
pub(crate) fn dataset_schema(read: &Schema) -> Result<SchemaRef, SliceError> {
    let normal = normalise(read)?;
    if let Some(field) = normal.fields().iter().find(|field| field.name().contains(RESERVED)) {
        return Err(SliceError::Schema(format!("the column {:?} has a NUL character in its name", field.name())));
    }
    Ok(Arc::new(Schema::new(without_notes(normal.fields()))))
}

fn without_notes(fields: &Fields) -> Fields {
    fields.iter().map(|field| Arc::new(without_note(field))).collect()
}

fn without_note(field: &FieldRef) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.retain(|key, _| key.starts_with("ARROW:extension:"));
    let inner = |item: &FieldRef| Arc::new(without_note(item));
    let data_type = match field.data_type() {
        DataType::List(item) => DataType::List(inner(item)),
        DataType::LargeList(item) => DataType::LargeList(inner(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(inner(item), *size),
        DataType::Map(entries, sorted) => DataType::Map(inner(entries), *sorted),
        DataType::Struct(fields) => DataType::Struct(without_notes(fields)),
        other => other.clone(),
    };
    Field::new(field.name(), data_type, field.is_nullable()).with_metadata(metadata)
}

/// The note of the Arrow schema in a file's footer.
pub(super) fn arrow_note(metadata: &ParquetMetaData) -> Option<KeyValue> {
    let notes = metadata.file_metadata().key_value_metadata()?;
    notes.iter().find(|note| note.key == ARROW_SCHEMA_META_KEY).cloned()
}

/// One kind of index of a row group's pages, if it is there and can be read.
pub(super) fn read_index(
    file: &dyn ReadAt,
    group: ParquetMetaData,
    offsets: PageIndexPolicy,
    bounds: PageIndexPolicy,
) -> Result<Option<ParquetMetaData>, SliceError> {
    let source = Whole { file, failed: Mutex::new(None) };
    let reader = ParquetMetaDataReader::new_with_metadata(group);
    let mut reader = reader.with_offset_index_policy(offsets).with_column_index_policy(bounds);
    let read = crate::guard::guarded(|| Ok(reader.read_page_indexes(&source).and_then(|()| reader.finish()).ok()));
    match source.failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(read.unwrap_or(None)),
    }
}

/// A file as the library reads it.
struct Whole<'a> {
    file: &'a dyn ReadAt,
    failed: Mutex<Option<SliceError>>,
}

impl Length for Whole<'_> {
    fn len(&self) -> u64 {
        self.file.bytes()
    }
}

impl ChunkReader for Whole<'_> {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Err(ParquetError::General(format!("nobody reads from {start} on")))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let end = start.saturating_add(length as u64).min(self.file.bytes());
        self.file.read_at(start..end).map_err(|error| {
            let text = error.to_string();
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            ParquetError::General(text)
        })
    }
}
