//! Arrow IPC and Parquet.

use std::io::Write;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::{FileWriter, StreamWriter};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression as Codec, GzipLevel, ZstdLevel};
use parquet::file::properties::WriterProperties;
use pithead_model::SLICE_BYTES_MAX;

use super::{Compression, RowWriter, WriteError};
use crate::seconds::{Dates, converted, dates_of, has_dates, written};

/// Arrow IPC, stream format.
pub(super) struct ArrowStreamRows<W: Write>(StreamWriter<W>);

impl<W: Write> ArrowStreamRows<W> {
    pub(super) fn new(schema: &SchemaRef, out: W) -> Result<Self, WriteError> {
        Ok(Self(StreamWriter::try_new(out, schema)?))
    }
}

impl<W: Write> RowWriter for ArrowStreamRows<W> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        Ok(self.0.write(batch)?)
    }

    fn finish(mut self: Box<Self>) -> Result<(), WriteError> {
        Ok(self.0.finish()?)
    }
}

/// Arrow IPC, file format.
pub(super) struct ArrowFileRows<W: Write>(FileWriter<W>);

impl<W: Write> ArrowFileRows<W> {
    pub(super) fn new(schema: &SchemaRef, out: W) -> Result<Self, WriteError> {
        Ok(Self(FileWriter::try_new(out, schema)?))
    }
}

impl<W: Write> RowWriter for ArrowFileRows<W> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        Ok(self.0.write(batch)?)
    }

    fn finish(mut self: Box<Self>) -> Result<(), WriteError> {
        Ok(self.0.finish()?)
    }
}

/// Bytes of a row group, which is in memory until it ends. One of so many that is attached in place is one slice.
const GROUP_BYTES_MAX: usize = SLICE_BYTES_MAX / 4 * 3;

/// Parquet.
pub(super) struct ParquetRows<W: Write + Send>(Begun<W>);

/// A file of Parquet, and whether it has begun. One with dates in milliseconds begins with the first rows, which say whether its
/// dates are days.
enum Begun<W: Write + Send> {
    Not(SchemaRef, W, WriterProperties),
    Yes(ArrowWriter<W>, SchemaRef, Vec<Dates>),
    Failed,
}

impl<W: Write + Send> ParquetRows<W> {
    pub(super) fn new(compression: Option<Compression>, schema: &SchemaRef, out: W) -> Result<Self, WriteError> {
        let codec = match compression {
            None | Some(Compression::Zstd) => Codec::ZSTD(ZstdLevel::default()),
            Some(Compression::None) => Codec::UNCOMPRESSED,
            Some(Compression::Gzip) => Codec::GZIP(GzipLevel::default()),
            Some(Compression::Snappy) => Codec::SNAPPY,
            Some(Compression::Lz4) => Codec::LZ4_RAW,
        };
        let properties = WriterProperties::builder().set_compression(codec);
        let properties = properties.set_max_row_group_bytes(Some(GROUP_BYTES_MAX)).build();
        let mut rows = Self(Begun::Not(Arc::clone(schema), out, properties));
        if !schema.fields().iter().any(|field| has_dates(field.data_type())) {
            rows.begin(None)?;
        }
        Ok(rows)
    }

    /// Begins the file, if it has not begun, by its first rows.
    fn begin(&mut self, first: Option<&RecordBatch>) -> Result<(), WriteError> {
        self.0 = match std::mem::replace(&mut self.0, Begun::Failed) {
            Begun::Not(schema, out, properties) => {
                let of_column = |column| first.map_or(Dates::Days, |first| dates_of(first.column(column)));
                let dates: Vec<Dates> = (0..schema.fields().len()).map(of_column).collect();
                let written = written(&schema, &|column| dates[column]);
                Begun::Yes(ArrowWriter::try_new(out, Arc::clone(&written), Some(properties))?, written, dates)
            }
            begun => begun,
        };
        Ok(())
    }
}

impl<W: Write + Send> RowWriter for ParquetRows<W> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.begin(Some(batch))?;
        let Begun::Yes(writer, schema, dates) = &mut self.0 else { return Err(not_begun()) };
        for ((column, field), dates) in batch.columns().iter().zip(schema.fields()).zip(dates) {
            if *dates == Dates::Days && dates_of(column) == Dates::Moments {
                let what = "a date has a time of day after rows whose dates were written as days";
                return Err(WriteError::Rows(format!("column {}: {what}", field.name())));
            }
        }
        Ok(writer.write(&converted(batch.clone(), schema)?)?)
    }

    fn finish(mut self: Box<Self>) -> Result<(), WriteError> {
        self.begin(None)?;
        let Begun::Yes(mut writer, ..) = self.0 else { return Err(not_begun()) };
        writer.finish()?;
        Ok(())
    }
}

fn not_begun() -> WriteError {
    WriteError::Rows("the file could not be begun".to_owned())
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, Int32Array, StringViewArray};
    use arrow::ipc::reader::FileReader;
    use bytes::Bytes;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;
    use crate::{Format, NewFile, WriteOptions, file_writer};

    #[test]
    fn files_read_back_as_they_were() {
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("n", Arc::new(Int32Array::from(vec![None, Some(2)])) as Arc<dyn Array>, true),
            ("name", Arc::new(StringViewArray::from(vec![Some("a"), None])), true),
        ])
        .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let codecs = [Compression::None, Compression::Gzip, Compression::Zstd, Compression::Snappy, Compression::Lz4];
        let parquet = codecs.map(|codec| WriteOptions { compression: Some(codec), ..WriteOptions::new(Format::Parquet) });
        for options in parquet.into_iter().chain([WriteOptions::new(Format::ArrowIpc)]) {
            let path = folder.path().join("rows");
            let mut out = NewFile::create(&path).unwrap();
            let mut writer = file_writer(&options, &batch.schema(), &mut out).unwrap();
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
            out.finish().unwrap();
            let file = std::fs::File::open(&path).unwrap();
            let read: Vec<RecordBatch> = match options.format {
                Format::ArrowIpc => FileReader::try_new(file, None).unwrap().map(Result::unwrap).collect(),
                _ => ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap().map(Result::unwrap).collect(),
            };
            assert_eq!(read, std::slice::from_ref(&batch), "{options:?}");
        }
    }

    /// A regression: up to 1,048,576 rows were one row group, and in memory, however wide they were.
    #[test]
    fn wide_rows_are_written_in_several_row_groups() {
        let texts: Vec<String> = (0..8).map(|row| format!("{row}").repeat(1 << 20)).collect();
        let batch = RecordBatch::try_from_iter([("s", Arc::new(StringViewArray::from(texts)) as Arc<dyn Array>)]).unwrap();
        let mut out = Vec::new();
        let mut writer = Box::new(ParquetRows::new(Some(Compression::None), &batch.schema(), &mut out).unwrap());
        (0..10).for_each(|_| writer.write(&batch).unwrap());
        writer.finish().unwrap();
        let file = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(out)).unwrap();
        let groups: Vec<i64> = file.metadata().row_groups().iter().map(|group| group.compressed_size()).collect();
        assert!(groups.len() > 1 && groups.iter().all(|bytes| *bytes <= SLICE_BYTES_MAX as i64), "{groups:?}");
        let read: usize = file.build().unwrap().map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(read, 80);
    }
}
