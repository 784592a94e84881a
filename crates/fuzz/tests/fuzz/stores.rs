//! A store's files: the index with its blocks, records and redb's own pages, segment files, the marker; and a store of format 1.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use pithead_fuzz::{Bound, Outcome, Parts, Seed, Target};
use pithead_model::Fault;
use pithead_store::{
    CheckOptions, DiskStore, Durability, KeyRange, Medium, Store, StoreError, StoreOptions, Write, check_on, fuzz,
};

use crate::medium::{Files, MemoryMedium};
use crate::{outcome, refused};

pub const NAMES: [&str; 4] = ["store_record", "store_blocks", "store_pages", "store_format1"];

const BLOCK: usize = 4_096;
/// An input has so many blocks at most, in all of its files.
const BLOCKS_MAX: u32 = 1 << 12;
/// The index's caches and its file, an upgrade's second index, a check's copy.
const BOUND: Bound = Bound { bytes: 64 << 20, factor: 64 };
const KEY: &[u8] = b"slice/main/t@1/2/3.4";

pub fn targets() -> Vec<Target> {
    let target =
        |name, seeds, run: fn(&[u8]) -> Outcome| Target { name, seeds, parts: BLOCKS, bound: BOUND, run: Box::new(run) };
    vec![
        Target {
            name: "store_record",
            seeds: record_seeds(),
            parts: Parts { join: resealed_record, ..Parts::WHOLE },
            bound: Bound { bytes: 64 << 10, factor: 8 },
            run: Box::new(|bytes| match fuzz::decode_record(KEY, bytes) {
                Ok(_) => Outcome::Accepted,
                Err(_) => Outcome::Refused,
            }),
        },
        target("store_blocks", store_seeds(), |bytes| store(bytes, false)),
        target("store_pages", store_seeds(), |bytes| store(bytes, true)),
        target("store_format1", format_1_seeds(), |bytes| store(bytes, false)),
    ]
}

/// Uses a store once, so that all that happens once in a process has happened.
pub fn warm_up() {
    drop(filled());
}

fn record_seeds() -> Vec<Seed> {
    vec![
        Seed::valid("small", fuzz::record_bytes(KEY, b"1", b"", b"value")),
        Seed::valid("large", fuzz::record_bytes(KEY, &[7; 2_048], &[8; 300], &[9; 4_000])),
        Seed::valid("empty", fuzz::record_bytes(KEY, b"", b"", b"")),
        Seed::valid("recipe", fuzz::recipe_bytes(KEY, 9, &[(1, 0, 70_000)])),
        Seed::valid("recipe of many", fuzz::recipe_bytes(KEY, 10, &[(3, 4_096, 512); 300])),
    ]
}

fn resealed_record(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = parts.concat();
    fuzz::reseal_record(KEY, &mut bytes);
    bytes
}

/// A file's blocks that hold something, each after its name, its file's length and its number.
const BLOCKS: Parts = Parts { split: split_blocks, join: |parts| join_blocks(parts), piece: 2 };

fn split_blocks(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut parts = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk::<2>()?;
        let (head, after) = after.split_at_checked(u16::from_le_bytes(*length).into())?;
        let (block, after) = after.split_at_checked(BLOCK)?;
        parts.extend([head.to_vec(), block.to_vec()]);
        rest = after;
    }
    Some(parts)
}

fn join_blocks(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for pair in parts.chunks(2) {
        let [head, block] = pair else { continue };
        let head = &head[..head.len().min(usize::from(u16::MAX))];
        let mut block = block.clone();
        block.resize(BLOCK, 0);
        bytes.extend((head.len() as u16).to_le_bytes());
        bytes.extend_from_slice(head);
        bytes.append(&mut block);
    }
    bytes
}

fn blocks_of(files: &Files) -> Vec<u8> {
    let mut parts = Vec::new();
    for (name, bytes) in files {
        let mut block_of = |number: usize, block: &[u8]| {
            let numbers = [(bytes.len() as u32).to_le_bytes(), (number as u32).to_le_bytes()].concat();
            parts.extend([[numbers, name.as_bytes().to_vec()].concat(), block.to_vec()]);
        };
        for (number, block) in bytes.chunks(BLOCK).enumerate() {
            // The first one also says that the file is there.
            if number == 0 || block.iter().any(|byte| *byte != 0) {
                block_of(number, block);
            }
        }
    }
    join_blocks(&parts)
}

