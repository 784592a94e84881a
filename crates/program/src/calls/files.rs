//! Host calls for files: reads go from the medium straight into the guest's memory, and searches leave the bytes where they are.

use std::sync::Arc;

use memchr::memmem::Finder;
use wasmtime::{Caller, Linker};

use super::{MODULE, copied, text};
use crate::budget::fault;
use crate::guest::{Guest, GuestRange, OpenFile, Opened, bytes};
use crate::limits::{NAME_BYTES_MAX, PATTERN_BYTES_MAX, PATTERNS_MAX, READ_AHEAD_BYTES};
use crate::signature::split_value;
use crate::{File, ServiceError, Type};

/// A file or a column that is asked for is not there.
const MISSING: i32 = -1;

pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    linker.func_wrap_async(MODULE, "file_open", |caller: Caller<'_, Guest>, (pointer, length): (u32, u32)| {
        Box::new(open(caller, GuestRange { pointer, bytes: length }))
    })?;
    linker.func_wrap(MODULE, "file_size", |mut caller: Caller<'_, Guest>, handle: u32| {
        caller.data_mut().file("file_size", handle).map(|open| open.file.size())
    })?;
    linker.func_wrap_async(
        MODULE,
        "file_read",
        |caller: Caller<'_, Guest>, (handle, offset, pointer, length): (u32, u64, u32, u32)| {
            Box::new(read(caller, handle, offset, GuestRange { pointer, bytes: length }))
        },
    )?;
    linker.func_wrap_async(MODULE, "file_find", |caller: Caller<'_, Guest>, asked: FindArguments| {
        Box::new(find(caller, asked))
    })?;
    linker.func_wrap(MODULE, "close", |mut caller: Caller<'_, Guest>, handle: u32| {
        match caller.data_mut().open.get_mut(handle as usize) {
            Some(open) => {
                *open = None;
                Ok(())
            }
            None => Err(fault(format!("it passed close the handle {handle}, which is not open"))),
        }
    })?;
    Ok(())
}

async fn open(mut caller: Caller<'_, Guest>, name: GuestRange) -> wasmtime::Result<i32> {
    let name = text(copied(&mut caller, "file_open", name, NAME_BYTES_MAX)?, "file_open")?;
    let services = Arc::clone(&caller.data().services);
    match services.open(&name).await {
        Ok(file) => {
            let guest = caller.data_mut();
            let none = |none| fault(format!("it opened the file {name:?}, and {none}"));
            let open = OpenFile::new(file, guest.meter.budget()).map_err(none)?;
            guest.keep(Opened::File(open)).map(|handle| handle as i32)
        }
        Err(ServiceError::NotFound(_)) => Ok(MISSING),
        Err(error) => Err(refused(error)),
    }
}

/// What the drive refuses or cannot do ends the guest that asked for it.
pub(super) fn refused(error: ServiceError) -> wasmtime::Error {
    fault(error.to_string())
}

async fn read(mut caller: Caller<'_, Guest>, handle: u32, offset: u64, place: GuestRange) -> wasmtime::Result<u32> {
    let (into, guest) = bytes(&mut caller, "file_read", place)?;
    let open = guest.file("file_read", handle)?;
    let file = Arc::clone(&open.file);
    if offset >= file.size() {
        return Ok(0);
    }
    open.announce(offset, into.len() as u64);
    let length = file.read(offset, into).await.map_err(refused)?;
    Ok(length as u32)
}

impl OpenFile {
    /// Announces what is behind a read in order, half of the distance early, so that the medium never waits for the guest.
    fn announce(&mut self, offset: u64, bytes: u64) {
        let in_order = offset == self.next;
        self.next = offset.saturating_add(bytes);
        if !in_order {
            self.announced = self.next;
        } else if self.next.saturating_add(READ_AHEAD_BYTES / 2) > self.announced {
            let from = self.announced.max(self.next);
            self.file.ahead(from, READ_AHEAD_BYTES);
            self.announced = from.saturating_add(READ_AHEAD_BYTES);
        }
    }
}

/// The handle, from, to, the patterns and their bytes, the place for hits and their most.
type FindArguments = (u32, u64, u64, u32, u32, u32, u32);

