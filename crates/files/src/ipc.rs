//! Arrow IPC: files, in up to 16 parts, and streams.

use std::io::{BufReader, Read, Seek, SeekFrom};
use std::iter;
use std::ops::Range;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::reader::{FileReader, StreamReader, read_footer_length};
use arrow::ipc::{Message, MessageHeader, root_as_footer, root_as_message};
use pithead_model::Fault;
use pithead_slice::check_batch;

use crate::input::Input;
use crate::source::{Chunk, Chunks, Source, damaged, unreadable};
use crate::spool::At;

const PARTS_MAX: usize = 16;

#[derive(Debug)]
pub(crate) struct IpcSource {
    path: PathBuf,
    /// None: a file of this machine, which is opened when it is read, so that many files need no handles.
    fetched: Option<At>,
    bytes: u64,
    schema: SchemaRef,
    batches: usize,
    is_stream: bool,
}

impl IpcSource {
    /// Reads the schema, and checks that what the file names lies within it.
    pub(crate) fn open(input: &Input) -> Result<Self, Fault> {
        let path = input.name();
        let mut file = input.whole()?;
        let fetched = matches!(input, Input::Remote(_)).then(|| file.clone());
        let bytes = file.size();
        let is_stream = !is_file(&mut file, path)?;
        let (schema, batches) = match is_stream {
            false => {
                check_file(&mut file, bytes).map_err(|what| damaged(path, what))?;
                let reader = FileReader::try_new_buffered(file, None).map_err(|error| told(path, &error))?;
                (reader.schema(), reader.num_batches())
            }
            true => {
                let batches = check_stream(&mut file, bytes).map_err(|what| damaged(path, what))?;
                let reader = StreamReader::try_new_buffered(file, None).map_err(|error| told(path, &error))?;
                (reader.schema(), batches)
            }
        };
        Ok(Self { path: path.to_owned(), fetched, bytes, schema, batches, is_stream })
    }
}

impl Source for IpcSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn parts(&self) -> usize {
        self.batches.min(if self.is_stream { 1 } else { PARTS_MAX })
    }

    fn read(&self, part: usize, batch_rows: usize, only: Option<usize>) -> Result<Chunks, Fault> {
        let file = match &self.fetched {
            Some(fetched) => fetched.clone(),
            None => Input::Local(self.path.clone()).whole()?,
        };
        let path = self.path.clone();
        let projection = only.map(|column| vec![column]);
        let bytes = self.bytes / self.batches.max(1) as u64;
        let batches: Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>>> = if self.is_stream {
            Box::new(StreamReader::try_new_buffered(file, projection).map_err(|error| told(&path, &error))?)
        } else {
            let (start, end) = (part * self.batches / self.parts(), (part + 1) * self.batches / self.parts());
            let mut reader = FileReader::try_new_buffered(file, projection).map_err(|error| told(&path, &error))?;
            reader.set_index(start).map_err(|error| told(&path, &error))?;
            Box::new(reader.take(end - start))
        };
        Ok(Box::new(batches.flat_map(move |batch| match batch {
            Ok(batch) => cut(batch, batch_rows, bytes),
            Err(error) => Box::new(iter::once(Err(told(&path, &error)))),
        })))
    }
}

/// The batch in pieces; the first one bears its bytes.
fn cut(batch: RecordBatch, batch_rows: usize, bytes: u64) -> Chunks {
    let starts = (0..batch.num_rows()).step_by(batch_rows);
    Box::new(starts.map(move |start| {
        let piece = batch.slice(start, batch_rows.min(batch.num_rows() - start));
        Ok(Chunk { batch: piece, bytes: if start == 0 { bytes } else { 0 } })
    }))
}

fn told(path: &Path, error: &ArrowError) -> Fault {
    damaged(path, error)
}

fn is_file(file: &mut At, path: &Path) -> Result<bool, Fault> {
    let mut magic = Vec::new();
    file.take(6).read_to_end(&mut magic).map_err(|error| unreadable(path, &error))?;
    file.rewind().map_err(|error| unreadable(path, &error))?;
    Ok(magic == b"ARROW1")
}

