//! Slices that are in memory already: read again through the store, each byte looked at, beside plain memory.

use std::path::Path;
use std::time::Instant;

use bytes::Bytes;
use pithead_model::{Blame, Fault};
use pithead_store::{DiskStore, Store, StoreOptions};
use serde::Serialize;

use super::fresh;
use super::values::{MIB, Values};
use crate::timing::Spread;

const SLICES: u64 = 24;
const SLICE_BYTES: u64 = 8 * MIB;
/// Bytes that each figure covers.
const LOOKED_AT_BYTES: u64 = 6 << 30;

/// GB a second on one thread.
#[derive(Debug, Serialize)]
pub(super) struct Warm {
    pub(super) slices: u64,
    pub(super) slice_bytes: u64,
    pub(super) store: Spread,
    /// The same loop over values that are simply held in memory.
    pub(super) memory: Spread,
    /// Nanoseconds of one `get` by itself.
    pub(super) get_ns: Spread,
    /// Whether each `get` of a value gave the same bytes of memory.
    pub(super) without_copy: bool,
}

/// Reads all slices once to have them in memory, then measures `runs` times.
pub(super) fn measure(place: &Path, runs: usize) -> Result<Warm, Fault> {
    let folder = place.join("store");
    fresh(&folder)?;
    let options = StoreOptions { cache_bytes: 2 * SLICES * SLICE_BYTES, ..StoreOptions::default() };
    let store = DiskStore::open(&folder, options).map_err(Fault::from)?;
    let pool = Values::new(3);
    let values: Vec<Bytes> = (0..SLICES).map(|number| Bytes::copy_from_slice(&pool.cut(number, SLICE_BYTES))).collect();
    for (number, value) in (0..).zip(&values) {
        let staged = store.stage(value.clone()).map_err(Fault::from)?;
        store.adopt(vec![(key(number).into(), staged)], Vec::new()).map_err(Fault::from)?;
    }
    let get = |number: u64| match store.get(key(number).as_bytes()).map_err(Fault::from)? {
        Some((value, _)) => Ok(value),
        None => Err(Fault::new(Blame::Bug, format!("slice {number} is not there"))),
    };
    let first = (0..SLICES).map(get).collect::<Result<Vec<Bytes>, Fault>>()?;
    let expected = first.iter().fold(0, |sum: u64, value| sum.wrapping_add(total(value)));
    if first != values {
        return Err(Fault::new(Blame::Corrupt, "a slice is not what was written"));
    }
    let mut without_copy = true;
    let (mut from_store, mut from_memory, mut gets) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..runs.max(1) {
        from_memory.push(rate(expected, |number| Ok(values[number as usize].clone()))?);
        from_store.push(rate(expected, get)?);
        let started = Instant::now();
        for number in 0..SLICES {
            without_copy &= get(number)?.as_ptr() == first[number as usize].as_ptr();
        }
        gets.push(started.elapsed().as_secs_f64() * 1e9 / SLICES as f64);
    }
    drop(store);
    fresh(&folder)?;
    Ok(Warm {
        slices: SLICES,
        slice_bytes: SLICE_BYTES,
        store: Spread::of(from_store),
        memory: Spread::of(from_memory),
        get_ns: Spread::of(gets),
        without_copy,
    })
}

/// GB a second at which all slices are got and looked at, over and over.
fn rate(expected: u64, get: impl Fn(u64) -> Result<Bytes, Fault>) -> Result<f64, Fault> {
    let rounds = LOOKED_AT_BYTES / (SLICES * SLICE_BYTES);
    let started = Instant::now();
    for _ in 0..rounds {
        let mut sum = 0u64;
        for number in 0..SLICES {
            sum = sum.wrapping_add(total(&get(number)?));
        }
        if sum != expected {
            return Err(Fault::new(Blame::Corrupt, "a slice is not what it was when it was read first"));
        }
    }
    Ok((rounds * SLICES * SLICE_BYTES) as f64 / 1e9 / started.elapsed().as_secs_f64())
}

/// The sum of all whole words: every byte is looked at, at the speed of memory.
fn total(bytes: &[u8]) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().fold(0, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}

fn key(number: u64) -> String {
    format!("slice/{number:08}")
}
