//! A row group as a file of its own: its column chunks one behind the other, and a footer that says where they lie.
//!
//! Nothing is copied for that: the chunks stay in the file that they are in, and only the footer is new.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataBuilder, ParquetMetaDataWriter,
    RowGroupMetaData,
};
use parquet::file::page_index::offset_index::{OffsetIndexMetaData, PageLocation};

use super::footer::{MAGIC, arrow_note, chunk_range, damaged};
use crate::stored::{BodyPart, BytesPlace, Stored};
use crate::{ReadAt, SliceError};

/// The key of a footer's note that says where the columns of the dataset come from.
pub(super) const ORIGINS: &str = "pithead.origins";

/// A row group as a file of its own, without its end.
pub(super) struct Body {
    /// Of this one row group, whose places are those in `chunks`.
    pub(super) metadata: Arc<ParquetMetaData>,
    /// The magic and the column chunks.
    pub(super) chunks: Stored,
}

/// Lays out a row group of a file. `group` has this row group alone, and `locations` are those of its pages.
pub(super) fn lay_out(
    file: &Arc<dyn ReadAt>,
    group: &ParquetMetaData,
    locations: Option<&[&[PageLocation]]>,
    origins: String,
) -> Result<Body, SliceError> {
    let row_group = group.row_group(0);
    let mut parts = vec![BodyPart { start: 0, place: BytesPlace::Memory(Bytes::from_static(&MAGIC)) }];
    let mut at = MAGIC.len() as u64;
    let mut columns = Vec::with_capacity(row_group.num_columns());
    let mut shifted = Vec::with_capacity(row_group.num_columns());
    for (leaf, column) in row_group.columns().iter().enumerate() {
        let range = chunk_range(column).ok_or_else(|| damaged("a column chunk lies outside"))?;
        let shift = at as i64 - range.start as i64;
        columns.push(moved(column, shift)?);
        if let Some(locations) = locations {
            shifted.push(moved_pages(locations[leaf], shift));
        }
        add(&mut parts, file, at, &range);
        at += range.end - range.start;
    }
    let rows = row_group.num_rows();
    let builder = RowGroupMetaData::builder(row_group.schema_descr_ptr()).set_num_rows(rows);
    let builder = builder.set_total_byte_size(row_group.total_byte_size()).set_column_metadata(columns);
    let notes = arrow_note(group).into_iter().chain([KeyValue::new(ORIGINS.to_owned(), origins)]).collect();
    let known = group.file_metadata();
    let (schema, orders) = (known.schema_descr_ptr(), known.column_orders().cloned());
    let described =
        FileMetaData::new(known.version(), rows, known.created_by().map(str::to_owned), Some(notes), schema, orders);
    let metadata = ParquetMetaDataBuilder::new(described)
        .add_row_group(builder.build().map_err(damaged)?)
        .set_offset_index(locations.map(|_| vec![shifted]))
        .build();
    Ok(Body { metadata: Arc::new(metadata), chunks: Stored::of(parts) })
}

/// Adds bytes of the file, to the part before them where they follow it in the file, too.
fn add(parts: &mut Vec<BodyPart>, file: &Arc<dyn ReadAt>, at: u64, range: &Range<u64>) {
    if range.is_empty() {
        return;
    }
    match parts.last_mut().map(|part| &mut part.place) {
        Some(BytesPlace::File(_, last)) if last.end == range.start => last.end = range.end,
        _ => parts.push(BodyPart { start: at, place: BytesPlace::File(Arc::clone(file), range.clone()) }),
    }
}

/// A column chunk at another place. Its indexes and its Bloom filter stay behind.
fn moved(column: &ColumnChunkMetaData, shift: i64) -> Result<ColumnChunkMetaData, SliceError> {
    let builder = column.clone().into_builder();
    let builder = builder
        .set_data_page_offset(column.data_page_offset() + shift)
        .set_dictionary_page_offset(column.dictionary_page_offset().map(|offset| offset + shift))
        .set_index_page_offset(None)
        .set_bloom_filter_offset(None)
        .set_bloom_filter_length(None)
        .set_offset_index_offset(None)
        .set_offset_index_length(None)
        .set_column_index_offset(None)
        .set_column_index_length(None);
    builder.build().map_err(damaged)
}

fn moved_pages(pages: &[PageLocation], shift: i64) -> OffsetIndexMetaData {
    let page = |page: &PageLocation| PageLocation {
        offset: page.offset + shift,
        compressed_page_size: page.compressed_page_size,
        first_row_index: page.first_row_index,
    };
    OffsetIndexMetaData { page_locations: pages.iter().map(page).collect(), unencoded_byte_array_data_bytes: None }
}

/// The end of a file whose chunks end at `start`: the index of pages, and the footer.
pub(super) fn end_of(metadata: &ParquetMetaData, start: u64) -> Result<Vec<u8>, SliceError> {
    let mut end = Behind { skip: start, bytes: Vec::new() };
    let mut counted = parquet::file::writer::TrackedWrite::new(&mut end);
    pass(&mut counted, start).map_err(damaged)?;
    ParquetMetaDataWriter::new_with_tracked(counted, metadata).finish().map_err(damaged)?;
    Ok(end.bytes)
}

/// Lets a writer count so many bytes, which [`Behind`] drops without a look.
fn pass(writer: &mut impl Write, mut bytes: u64) -> io::Result<()> {
    static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
    while bytes > 0 {
        let some = bytes.min(ZEROS.len() as u64);
        writer.write_all(&ZEROS[..some as usize])?;
        bytes -= some;
    }
    writer.flush()
}

/// Keeps what is written behind the first bytes.
struct Behind {
    skip: u64,
    bytes: Vec<u8>,
}

impl Write for Behind {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let skipped = self.skip.min(bytes.len() as u64);
        self.skip -= skipped;
        self.bytes.extend_from_slice(&bytes[skipped as usize..]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
