//! Arrow IPC and Parquet.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::{FileWriter, StreamWriter};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use crate::error::CliError;
use crate::output::{RowWriter, Sink};

/// Arrow IPC, stream format.
pub(crate) struct ArrowStreamRows<'a>(StreamWriter<&'a mut Sink>);

impl<'a> ArrowStreamRows<'a> {
    pub(crate) fn new(schema: &SchemaRef, sink: &'a mut Sink) -> Result<Self, CliError> {
        Ok(Self(StreamWriter::try_new(sink, schema)?))
    }
}

impl RowWriter for ArrowStreamRows<'_> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), CliError> {
        Ok(self.0.write(batch)?)
    }

    fn finish(mut self: Box<Self>) -> Result<(), CliError> {
        Ok(self.0.finish()?)
    }
}

/// Arrow IPC, file format.
pub(crate) struct ArrowFileRows<'a>(FileWriter<&'a mut Sink>);

impl<'a> ArrowFileRows<'a> {
    pub(crate) fn new(schema: &SchemaRef, sink: &'a mut Sink) -> Result<Self, CliError> {
        Ok(Self(FileWriter::try_new(sink, schema)?))
    }
}

impl RowWriter for ArrowFileRows<'_> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), CliError> {
        Ok(self.0.write(batch)?)
    }

    fn finish(mut self: Box<Self>) -> Result<(), CliError> {
        Ok(self.0.finish()?)
    }
}

/// Parquet with zstd.
pub(crate) struct ParquetRows<'a>(ArrowWriter<&'a mut Sink>);

impl<'a> ParquetRows<'a> {
    pub(crate) fn new(schema: &SchemaRef, sink: &'a mut Sink) -> Result<Self, CliError> {
        let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
        Ok(Self(ArrowWriter::try_new(sink, Arc::clone(schema), Some(properties))?))
    }
}

impl RowWriter for ParquetRows<'_> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), CliError> {
        Ok(self.0.write(batch)?)
    }

    fn finish(mut self: Box<Self>) -> Result<(), CliError> {
        self.0.finish()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, Int32Array, StringViewArray};
    use arrow::ipc::reader::FileReader;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;
    use crate::output::{Format, row_writer};

    #[test]
    fn files_read_back_as_they_were() {
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("n", Arc::new(Int32Array::from(vec![None, Some(2)])) as Arc<dyn Array>, true),
            ("name", Arc::new(StringViewArray::from(vec![Some("a"), None])), true),
        ])
        .unwrap();
        let folder = tempfile::tempdir().unwrap();
        for format in [Format::Arrow, Format::Parquet] {
            let path = folder.path().join("rows");
            let mut sink = Sink::file(&path).unwrap();
            let mut writer = row_writer(format, &batch.schema(), &mut sink).unwrap();
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
            sink.finish().unwrap();
            let file = std::fs::File::open(&path).unwrap();
            let read: Vec<RecordBatch> = match format {
                Format::Arrow => FileReader::try_new(file, None).unwrap().map(Result::unwrap).collect(),
                _ => ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap().map(Result::unwrap).collect(),
            };
            assert_eq!(read, std::slice::from_ref(&batch), "{format:?}");
        }
    }
}
