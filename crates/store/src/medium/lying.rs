//! [`LyingMedium`]: a medium in memory that, on demand, loses data that was not flushed, tears writes, changes bits and
//! fails.

mod image;
mod state;
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use self::image::Change;
use self::state::{FileState, LyingState, NameChange, Struck, folder_of};
use super::memory::MemoryPool;
use super::{ALIGNMENT, Medium, MediumFile};

/// A medium in memory. Its behaviour is a function of its seed and of the calls.
#[derive(Debug)]
pub(crate) struct LyingMedium {
    itself: Weak<LyingMedium>,
    path: PathBuf,
    state: Mutex<LyingState>,
}

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Read,
    Write,
    Flush,
    Reserve,
    /// Files opened, listed, removed and renamed, and folders flushed.
    Names,
}

/// A fault that is to strike.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    /// The kind of calls that it strikes.
    pub calls: Vec<Call>,
    /// How many of these calls succeed before.
    pub after: u64,
    /// How many of them then fail.
    pub times: u64,
    /// The error with which they fail.
    pub errno: i32,
    /// Whether a write that fails has written some of its bytes.
    pub partial: bool,
}

#[derive(Debug)]
struct LyingFile {
    medium: Arc<LyingMedium>,
    id: u64,
}

impl Trouble {
    /// One call fails with EIO.
    pub fn io(calls: &[Call], after: u64) -> Self {
        Self { calls: calls.to_vec(), after, times: 1, errno: libc::EIO, partial: false }
    }

    /// Calls fail with ENOSPC, `times` of them.
    pub fn no_space(after: u64, times: u64, partial: bool) -> Self {
        Self { calls: vec![Call::Write, Call::Reserve], after, times, errno: libc::ENOSPC, partial }
    }
}

impl LyingMedium {
    /// An empty medium with room for `capacity` bytes.
    pub fn new(seed: u64, capacity: u64) -> Arc<Self> {
        Self::with(LyingState {
            rng: StdRng::seed_from_u64(seed),
            files: HashMap::new(),
            next_file: 0,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending_names: Vec::new(),
            capacity,
            trouble: Vec::new(),
            dead: false,
        })
    }

    fn with(state: LyingState) -> Arc<Self> {
        Arc::new_cyclic(|itself| Self {
            itself: itself.clone(),
            path: PathBuf::from("a medium that lies"),
            state: Mutex::new(state),
        })
    }

    /// Turns the power off. This medium fails from now on, and the returned medium has what survives.
    ///
    /// Of each file's changes since its last flush, a part survives: those up to some moment, or any of them. One or
    /// several may be torn between sectors. Of each folder's changes of names, those up to some moment survive.
    pub fn crash(&self) -> Arc<Self> {
        let mut state = self.state.lock();
        state.dead = true;
        let mut rng = StdRng::seed_from_u64(state.rng.random());
        let mut ids: Vec<u64> = state.files.keys().copied().collect();
        ids.sort_unstable();
        let mut files = HashMap::new();
        for id in ids {
            let file = &state.files[&id];
            let image = file.after_crash(&mut rng);
            files.insert(id, FileState { seen: image.clone(), durable: image, pending: Vec::new() });
        }
        let names = state.names_after_crash(&mut rng);
        files.retain(|id, _| names.values().any(|kept| kept == id));
        let next_file = state.next_file;
        let capacity = state.capacity;
        Self::with(LyingState {
            rng,
            files,
            next_file,
            durable_names: names.clone(),
            names,
            pending_names: Vec::new(),
            capacity,
            trouble: Vec::new(),
            dead: false,
        })
    }

    /// Another medium with the files as they are visible now, all of them durable.
    pub fn fork(&self) -> Arc<Self> {
        let mut state = self.state.lock();
        let durable = |file: &FileState| FileState { seen: file.seen.clone(), durable: file.seen.clone(), pending: Vec::new() };
        let files = state.files.iter().map(|(id, file)| (*id, durable(file))).collect();
        Self::with(LyingState {
            rng: StdRng::seed_from_u64(state.rng.random()),
            files,
            next_file: state.next_file,
            names: state.names.clone(),
            durable_names: state.names.clone(),
            pending_names: Vec::new(),
            capacity: state.capacity,
            trouble: Vec::new(),
            dead: false,
        })
    }

    /// Sets the faults that are to strike, instead of those set before.
    pub fn set_trouble(&self, trouble: Vec<Trouble>) {
        self.state.lock().trouble = trouble;
    }

    /// Inverts bits of one byte, durably, as a medium that rots does.
    pub fn flip(&self, name: &str, offset: u64, mask: u8) {
        let mut state = self.state.lock();
        let id = state.names[name];
        let file = state.files.get_mut(&id).expect("a name has a file");
        for image in [&mut file.seen, &mut file.durable] {
            let mut byte = [0];
            image.read(offset, &mut byte);
            if offset < image.len {
                image.write(offset, &[byte[0] ^ mask]);
            }
        }
    }

    /// The offsets of a file's pages that are not all zeros.
    pub fn written(&self, name: &str) -> Vec<u64> {
        let state = self.state.lock();
        state.names.get(name).map(|id| state.files[id].seen.written()).unwrap_or_default()
    }

