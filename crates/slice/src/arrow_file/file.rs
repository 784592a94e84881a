//! A file's footer, and what its batches say of themselves.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::reader::read_footer_length;
use arrow::ipc::{Block, Field as IpcField, Message, MetadataVersion, root_as_footer, root_as_message};
use bytes::Bytes;

use crate::arrow_sizes::check_batch;
use crate::guard::guarded;
use crate::parquet::dataset_schema;
use crate::{ReadAt, SliceError};

/// Before a file's first message and behind its footer.
const MAGIC: &[u8; 6] = b"ARROW1";
/// Behind the footer: its length and the letters.
const TAIL_BYTES: u64 = 10;
/// The most bytes of a footer, and of what a batch says of itself.
const FOOTER_BYTES_MAX: u64 = 64 << 20;
const MESSAGE_BYTES_MAX: u64 = 16 << 20;
/// The most bytes of a batch.
const BATCH_BYTES_MAX: u64 = 2 << 30;
/// The most batches of a file: what each says is read when the file is opened.
const BATCHES_MAX: usize = 1 << 16;
/// The most rows of a file: columns without values take no bytes.
const ROWS_MAX: u64 = 1 << 36;
/// Structures inside each other that a schema may have.
const DEPTH_MAX: usize = 64;
/// What values of compressed batches are taken for, as many times their bytes in the file.
const COMPRESSION_RATIO: u64 = 4;

/// An Arrow IPC file whose footer and messages were read and checked.
#[derive(Debug)]
pub struct ArrowFile {
    pub(super) source: Arc<dyn ReadAt>,
    /// The columns as the file has them.
    pub(super) own: SchemaRef,
    /// As a dataset has them.
    schema: SchemaRef,
    pub(super) version: MetadataVersion,
    /// The numbers of the dictionaries of each column.
    pub(super) dictionaries_of: Vec<Vec<i64>>,
    /// With their numbers; several with one number follow each other.
    pub(super) dictionaries: Vec<(i64, Block)>,
    pub(super) batches: Vec<Batch>,
}

/// A batch of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub(super) block: Block,
    pub(super) rows: u64,
    /// What its rows take in memory, about.
    pub(super) bytes: u64,
}

pub(super) fn damaged(what: impl Display) -> SliceError {
    SliceError::Corrupt(what.to_string())
}

impl ArrowFile {
    /// Reads the footer and what each batch says of itself, and checks that all lies within the file. Blocks.
    pub fn open(source: Arc<dyn ReadAt>) -> Result<ArrowFile, SliceError> {
        guarded(|| {
            let (footer, end) = read_footer(&*source)?;
            let footer = root_as_footer(&footer).map_err(|error| damaged(format!("its footer: {error}")))?;
            let columns = footer.schema().ok_or_else(|| damaged("its footer has no columns"))?;
            let own = Arc::new(fb_to_schema(columns));
            let schema = dataset_schema(&own)?;
            let dictionaries_of = columns.fields().into_iter().flatten().map(|field| {
                let mut numbers = Vec::new();
                dictionaries_below(&field, &mut numbers, 0).map(|()| numbers)
            });
            let dictionaries_of = dictionaries_of.collect::<Result<Vec<_>, _>>()?;
            let blocks: Vec<Block> = footer.recordBatches().iter().flatten().copied().collect();
            let tables: Vec<Block> = footer.dictionaries().iter().flatten().copied().collect();
            check_places(blocks.iter().chain(&tables), end)?;
            let messages = blocks.iter().chain(&tables).filter_map(message_place);
            source.prepare(&messages.collect::<Vec<_>>())?;
            let mut file = ArrowFile {
                source: Arc::clone(&source),
                own,
                schema,
                version: footer.version(),
                dictionaries_of,
                dictionaries: Vec::new(),
                batches: Vec::new(),
            };
            let values = file.read_dictionaries(tables)?;
            file.read_batches(blocks, &values)?;
            Ok(file)
        })
    }

    /// The columns with the types that a dataset has them in.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Rows of all batches.
    pub fn rows(&self) -> u64 {
        self.batches.iter().map(|batch| batch.rows).sum()
    }

    /// Notes which dictionary each of these is. Bytes of a value, on the average, by the number of its dictionary.
    fn read_dictionaries(&mut self, blocks: Vec<Block>) -> Result<BTreeMap<i64, u64>, SliceError> {
        let mut values: BTreeMap<i64, u64> = BTreeMap::new();
        for block in blocks {
            let metadata = self.metadata(&block)?;
            let message = message_of(&metadata)?;
            let table = message.header_as_dictionary_batch().ok_or_else(|| damaged("a dictionary is none"))?;
            let batch = table.data().ok_or_else(|| damaged("a dictionary has no values"))?;
            let body = check_body(&message, &block)?;
            let sizes = check_batch(&batch, body, &mut |_, _, _| Ok(false)).map_err(damaged)?;
            let each = decompressed(&batch, sizes.bytes).div_ceil(sizes.rows.max(1));
            let known = values.entry(table.id()).or_default();
            *known = each.max(*known);
            self.dictionaries.push((table.id(), block));
        }
        Ok(values)
    }

