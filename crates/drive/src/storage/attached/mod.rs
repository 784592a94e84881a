//! [`Attached`]: datasets over files that lie where they are, which the drive reads and never writes.
//!
//! A file is a run, and a row group of Parquet or some batches of Arrow a slice; nothing is loaded, and a row group's columns are read when a session wants them. A run's
//! id is made of what tells the file from every other and from itself after a change, so what is kept for later by runs is never
//! taken for another file's. Changes are looked for whenever a host asks.

mod agree;
mod file;
mod listing;
mod look;
mod spec;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use parking_lot::Mutex;
use pithead_door::Attachments;
use pithead_model::{Blame, DatasetName, Directory, Fault, LoadId, SliceKey, merge_columns};
use pithead_slice::{AttachedSlice, SliceReader};

use crate::resources::Workers;
use crate::storage::run_directory::RunDirectory;

pub use spec::{Attach, Share};

/// A look that took less is done each time that a host asks.
const LOOK_FREELY: Duration = Duration::from_millis(100);
/// Longer ones take at most one part of so many of the time.
const LOOK_SHARE: u32 = 10;

/// What a drive attaches.
#[derive(Debug)]
pub(crate) struct Attached {
    what: Vec<Attach>,
    workers: Workers,
    seen: Mutex<Arc<Seen>>,
    /// One look at a time.
    looking: tokio::sync::Mutex<()>,
}

/// A look at the files: when, how long listing them took, and what was found.
#[derive(Debug)]
struct Seen {
    found: Arc<Found>,
    at: Instant,
    took: Duration,
}

/// The files as they were found.
#[derive(Debug)]
struct Found {
    listing: listing::Listing,
    told: Arc<Attachments>,
    runs: look::Runs,
    /// Files that were opened, by what they are.
    files: look::Files,
}

/// A file's rows as slices of its dataset.
#[derive(Debug)]
struct AttachedRun {
    load: LoadId,
    name: DatasetName,
    slices: Vec<AttachedSlice>,
    directory: Arc<RunDirectory>,
}

impl Attached {
    /// Looks at the files for the first time. Blocks. A path that is not there is [`Blame::User`].
    pub(crate) fn open(what: Vec<Attach>, workers: Workers) -> Result<Attached, Fault> {
        for attach in &what {
            if let Err(error) = attach.path.metadata() {
                let fault = Fault::new(Blame::User, format!("cannot attach {}: {error}", attach.path.display()));
                return Err(fault.hint("name a directory of Parquet or Arrow files, or one such file"));
            }
        }
        let seen = look::look(&what, None);
        for refused in &seen.found.told.refused {
            tracing::warn!(dataset = %refused.name, why = refused.why, "not attached");
        }
        tracing::info!(datasets = seen.found.told.datasets.len(), files = seen.found.files.len(), "attached");
        Ok(Attached { what, workers, seen: Mutex::new(Arc::new(seen)), looking: tokio::sync::Mutex::default() })
    }

    /// What hosts are told; none: it is as of version `known`.
    pub(crate) async fn tell(&self, known: Option<u64>) -> Result<Option<Arc<Attachments>>, Fault> {
        let asked = Instant::now();
        let _looking = self.looking.lock().await;
        let before = Arc::clone(&self.seen.lock());
        // Who waited for a look that began after it had asked needs no other one.
        let is_fresh = before.at > asked || before.took > LOOK_FREELY && before.at.elapsed() < before.took * LOOK_SHARE;
        let seen = match is_fresh {
            true => before,
            false => {
                let what = self.what.clone();
                let seen = self.workers.blocking(move || look::look(&what, Some(&before))).await?;
                let seen = Arc::new(seen);
                *self.seen.lock() = Arc::clone(&seen);
                seen
            }
        };
        let told = &seen.found.told;
        Ok((known != Some(told.version)).then(|| Arc::clone(told)))
    }

    /// A run's directory; none: it is no run of these.
    pub(crate) fn directory(&self, key: &SliceKey) -> Option<Arc<RunDirectory>> {
        self.run(key).map(|run| Arc::clone(&run.directory))
    }

    /// The same as a metadata slice.
    pub(crate) fn metadata(&self, key: &SliceKey) -> Option<Directory> {
        let run = self.run(key)?;
        let slices: Vec<_> = run.directory.slices.iter().map(|entry| entry.as_ref().clone()).collect();
        let columns = merge_columns(slices.iter().map(|entry| entry.columns.as_slice()));
        Some(Directory { schema: Arc::clone(&run.directory.schema), metadata: Default::default(), slices, columns })
    }

    /// A slice; none: its run is none of these.
    pub(crate) fn slice(&self, key: &SliceKey) -> Option<AttachedSlice> {
        self.run(key)?.slices.get(key.number? as usize).cloned()
    }

    /// The id alone would let a caller read by the name of another dataset, which it may read, what it may not.
    fn run(&self, key: &SliceKey) -> Option<Arc<AttachedRun>> {
        let seen = Arc::clone(&self.seen.lock());
        seen.found.runs.get(&key.load).filter(|run| run.name == key.name).cloned()
    }
}

impl AttachedRun {
    fn new(
        load: LoadId,
        name: DatasetName,
        schema: SchemaRef,
        slices: Vec<AttachedSlice>,
        encoding: OnceLock<&'static str>,
    ) -> AttachedRun {
        let entries = slices.iter().map(|slice| Arc::clone(slice.entry())).collect();
        let directory = RunDirectory { schema, slices: entries, encoding };
        AttachedRun { load, name, slices, directory: Arc::new(directory) }
    }
}

/// Opens a slice for reading. Blocks.
pub(crate) fn open_attached(slice: &AttachedSlice, key: &SliceKey) -> Result<Arc<dyn SliceReader>, Fault> {
    slice.open().map_err(|error| told(error.into(), key))
}

/// A slice as it would be stored. Blocks.
pub(crate) fn attached_bytes(slice: &AttachedSlice, key: &SliceKey) -> Result<Bytes, Fault> {
    slice.stored().map_err(|error| told(error.into(), key))
}

fn told(fault: Fault, key: &SliceKey) -> Fault {
    match fault.blame {
        Blame::Conflict => fault.hint("run the query again: it sees the files as they are then"),
        _ => fault.at(key),
    }
}
