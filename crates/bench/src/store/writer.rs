//! The process that is killed: it fills a store, then writes until it ends.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pithead_model::{Blame, Fault};
use pithead_store::{DiskStore, Durability, Store, StoreOptions, Write};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::values::{Values, on_threads, sizes};

/// Small values of the store.
pub(super) const SMALL_VALUES: u64 = 100_000;
/// Bytes of a small value.
pub(super) const SMALL_BYTES: u64 = 1 << 10;
/// Small values that are put as one batch.
const BATCH: u64 = 500;
/// Largest of the large values, in mebibytes.
const LARGEST_MIB: u64 = 4;
const WRITERS: usize = 4;
/// A writer that nobody kills ends by itself after so long.
const LIFE_MAX: Duration = Duration::from_secs(120);
/// What it says when it writes over what is there.
pub(super) const WRITING: &str = "writing";
/// The key that says that the store is full.
const FILLED: &str = "filled";

/// What to write.
#[derive(Clone, Debug)]
pub struct StoreWriterOptions {
    /// The store.
    pub directory: PathBuf,
    /// Bytes of large values.
    pub bytes: u64,
    /// Seed of what is written over.
    pub seed: u64,
}

/// Fills the store where it is not full yet, says so on stdout, and writes over values until the process is killed: large ones
/// durably, small ones written back, some deleted and put again. Blocks.
pub fn store_writer(options: &StoreWriterOptions) -> Result<(), Fault> {
    let store = DiskStore::open(&options.directory, StoreOptions::default()).map_err(Fault::from)?;
    let (values, sizes) = (Values::new(4), large_sizes(options.bytes));
    if store.entry(FILLED.as_bytes()).map_err(Fault::from)?.is_none() {
        fill(&store, &values, &sizes)?;
    }
    let said = writeln!(std::io::stdout(), "{WRITING}").and_then(|()| std::io::stdout().flush());
    said.map_err(|error| Fault::new(Blame::Device, format!("stdout: {error}")))?;
    let started = Instant::now();
    let write_over = |number: u64| {
        if started.elapsed() > LIFE_MAX {
            return Err(Fault::new(Blame::Cancelled, "nobody has killed this writer"));
        }
        write_over(&store, &values, &sizes, options.seed, number)
    };
    on_threads(WRITERS, 0, u64::MAX, write_over).map(drop)
}

/// Sizes of the large values of a store, in order of their keys.
pub(super) fn large_sizes(bytes: u64) -> Vec<u64> {
    sizes(4, bytes, LARGEST_MIB)
}

pub(super) fn large_key(number: u64) -> String {
    format!("large/{number:08}")
}

fn small_key(number: u64) -> String {
    format!("small/{number:08}")
}

fn fill(store: &DiskStore, values: &Values, sizes: &[u64]) -> Result<(), Fault> {
    let large = |number: u64| {
        let write = Write::put(large_key(number), values.cut(number, sizes[number as usize]));
        store.write(vec![write], Durability::Through).map_err(Fault::from)
    };
    on_threads(WRITERS, 0, sizes.len() as u64, large)?;
    for batch in 0..SMALL_VALUES / BATCH {
        let numbers = batch * BATCH..(batch + 1) * BATCH;
        let puts = numbers.map(|number| Write::put(small_key(number), values.cut(number, SMALL_BYTES)));
        store.write(puts.collect(), Durability::Back).map_err(Fault::from)?;
    }
    store.write(vec![Write::put(FILLED, "")], Durability::Through).map_err(Fault::from)
}

fn write_over(store: &DiskStore, values: &Values, sizes: &[u64], seed: u64, number: u64) -> Result<(), Fault> {
    let mut random = StdRng::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let small = random.random_range(0..SMALL_VALUES);
    let (batch, durability) = match number % 4 {
        0 => {
            let large = random.random_range(0..sizes.len()) as u64;
            // Of the same size, so that the store does not grow from run to run.
            (vec![Write::put(large_key(large), values.cut(random.random(), sizes[large as usize]))], Durability::Through)
        }
        1 => (vec![Write::delete(small_key(small))], Durability::Back),
        _ => {
            let put = |near| Write::put(small_key((small + near) % SMALL_VALUES), values.cut(random.random(), SMALL_BYTES));
            ((0..16).map(put).collect(), Durability::Back)
        }
    };
    store.write(batch, durability).map_err(Fault::from)
}