    fn read_batches(&mut self, blocks: Vec<Block>, values: &BTreeMap<i64, u64>) -> Result<(), SliceError> {
        // What a row takes besides where dictionaries are decoded.
        let numbers = self.dictionaries_of.iter().flatten();
        let more = numbers.filter_map(|number| values.get(number)).fold(0_u64, |sum, each| sum.saturating_add(*each));
        let mut rows = 0_u64;
        for block in blocks {
            let metadata = self.metadata(&block)?;
            let message = message_of(&metadata)?;
            let batch = message.header_as_record_batch().ok_or_else(|| damaged("a batch is none"))?;
            let sizes = check_batch(&batch, check_body(&message, &block)?, &mut |_, _, _| Ok(false)).map_err(damaged)?;
            rows = rows.saturating_add(sizes.rows);
            if rows > ROWS_MAX {
                return Err(damaged(format!("it has {rows} rows; at most {ROWS_MAX} are read of one file")));
            }
            let bytes = decompressed(&batch, sizes.bytes).saturating_add(more.saturating_mul(sizes.rows));
            self.batches.push(Batch { block, rows: sizes.rows, bytes });
        }
        Ok(())
    }

    /// What is before the body of a block.
    pub(super) fn metadata(&self, block: &Block) -> Result<Bytes, SliceError> {
        self.source.read_at(message_place(block).ok_or_else(|| damaged("a batch lies outside"))?)
    }
}

/// The footer, and where it begins.
fn read_footer(source: &dyn ReadAt) -> Result<(Bytes, u64), SliceError> {
    let bytes = source.bytes();
    let head = source.read_at(0..bytes.min(MAGIC.len() as u64))?;
    if head != MAGIC.as_slice() {
        let what = match head.starts_with(b"FEA1") {
            true => "it is of Feather's first version; write it again as an Arrow IPC file",
            false => "it is no Arrow IPC file; a stream has no footer, and can be loaded with `pithead load`",
        };
        return Err(damaged(what));
    }
    let end = bytes.checked_sub(TAIL_BYTES).ok_or_else(|| damaged("it is cut off"))?;
    let tail = source.read_at(end..bytes)?;
    let tail = tail.first_chunk::<{ TAIL_BYTES as usize }>().ok_or_else(|| damaged("it is cut off"))?;
    let length = read_footer_length(*tail).map_err(damaged)? as u64;
    let start = end.checked_sub(length).filter(|_| length <= FOOTER_BYTES_MAX);
    let start = start.ok_or_else(|| damaged(format!("its footer of {length} bytes is too long")))?;
    Ok((source.read_at(start..end)?, start))
}

/// Where the message of a block lies, before its body.
fn message_place(block: &Block) -> Option<Range<u64>> {
    let place = place(block)?;
    Some(place.start..place.start + block.metaDataLength().unsigned_abs() as u64)
}

/// Where a block lies.
pub(super) fn place(block: &Block) -> Option<Range<u64>> {
    let start = u64::try_from(block.offset()).ok()?;
    let body = start.checked_add(u64::try_from(block.metaDataLength()).ok()?)?;
    Some(start..body.checked_add(u64::try_from(block.bodyLength()).ok()?)?)
}

/// Checks that all blocks lie before the footer, and do not share bytes.
fn check_places<'a>(blocks: impl Iterator<Item = &'a Block> + Clone, end: u64) -> Result<(), SliceError> {
    if blocks.clone().count() > BATCHES_MAX {
        return Err(damaged(format!("it has more than {BATCHES_MAX} batches; write larger ones")));
    }
    let mut bytes = 0_u64;
    for block in blocks {
        let place = place(block).filter(|place| place.end <= end).ok_or_else(|| damaged("a batch lies outside"))?;
        let (length, metadata) = (place.end - place.start, block.metaDataLength().unsigned_abs() as u64);
        if length > BATCH_BYTES_MAX || metadata > MESSAGE_BYTES_MAX {
            return Err(damaged(format!("a batch of {length} bytes; at most {BATCH_BYTES_MAX} are read: write smaller ones")));
        }
        bytes = bytes.saturating_add(length);
    }
    if bytes <= end { Ok(()) } else { Err(damaged("its batches overlap")) }
}

/// The message of a batch: behind its length, and in newer files behind a mark before that.
pub(super) fn message_of(metadata: &[u8]) -> Result<Message<'_>, SliceError> {
    let marked = metadata.starts_with(&u32::MAX.to_le_bytes());
    let message = metadata.get(if marked { 8 } else { 4 }..).ok_or_else(|| damaged("a batch has no message"))?;
    root_as_message(message).map_err(damaged)
}

/// The bytes of a block's body, which the message must have, too.
pub(super) fn check_body(message: &Message<'_>, block: &Block) -> Result<u64, SliceError> {
    match u64::try_from(block.bodyLength()) {
        Ok(body) if message.bodyLength() == block.bodyLength() => Ok(body),
        _ => Err(damaged("a batch does not have the bytes that the footer says")),
    }
}

fn decompressed(batch: &arrow::ipc::RecordBatch<'_>, bytes: u64) -> u64 {
    match batch.compression() {
        Some(_) => bytes.saturating_mul(COMPRESSION_RATIO),
        None => bytes,
    }
}

/// The numbers of the dictionaries of a column and of those inside it.
fn dictionaries_below(field: &IpcField<'_>, numbers: &mut Vec<i64>, depth: usize) -> Result<(), SliceError> {
    if depth > DEPTH_MAX {
        return Err(damaged("its columns have too many inside each other"));
    }
    numbers.extend(field.dictionary().map(|dictionary| dictionary.id()));
    field.children().into_iter().flatten().try_for_each(|child| dictionaries_below(&child, numbers, depth + 1))
}