fn files_of(bytes: &[u8]) -> Option<Files> {
    let mut files: Files = BTreeMap::new();
    for pair in split_blocks(bytes)?.chunks(2) {
        let [head, block] = pair else { continue };
        let (length, rest) = head.split_first_chunk::<4>()?;
        let (number, name) = rest.split_first_chunk::<4>()?;
        let number = u32::from_le_bytes(*number).min(BLOCKS_MAX) as usize;
        let name = String::from_utf8_lossy(name).into_owned();
        let others: usize = files.iter().filter(|(other, _)| **other != name).map(|(_, bytes)| bytes.len()).sum();
        let length = (u32::from_le_bytes(*length) as usize).min((BLOCKS_MAX as usize * BLOCK).saturating_sub(others));
        let file = files.entry(name).or_default();
        file.resize(length, 0);
        if let Some(there) = file.get_mut(number * BLOCK..) {
            let end = there.len().min(BLOCK);
            there[..end].copy_from_slice(&block[..end]);
        }
    }
    Some(files)
}

fn options() -> StoreOptions {
    StoreOptions {
        cache_bytes: 4 << 20,
        index_cache_bytes: 4 << 20,
        segment_bytes: 1 << 20,
        reserve_bytes: 0,
        background: false,
        compacts: false,
    }
}

/// A store with small and large values, written, replaced and deleted.
fn filled() -> Files {
    let medium = MemoryMedium::new(Files::new());
    let store = DiskStore::open_on(Arc::clone(&medium) as Arc<dyn Medium>, options()).unwrap();
    let value = |number: usize| vec![number as u8; [10, 300, 5_000, 70_000, 140_000][number % 5]];
    for round in 0..2 {
        let puts = (round..40).map(|number| Write::put(format!("slice/main/t@1/{number:03}/0.meta"), value(number + round)));
        store.write(puts.collect(), Durability::Through).unwrap();
    }
    store.write(vec![Write::delete("slice/main/t@1/007/0.meta")], Durability::Through).unwrap();
    drop(store);
    medium.files()
}

/// Stores that were closed, and one that was not.
fn store_seeds() -> Vec<Seed> {
    let medium = MemoryMedium::new(Files::new());
    let store = DiskStore::open_on(Arc::clone(&medium) as Arc<dyn Medium>, options()).unwrap();
    store.write(vec![Write::put("a", "first"), Write::put("b", vec![7; 80_000])], Durability::Through).unwrap();
    store.write(vec![Write::put("c", "second")], Durability::Back).unwrap();
    let open = medium.files();
    drop(store);
    vec![
        Seed::valid("filled", blocks_of(&filled())),
        Seed::valid("small", blocks_of(&medium.files())),
        Seed::valid("killed", blocks_of(&open)),
    ]
}

fn format_1_seeds() -> Vec<Seed> {
    let stores = Path::new(env!("CARGO_MANIFEST_DIR")).join("../e2e/suites/stores/format-1");
    let seed = |number: u32| {
        let folder = stores.join(format!("drive-{number}"));
        let mut files = Files::new();
        for name in ["FORMAT", "index.redb"] {
            files.insert(name.to_owned(), fs::read(folder.join(name)).unwrap());
        }
        for entry in fs::read_dir(folder.join("segments")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.insert(format!("segments/{name}"), fs::read(&path).unwrap());
        }
        Seed::valid(format!("drive {number}"), blocks_of(&files))
    };
    vec![seed(0), seed(1)]
}

/// Opens a store on these files, uses it, and checks it. With `sealed`, the blocks of its index have sums that hold.
fn store(bytes: &[u8], sealed: bool) -> Outcome {
    let Some(mut files) = files_of(bytes) else { return Outcome::Refused };
    if sealed && let Some(index) = files.get_mut("index.redb") {
        fuzz::reseal_index(index);
    }
    let checked = check_on(MemoryMedium::new(files.clone()), &CheckOptions::default(), &mut |_| {});
    let repaired = check_on(MemoryMedium::new(files.clone()), &CheckOptions { repair: true }, &mut |_| {});
    for result in [checked, repaired] {
        if let Err(error) = result
            && let wrong @ Outcome::Wrong(_) = refused(&Fault::from(error))
        {
            return wrong;
        }
    }
    outcome(used(MemoryMedium::new(files)).map_err(Fault::from))
}

/// Reads all keys and values, then writes.
fn used(medium: Arc<MemoryMedium>) -> Result<(), StoreError> {
    let store = DiskStore::open_on(medium, options())?;
    let mut failed = None;
    for entry in store.range(&KeyRange::prefix(b""))? {
        match store.get(&entry.key) {
            Ok(_) => {}
            Err(error) => failed = Some(error),
        }
    }
    store.usage()?;
    store.write(vec![Write::put("new", "value"), Write::put("large", vec![1; 70_000])], Durability::Through)?;
    store.write(vec![Write::delete("slice/main/t@1/009/0.meta")], Durability::Back)?;
    store.flush()?;
    store.compact_now()?;
    failed.map_or(Ok(()), Err)
}
