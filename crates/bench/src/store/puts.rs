//! Durable puts: the store, the bare medium, and RocksDB, in turns.

use std::path::Path;
use std::sync::Arc;

use pithead_model::Fault;
use pithead_store::{DiskStore, Durability, FolderMedium, Medium, Store, StoreOptions, Write};
use serde::Serialize;

use super::fresh;
use super::rocksdb::{RocksDb, Workload};
use super::values::{MIB, Values, on_threads};
use crate::tables::io;
use crate::timing::Spread;

/// Bytes of a value, writers, and puts that are measured.
const WORKLOADS: [(u64, usize, u64); 5] =
    [(MIB, 1, 128), (MIB, 4, 384), (MIB, 16, 1_024), (4 << 10, 1, 400), (4 << 10, 16, 4_800)];
/// Each run measures so many parts of a workload, store and bare medium in turns: the flushes of a virtual disk change their
/// pace from one second to the next, and both must meet the same.
const TURNS: u64 = 4;
/// Of the last workload that is compared with the first of its size.
const GAIN: (usize, usize) = (3, 4);
/// The workload whose share of the medium is the figure.
const SHARE: usize = 2;
/// Puts of each writer before the clock starts.
const WARM_UP: u64 = 4;
/// Bytes that one writer of the bare medium writes in sequence before it flushes: what 16 writers of 1 MiB could at best share.
const SEQUENCE_BYTES: u64 = 16 * MIB;
const SEQUENCES: u64 = 32;

/// All workloads.
#[derive(Debug, Serialize)]
pub(super) struct Puts {
    /// RocksDB's version; none where it was not found.
    pub(super) rocksdb: Option<String>,
    pub(super) workloads: Vec<PutWorkload>,
    /// The bare medium, one writer, 16 MiB in sequence and then a flush, in MB/s.
    pub(super) sequence_mb_s: Spread,
    /// Store against bare medium at 16 writers of 1 MiB.
    pub(super) share_of_medium: Spread,
    /// Store at 16 writers of 1 MiB against `sequence_mb_s`.
    pub(super) share_of_sequence: Spread,
    /// Puts of 4 KiB a second by 16 writers against one.
    pub(super) gain_16: Spread,
    /// The same in RocksDB.
    pub(super) rocksdb_gain_16: Option<Spread>,
    /// Store against RocksDB with one writer of 4 KiB, run by run.
    pub(super) vs_rocksdb: Option<Spread>,
}

/// Puts a second.
#[derive(Debug, Serialize)]
pub(super) struct PutWorkload {
    pub(super) value_bytes: u64,
    pub(super) writers: usize,
    pub(super) puts: u64,
    pub(super) store: Spread,
    pub(super) medium: Spread,
    pub(super) rocksdb: Option<Spread>,
    /// Store against medium, run by run.
    pub(super) share: Spread,
}

/// Puts a second of one run, by workload.
#[derive(Debug, Default)]
struct Run {
    store: Vec<f64>,
    medium: Vec<f64>,
    sequence: f64,
    rocksdb: Option<RocksDb>,
}

/// Runs all workloads `runs` times.
pub(super) fn measure(place: &Path, runs: usize) -> Result<Puts, Fault> {
    let values = Values::new(1);
    let mut measured = Vec::new();
    for number in 0..runs.max(1) {
        eprintln!("puts, run {} of {}", number + 1, runs.max(1));
        measured.push(run(place, &values)?);
    }
    Ok(summarise(&measured))
}

fn run(place: &Path, values: &Values) -> Result<Run, Fault> {
    let mut run = Run::default();
    for (bytes, writers, puts) in WORKLOADS {
        let (mut medium, mut store) = (0.0, 0.0);
        for _ in 0..TURNS {
            medium += on_medium(place, values, bytes, writers, puts / TURNS)?;
            store += on_store(place, values, bytes, writers, puts / TURNS)?;
        }
        run.medium.push(puts as f64 / medium);
        run.store.push(puts as f64 / store);
    }
    run.sequence = (SEQUENCES * SEQUENCE_BYTES) as f64 / 1e6 / on_medium(place, values, SEQUENCE_BYTES, 1, SEQUENCES)?;
    let workloads = WORKLOADS.map(|(bytes, writers, puts)| Workload { bytes, writers, puts });
    let folder = place.join("rocksdb");
    fresh(&folder)?;
    run.rocksdb = super::rocksdb::rocksdb(&folder, &workloads, WARM_UP)?;
    fresh(&folder)?;
    Ok(run)
}

/// Seconds of puts on the bare medium: each writer takes the next room of one reserved file, writes there and flushes the file.
/// What flushes share is what the kernel lets them share.
fn on_medium(place: &Path, values: &Values, bytes: u64, writers: usize, puts: u64) -> Result<f64, Fault> {
    let folder = place.join("medium");
    fresh(&folder)?;
    let medium = FolderMedium::open(&folder).map_err(Fault::from)?;
    let (warm_up, failed) = (WARM_UP * writers as u64, |error: std::io::Error| io(&folder, &error));
    let reserved = || {
        let file = medium.open("reserved", true)?;
        file.reserve(0..(warm_up + puts) * bytes)?;
        file.flush()?;
        medium.flush_names("")?;
        Ok(file)
    };
    let file = reserved().map_err(failed)?;
    let put = |number: u64| {
        file.write_large(number * bytes, &values.cut(number, bytes)).map_err(failed)?;
        file.flush().map_err(failed)
    };
    on_threads(writers, 0, warm_up, put)?;
    let seconds = on_threads(writers, warm_up, warm_up + puts, put)?;
    drop(file);
    fresh(&folder)?;
    Ok(seconds)
}

