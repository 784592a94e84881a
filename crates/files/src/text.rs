//! Files of text, plain or compressed with gzip or Zstandard: one part each, types inferred from the first rows.

use std::fmt::Debug;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use flate2::bufread::MultiGzDecoder;
use pithead_model::Fault;

use crate::input::Input;
use crate::source::{Chunk, Chunks, Source, damaged, fault_within, unreadable};

const BUFFER_BYTES: usize = 1 << 20;

/// Endings of names that say how a file is compressed. Its first bytes say it, too, and they count.
const COMPRESSED: [&str; 3] = ["gz", "zst", "zstd"];

/// A format of text.
pub(crate) trait TextFormat: Debug + Send + Sync {
    /// Reads all columns, or only one. Adds what is read of the file to `read`.
    fn read(
        &self,
        file: &TextSource<Self>,
        read: &Arc<AtomicU64>,
        batch_rows: usize,
        only: Option<usize>,
    ) -> Result<Batches, Fault>
    where
        Self: Sized;
}

/// The rows of a file of text.
pub(crate) type Batches = Box<dyn Iterator<Item = Result<RecordBatch, Fault>>>;

/// A file of text that was opened.
#[derive(Debug)]
pub(crate) struct TextSource<F> {
    pub(crate) input: Input,
    pub(crate) schema: SchemaRef,
    /// The schema that was guessed, whatever the columns are read as.
    pub(crate) guessed: SchemaRef,
    /// Whether the columns are read as they were guessed, of it or of several files, and not as those of a dataset.
    pub(crate) is_guessed: bool,
    pub(crate) format: F,
    bytes: u64,
}

impl<F> TextSource<F> {
    pub(crate) fn new(input: &Input, schema: Schema, format: F) -> Result<Self, Fault> {
        let bytes = input.bytes()?;
        let schema = Arc::new(schema);
        Ok(Self { input: input.clone(), guessed: Arc::clone(&schema), schema, is_guessed: true, format, bytes })
    }
}

impl<F: TextFormat> Source for TextSource<F> {
    fn path(&self) -> &Path {
        self.input.name()
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn is_typed(&self) -> bool {
        false
    }

    fn retype(&mut self, schema: SchemaRef, is_guessed: bool) {
        self.is_guessed = is_guessed;
        // NULLs in a column that has none are found later, with the column's name.
        let fields: Vec<Field> = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
        self.schema = Arc::new(Schema::new(fields));
    }

    fn parts(&self) -> usize {
        1
    }

    fn read(&self, _part: usize, batch_rows: usize, only: Option<usize>) -> Result<Chunks, Fault> {
        let read = Arc::new(AtomicU64::new(0));
        let batches = self.format.read(self, &read, batch_rows, only)?;
        let mut told = 0;
        Ok(Box::new(batches.map(move |batch| {
            let now = read.load(Ordering::Relaxed);
            let bytes = now - std::mem::replace(&mut told, now);
            Ok(Chunk { batch: batch?, bytes })
        })))
    }
}

/// What a decoder met: something that a server said, or bytes that are not of the format.
pub(crate) fn told(path: &Path, error: &ArrowError) -> Fault {
    let said = match error {
        ArrowError::IoError(_, error) => fault_within(error),
        _ => None,
    };
    said.unwrap_or_else(|| damaged(path, plain(error)))
}

/// A text that remembers why it could not be read: of that, libraries that guess types keep nothing but words.
pub(crate) struct GuessedText {
    text: Box<dyn BufRead>,
    met: Arc<OnceLock<Fault>>,
}

impl GuessedText {
    /// Of a file, from its start.
    pub(crate) fn open(input: &Input, met: &Arc<OnceLock<Fault>>) -> Result<GuessedText, Fault> {
        Ok(GuessedText::new(open_text(input, &Arc::default())?, met))
    }

    pub(crate) fn new(text: Box<dyn BufRead>, met: &Arc<OnceLock<Fault>>) -> GuessedText {
        GuessedText { text, met: Arc::clone(met) }
    }
}

impl Read for GuessedText {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.text.read(buffer).inspect_err(|error| remember(&self.met, error))
    }
}

impl BufRead for GuessedText {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        self.text.fill_buf().inspect_err(|error| remember(&self.met, error))
    }

    fn consume(&mut self, amount: usize) {
        self.text.consume(amount);
    }
}

