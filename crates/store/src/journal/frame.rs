//! Frames of a journal's files.
//!
//! ```text
//! byte 0..4    "PHJ" and 1                    all numbers little-endian
//!      4..8    bytes of the record
//!      8..16   checksum (xxh3, seeded by the file's salt and the frame's offset) of all that follows
//!      16..24  the commit's number
//!      24..28  which row of the commit       28..32  rows of the commit
//!      32      kind: 1 put, 2 deleted, 3 mark
//!      34..36  bytes of the key
//!      40..    the key, the record, zeros up to a multiple of 8
//! ```
//!
//! The salt is random and no client knows it, so no value of a client can be taken for a frame. A mark says that the
//! commit of its number is durable in the index, and that everything before the mark was flushed.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Row;
use super::file::Account;
use crate::Key;
use crate::bounds::KEY_BYTES_MAX;
use crate::record::take_u64;

const MAGIC: [u8; 4] = *b"PHJ\x01";
pub(super) const FRAME_HEADER: usize = 40;
/// Frames start at its multiples.
pub(super) const STEP: u64 = 8;
/// Larger than any record: a value below 64 KiB, a version and a tag.
const RECORD_BYTES_MAX: usize = 128 << 10;
pub(super) const FRAME_BYTES_MAX: usize = FRAME_HEADER + KEY_BYTES_MAX + RECORD_BYTES_MAX + STEP as usize;

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    Put,
    Deleted,
    Mark,
}

/// A frame as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub kind: FrameKind,
    pub number: u64,
    pub row: u32,
    pub rows: u32,
    pub key: &'a [u8],
    pub record: &'a [u8],
    /// All bytes of the frame.
    pub bytes: u64,
}

/// The frames of one commit, to be written at `at` of a file of this account.
pub(super) fn encode_commit(salt: u64, at: u64, number: u64, rows: &[Row], account: Account) -> Vec<u8> {
    let mut out = Vec::new();
    for (row, (key, record)) in rows.iter().enumerate() {
        let kind = if record.is_some() { FrameKind::Put } else { FrameKind::Deleted };
        let counts = (row as u32, rows.len() as u32);
        let record = record.as_deref().map(|record| account.part(record));
        encode(&mut out, salt, at, (kind, number, counts), key, record.unwrap_or_default());
    }
    out
}

pub(super) fn encode_mark(salt: u64, at: u64, number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out, salt, at, (FrameKind::Mark, number, (0, 0)), &Key::new(), &[]);
    out
}

/// A row of a base.
pub(super) fn encode_row(out: &mut Vec<u8>, salt: u64, at: u64, number: u64, key: &[u8], record: &[u8]) {
    encode(out, salt, at, (FrameKind::Put, number, (0, 0)), key, record);
}

fn encode(out: &mut Vec<u8>, salt: u64, at: u64, head: (FrameKind, u64, (u32, u32)), key: &[u8], record: &[u8]) {
    let (kind, number, (row, rows)) = head;
    let start = out.len();
    out.extend(MAGIC);
    out.extend((record.len() as u32).to_le_bytes());
    out.extend([0; 8]);
    out.extend(number.to_le_bytes());
    out.extend(row.to_le_bytes());
    out.extend(rows.to_le_bytes());
    out.extend([kind as u8 + 1, 0]);
    out.extend((key.len() as u16).to_le_bytes());
    out.extend([0; 4]);
    out.extend(key);
    out.extend(record);
    let padded = (out.len() - start).next_multiple_of(STEP as usize);
    out.resize(start + padded, 0);
    let sum = xxh3_64_with_seed(&out[start + 16..], seed(salt, at + start as u64));
    out[start + 8..start + 16].copy_from_slice(&sum.to_le_bytes());
}

/// The length of the frame whose header this seems to be.
pub(super) fn bytes_of(header: &[u8]) -> Option<usize> {
    let header = header.get(..FRAME_HEADER)?;
    let record = u32::from_le_bytes(header[4..8].try_into().ok()?) as usize;
    let key = u16::from_le_bytes(header[34..36].try_into().ok()?) as usize;
    let fits = header.starts_with(&MAGIC) && record <= RECORD_BYTES_MAX && key <= KEY_BYTES_MAX;
    fits.then(|| (FRAME_HEADER + key + record).next_multiple_of(STEP as usize))
}

/// The frame that starts with these bytes, read at `at`; none if its checksum is wrong.
pub(super) fn decode(bytes: &[u8], salt: u64, at: u64) -> Option<Frame<'_>> {
    let size = bytes_of(bytes)?;
    let frame = bytes.get(..size)?;
    let (sum, rest) = take_u64(&frame[8..])?;
    if xxh3_64_with_seed(rest, seed(salt, at)) != sum {
        return None;
    }
    let (number, rest) = take_u64(rest)?;
    let (row, rest) = rest.split_first_chunk::<4>()?;
    let (rows, rest) = rest.split_first_chunk::<4>()?;
    let kind = match rest.first()? {
        1 => FrameKind::Put,
        2 => FrameKind::Deleted,
        3 => FrameKind::Mark,
        _ => return None,
    };
    let record = u32::from_le_bytes(frame[4..8].try_into().ok()?) as usize;
    let key = u16::from_le_bytes(frame[34..36].try_into().ok()?) as usize;
    let (key, rest) = frame[FRAME_HEADER..].split_at_checked(key)?;
    let record = rest.get(..record)?;
    let (row, rows) = (u32::from_le_bytes(*row), u32::from_le_bytes(*rows));
    Some(Frame { kind, number, row, rows, key, record, bytes: size as u64 })
}

fn seed(salt: u64, at: u64) -> u64 {
    salt ^ at.rotate_left(17)
}
