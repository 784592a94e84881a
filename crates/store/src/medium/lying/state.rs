//! The state of a [`super::LyingMedium`]: the visible data, the durable data, and the changes between them.

use std::collections::{BTreeMap, HashMap};
use std::io;

use rand::Rng;
use rand::rngs::StdRng;

use super::image::{Change, Image};
use super::{Call, Trouble};

#[derive(Debug)]
pub(super) struct LyingState {
    pub rng: StdRng,
    pub files: HashMap<u64, FileState>,
    pub next_file: u64,
    pub names: BTreeMap<String, u64>,
    pub durable_names: BTreeMap<String, u64>,
    /// The changes since the folder was last flushed.
    pub pending_names: Vec<(String, NameChange)>,
    pub capacity: u64,
    pub trouble: Vec<Trouble>,
    /// Whether the power is off.
    pub dead: bool,
}

#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Given { name: String, file: u64 },
    Taken { name: String },
    Renamed { from: String, to: String },
}

#[derive(Clone, Debug, Default)]
pub(super) struct FileState {
    /// The file as the process sees it.
    pub seen: Image,
    /// The file after a crash, with some of `pending`.
    pub durable: Image,
    pub pending: Vec<Change>,
}

/// A fault that has struck a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Struck {
    pub errno: i32,
    pub partial: bool,
}

impl Struck {
    pub fn error(self) -> io::Error {
        io::Error::from_raw_os_error(self.errno)
    }
}

impl LyingState {
    pub fn strike(&mut self, call: Call) -> Option<Struck> {
        if self.dead {
            return Some(Struck { errno: libc::EIO, partial: false });
        }
        let mut struck = None;
        for trouble in self.trouble.iter_mut().filter(|trouble| trouble.calls.contains(&call)) {
            if trouble.after > 0 {
                trouble.after -= 1;
            } else if trouble.times > 0 {
                trouble.times -= 1;
                struck = Some(Struck { errno: trouble.errno, partial: trouble.partial });
            }
        }
        struck
    }

    pub fn free(&self) -> u64 {
        let used: u64 = self.files.values().map(|file| file.seen.allocated()).sum();
        self.capacity.saturating_sub(used)
    }

    pub fn file(&mut self, id: u64) -> io::Result<&mut FileState> {
        self.files.get_mut(&id).ok_or_else(|| io::Error::other("the file is gone"))
    }

    pub fn change_name(&mut self, folder: String, change: NameChange) {
        change.apply(&mut self.names);
        self.pending_names.push((folder, change));
    }

    pub fn names_after_crash(&mut self, rng: &mut StdRng) -> BTreeMap<String, u64> {
        let mut names = self.durable_names.clone();
        let mut kept: BTreeMap<String, usize> = BTreeMap::new();
        for (folder, _) in &self.pending_names {
            *kept.entry(folder.clone()).or_default() += 1;
        }
        kept.values_mut().for_each(|changes| *changes = rng.random_range(0..=*changes));
        for (folder, change) in &self.pending_names {
            if let Some(left) = kept.get_mut(folder).filter(|left| **left > 0) {
                *left -= 1;
                change.apply(&mut names);
            }
        }
        names
    }
}

impl NameChange {
    pub fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            NameChange::Given { name, file } => {
                names.insert(name.clone(), *file);
            }
            NameChange::Taken { name } => {
                names.remove(name);
            }
            NameChange::Renamed { from, to } => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
        }
    }
}

impl FileState {
    pub fn change(&mut self, change: Change) {
        self.seen.apply(&change);
        self.pending.push(change);
    }

    pub fn after_crash(&self, rng: &mut StdRng) -> Image {
        let mut image = self.durable.clone();
        let in_order: bool = rng.random();
        let until = rng.random_range(0..=self.pending.len());
        for (number, change) in self.pending.iter().enumerate() {
            let (whole, torn) = match in_order {
                true => (number < until, number == until),
                false => (rng.random(), rng.random_bool(0.2)),
            };
            if torn {
                image.apply_torn(change, rng);
            } else if whole {
                image.apply(change);
            }
        }
        image
    }

    pub fn flush(&mut self) {
        for change in self.pending.drain(..) {
            self.durable.apply(&change);
        }
    }

    /// This is what kernels do: some of the data is on the medium, none of it is tried again, and it may or may not
    /// remain visible.
    pub fn flush_badly(&mut self, rng: &mut StdRng) {
        self.durable = self.after_crash(rng);
        self.pending.clear();
        if rng.random() {
            self.seen = self.durable.clone();
        }
    }
}

/// The folder of a name, `""` for the medium's own.
pub(super) fn folder_of(name: &str) -> String {
    name.rsplit_once('/').map_or("", |(folder, _)| folder).to_string()
}