/// Seconds of puts into a new store, each durable when it returns.
fn on_store(place: &Path, values: &Values, bytes: u64, writers: usize, puts: u64) -> Result<f64, Fault> {
    let folder = place.join("store");
    fresh(&folder)?;
    let store: Arc<dyn Store> = Arc::new(DiskStore::open(&folder, StoreOptions::default()).map_err(Fault::from)?);
    let warm_up = WARM_UP * writers as u64;
    let put = |number: u64| {
        let write = Write::put(format!("put/{number:08}"), values.cut(number, bytes));
        store.write(vec![write], Durability::Through).map_err(Fault::from)
    };
    on_threads(writers, 0, warm_up, put)?;
    let seconds = on_threads(writers, warm_up, warm_up + puts, put)?;
    drop(store);
    fresh(&folder)?;
    Ok(seconds)
}

fn summarise(runs: &[Run]) -> Puts {
    let over = |figure: &dyn Fn(&Run) -> f64| Spread::of(runs.iter().map(figure).collect());
    let beside = |figure: &dyn Fn(&Run, &RocksDb) -> f64| {
        let all: Option<Vec<f64>> = runs.iter().map(|run| Some(figure(run, run.rocksdb.as_ref()?))).collect();
        all.map(Spread::of)
    };
    let workload = |(index, (value_bytes, writers, puts)): (usize, (u64, usize, u64))| PutWorkload {
        value_bytes,
        writers,
        puts,
        store: over(&|run| run.store[index]),
        medium: over(&|run| run.medium[index]),
        rocksdb: beside(&|_, rocksdb| rocksdb.puts_a_second[index]),
        share: over(&|run| run.store[index] / run.medium[index]),
    };
    Puts {
        rocksdb: runs.first().and_then(|run| Some(run.rocksdb.as_ref()?.version.clone())),
        workloads: WORKLOADS.into_iter().enumerate().map(workload).collect(),
        sequence_mb_s: over(&|run| run.sequence),
        share_of_medium: over(&|run| run.store[SHARE] / run.medium[SHARE]),
        share_of_sequence: over(&|run| run.store[SHARE] * MIB as f64 / 1e6 / run.sequence),
        gain_16: over(&|run| run.store[GAIN.1] / run.store[GAIN.0]),
        rocksdb_gain_16: beside(&|_, rocksdb| rocksdb.puts_a_second[GAIN.1] / rocksdb.puts_a_second[GAIN.0]),
        vs_rocksdb: beside(&|run, rocksdb| run.store[GAIN.0] / rocksdb.puts_a_second[GAIN.0]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(store: f64, rocksdb: Option<f64>) -> Run {
        let rocksdb =
            rocksdb.map(|rate| RocksDb { version: "1".to_owned(), puts_a_second: vec![10.0, 10.0, 10.0, 10.0, rate] });
        Run {
            store: vec![1.0, 2.0, store, 4.0, 40.0],
            medium: vec![2.0, 4.0, 10.0, 8.0, 80.0],
            sequence: 16.0 * 1.048_576,
            rocksdb,
        }
    }

    #[test]
    fn shares_are_taken_run_by_run() {
        let puts = summarise(&[run(8.0, Some(50.0)), run(6.0, Some(30.0)), run(7.0, Some(40.0))]);
        assert_eq!(puts.share_of_medium, Spread { median: 0.7, min: 0.6, max: 0.8 });
        assert_eq!((puts.gain_16.median, puts.rocksdb_gain_16.map(|gain| gain.median)), (10.0, Some(4.0)));
        assert!((puts.share_of_sequence.median - 7.0 / 16.0).abs() < 1e-9);
        assert_eq!(puts.workloads[SHARE].share, puts.share_of_medium);
        let alone = summarise(&[run(8.0, Some(50.0)), run(6.0, None)]);
        assert!(alone.workloads[4].rocksdb.is_none(), "figures of some runs only are no figures");
        assert_eq!(alone.vs_rocksdb, None);
    }

    #[test]
    fn the_store_is_compared_with_rocksdb_of_the_same_run() {
        let with = |store: f64, beside: f64| {
            let mut one = run(8.0, Some(50.0));
            one.store[GAIN.0] = store;
            one.rocksdb.as_mut().unwrap().puts_a_second[GAIN.0] = beside;
            one
        };
        let puts = summarise(&[with(30.0, 10.0), with(10.0, 20.0), with(20.0, 40.0)]);
        assert_eq!(puts.vs_rocksdb, Some(Spread { median: 0.5, min: 0.5, max: 3.0 }), "the ratio of the medians is 1");
    }
}
