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
        Ok(file) => caller.data_mut().keep(Opened::File(OpenFile::new(file))).map(|handle| handle as i32),
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
    let mut found = Vec::new();
    let mut chunk = vec![0; CHUNK_BYTES + longest - 1];
    while from < to && found.len() < hits_max as usize {
        let length = ((to - from) as usize).min(chunk.len());
        let chunk = &mut chunk[..length];
        file.ahead(from + length as u64, READ_AHEAD_BYTES);
        fill(&*file, from, chunk).await?;
        search_chunk(&finders, chunk, from, &mut found);
        from += CHUNK_BYTES as u64;
        caller.data().meter.check()?;
        tokio::task::yield_now().await;
    }
    found.truncate(hits_max as usize);
    let (into, _) = bytes(&mut caller, "file_find", place)?;
    for (place, hit) in into.chunks_exact_mut(8).zip(&found) {
        place.copy_from_slice(&hit.to_le_bytes());
    }
    Ok(found.len() as u32)
}

const CHUNK_BYTES: usize = 256 << 10;

async fn fill(file: &dyn File, from: u64, chunk: &mut [u8]) -> wasmtime::Result<()> {
    match file.read(from, chunk).await.map_err(refused)? {
        length if length == chunk.len() => Ok(()),
        _ => Err(fault("a file became shorter while it was searched")),
    }
}

/// Hits that begin in the first `CHUNK_BYTES` of a chunk, in order of their places; what is behind overlaps the next chunk.
fn search_chunk(finders: &[Finder<'_>], chunk: &[u8], from: u64, found: &mut Vec<u64>) {
    let first = found.len();
    for (number, finder) in finders.iter().enumerate() {
        let mut at = 0;
        while let Some(next) = finder.find(&chunk[at..]).map(|next| at + next).filter(|next| *next < CHUNK_BYTES) {
            found.push((from + next as u64) | (number as u64) << 56);
            at = next + 1;
        }
    }
    found[first..].sort_unstable_by_key(|hit| (hit & OFFSET_MASK, hit >> 56));
}

const OFFSET_MASK: u64 = (1 << 56) - 1;

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