fn remember(met: &OnceLock<Fault>, error: &std::io::Error) {
    if let Some(fault) = fault_within(error) {
        let _ = met.set(fault);
    }
}

/// The error without the library's own heading.
pub(crate) fn plain(error: &ArrowError) -> String {
    match error {
        ArrowError::ParseError(text)
        | ArrowError::CsvError(text)
        | ArrowError::JsonError(text)
        | ArrowError::SchemaError(text) => text.clone(),
        other => other.to_string(),
    }
}

/// What a name ends with, in lower case and without the ending that says how the file is compressed.
pub(crate) fn ending(path: &Path) -> Option<String> {
    match compression(path) {
        Some(_) => last_ending(Path::new(path.file_stem()?)),
        None => last_ending(path),
    }
}

/// The ending that says how a file is compressed, in lower case.
pub(crate) fn compression(path: &Path) -> Option<String> {
    last_ending(path).filter(|last| COMPRESSED.contains(&last.as_str()))
}

fn last_ending(path: &Path) -> Option<String> {
    path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase())
}

/// The text of a file. Adds what is read of the file itself to `read`.
pub(crate) fn open_text(input: &Input, read: &Arc<AtomicU64>) -> Result<Box<dyn BufRead>, Fault> {
    let unreadable = |error: std::io::Error| unreadable(input.name(), &error);
    let mut file = Counted { file: input.stream()?, read: Arc::clone(read) };
    let mut start = Vec::new();
    (&mut file).take(4).read_to_end(&mut start).map_err(unreadable)?;
    let bytes = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(start.clone()).chain(file));
    Ok(match start.as_slice() {
        [0x1f, 0x8b, ..] => Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(bytes))),
        [0x28, 0xb5, 0x2f, 0xfd] => {
            let decoder = zstd::stream::read::Decoder::with_buffer(bytes).map_err(unreadable)?;
            Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
        }
        _ => Box::new(bytes),
    })
}

/// The text of a file, without the mark of its encoding that some programs put first.
pub(crate) fn open_plain_text(input: &Input, read: &Arc<AtomicU64>) -> Result<Box<dyn BufRead>, Fault> {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    let mut text = open_text(input, read)?;
    if text.fill_buf().map_err(|error| unreadable(input.name(), &error))?.starts_with(MARK) {
        text.consume(MARK.len());
    }
    Ok(text)
}

/// Counts what is read of a file.
struct Counted<R> {
    file: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.file.read(into)?;
        self.read.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_first_bytes_say_how_a_file_is_compressed() {
        let folder = tempfile::tempdir().unwrap();
        let text = "a,b\n".repeat(100_000);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&text.as_bytes()[..200]).unwrap();
        let mut gzip = gzip.finish().unwrap();
        // A second member, as `cat a.gz b.gz` makes it.
        let mut rest = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        rest.write_all(&text.as_bytes()[200..]).unwrap();
        gzip.extend(rest.finish().unwrap());
        let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
        for (name, bytes) in [("plain.gz", text.as_bytes()), ("text", &gzip), ("text.csv", &zstd)] {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            let read = Arc::default();
            let mut found = String::new();
            open_text(&Input::Local(path), &read).unwrap().read_to_string(&mut found).unwrap();
            assert!(found == text, "{name}");
            assert_eq!(read.load(Ordering::Relaxed), bytes.len() as u64, "{name}");
        }
    }

    #[test]
    fn a_file_that_was_cut_off_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cut.csv.zst");
        let whole = zstd::encode_all("a,b\n1,2\n".repeat(10_000).as_bytes(), 1).unwrap();
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let read = Arc::default();
        assert!(open_text(&Input::Local(path), &read).unwrap().read_to_end(&mut Vec::new()).is_err());
    }

    #[test]
    fn an_ending_stands_before_that_of_the_compression() {
        for (name, expected) in
            [("a.CSV.gz", Some("csv")), ("a.tsv", Some("tsv")), ("b/a.ndjson.zst", Some("ndjson")), ("a.gz", None), ("a", None)]
        {
            assert_eq!(ending(Path::new(name)).as_deref(), expected, "{name}");
        }
    }
}