    fn enter(&self, call: Call) -> (parking_lot::MutexGuard<'_, LyingState>, Option<Struck>) {
        let mut state = self.state.lock();
        let struck = state.strike(call);
        (state, struck)
    }

    /// For calls that either succeed completely or do nothing.
    fn enter_whole(&self, call: Call) -> io::Result<parking_lot::MutexGuard<'_, LyingState>> {
        match self.enter(call) {
            (state, None) => Ok(state),
            (_, Some(struck)) => Err(struck.error()),
        }
    }
}

impl Medium for LyingMedium {
    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn MediumFile>> {
        let mut state = self.enter_whole(Call::Names)?;
        let medium = self.itself.upgrade().ok_or_else(|| io::Error::other("the medium is gone"))?;
        if let Some(id) = state.names.get(name) {
            return Ok(Arc::new(LyingFile { medium, id: *id }));
        }
        if !create {
            return Err(io::ErrorKind::NotFound.into());
        }
        let id = state.next_file;
        state.next_file += 1;
        state.files.insert(id, FileState::default());
        state.change_name(folder_of(name), NameChange::Given { name: name.to_string(), file: id });
        Ok(Arc::new(LyingFile { medium, id }))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let state = self.enter_whole(Call::Names)?;
        let within = state.names.keys().filter(|name| folder_of(name) == folder);
        Ok(within.map(|name| name.rsplit('/').next().unwrap_or(name).to_string()).collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.enter_whole(Call::Names)?;
        if !state.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.change_name(folder_of(name), NameChange::Taken { name: name.to_string() });
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.enter_whole(Call::Names)?;
        if !state.names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.change_name(folder_of(to), NameChange::Renamed { from: from.to_string(), to: to.to_string() });
        Ok(())
    }

    fn flush_names(&self, folder: &str) -> io::Result<()> {
        let mut state = self.enter_whole(Call::Names)?;
        let (flushed, left) = std::mem::take(&mut state.pending_names).into_iter().partition(|change| change.0 == folder);
        state.pending_names = left;
        let flushed: Vec<(String, NameChange)> = flushed;
        flushed.iter().for_each(|(_, change)| change.apply(&mut state.durable_names));
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.enter_whole(Call::Names)?.free())
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.enter_whole(Call::Names)?.capacity)
    }
}

impl MediumFile for LyingFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.medium.enter_whole(Call::Read)?.file(self.id)?.seen.len)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.medium.enter_whole(Call::Write)?.file(self.id)?.change(Change::Length(bytes));
        Ok(())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.medium.enter_whole(Call::Read)?;
        let image = &state.file(self.id)?.seen;
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > image.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        image.read(offset, out);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (mut state, struck) = self.medium.enter(Call::Write);
        let full = data.len() as u64 > state.free();
        let struck = struck.or(full.then_some(Struck { errno: libc::ENOSPC, partial: true }));
        let written = match struck {
            None => data.len(),
            Some(Struck { partial: true, .. }) => state.rng.random_range(0..=data.len()),
            Some(_) => 0,
        };
        if written > 0 && !state.dead {
            state.file(self.id)?.change(Change::Write { offset, data: Arc::from(&data[..written]) });
        }
        struck.map_or(Ok(()), |struck| Err(struck.error()))
    }

    fn read_large_with(&self, range: Range<u64>, on: &mut dyn FnMut(&[u8])) -> io::Result<Bytes> {
        let bytes = range.end.checked_sub(range.start).ok_or(io::ErrorKind::UnexpectedEof)?;
        if range.end > self.len()? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if bytes == 0 {
            return Ok(Bytes::new());
        }
        let mut memory = Arc::new(MemoryPool::default()).take(bytes as usize)?;
        self.read(range.start, &mut memory.as_mut()[..bytes as usize])?;
        let value = Bytes::from_owner(memory).slice(..bytes as usize);
        value.chunks(70_000).for_each(on);
        Ok(value)
    }

    fn write_large(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        assert!(offset.is_multiple_of(ALIGNMENT), "a large value at {offset}");
        let mut padded = data.to_vec();
        padded.resize(data.len().next_multiple_of(ALIGNMENT as usize), 0);
        self.write(offset, &padded)
    }

    fn reserve(&self, range: Range<u64>) -> io::Result<()> {
        let mut state = self.medium.enter_whole(Call::Reserve)?;
        if range.end.saturating_sub(range.start) > state.free() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let file = state.file(self.id)?;
        if file.seen.len < range.end {
            file.change(Change::Length(range.end));
        }
        Ok(())
    }

    fn punch(&self, range: Range<u64>) -> io::Result<bool> {
        assert!(range.start.is_multiple_of(ALIGNMENT) && range.end.is_multiple_of(ALIGNMENT), "a hole at {range:?}");
        self.medium.enter_whole(Call::Write)?.file(self.id)?.change(Change::Punch(range));
        Ok(true)
    }

    fn flush(&self) -> io::Result<()> {
        let (mut state, struck) = self.medium.enter(Call::Flush);
        let state = &mut *state;
        let file = state.files.get_mut(&self.id).ok_or_else(|| io::Error::other("the file is gone"))?;
        match struck {
            None => file.flush(),
            Some(_) if !state.dead => file.flush_badly(&mut state.rng),
            Some(_) => {}
        }
        struck.map_or(Ok(()), |struck| Err(struck.error()))
    }
}
