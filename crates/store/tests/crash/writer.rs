//! The process that is killed.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pithead_store::{DiskStore, Durability, Expected, Key, Put, Store, StoreError, StoreOptions, Tag, Version, Write};

use crate::plan::{At, COUNTER, Change, Step, WRITERS, key, prefix};

/// Printed once the store is open.
pub const READY: &str = "the store is open";
/// The process ends by itself after this time, in case nobody is left to kill it.
const RUNS_AT_MOST: Duration = Duration::from_secs(60);

const DIR: &str = "PITHEAD_CRASH_DIR";
const SEED: &str = "PITHEAD_CRASH_SEED";
const FROM: &str = "PITHEAD_CRASH_FROM";

/// The task of the process.
#[derive(Clone, Debug)]
pub struct Orders {
    pub dir: PathBuf,
    pub seed: u64,
    /// Each writer's first step.
    pub from: Vec<u64>,
}

impl Orders {
    pub fn to_env(&self, command: &mut Command) {
        let from: Vec<String> = self.from.iter().map(u64::to_string).collect();
        command.env(DIR, &self.dir).env(SEED, self.seed.to_string()).env(FROM, from.join(","));
    }

    pub fn from_env() -> Option<Self> {
        let dir = PathBuf::from(std::env::var_os(DIR)?);
        let seed = std::env::var(SEED).ok()?.parse().ok()?;
        let from = std::env::var(FROM).ok()?.split(',').map(|step| step.parse().ok()).collect::<Option<Vec<u64>>>()?;
        Some(Self { dir, seed, from })
    }
}

/// Small segments, so that they fill up and are compacted within a short life.
pub fn options() -> StoreOptions {
    StoreOptions { cache_bytes: 4 << 20, index_cache_bytes: 4 << 20, segment_bytes: 4 << 20, ..StoreOptions::default() }
}

pub fn store_dir(dir: &Path) -> PathBuf {
    dir.join("store")
}

pub fn log_path(dir: &Path, writer: usize) -> PathBuf {
    dir.join(format!("log-{writer}"))
}

pub fn run(orders: &Orders) {
    let store = DiskStore::open(&store_dir(&orders.dir), options()).unwrap();
    println!("{READY}");
    let until = Instant::now() + RUNS_AT_MOST;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = &store;
            scope.spawn(move || Writer::new(store, orders, writer).run(until));
        }
    });
}

struct Writer<'a> {
    store: &'a DiskStore,
    at: At,
    log: File,
    /// The versions of the keys that exist.
    versions: BTreeMap<Key, Version>,
}

impl<'a> Writer<'a> {
    fn new(store: &'a DiskStore, orders: &Orders, writer: usize) -> Self {
        let log = OpenOptions::new().create(true).append(true).open(log_path(&orders.dir, writer)).unwrap();
        let entries = store.list(prefix(writer).as_bytes()).unwrap();
        let versions = entries.into_iter().map(|entry| (entry.key, entry.version)).collect();
        let at = At { seed: orders.seed, writer, step: orders.from[writer] };
        Self { store, at, log, versions }
    }

    fn run(mut self, until: Instant) {
        while Instant::now() < until {
            self.say(&format!("s {}\n", self.at.step));
            let counted = self.step();
            self.say(&match counted {
                Some(count) => format!("a {} {count}\n", self.at.step),
                None => format!("a {}\n", self.at.step),
            });
            self.at.step += 1;
        }
    }

    /// Logs in one call: a line is there completely, or not at all. What the kernel has received survives the process.
    fn say(&mut self, line: &str) {
        let written = self.log.write(line.as_bytes()).unwrap();
        assert_eq!(written, line.len());
    }

    /// Returns the number to which it counted.
    fn step(&mut self) -> Option<u64> {
        match self.at.step() {
            Step::Batch { changes, through, cas } => {
                let durability = if through { Durability::Through } else { Durability::Back };
                let writes: Vec<Write> = changes.iter().map(|change| self.write(*change, cas)).collect();
                self.store.write(writes, durability).unwrap();
                self.note(&changes, &self.at.version());
            }
            Step::Adopt { changes } => {
                let staged = changes.iter().map(|change| {
                    let value = self.at.value(change.key, change.bytes.unwrap_or_default());
                    (key(self.at.writer, change.key), self.store.stage(value).unwrap())
                });
                self.store.adopt(staged.collect(), Vec::new()).unwrap();
                self.note(&changes, &Version::new());
            }
            Step::Refused { changes } => {
                let mut writes: Vec<Write> = changes.iter().map(|change| self.write(*change, false)).collect();
                let expected = Expected::Version(Version::from_static(b"never given"));
                writes.push(Write::Delete { key: Key::from(prefix(self.at.writer)), expected });
                let refused = self.store.write(writes, Durability::Through);
                assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
            }
            Step::Count => return self.count(),
            Step::Flush => self.store.flush().unwrap(),
        }
        None
    }

    fn write(&self, change: Change, cas: bool) -> Write {
        let key = key(self.at.writer, change.key);
        let expected = match (cas, self.versions.get(&key)) {
            (false, _) => Expected::Any,
            (true, Some(version)) => Expected::Version(version.clone()),
            (true, None) => Expected::Absent,
        };
        match change.bytes {
            Some(bytes) => {
                let value = self.at.value(change.key, bytes);
                let version = self.at.version();
                let tag = Tag { algorithm: change.key as i32, bytes: version.clone() };
                Write::Put(Put { key, value, version, tag, expected })
            }
            None => Write::Delete { key, expected },
        }
    }

    fn note(&mut self, changes: &[Change], version: &Version) {
        for change in changes {
            let key = key(self.at.writer, change.key);
            match change.bytes {
                Some(_) => self.versions.insert(key, version.clone()),
                None => self.versions.remove(&key),
            };
        }
    }

    /// Reads the counter, and puts the next number if no other writer has. Gives up after a few attempts.
    fn count(&self) -> Option<u64> {
        for _ in 0..4 {
            let found = self.store.get(COUNTER.as_bytes()).unwrap();
            let (count, expected) = match found {
                None => (0, Expected::Absent),
                Some((value, entry)) => (counted(&value), Expected::Version(entry.version)),
            };
            let value = format!("{} {}/{}", count + 1, self.at.writer, self.at.step);
            let version = Version::from(value.clone());
            let put = Put { expected, version, ..Put::forced(COUNTER, value) };
            match self.store.write(vec![Write::Put(put)], Durability::Through) {
                Ok(()) => return Some(count + 1),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        None
    }
}

/// The number in a counter's value.
pub fn counted(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).unwrap();
    text.split(' ').next().and_then(|count| count.parse().ok()).unwrap()
}
