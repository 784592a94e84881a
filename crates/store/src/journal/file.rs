//! The files of a journal: their names, their headers, and their frames in order.

use std::io;
use std::sync::Arc;

use pithead_model::DriveId;
use xxhash_rust::xxh3::xxh3_64;

use super::frame::{FRAME_BYTES_MAX, FRAME_HEADER, Frame, STEP, bytes_of, decode};
use crate::medium::{Medium, MediumFile};
use crate::record::{take_u64, without_value};

/// Folder of the journal.
pub(crate) const FOLDER: &str = "journal";
/// The name of a base until it is complete, and of its file of keys.
pub(super) const NEW: &str = "journal/new";
pub(super) const NEW_KEYS: &str = "journal/new-keys";
const MAGIC: [u8; 8] = *b"phjournl";
/// The header is there twice, each copy in a block of its own, so that one damaged block does not destroy both.
const HEADER_BLOCK: u64 = 4_096;
/// The offset of the first frame.
pub(super) const FRAMES_AT: u64 = 2 * HEADER_BLOCK;
const WINDOW_BYTES: usize = 1 << 20;

/// The kinds of files of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileKind {
    Base,
    Log,
    BaseKeys,
    LogKeys,
}

/// The two accounts that a journal keeps of the same changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Account {
    /// With all records.
    Records,
    /// With records that lack their inline values.
    Keys,
}

impl Account {
    pub const BOTH: [Self; 2] = [Self::Records, Self::Keys];

    pub fn base(self) -> FileKind {
        if self == Self::Records { FileKind::Base } else { FileKind::BaseKeys }
    }

    pub fn log(self) -> FileKind {
        if self == Self::Records { FileKind::Log } else { FileKind::LogKeys }
    }

    /// What it has of a record.
    pub fn part(self, record: &[u8]) -> &[u8] {
        if self == Self::Records { record } else { without_value(record) }
    }
}

/// The header of a file.
///
/// ```text
/// "phjournl"   the store's format (8)   drive (8)   salt (8)   checksum (xxh3) of all before (8)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub format: u32,
    pub drive: DriveId,
    pub salt: u64,
}

impl Header {
    pub fn write(&self, file: &dyn MediumFile) -> io::Result<()> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(u64::from(self.format).to_le_bytes());
        bytes.extend(self.drive.0.to_le_bytes());
        bytes.extend(self.salt.to_le_bytes());
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        bytes.resize(HEADER_BLOCK as usize, 0);
        file.write(0, &bytes)?;
        file.write(HEADER_BLOCK, &bytes)
    }

    /// None if neither copy is good.
    pub fn read(file: &dyn MediumFile) -> io::Result<Option<Self>> {
        let bytes = file.len()?;
        for at in [0, HEADER_BLOCK] {
            let mut header = [0; 40];
            if bytes < at + header.len() as u64 {
                break;
            }
            file.read(at, &mut header)?;
            if let Some(header) = Self::decode(&header) {
                return Ok(Some(header));
            }
        }
        Ok(None)
    }

    /// Whether both copies are good.
    pub fn is_whole(&self, file: &dyn MediumFile) -> io::Result<bool> {
        let mut both = vec![0; FRAMES_AT as usize];
        if file.len()? < FRAMES_AT {
            return Ok(false);
        }
        file.read(0, &mut both)?;
        let (first, second) = both.split_at(HEADER_BLOCK as usize);
        Ok(first == second && Self::decode(first).as_ref() == Some(self) && first[40..].iter().all(|byte| *byte == 0))
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (format, rest) = take_u64(bytes.strip_prefix(&MAGIC)?)?;
        let (drive, rest) = take_u64(rest)?;
        let (salt, rest) = take_u64(rest)?;
        let (sum, _) = take_u64(rest)?;
        let holds = xxh3_64(bytes.get(..32)?) == sum;
        holds.then_some(Self { format: u32::try_from(format).ok()?, drive: DriveId(drive), salt })
    }
}

/// The name of a file, relative to the store.
pub(super) fn file_name(number: u64, kind: FileKind) -> String {
    let ending = match kind {
        FileKind::Base => "base",
        FileKind::Log => "log",
        FileKind::BaseKeys => "base-keys",
        FileKind::LogKeys => "log-keys",
    };
    format!("{FOLDER}/{number:016x}.{ending}")
}

