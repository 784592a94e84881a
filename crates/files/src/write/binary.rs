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
pub(super) struct ParquetRows<W: Write + Send>(ArrowWriter<W>);

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
        Ok(Self(ArrowWriter::try_new(out, Arc::clone(schema), Some(properties))?))
    }
}

impl<W: Write + Send> RowWriter for ParquetRows<W> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        Ok(self.0.write(batch)?)
    }

    fn finish(mut self: Box<Self>) -> Result<(), WriteError> {
        self.0.finish()?;
        Ok(())
    }
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
