//! Record batches as the bytes of a port: each an Arrow IPC stream with its schema and one batch.

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use arrow::ipc::{self, MessageHeader, root_as_message};
use arrow::record_batch::RecordBatch;
use bytes::Bytes;

/// The most fields of a schema, nested ones counted.
const FIELDS_MAX: usize = 4096;

/// A batch as the bytes of a port, an Arrow IPC stream of its own.
pub fn to_ipc(batch: &RecordBatch) -> Result<Bytes, ArrowError> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema())?;
    writer.write(batch)?;
    Ok(writer.into_inner()?.into())
}

/// The batches of a port's bytes, which are checked.
pub fn from_ipc(bytes: &[u8]) -> Result<Vec<RecordBatch>, ArrowError> {
    check_messages(bytes).map_err(ArrowError::IpcError)?;
    let read = || StreamReader::try_new(Cursor::new(bytes), None)?.collect();
    let contradict = |_| Err(ArrowError::IpcError("its buffers contradict its schema".to_owned()));
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(contradict)
}

/// Checks that `bytes` are a stream of one record batch with a row at least, and returns its schema. Compressed batches are refused:
/// a few of their bytes could ask for any amount of memory.
pub(crate) fn check_stream(bytes: &[u8]) -> Result<SchemaRef, String> {
    check_messages(bytes)?;
    let read = || -> Result<(SchemaRef, usize, usize), ArrowError> {
        let reader = StreamReader::try_new(Cursor::new(bytes), None)?;
        let schema = reader.schema();
        let (mut batches, mut rows) = (0, 0);
        for batch in reader {
            rows += batch?.num_rows();
            batches += 1;
        }
        Ok((schema, batches, rows))
    };
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok((schema, 1, 1..))) => Ok(schema),
        Ok(Ok((_, 1, _))) => Err("its record batch has no row; a batch of a port has one at least".to_owned()),
        Ok(Ok((_, batches, _))) => Err(format!("it is a stream of {batches} record batches; a batch of a port is one")),
        Ok(Err(error)) => Err(format!("it is no Arrow IPC stream: {error}")),
        Err(_) => Err("it is no Arrow IPC stream: its buffers contradict its schema".to_owned()),
    }
}

/// What stands before the messages of an Arrow IPC file, with zeros behind it up to whatever alignment its writer likes.
const FILE_MARK: &[u8] = b"ARROW1";

/// The batches of an Arrow IPC file, which is checked. It is read from its front, like a stream: what its footer says is not needed.
pub(crate) fn from_file(bytes: &[u8]) -> Result<Vec<RecordBatch>, String> {
    let wrong = || "it is no Arrow IPC file: it does not begin with ARROW1".to_owned();
    let behind = bytes.strip_prefix(FILE_MARK).ok_or_else(wrong)?;
    let padding = behind.iter().take_while(|byte| **byte == 0).count();
    let stream = &behind[padding..];
    let stream = &stream[..messages_end(stream)?];
    let read = || StreamReader::try_new(Cursor::new(stream), None)?.collect::<Result<Vec<_>, ArrowError>>();
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(read) => read.map_err(|error| format!("it is no Arrow IPC file: {error}")),
        Err(_) => Err("it is no Arrow IPC file: its buffers contradict its schema".to_owned()),
    }
}

/// Walks the messages, and refuses those whose lengths lie or whose bodies are compressed.
fn check_messages(bytes: &[u8]) -> Result<(), String> {
    match messages_end(bytes)? == bytes.len() {
        true => Ok(()),
        false => Err("bytes follow the end of its Arrow IPC stream".to_owned()),
    }
}