/// The files of the journal in the order in which they are read.
pub(crate) fn names(medium: &dyn Medium) -> io::Result<Vec<(u64, FileKind)>> {
    let parse = |name: &String| {
        let (stem, ending) = name.split_once('.')?;
        let kind = match ending {
            "base" => FileKind::Base,
            "log" => FileKind::Log,
            "base-keys" => FileKind::BaseKeys,
            "log-keys" => FileKind::LogKeys,
            _ => return None,
        };
        let digits = stem.len() == 16 && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
        Some((u64::from_str_radix(stem, 16).ok().filter(|_| digits)?, kind))
    };
    let mut names: Vec<(u64, FileKind)> = medium.list(FOLDER)?.iter().filter_map(parse).collect();
    names.sort_unstable();
    Ok(names)
}

/// The newest base of an account, 0 if there is none, and the logs after it.
pub(super) fn parts(files: &[(u64, FileKind)], account: Account) -> (u64, Vec<u64>) {
    let base = files.iter().rev().find(|(_, kind)| *kind == account.base()).map_or(0, |(number, _)| *number);
    let logs = files.iter().filter(|(number, kind)| *kind == account.log() && *number > base).map(|file| file.0).collect();
    (base, logs)
}

/// Reads the frames of a file, and skips bytes that are not a frame.
#[derive(Debug)]
pub(super) struct Scan {
    file: Arc<dyn MediumFile>,
    salt: u64,
    file_end: u64,
    at: u64,
    window: Vec<u8>,
    window_at: u64,
    /// Ranges of bytes that are not a frame: from, to.
    pub gaps: Vec<(u64, u64)>,
}

impl Scan {
    pub fn new(file: Arc<dyn MediumFile>, salt: u64) -> io::Result<Self> {
        Self::from(file, salt, FRAMES_AT)
    }

    /// From the frame at `at` on.
    pub fn from(file: Arc<dyn MediumFile>, salt: u64, at: u64) -> io::Result<Self> {
        let file_end = file.len()?;
        Ok(Self { file, salt, file_end, at, window: Vec::new(), window_at: 0, gaps: Vec::new() })
    }

    /// The next frame, and its offset.
    pub fn next(&mut self) -> io::Result<Option<(u64, Frame<'_>)>> {
        let mut gap = None;
        let found = loop {
            if self.at >= self.file_end {
                break None;
            }
            let at = self.at;
            self.fill(at)?;
            let bytes = &self.window[(at - self.window_at) as usize..];
            if let Some(size) = bytes_of(bytes)
                && decode(bytes, self.salt, at).is_some()
            {
                self.at += size as u64;
                break Some(at);
            }
            gap.get_or_insert(at);
            self.at += STEP;
        };
        if let Some(from) = gap {
            self.gaps.push((from, found.unwrap_or(self.file_end)));
        }
        let Some(at) = found else { return Ok(None) };
        let frame = decode(&self.window[(at - self.window_at) as usize..], self.salt, at);
        Ok(frame.map(|frame| (at, frame)))
    }

    /// The end of the last frame.
    pub fn end(&self) -> u64 {
        self.at
    }

    /// Makes sure that the window has the largest frame that may be at `at`.
    fn fill(&mut self, at: u64) -> io::Result<()> {
        let upto = self.file_end.min(at + FRAME_BYTES_MAX as u64);
        if at >= self.window_at && upto <= self.window_at + self.window.len() as u64 && !self.window.is_empty() {
            return Ok(());
        }
        let bytes = (self.file_end - at).min((WINDOW_BYTES + FRAME_BYTES_MAX) as u64) as usize;
        self.window.resize(bytes, 0);
        self.window_at = at;
        self.file.read(at, &mut self.window)
    }
}

/// The mark at the end of a file, if it ends with one.
pub(super) fn last_mark(file: &dyn MediumFile, salt: u64) -> io::Result<Option<u64>> {
    let end = file.len()?;
    let Some(at) = end.checked_sub(FRAME_HEADER as u64).filter(|at| *at >= FRAMES_AT) else { return Ok(None) };
    let mut bytes = [0; FRAME_HEADER];
    file.read(at, &mut bytes)?;
    let frame = decode(&bytes, salt, at);
    Ok(frame.filter(|frame| frame.kind == super::frame::FrameKind::Mark).map(|frame| frame.number))
}