/// Searches bytes `from` to `to` of a file for patterns, and writes where they begin, in order: each as 8 bytes, the offset with
/// the number of the pattern in the topmost byte. Returns their number, at most `hits_max`.
async fn find(mut caller: Caller<'_, Guest>, asked: FindArguments) -> wasmtime::Result<u32> {
    let (handle, mut from, to, patterns, length, hits, hits_max) = asked;
    let hits_bytes = hits_max.checked_mul(8).ok_or_else(|| fault("it passed file_find room for too many hits"))?;
    let place = GuestRange { pointer: hits, bytes: hits_bytes };
    bytes(&mut caller, "file_find", place)?;
    let patterns = bytes(&mut caller, "file_find", GuestRange { pointer: patterns, bytes: length })?.0.to_vec();
    let patterns = parse_patterns(&patterns).map_err(fault)?;
    let finders: Vec<_> = patterns.iter().map(Finder::new).collect();
    let longest = patterns.iter().map(|pattern| pattern.len()).max().unwrap_or(1);
    let file = Arc::clone(&caller.data_mut().file("file_find", handle)?.file);
    let to = to.min(file.size());
    let (mut count, hits_max) = (0, hits_max as usize);
    let mut chunk = vec![0; CHUNK_BYTES + longest - 1];
    while from < to && count < hits_max {
        let length = ((to - from) as usize).min(chunk.len());
        let chunk = &mut chunk[..length];
        file.ahead(from + length as u64, READ_AHEAD_BYTES);
        fill(&*file, from, chunk).await?;
        let mut search = ChunkSearch::new(&finders, chunk);
        loop {
            let (into, _) = bytes(&mut caller, "file_find", place)?;
            let found = search.write(from, &mut into[8 * count..]);
            count += found;
            caller.data().meter.check()?;
            tokio::task::yield_now().await;
            if found < HITS_AT_ONCE {
                break;
            }
        }
        from += CHUNK_BYTES as u64;
    }
    Ok(count as u32)
}

/// A search gives way after so many hits, which may be as close as bytes are.
const HITS_AT_ONCE: usize = 4096;
const CHUNK_BYTES: usize = 256 << 10;

async fn fill(file: &dyn File, from: u64, chunk: &mut [u8]) -> wasmtime::Result<()> {
    match file.read(from, chunk).await.map_err(refused)? {
        length if length == chunk.len() => Ok(()),
        _ => Err(fault("a file became shorter while it was searched")),
    }
}

/// The hits that begin in the first `CHUNK_BYTES` of a chunk, as places and numbers of patterns, in this order; what is behind
/// overlaps the next chunk. Each is looked for when it is asked for.
struct ChunkSearch<'a> {
    finders: &'a [Finder<'a>],
    chunk: &'a [u8],
    /// The next hit of each pattern.
    next: Vec<Option<usize>>,
}

impl<'a> ChunkSearch<'a> {
    fn new(finders: &'a [Finder<'a>], chunk: &'a [u8]) -> Self {
        let next = finders.iter().map(|finder| first_from(finder, chunk, 0)).collect();
        Self { finders, chunk, next }
    }

    /// Writes the next hits of a chunk that begins at `from`, as many as there is room for at once, and returns their number.
    fn write(&mut self, from: u64, into: &mut [u8]) -> usize {
        let mut count = 0;
        for (place, (at, number)) in into.chunks_exact_mut(8).take(HITS_AT_ONCE).zip(self) {
            place.copy_from_slice(&((from + at as u64) | (number as u64) << 56).to_le_bytes());
            count += 1;
        }
        count
    }
}

impl Iterator for ChunkSearch<'_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        let hits = self.next.iter().enumerate().filter_map(|(number, at)| Some(((*at)?, number)));
        let (at, number) = hits.min()?;
        self.next[number] = first_from(&self.finders[number], self.chunk, at + 1);
        Some((at, number))
    }
}

fn first_from(finder: &Finder<'_>, chunk: &[u8], from: usize) -> Option<usize> {
    finder.find(&chunk[from..]).map(|at| from + at).filter(|at| *at < CHUNK_BYTES)
}

/// Patterns are rows of one column `bytes`.
fn parse_patterns(bytes: &[u8]) -> Result<Vec<&[u8]>, String> {
    let mut rest = bytes;
    let mut patterns = Vec::new();
    while !rest.is_empty() {
        let (pattern, behind) = split_value(Type::Bytes, rest).ok_or("it passed file_find patterns that are cut off")?;
        if pattern.is_empty() || pattern.len() > PATTERN_BYTES_MAX {
            return Err(format!("a pattern has 1 to {PATTERN_BYTES_MAX} bytes, not {}", pattern.len()));
        }
        patterns.push(pattern);
        rest = behind;
    }
    match patterns.len() {
        1..=PATTERNS_MAX => Ok(patterns),
        count => Err(format!("file_find takes 1 to {PATTERNS_MAX} patterns, not {count}")),
    }
}
