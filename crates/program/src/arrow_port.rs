//! Record batches as the bytes of a port: each an Arrow IPC stream with its schema and one batch.

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use arrow::ipc::{MessageHeader, root_as_message};
use arrow::record_batch::RecordBatch;
use bytes::Bytes;

/// A batch as the bytes of a port, an Arrow IPC stream of its own.
pub fn to_ipc(batch: &RecordBatch) -> Result<Bytes, ArrowError> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema())?;
    writer.write(batch)?;
    Ok(writer.into_inner()?.into())
}

/// The batches of a port's bytes, which are checked.
pub fn from_ipc(bytes: &[u8]) -> Result<Vec<RecordBatch>, ArrowError> {
    check_stream(bytes).map_err(ArrowError::IpcError)?;
    StreamReader::try_new(Cursor::new(bytes), None)?.collect()
}

/// Checks that `bytes` are one stream of record batches, and returns its schema. Compressed batches are refused: a few of their
/// bytes could ask for any amount of memory.
pub(crate) fn check_stream(bytes: &[u8]) -> Result<SchemaRef, String> {
    check_messages(bytes)?;
    let read = || -> Result<SchemaRef, ArrowError> {
        let reader = StreamReader::try_new(Cursor::new(bytes), None)?;
        let schema = reader.schema();
        reader.into_iter().try_for_each(|batch| batch.map(|_| ()))?;
        Ok(schema)
    };
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(read) => read.map_err(|error| format!("it is no Arrow IPC stream: {error}")),
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
        let compressed = match message.header_type() {
            MessageHeader::RecordBatch => message.header_as_record_batch().is_none_or(|batch| batch.compression().is_some()),
            MessageHeader::DictionaryBatch => message
                .header_as_dictionary_batch()
                .and_then(|dictionary| dictionary.data())
                .is_none_or(|batch| batch.compression().is_some()),
            _ => false,
        };
        if compressed {
            return Err("its Arrow record batch is compressed; ports take it uncompressed".to_owned());
        }
        let body = usize::try_from(message.bodyLength()).map_err(|_| cut())?;
        rest = behind.split_at_checked(body).ok_or_else(cut)?.1;
    }
    Ok(bytes.len())
}
