//! Opening a store whose writer was killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use pithead_model::{Blame, Fault};
use pithead_store::{DiskStore, FolderMedium, Medium, Store, StoreOptions};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;

use super::files::drop_cached;
use super::fresh;
use super::writer::{SMALL_BYTES, SMALL_VALUES, WRITING, large_key, large_sizes};
use crate::tables::io;
use crate::timing::Spread;

/// Room beside the store itself: what is written over takes its place only later.
const SPARE_SHARE: f64 = 0.3;
/// A fill that is slower than so many bytes a second has failed.
const FILL_BYTES_A_SECOND_MIN: u64 = 10_000_000;

/// Recovery of one store.
#[derive(Debug, Serialize)]
pub(super) struct Recovery {
    /// Bytes of values when the store had just been filled.
    pub(super) bytes: u64,
    pub(super) large_values: usize,
    pub(super) small_values: u64,
    /// Seconds from the call that opens the store until its first value, of a few MiB, is there.
    pub(super) seconds: Spread,
    /// The part of it until the store is open.
    pub(super) open_seconds: Spread,
}

/// Fills a store of `gb` × 10^9 bytes, then kills a writer and opens the store, `runs` times.
pub(super) fn measure(place: &Path, gb: f64, runs: usize) -> Result<Recovery, Fault> {
    let folder = place.join("recovery");
    fresh(&folder)?;
    let (bytes, small_bytes) = ((gb * 1e9) as u64, SMALL_VALUES * SMALL_BYTES);
    let large_bytes = bytes.saturating_sub(small_bytes);
    check_room(&folder, bytes)?;
    let sizes = large_sizes(large_bytes);
    let mut random = StdRng::seed_from_u64(5);
    let (mut total, mut opened) = (Vec::new(), Vec::new());
    for number in 0..runs.max(1) {
        eprintln!("recovery, run {} of {}{}", number + 1, runs.max(1), if number == 0 { ": fills a store first" } else { "" });
        let mut writer = Writer::start(&folder, large_bytes, number as u64)?;
        writer.wait_until_it_writes(Duration::from_secs(60 + bytes / FILL_BYTES_A_SECOND_MIN))?;
        std::thread::sleep(Duration::from_millis(random.random_range(300..1_500)));
        writer.kill()?;
        drop_cached(&folder)?;
        let first = random.random_range(0..sizes.len() as u64);
        let started = Instant::now();
        let store = DiskStore::open(&folder, StoreOptions::default()).map_err(Fault::from)?;
        opened.push(started.elapsed().as_secs_f64());
        let value = store.get(large_key(first).as_bytes()).map_err(Fault::from)?;
        total.push(started.elapsed().as_secs_f64());
        let found = value.map_or(0, |(value, _)| value.len() as u64);
        if Some(&found) != sizes.get(first as usize) {
            return Err(Fault::new(Blame::Corrupt, format!("{} was acknowledged and has {found} bytes", large_key(first))));
        }
    }
    fresh(&folder)?;
    Ok(Recovery {
        bytes: sizes.iter().sum::<u64>() + small_bytes,
        large_values: sizes.len(),
        small_values: SMALL_VALUES,
        seconds: Spread::of(total),
        open_seconds: Spread::of(opened),
    })
}

fn check_room(folder: &Path, bytes: u64) -> Result<(), Fault> {
    let medium = FolderMedium::open(&folder.join("probe")).map_err(Fault::from)?;
    let free = medium.free_bytes().map_err(|error| io(folder, &error))?;
    let needed = (bytes as f64 * (1.0 + SPARE_SHARE)) as u64 + (1 << 30);
    if free >= needed {
        return Ok(());
    }
    let (free, needed) = (free as f64 / 1e9, needed as f64 / 1e9);
    let what = format!("a store of {:.1} GB needs {needed:.1} GB on the medium; {free:.1} are free", bytes as f64 / 1e9);
    Err(Fault::new(Blame::Limit, what).hint("give a smaller --gb, another --directory, or leave recovery out with --only"))
}

/// The process that writes. Dropping it kills it.
struct Writer(Child);

impl Writer {
    fn start(folder: &Path, bytes: u64, seed: u64) -> Result<Self, Fault> {
        let program = std::env::current_exe().map_err(|error| Fault::new(Blame::Device, error.to_string()))?;
        let child = Command::new(&program)
            .args(["bench", "store-writer"])
            .arg(folder)
            .args([bytes.to_string(), seed.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| io(&program, &error))?;
        Ok(Self(child))
    }

    fn wait_until_it_writes(&mut self, limit: Duration) -> Result<(), Fault> {
        let failed = |what: &str| Fault::new(Blame::Device, format!("the process that writes {what}"));
        let stdout = self.0.stdout.take().ok_or_else(|| failed("has no stdout"))?;
        let (sender, said) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // Once the first line was heard, nobody listens.
                let _ = sender.send(line);
            }
        });
        match said.recv_timeout(limit) {
            Ok(line) if line == WRITING => Ok(()),
            Ok(line) => Err(failed(&format!("said {line:?}"))),
            Err(_) => Err(failed("ended early, or is slower than can be waited for")),
        }
    }

    /// Kills it in the middle of what it does, and waits until it is gone.
    fn kill(&mut self) -> Result<(), Fault> {
        let failed = |error: std::io::Error| Fault::new(Blame::Device, format!("the process that writes: {error}"));
        if let Some(status) = self.0.try_wait().map_err(failed)? {
            return Err(Fault::new(Blame::Device, format!("the process that writes ended by itself with {status}")));
        }
        self.0.kill().map_err(failed)?;
        self.0.wait().map(drop).map_err(failed)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // It may be gone already; nothing is left to do about it either way.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
