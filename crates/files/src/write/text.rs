//! Text that may be compressed, and one JSON object a line.

use std::io::{self, Write};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::json::writer::{LineDelimited, Writer as JsonWriter, WriterBuilder as JsonWriterBuilder};
use flate2::write::GzEncoder;

use super::floats::AllFloats;
use super::{Compression, RowWriter, WriteError};

/// Text on its way to be compressed.
pub(super) enum Packed<W: Write> {
    Plain(W),
    Gzip(GzEncoder<W>),
    Zstd(zstd::Encoder<'static, W>),
}

impl<W: Write> Packed<W> {
    pub(super) fn new(compression: Option<Compression>, out: W) -> Result<Self, WriteError> {
        match compression {
            None | Some(Compression::None) => Ok(Self::Plain(out)),
            Some(Compression::Gzip) => Ok(Self::Gzip(GzEncoder::new(out, flate2::Compression::default()))),
            Some(Compression::Zstd) => Ok(Self::Zstd(zstd::Encoder::new(out, 0)?)),
            Some(Compression::Snappy | Compression::Lz4) => {
                Err(WriteError::Rows("text is compressed with gzip or zstd, and not with snappy or lz4".to_owned()))
            }
        }
    }

    pub(super) fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(mut out) => out.flush(),
            Self::Gzip(encoder) => encoder.finish()?.flush(),
            Self::Zstd(encoder) => encoder.finish()?.flush(),
        }
    }
}

impl<W: Write> Write for Packed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(out) => out.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.flush(),
            Self::Gzip(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.flush(),
        }
    }
}

/// One JSON object a line, nulls written out.
pub(super) struct JsonRows<W: Write> {
    writer: JsonWriter<Packed<W>, LineDelimited>,
}

impl<W: Write> JsonRows<W> {
    pub(super) fn new(out: Packed<W>) -> Self {
        let builder = JsonWriterBuilder::new().with_explicit_nulls(true).with_encoder_factory(Arc::new(AllFloats));
        Self { writer: builder.build(out) }
    }
}

