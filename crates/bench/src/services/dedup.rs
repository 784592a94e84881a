//! Deduplication: what it saves of real files, and what it costs to read them afterwards.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use pithead_model::{Blame, Fault};
use pithead_store::{Chunking, Dedup, DedupOptions, DiskStore, Durability, Key, Store, StoreOptions, Write};
use serde::Serialize;

use crate::tables::io;

/// Files that are stored, in all, and each.
const FILES_BYTES_MAX: u64 = 384 << 20;
const FILE_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=16 << 20;
/// Readings of all values, before and after; the median counts.
const READS: usize = 5;
const STEP_BYTES: u64 = 64 << 10;
const CHUNKINGS: [Chunking; 3] = [Chunking::ContentDefined, Chunking::Kib, Chunking::HalfKib];

/// Files that were stored and deduplicated.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Saved {
    pub(super) chunks: String,
    pub(super) files: usize,
    pub(super) bytes: u64,
    /// Bytes of values as they are stored afterwards.
    pub(super) stored_bytes: u64,
    /// Bytes of the store's folder on the medium, before and after, with its index and journal.
    pub(super) folder_bytes: [u64; 2],
    /// Megabytes a second of the round, without a pause on one core.
    pub(super) mb_s: f64,
    /// Megabytes a second of reading all values from the medium, before and after.
    pub(super) read_mb_s: [f64; 2],
}

impl Saved {
    pub(super) fn share(&self) -> f64 {
        1.0 - self.stored_bytes as f64 / (self.bytes as f64).max(1.0)
    }

    pub(super) fn read_cost(&self) -> f64 {
        self.read_mb_s[0] / self.read_mb_s[1]
    }
}

/// Stores files, and deduplicates them in each way. Blocks.
pub(super) fn save(directory: &Path, files: &[(PathBuf, u64)]) -> Result<Vec<Saved>, Fault> {
    CHUNKINGS.into_iter().map(|chunking| save_by(directory, files, chunking)).collect()
}

fn save_by(directory: &Path, files: &[(PathBuf, u64)], chunking: Chunking) -> Result<Saved, Fault> {
    let folder = tempfile::tempdir_in(directory).map_err(|error| io(directory, &error))?;
    let options = StoreOptions { compacts: false, cache_bytes: 0, ..StoreOptions::default() };
    let store = DiskStore::open(folder.path(), options)?;
    let mut keys: Vec<Key> = Vec::with_capacity(files.len());
    for (path, _) in files {
        let Ok(value) = std::fs::read(path) else { continue };
        let key = Key::from(format!("file/{:06}", keys.len()));
        store.write(vec![Write::put(key.clone(), value)], Durability::Back)?;
        keys.push(key);
    }
    store.compact()?;
    let (bytes, before, read_before) = (store.usage()?.value_bytes, folder_bytes(folder.path()), read_all(&store, &keys)?);
    let mut dedup = Dedup::new(DedupOptions { chunking, scopes: vec![Key::from_static(b"file/")], memory_bytes: 64 << 20 });
    let started = Instant::now();
    while store.dedup_step(&mut dedup, STEP_BYTES)?.is_some() {}
    store.flush()?;
    let seconds = started.elapsed().as_secs_f64();
    store.compact()?;
    let stored_bytes = store.usage()?.stored_bytes();
    let read_after = read_all(&store, &keys)?;
    drop(store);
    let mb_s = |seconds: f64| bytes as f64 / 1e6 / seconds;
    let saved = Saved {
        chunks: chunking.to_string(),
        files: keys.len(),
        bytes,
        stored_bytes,
        folder_bytes: [before, folder_bytes(folder.path())],
        mb_s: mb_s(seconds),
        read_mb_s: [mb_s(read_before), mb_s(read_after)],
    };
    println!("deduplicated by {chunking}: {:.1}% saved, read cost {:.2}", saved.share() * 100.0, saved.read_cost());
    Ok(saved)
}

/// Seconds of reading all values where they are stored.
fn read_all(store: &DiskStore, keys: &[Key]) -> Result<f64, Fault> {
    let mut seconds = Vec::with_capacity(READS);
    for _ in 0..READS {
        let started = Instant::now();
        keys.iter().try_for_each(|key| store.check(key))?;
        seconds.push(started.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[READS / 2])
}

/// Files below a folder with their bytes, in order, until there are enough.
pub(super) fn found(folder: &Path) -> Result<Vec<(PathBuf, u64)>, Fault> {
    let (mut folders, mut files, mut bytes) = (vec![folder.to_path_buf()], Vec::new(), 0);
    while let Some(folder) = folders.pop().filter(|_| bytes <= FILES_BYTES_MAX) {
        // What may not be read is left out.
        let Ok(listed) = std::fs::read_dir(&folder) else { continue };
        let mut paths: Vec<PathBuf> = listed.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        for path in paths {
            let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
            if meta.is_dir() {
                folders.push(path);
            } else if meta.is_file() && FILE_BYTES.contains(&meta.len()) && bytes <= FILES_BYTES_MAX {
                bytes += meta.len();
                files.push((path, meta.len()));
            }
        }
    }
    match files.is_empty() {
        true => Err(Fault::new(Blame::User, format!("{} has no files that could be stored", folder.display()))),
        false => Ok(files),
    }
}

fn folder_bytes(folder: &Path) -> u64 {
    let listed = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    listed
        .filter_map(|entry| {
            let meta = entry.metadata().ok()?;
            Some(if meta.is_dir() { folder_bytes(&entry.path()) } else { meta.blocks() * 512 })
        })
        .sum()
}
