//! Slices read in sequence from the medium: through the store, and bare.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pithead_model::{Blame, Fault};
use pithead_store::medium::ALIGNMENT;
use pithead_store::{DiskStore, FolderMedium, Medium, MediumFile, Store, StoreOptions};
use serde::Serialize;

use super::files::{device_bytes_read, drop_cached};
use super::fresh;
use super::values::{Values, on_threads, sizes};
use crate::tables::io;
use crate::timing::Spread;

/// Bytes of all slices.
const TOTAL_BYTES: u64 = 2 << 30;
/// Largest slice, in mebibytes.
const LARGEST_MIB: u64 = 16;
/// Readers at a time. The first is the figure: one reader of one slice after the other.
const READERS: [usize; 2] = [1, 2];

/// Reading in sequence.
#[derive(Debug, Serialize)]
pub(super) struct Cold {
    pub(super) slices: usize,
    pub(super) bytes: u64,
    pub(super) readers: Vec<ColdReaders>,
    /// Bytes that the device was read for, per byte of slice returned, over all runs; none where the kernel does not say.
    pub(super) read_amplification: Option<Spread>,
}

/// GB a second with so many readers.
#[derive(Debug, Serialize)]
pub(super) struct ColdReaders {
    pub(super) readers: usize,
    pub(super) store: Spread,
    pub(super) medium: Spread,
    /// Store against medium, run by run.
    pub(super) share: Spread,
}

/// GB a second of one run, by readers, and device bytes a byte.
#[derive(Debug, Default)]
struct Run {
    store: Vec<f64>,
    medium: Vec<f64>,
    amplification: Vec<f64>,
}

/// The same slices in a store and in a bare file.
#[derive(Debug)]
struct Written<'a> {
    place: &'a Path,
    sizes: Vec<u64>,
    /// Where each lies in the bare file.
    ranges: Vec<Range<u64>>,
}

/// Writes the slices once and reads them `runs` times.
pub(super) fn measure(place: &Path, runs: usize) -> Result<Cold, Fault> {
    let written = write(place)?;
    let mut measured = Vec::new();
    for number in 0..runs.max(1) {
        eprintln!("cold reads, run {} of {}", number + 1, runs.max(1));
        let mut run = Run::default();
        for readers in READERS {
            run.medium.push(written.read_medium(readers)?);
            let (rate, amplification) = written.read_store(readers)?;
            run.store.push(rate);
            run.amplification.extend(amplification);
        }
        measured.push(run);
    }
    fresh(&written.store())?;
    fresh(&written.medium())?;
    Ok(summarise(&written.sizes, &measured))
}

fn write(place: &Path) -> Result<Written<'_>, Fault> {
    let (values, sizes) = (Values::new(2), sizes(2, TOTAL_BYTES, LARGEST_MIB));
    let mut end = 0;
    let ranges = sizes.iter().map(|bytes| {
        let start = end;
        end = (start + bytes).next_multiple_of(ALIGNMENT);
        start..start + bytes
    });
    let ranges: Vec<Range<u64>> = ranges.collect();
    let written = Written { place, sizes, ranges };
    fresh(&written.store())?;
    fresh(&written.medium())?;
    // As a load does: slices are staged, then named together.
    let store = DiskStore::open(&written.store(), StoreOptions::default()).map_err(Fault::from)?;
    for (number, group) in written.sizes.chunks(32).enumerate() {
        let mut staged = Vec::new();
        for (index, bytes) in group.iter().enumerate() {
            let number = (number * 32 + index) as u64;
            staged.push((key(number).into(), store.stage(values.cut(number, *bytes)).map_err(Fault::from)?));
        }
        store.adopt(staged, Vec::new()).map_err(Fault::from)?;
    }
    drop(store);
    let bare = || {
        let medium = FolderMedium::open(&written.medium()).map_err(std::io::Error::other)?;
        let file = medium.open("bare", true)?;
        file.reserve(0..end)?;
        for (number, range) in written.ranges.iter().enumerate() {
            file.write_large(range.start, &values.cut(number as u64, range.end - range.start))?;
        }
        file.flush()
    };
    bare().map_err(|error| io(&written.medium(), &error))?;
    Ok(written)
}

impl Written<'_> {
    fn store(&self) -> std::path::PathBuf {
        self.place.join("store")
    }

    fn medium(&self) -> std::path::PathBuf {
        self.place.join("medium")
    }

    fn bytes(&self) -> u64 {
        self.sizes.iter().sum()
    }

    /// GB a second from the bare file.
    fn read_medium(&self, readers: usize) -> Result<f64, Fault> {
        drop_cached(&self.medium())?;
        let medium = FolderMedium::open(&self.medium()).map_err(Fault::from)?;
        let failed = |error: std::io::Error| io(&self.medium(), &error);
        let file: Arc<dyn MediumFile> = medium.open("bare", false).map_err(failed)?;
        let read = |number: u64| {
            let range = self.ranges[number as usize].clone();
            let bytes = range.end - range.start;
            let value = file.read_large(range).map_err(failed)?;
            check(number, value.len() as u64, bytes)
        };
        let seconds = on_threads(readers, 0, self.ranges.len() as u64, read)?;
        Ok(self.bytes() as f64 / 1e9 / seconds)
    }

    /// GB a second through a store that was just opened, and bytes read from the device a byte.
    fn read_store(&self, readers: usize) -> Result<(f64, Option<f64>), Fault> {
        drop_cached(&self.store())?;
        let store = DiskStore::open(&self.store(), StoreOptions::default()).map_err(Fault::from)?;
        let returned = AtomicU64::new(0);
        let read = |number: u64| {
            let (value, _) = store.get(key(number).as_bytes()).map_err(Fault::from)?.ok_or_else(|| missing(number))?;
            returned.fetch_add(value.len() as u64, Ordering::Relaxed);
            check(number, value.len() as u64, self.sizes[number as usize])
        };
        let before = device_bytes_read();
        let seconds = on_threads(readers, 0, self.sizes.len() as u64, read)?;
        let read = before.and_then(|before| Some(device_bytes_read()?.saturating_sub(before)));
        let returned = returned.into_inner() as f64;
        Ok((returned / 1e9 / seconds, read.map(|read| read as f64 / returned)))
    }
}

fn key(number: u64) -> String {
    format!("slice/{number:08}")
}

fn check(number: u64, found: u64, expected: u64) -> Result<(), Fault> {
    match found == expected {
        true => Ok(()),
        false => Err(Fault::new(Blame::Bug, format!("slice {number} has {found} bytes instead of {expected}"))),
    }
}

fn missing(number: u64) -> Fault {
    Fault::new(Blame::Bug, format!("slice {number} is not there"))
}

fn summarise(sizes: &[u64], runs: &[Run]) -> Cold {
    let over = |figure: &dyn Fn(&Run) -> f64| Spread::of(runs.iter().map(figure).collect());
    let row = |(index, readers): (usize, usize)| ColdReaders {
        readers,
        store: over(&|run| run.store[index]),
        medium: over(&|run| run.medium[index]),
        share: over(&|run| run.store[index] / run.medium[index]),
    };
    let amplification: Vec<f64> = runs.iter().flat_map(|run| run.amplification.iter().copied()).collect();
    Cold {
        slices: sizes.len(),
        bytes: sizes.iter().sum(),
        readers: READERS.into_iter().enumerate().map(row).collect(),
        read_amplification: (!amplification.is_empty()).then(|| Spread::of(amplification)),
    }
}