/// Where the messages end: behind the mark of the end, or with the bytes.
fn messages_end(bytes: &[u8]) -> Result<usize, String> {
    const CONTINUES: [u8; 4] = [0xff; 4];
    let mut rest = bytes;
    let cut = || "it is no Arrow IPC stream: a message is cut off".to_owned();
    while !rest.is_empty() {
        let (mark, behind) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
        if *mark != CONTINUES {
            return Err("it is no Arrow IPC stream: a message does not begin with 0xFFFFFFFF".to_owned());
        }
        let (length, behind) = behind.split_first_chunk::<4>().ok_or_else(cut)?;
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 {
            return Ok(bytes.len() - behind.len());
        }
        let (header, behind) = behind.split_at_checked(length).ok_or_else(cut)?;
        let message = root_as_message(header).map_err(|error| format!("it is no Arrow IPC stream: {error}"))?;
        let body = usize::try_from(message.bodyLength()).map_err(|_| cut())?;
        rest = behind.split_at_checked(body).ok_or_else(cut)?.1;
        check_message(&message, length, body)?;
    }
    Ok(bytes.len())
}

/// Checks what a message of so many bytes says of itself and of its body.
fn check_message(message: &ipc::Message<'_>, length: usize, body: usize) -> Result<(), String> {
    let none = || "it is no Arrow IPC stream: a message has no header of its kind".to_owned();
    match message.header_type() {
        MessageHeader::Schema => check_schema(message.header_as_schema().ok_or_else(none)?, length),
        MessageHeader::RecordBatch => check_buffers(message.header_as_record_batch().ok_or_else(none)?, body),
        MessageHeader::DictionaryBatch => {
            let dictionary = message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data());
            check_buffers(dictionary.ok_or_else(none)?, body)
        }
        _ => Ok(()),
    }
}

/// Buffers are whole, aligned, and do not overlap: if they could, the copies that Arrow's reader makes for alignment would multiply
/// a message.
fn check_buffers(batch: ipc::RecordBatch<'_>, body: usize) -> Result<(), String> {
    if batch.compression().is_some() {
        return Err("its Arrow record batch is compressed; ports take it uncompressed".to_owned());
    }
    let mut left = body as i64;
    for buffer in batch.buffers().into_iter().flatten() {
        let (offset, length) = (buffer.offset(), buffer.length());
        let is_inside = offset >= 0 && (0..=left).contains(&length) && offset <= body as i64 - length;
        if !is_inside || offset % 8 != 0 {
            return Err(format!("it is no Arrow IPC stream: a buffer of {length} bytes at {offset} in a body of {body}"));
        }
        left -= length;
    }
    Ok(())
}

/// A schema is kept for as long as its connection: it has so many fields, and its texts do not overlap, either.
fn check_schema(schema: ipc::Schema<'_>, length: usize) -> Result<(), String> {
    let mut seen = SchemaParts { fields: 0, text_bytes: 0, text_bytes_max: length };
    seen.texts(schema.custom_metadata().into_iter().flatten())?;
    schema.fields().into_iter().flatten().try_for_each(|field| seen.field(field))
}

/// What was seen of a schema.
struct SchemaParts {
    fields: usize,
    text_bytes: usize,
    text_bytes_max: usize,
}

impl SchemaParts {
    fn field(&mut self, field: ipc::Field<'_>) -> Result<(), String> {
        self.fields += 1;
        if self.fields > FIELDS_MAX {
            return Err(format!("its schema has more than {FIELDS_MAX} fields, nested ones counted"));
        }
        self.text(field.name())?;
        self.texts(field.custom_metadata().into_iter().flatten())?;
        field.children().into_iter().flatten().try_for_each(|child| self.field(child))
    }

    fn texts<'a>(&mut self, mut metadata: impl Iterator<Item = ipc::KeyValue<'a>>) -> Result<(), String> {
        metadata.try_for_each(|pair| [pair.key(), pair.value()].into_iter().try_for_each(|text| self.text(text)))
    }

    fn text(&mut self, text: Option<&str>) -> Result<(), String> {
        self.text_bytes += text.map_or(0, str::len);
        match self.text_bytes > self.text_bytes_max {
            true => Err("it is no Arrow IPC stream: texts of its schema overlap".to_owned()),
            false => Ok(()),
        }
    }
}
