//! Frames of a journal's files.
//!
//! ```text
//! byte 0..4    "PHJ" and 1                    all numbers little-endian
//!      4..8    bytes of the record
//!      8..16   checksum (xxh3, seeded by the file's salt and the frame's offset) of all that follows
//!      16..24  the commit's number
//!      24..28  which row of the commit       28..32  rows of the commit
//!      32      kind: 1 put, 2 deleted, 3 mark, 4 end
//!      34..36  bytes of the key
//!      36..40  one more than the bytes since the last flush of the file, in steps of 8; 0 if that is not known
//!      40..    the key, the record, zeros up to a multiple of 8
//! ```
//!
//! The salt is random and no client knows it, so no value of a client can be taken for a frame. A mark says that the
//! commit of its number is durable in the index, and that everything before the mark was flushed. Its bytes 24 to 28 are
//! 1 if there are frames of later commits before it that are not void. An end comes after
//! the last row of a commit, and has how many rows there are. Its bytes 28 to 32 are 1 if the commit is durable by the
//! log: then all rows up to this one are to be applied to an index that lacks them. The bytes since the last flush say
//! which damage a crash cannot have done.

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
    End,
}

/// What a frame says besides its key and its record.
#[derive(Clone, Copy, Debug)]
struct Head {
    kind: FrameKind,
    number: u64,
    row: u32,
    rows: u32,
}

/// Where frames are written: a file's salt, the offset, and the offset up to which the file was flushed.
#[derive(Clone, Copy, Debug)]
pub(super) struct FramePlace {
    pub salt: u64,
    pub at: u64,
    pub flushed: Option<u64>,
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
    /// Up to where the file had been flushed when the frame was written; 0 if that is not known.
    pub flushed: u64,
}

impl Frame<'_> {
    /// Whether it ends a commit that is durable by the log.
    pub fn is_seal(&self) -> bool {
        self.kind == FrameKind::End && self.rows == 1
    }

    /// Whether it is a mark before which there may be later commits than the one that it marks.
    pub fn is_late_mark(&self) -> bool {
        self.kind == FrameKind::Mark && self.row == 1
    }
}

/// The frames of one commit. `sealed`: it is durable once they are flushed. A commit without rows has its end alone.
pub(super) fn encode_commit(place: FramePlace, number: u64, rows: &[Row], account: Account, sealed: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for (row, (key, record)) in rows.iter().enumerate() {
        let kind = if record.is_some() { FrameKind::Put } else { FrameKind::Deleted };
        let head = Head { kind, number, row: row as u32, rows: rows.len() as u32 };
        let record = record.as_deref().map(|record| account.part(record));
        encode(&mut out, place, head, key, record.unwrap_or_default());
    }
    if sealed || rows.is_empty() {
        let head = Head { kind: FrameKind::End, number, row: rows.len() as u32, rows: u32::from(sealed) };
        encode(&mut out, place, head, &Key::new(), &[]);
    }
    out
}

/// `is_last`: frames of later commits before the mark are void.
pub(super) fn encode_mark(place: FramePlace, number: u64, is_last: bool) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out, place, Head { kind: FrameKind::Mark, number, row: u32::from(!is_last), rows: 0 }, &Key::new(), &[]);
    out
}

/// Bytes of the frame that a row of a base takes.
pub(super) fn row_bytes(key: &[u8], record: &[u8]) -> u64 {
    ((FRAME_HEADER + key.len() + record.len()) as u64).next_multiple_of(STEP)
}

/// A row of a base.
pub(super) fn encode_row(out: &mut Vec<u8>, place: FramePlace, number: u64, key: &[u8], record: &[u8]) {
    encode(out, place, Head { kind: FrameKind::Put, number, row: 0, rows: 0 }, key, record);
}

fn encode(out: &mut Vec<u8>, place: FramePlace, head: Head, key: &[u8], record: &[u8]) {
    let start = out.len();
    let at = place.at + start as u64;
    let since = place.flushed.and_then(|flushed| u32::try_from(at.checked_sub(flushed)? / STEP + 1).ok());
    out.extend(MAGIC);
    out.extend((record.len() as u32).to_le_bytes());
    out.extend([0; 8]);
    out.extend(head.number.to_le_bytes());
    out.extend(head.row.to_le_bytes());
    out.extend(head.rows.to_le_bytes());
    out.extend([head.kind as u8 + 1, 0]);
    out.extend((key.len() as u16).to_le_bytes());
    out.extend(since.unwrap_or(0).to_le_bytes());
    out.extend(key);
    out.extend(record);
    let padded = (out.len() - start).next_multiple_of(STEP as usize);
    out.resize(start + padded, 0);
    let sum = xxh3_64_with_seed(&out[start + 16..], seed(place.salt, at));
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
        4 => FrameKind::End,
        _ => return None,
    };
    let record = u32::from_le_bytes(frame[4..8].try_into().ok()?) as usize;
    let key = u16::from_le_bytes(frame[34..36].try_into().ok()?) as usize;
    let since = u64::from(u32::from_le_bytes(frame[36..40].try_into().ok()?));
    let flushed = since.checked_sub(1).map_or(0, |steps| at.saturating_sub(steps * STEP));
    let (key, rest) = frame[FRAME_HEADER..].split_at_checked(key)?;
    let record = rest.get(..record)?;
    let (row, rows) = (u32::from_le_bytes(*row), u32::from_le_bytes(*rows));
    Some(Frame { kind, number, row, rows, key, record, bytes: size as u64, flushed })
}

fn seed(salt: u64, at: u64) -> u64 {
    salt ^ at.rotate_left(17)
}