/// The reader allocates what the footer asks for, so the blocks that it names must lie within the file.
fn check_file(file: &mut At, bytes: u64) -> Result<(), String> {
    let trailer: [u8; 10] =
        read_at(file, bytes.checked_sub(10).ok_or("it is cut off")?, 10)?.try_into().map_err(|_| "it is cut off")?;
    let length = read_footer_length(trailer).map_err(|error| error.to_string())? as u64;
    let start = (bytes - 10).checked_sub(length).ok_or("its footer should be longer than the file")?;
    let footer = read_at(file, start, length)?;
    let footer = root_as_footer(&footer).map_err(|error| format!("its footer is damaged: {error}"))?;
    let blocks = footer.recordBatches().into_iter().flatten().chain(footer.dictionaries().into_iter().flatten());
    for block in blocks {
        let sizes = [block.offset(), i64::from(block.metaDataLength()), block.bodyLength()];
        let end = sizes.iter().try_fold(0u64, |end, size| end.checked_add(u64::try_from(*size).ok()?));
        if end.is_none_or(|end| end > bytes) {
            return Err("a batch should lie beyond its end".into());
        }
        let [start, header, body] = sizes.map(i64::unsigned_abs);
        let message = read_at(file, start, header)?;
        let marked = message.starts_with(&u32::MAX.to_le_bytes());
        let message = message.get(if marked { 8 } else { 4 }..).ok_or("a batch has no header")?;
        check_sizes(file, &message_of(message)?, start + header..start + header + body)?;
    }
    file.rewind().map_err(|error| error.to_string())
}

/// The same for each message of a stream. Returns the number of batches.
fn check_stream(file: &mut At, bytes: u64) -> Result<usize, String> {
    let aside = file.clone();
    let mut reader = BufReader::new(&mut *file);
    let mut left = bytes;
    let mut batches = 0;
    loop {
        let mut length = next_length(&mut reader, &mut left)?;
        if length == u32::MAX {
            length = next_length(&mut reader, &mut left)?;
        }
        if length == 0 {
            break;
        }
        left = left.checked_sub(u64::from(length)).ok_or("it is not an Arrow stream, or cut off")?;
        let mut header = vec![0; length as usize];
        reader.read_exact(&mut header).map_err(|_| "it is cut off")?;
        let message = message_of(&header)?;
        let body = message.bodyLength();
        let start = bytes - left;
        left = u64::try_from(body).ok().and_then(|body| left.checked_sub(body)).ok_or("it is cut off in a batch")?;
        check_sizes(&aside, &message, start..bytes - left)?;
        reader.seek_relative(body).map_err(|error| error.to_string())?;
        batches += usize::from(message.header_type() == MessageHeader::RecordBatch);
    }
    drop(reader);
    file.rewind().map_err(|error| error.to_string())?;
    Ok(batches)
}

fn message_of(header: &[u8]) -> Result<Message<'_>, String> {
    root_as_message(header).map_err(|error| format!("a message is damaged: {error}"))
}

/// Checks what the reader would make room for: the buffers of a batch, whose bytes are in `body` of the file.
fn check_sizes(file: &At, message: &Message<'_>, body: Range<u64>) -> Result<(), String> {
    let batch = message.header_as_record_batch().or_else(|| message.header_as_dictionary_batch()?.data());
    let Some(batch) = batch else { return Ok(()) };
    let mut first = |_, at: u64, into: &mut [u8]| {
        file.read_exact_at(into, body.start.saturating_add(at)).map(|()| true).map_err(|error| error.to_string())
    };
    check_batch(&batch, body.end - body.start, &mut first).map(|_| ())
}

/// A stream that just ends, without the mark, may have lost batches.
fn next_length(reader: &mut impl Read, left: &mut u64) -> Result<u32, &'static str> {
    let mut word = [0u8; 4];
    reader.read_exact(&mut word).map_err(|_| "it has no end mark; it is cut off, or no Arrow data")?;
    *left = left.checked_sub(4).ok_or("it is cut off")?;
    Ok(u32::from_le_bytes(word))
}

fn read_at(file: &mut At, start: u64, length: u64) -> Result<Vec<u8>, String> {
    file.seek(SeekFrom::Start(start)).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    Read::take(file, length).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    match bytes.len() as u64 == length {
        true => Ok(bytes),
        false => Err("it is cut off".into()),
    }
}
