//! [`BoundedBatches`]: what arrow's decoders make of a text, in batches of so many rows at most, and of so many bytes of text. The
//! decoders bound rows alone: of rows of a megabyte each, a batch would be larger than the memory of a machine.

use std::io::BufRead;

use arrow::array::RecordBatch;
use arrow::csv::reader::Decoder as CsvDecoder;
use arrow::error::ArrowError;
use arrow::json::reader::Decoder as JsonDecoder;
use memchr::{memchr, memchr2};

/// Bytes of text after which a batch ends with the next row.
const BATCH_TEXT_BYTES: usize = 32 << 20;

/// A decoder of arrow's.
pub(crate) trait TextDecoder {
    /// Takes text up to a row that it has no room for. Returns how many bytes that are.
    fn decode(&mut self, text: &[u8]) -> Result<usize, ArrowError>;

    /// Whole rows that it has, of so many that it takes.
    fn rows(&self, batch_rows: usize) -> usize;

    /// Where the first byte is that may be the last one of a row. No other byte is.
    fn row_end(text: &[u8]) -> Option<usize>;

    /// The rows that it has; none: it has none. An error within a row.
    fn flush(&mut self) -> Result<Option<RecordBatch>, ArrowError>;
}

impl TextDecoder for CsvDecoder {
    fn decode(&mut self, text: &[u8]) -> Result<usize, ArrowError> {
        CsvDecoder::decode(self, text)
    }

    fn rows(&self, batch_rows: usize) -> usize {
        batch_rows - self.capacity()
    }

    fn row_end(text: &[u8]) -> Option<usize> {
        memchr2(b'\n', b'\r', text)
    }

    fn flush(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        CsvDecoder::flush(self)
    }
}

impl TextDecoder for JsonDecoder {
    fn decode(&mut self, text: &[u8]) -> Result<usize, ArrowError> {
        JsonDecoder::decode(self, text)
    }

    fn rows(&self, _batch_rows: usize) -> usize {
        self.len() - usize::from(self.has_partial_record())
    }

    fn row_end(text: &[u8]) -> Option<usize> {
        memchr(b'}', text)
    }

    fn flush(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        JsonDecoder::flush(self)
    }
}

/// The batches of a text.
pub(crate) struct BoundedBatches<R, D> {
    text: R,
    decoder: D,
    batch_rows: usize,
    batch_bytes: usize,
}

impl<R: BufRead, D: TextDecoder> BoundedBatches<R, D> {
    /// By a decoder that takes so many rows.
    pub(crate) fn new(text: R, decoder: D, batch_rows: usize) -> Self {
        Self { text, decoder, batch_rows, batch_bytes: BATCH_TEXT_BYTES }
    }

    fn read(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let mut taken = 0;
        loop {
            let text = self.text.fill_buf()?;
            // The decoder says only that a row has ended. So that it has ended here, no more than its end is given.
            let end = if taken >= self.batch_bytes { D::row_end(text) } else { None };
            let piece = end.map_or(text, |end| &text[..=end]);
            let (is_end, before) = (piece.is_empty(), self.decoder.rows(self.batch_rows));
            let decoded = self.decoder.decode(piece)?;
            self.text.consume(decoded);
            taken += decoded;
            let rows = self.decoder.rows(self.batch_rows);
            if is_end || rows >= self.batch_rows || (end.is_some() && rows > before) {
                return self.decoder.flush();
            }
        }
    }
}

impl<R: BufRead, D: TextDecoder> Iterator for BoundedBatches<R, D> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;
    use std::sync::Arc;

    use arrow::compute::concat_batches;
    use arrow::csv::ReaderBuilder as CsvBuilder;
    use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
    use arrow::json::ReaderBuilder as JsonBuilder;

    use super::*;

    const BATCH_ROWS: usize = 100;
    /// Of the rows below.
    const ROW_BYTES_MIN: usize = 40;

    fn schema() -> SchemaRef {
        let field = |name| Field::new(name, DataType::Utf8, true);
        Arc::new(Schema::new(vec![field("k"), field("s")]))
    }

    /// The rows of each batch, and all of them together.
    fn read<D: TextDecoder>(text: &str, buffer: usize, batch_bytes: usize, decoder: D) -> (Vec<usize>, RecordBatch) {
        let text = BufReader::with_capacity(buffer, text.as_bytes());
        let batches = BoundedBatches { batch_bytes, ..BoundedBatches::new(text, decoder, BATCH_ROWS) };
        let batches: Vec<RecordBatch> = batches.map(Result::unwrap).collect();
        let rows = batches.iter().map(RecordBatch::num_rows).collect();
        (rows, concat_batches(&batches[0].schema(), &batches).unwrap())
    }

    fn check<D: TextDecoder>(text: &str, decoder: impl Fn() -> D) {
        let (whole, expected) = read(text, 1 << 20, usize::MAX, decoder());
        assert_eq!(whole, [100, 20]);
        for buffer in [1, 7, 1_000] {
            let (rows, read) = read(text, buffer, 64, decoder());
            let rows_max = (64 + buffer) / ROW_BYTES_MIN + 1;
            assert!(rows.iter().all(|rows| *rows <= rows_max), "{rows:?} of {text:?} by {buffer}");
            assert_eq!(read, expected, "{text:?} by {buffer}");
        }
    }

    #[test]
    fn a_batch_of_csv_ends_with_a_row_once_it_has_its_bytes() {
        let field = "\"a text, with \"\"quotes\"\" and\nan end of a line\"";
        for end in ["\n", "\r\n", "\r", "\n\n"] {
            let text: String = (0..120).map(|row| format!("{row},{field}{end}")).collect();
            let builder = || CsvBuilder::new(schema()).with_header(false).with_batch_size(BATCH_ROWS);
            check(&text, || builder().build_decoder());
            let header = format!("k,s{end}{text}");
            check(&header, || builder().with_header(true).build_decoder());
        }
    }

    #[test]
    fn a_batch_of_json_ends_with_a_row_once_it_has_its_bytes() {
        let decoder = || JsonBuilder::new(schema()).with_batch_size(BATCH_ROWS).build_decoder().unwrap();
        // Rows of a line and of several, and a line of several rows.
        for (within, end) in [(" ", "\n"), ("\n", "\n"), (" ", " "), ("\n", " "), (" ", "\r\n\r\n")] {
            let row = |row| format!("{{\"k\": \"{row}\",{within}\"s\": \"a text that {{takes}} bytes\"}}{end}");
            let text: String = (0..120).map(row).collect();
            check(&text, decoder);
        }
    }
}
