//! Writing a slice: a file of one row group, whose pages have the rows of the slice's pages.

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use pithead_model::PAGE_ROWS;

use super::NAME;
use crate::SliceError;

/// Refuses types whose values do not come back as they were.
pub(super) fn supports(field: &Field) -> Result<(), SliceError> {
    match holds(field.data_type()) {
        true => Ok(()),
        false => Err(SliceError::Unsupported {
            column: field.name().clone(),
            data_type: field.data_type().to_string(),
            encoding: NAME,
        }),
    }
}

fn holds(data_type: &DataType) -> bool {
    use DataType::*;
    match data_type {
        Interval(_) | Union(..) | RunEndEncoded(..) | ListView(_) | LargeListView(_) | Dictionary(..) => false,
        List(item) | LargeList(item) => holds(item.data_type()),
        FixedSizeList(item, size) => *size > 0 && holds(item.data_type()),
        Map(entries, _) => holds(entries.data_type()),
        // There is no group without members.
        Struct(members) => !members.is_empty() && members.iter().all(|member| holds(member.data_type())),
        _ => true,
    }
}

pub(super) fn write_file(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<u8>, SliceError> {
    let codec = |error: parquet::errors::ParquetError| SliceError::Codec { encoding: NAME, what: error.to_string() };
    let level = ZstdLevel::try_new(1).map_err(codec)?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS)
        .set_max_row_group_row_count(None)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), schema.clone(), Some(properties)).map_err(codec)?;
    for batch in batches {
        writer.write(batch).map_err(codec)?;
    }
    writer.into_inner().map_err(codec)
}