impl<W: Write> RowWriter for JsonRows<W> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        Ok(self.writer.write(batch)?)
    }

    fn finish(mut self: Box<Self>) -> Result<(), WriteError> {
        self.writer.finish()?;
        Ok(self.writer.into_inner().finish()?)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use arrow::array::{Array, Float32Array, Float64Array, Int32Array, ListArray, StringArray};
    use arrow::datatypes::{Float64Type, Int32Type};

    use super::*;
    use crate::{CsvOptions, Format, WriteOptions, file_writer, open_all};

    fn written(options: &WriteOptions, batch: &RecordBatch) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = file_writer(options, &batch.schema(), &mut out).unwrap();
        writer.write(batch).unwrap();
        writer.finish().unwrap();
        out
    }

    fn text(options: &WriteOptions, batch: &RecordBatch) -> String {
        String::from_utf8(written(options, batch)).unwrap()
    }

    fn batch() -> RecordBatch {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None]);
        RecordBatch::try_from_iter_with_nullable([
            ("n", Arc::new(Int32Array::from(vec![None, Some(2)])) as Arc<dyn Array>, true),
            ("name", Arc::new(StringArray::from(vec!["a,\"b\"", "é"])), true),
            ("list", Arc::new(lists), true),
        ])
        .unwrap()
    }

    #[test]
    fn csv_quotes_what_it_must_and_leaves_null_empty() {
        let csv = WriteOptions::new(Format::Csv);
        assert_eq!(text(&csv, &batch()), "n,name,list\n,\"a,\"\"b\"\"\",\"[1, NULL]\"\n2,é,\n");
        assert_eq!(text(&csv, &batch().slice(0, 0)), "n,name,list\n");
        let other = WriteOptions { delimiter: b';', header: false, null: "-".to_owned(), ..csv };
        assert_eq!(text(&other, &batch()), "-;\"a,\"\"b\"\"\";[1, NULL]\n2;é;-\n");
    }

    #[test]
    fn csv_has_quotes_around_texts_that_would_be_null() {
        let texts = StringArray::from(vec![Some(""), None, Some("NULL"), Some("\"\r")]);
        let numbers = Int32Array::from(vec![Some(1), None, Some(3), Some(4)]);
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("k", Arc::new(numbers) as Arc<dyn Array>, true),
            ("s", Arc::new(texts), true),
        ])
        .unwrap();
        let csv = WriteOptions::new(Format::Csv);
        assert_eq!(text(&csv, &batch), "k,s\n1,\"\"\n,\n3,NULL\n4,\"\"\"\r\"\n");
        let null = |null: &str| WriteOptions { null: null.to_owned(), header: false, ..csv.clone() };
        assert_eq!(text(&null("NULL"), &batch), "1,\nNULL,NULL\n3,\"NULL\"\n4,\"\"\"\r\"\n");
        assert_eq!(text(&null("a,b"), &batch.slice(1, 1)), "\"a,b\",\"a,b\"\n");
        // A line without anything is no row to many readers.
        assert_eq!(text(&csv, &batch.project(&[1]).unwrap().slice(0, 3)), "s\n\"\"\n\"\"\nNULL\n");
        let dictionary: arrow::array::DictionaryArray<Int32Type> = [Some("a"), None].into_iter().collect();
        let shared = RecordBatch::try_from_iter_with_nullable([
            ("d", Arc::new(dictionary) as Arc<dyn Array>, true),
            ("n", Arc::new(arrow::array::NullArray::new(2)), true),
        ]);
        assert_eq!(text(&null("-"), &shared.unwrap()), "a,-\n-,-\n");
    }

    #[test]
    fn json_is_one_object_a_line_with_nulls() {
        let expected = "{\"n\":null,\"name\":\"a,\\\"b\\\"\",\"list\":[1,null]}\n{\"n\":2,\"name\":\"é\",\"list\":null}\n";
        assert_eq!(text(&WriteOptions::new(Format::Json), &batch()), expected);
    }

    #[test]
    fn json_has_floats_that_are_no_numbers_as_duckdb_has_them() {
        let (nan, infinity) = (f64::NAN, f64::INFINITY);
        let lists = ListArray::from_iter_primitive::<Float64Type, _, _>([Some(vec![Some(nan), Some(1.5), None]), None]);
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("a", Arc::new(Float64Array::from(vec![Some(nan), None])) as Arc<dyn Array>, true),
            ("b", Arc::new(Float32Array::from(vec![f32::NEG_INFINITY, 0.5])), true),
            ("c", Arc::new(Float64Array::from(vec![infinity, 2.0])), true),
            ("d", Arc::new(lists), true),
        ])
        .unwrap();
        let expected = "{\"a\":NaN,\"b\":-Infinity,\"c\":Infinity,\"d\":[NaN,1.5,null]}\n\
                        {\"a\":null,\"b\":0.5,\"c\":2.0,\"d\":null}\n";
        assert_eq!(text(&WriteOptions::new(Format::Json), &batch), expected);
    }

    #[test]
    fn compressed_text_is_what_readers_take() {
        let folder = tempfile::tempdir().unwrap();
        for (name, compression) in [("rows.csv.gz", Compression::Gzip), ("rows.json.zst", Compression::Zstd)] {
            let path = folder.path().join(name);
            let options = WriteOptions::of_file(Path::new(name)).unwrap();
            assert_eq!(options.compression, Some(compression));
            std::fs::write(&path, written(&options, &batch().project(&[0, 1]).unwrap())).unwrap();
            let sources = open_all(&[path.display().to_string()], None, &CsvOptions::default()).unwrap();
            let rows: usize = sources[0].read(0, 100, None).unwrap().map(|chunk| chunk.unwrap().batch.num_rows()).sum();
            assert_eq!(rows, 2, "{name}");
        }
        let snappy = WriteOptions { compression: Some(Compression::Snappy), ..WriteOptions::new(Format::Csv) };
        assert!(file_writer(&snappy, &batch().schema(), Vec::new()).is_err());
    }
}
