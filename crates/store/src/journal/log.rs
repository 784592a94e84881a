//! [`Log`]: the newest log of a journal, with its account of keys, as it is written.

use std::io;
use std::sync::Arc;

use pithead_model::DriveId;

use super::Row;
use super::file::{Account, FRAMES_AT, FileKind, Header, Scan, file_name, last_mark};
use super::frame::{FRAME_HEADER, FrameKind, FramePlace, encode_commit, encode_mark, encode_row};
use crate::format::{FORMAT, random_u64};
use crate::medium::{Medium, MediumFile};

/// Bytes of a base written at once.
pub(super) const STEP_BYTES: usize = 1 << 20;

/// A log with its file of keys.
#[derive(Debug)]
pub(super) struct Log {
    pub number: u64,
    pub records: Writer,
    pub keys: Writer,
    /// The last commit whose changes it has, and the last one that is durable by it.
    pub last: u64,
    pub sealed: u64,
}

/// A file of one account, at its end.
#[derive(Debug)]
pub(super) struct Writer {
    account: Account,
    pub file: Arc<dyn MediumFile>,
    salt: u64,
    pub at: u64,
    /// Up to where the file was flushed; none if that is not known.
    flushed: Option<u64>,
    /// Bytes to be written at `at`.
    bytes: Vec<u8>,
}

/// The end of the newest log of one account.
#[derive(Debug, Default)]
pub(super) struct Tail {
    pub writer: Option<Writer>,
    /// The last commit in it.
    pub number: Option<u64>,
    /// The last commit that it marks as durable.
    pub marked: u64,
    pub whole: bool,
    /// Up to where the file is known to have been flushed.
    pub flushed: u64,
}

impl Log {
    /// Adds the changes of a commit. Returns how many bytes the records take.
    pub fn append(&mut self, number: u64, rows: &[Row]) -> io::Result<u64> {
        let before = self.records.at;
        self.records.append(number, rows, false)?;
        self.keys.append(number, rows, false)?;
        self.last = number;
        Ok(self.records.at - before)
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.records.flush().and_then(|()| self.keys.flush())
    }

    /// Flushes both accounts, and records that the index's commit `number` is durable. `closing`: no commit is being
    /// made, so changes of later ones are void unless they are durable by the log.
    pub fn mark(&mut self, number: u64, closing: bool) -> io::Result<()> {
        self.flush()?;
        let is_last = if closing { self.sealed <= number } else { self.last <= number };
        self.records.mark(number, is_last)?;
        self.keys.mark(number, is_last)
    }
}

impl Writer {
    /// Makes a file, or empties one.
    pub fn begin(medium: &dyn Medium, name: &str, drive: DriveId, account: Account) -> io::Result<Self> {
        let salt = random_u64().map_err(io::Error::other)?;
        let file = medium.open(name, true)?;
        file.set_len(0)?;
        Header { format: FORMAT, drive, salt }.write(&*file)?;
        Ok(Self { account, file, salt, at: FRAMES_AT, flushed: None, bytes: Vec::new() })
    }

    /// Adds a row of a base, which is written with others.
    pub fn put(&mut self, number: u64, key: &[u8], record: &[u8]) -> io::Result<()> {
        encode_row(
            &mut self.bytes,
            FramePlace { salt: self.salt, at: self.at, flushed: None },
            number,
            key,
            self.account.part(record),
        );
        if self.bytes.len() >= STEP_BYTES { self.write() } else { Ok(()) }
    }

    /// Adds the changes of a commit. `sealed`: the commit is durable once the file is flushed.
    pub fn append(&mut self, number: u64, rows: &[Row], sealed: bool) -> io::Result<()> {
        self.bytes = encode_commit(self.place(), number, rows, self.account, sealed);
        self.write()
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.flushed = Some(self.at);
        Ok(())
    }

    /// Makes a log durable that an earlier process wrote, and of which it flushed the bytes up to `known`. The others are
    /// written over themselves: after a flush that failed, the kernel may show what is not on the medium, and a further
    /// flush would not write it.
    pub fn secure(&mut self, known: u64) -> io::Result<()> {
        let mut at = if known > FRAMES_AT { known } else { 0 };
        let mut bytes = Vec::new();
        while at < self.at {
            bytes.resize((self.at - at).min(STEP_BYTES as u64) as usize, 0);
            self.file.read(at, &mut bytes)?;
            self.file.write(at, &bytes)?;
            at += bytes.len() as u64;
        }
        self.flush()
    }

    /// Removes what a write that failed may have left after the end, durably.
    pub fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.at)?;
        self.flush()
    }

    /// Adds a mark. `is_last`: frames of later commits before it are void.
    pub fn mark(&mut self, number: u64, is_last: bool) -> io::Result<()> {
        self.bytes = encode_mark(self.place(), number, is_last);
        self.write()
    }

    fn place(&self) -> FramePlace {
        FramePlace { salt: self.salt, at: self.at, flushed: self.flushed }
    }

    pub fn write(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.bytes);
        self.file.write(self.at, &bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

impl Tail {
    pub fn read(
        medium: &dyn Medium,
        files: &[(u64, FileKind)],
        (number, account): (u64, Account),
        drive: DriveId,
        commit: u64,
    ) -> io::Result<Self> {
        if !files.contains(&(number, account.log())) {
            return Ok(Self::default());
        }
        let file = medium.open(&file_name(number, account.log()), false)?;
        let Some(header) = Header::read(&*file)?.filter(|header| header.drive == drive) else { return Ok(Self::default()) };
        let writer = |at| Some(Writer { account, file: file.clone(), salt: header.salt, at, flushed: None, bytes: Vec::new() });
        if last_mark(&*file, header.salt)? == Some(commit) {
            let end = file.len()?;
            let flushed = end - FRAME_HEADER as u64;
            return Ok(Self { writer: writer(end), number: Some(commit), marked: commit, whole: true, flushed });
        }
        let mut tail = Self::default();
        let mut scan = Scan::new(file.clone(), header.salt)?;
        let mut rows = 0;
        while let Some((at, frame)) = scan.next()? {
            tail.flushed = tail.flushed.max(if frame.kind == FrameKind::Mark { at } else { frame.flushed });
            match frame.kind {
                FrameKind::Mark => tail.marked = frame.number.max(tail.marked),
                FrameKind::Put | FrameKind::Deleted => rows = frame.rows - (frame.row + 1).min(frame.rows),
                FrameKind::End => rows = 0,
            }
            if !frame.is_late_mark() {
                tail.number = Some(frame.number);
            }
        }
        // A commit that lacks rows at the end does not count.
        tail.whole = scan.gaps.is_empty() && rows == 0;
        tail.writer = writer(scan.end());
        Ok(tail)
    }
}
