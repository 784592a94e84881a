//! [`Attached`]: datasets over files that lie where they are, which the drive reads and never writes: on its machine, or at a server.
//!
//! A file is a run, and a row group of Parquet or some batches of Arrow a slice; nothing is loaded, and a row group's columns are read when a session wants them. A run's
//! id is made of what tells the file from every other and from itself after a change, so what is kept for later by runs is never
//! taken for another file's. Changes are looked for whenever a host asks.

mod agree;
mod bucket;
mod cache;
mod far;
mod file;
mod last_listings;
mod listing;
mod look;
mod names;
mod object;
mod spec;

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use parking_lot::Mutex;
use pithead_door::Attachments;
use pithead_model::{Blame, DatasetName, Directory, Fault, LoadId, PageSet, SliceKey, merge_columns};
use pithead_slice::{AttachedSlice, SliceParts, SliceReader};

use crate::resources::Workers;
use crate::storage::run_directory::RunDirectory;

use far::{Far, FarReader};
pub use spec::{Attach, AttachAt, Share};

/// A look that took less is done each time that a host asks.
const LOOK_FREELY: Duration = Duration::from_millis(100);
/// Longer ones take at most one part of so many of the time.
const LOOK_SHARE: u32 = 10;
/// But where something could not be read, the next look comes at the latest then.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How long somebody waits for a look that asks servers. After that, the earlier look answers, and reading a file that has changed
/// since is an error.
const LOOK_WAIT: Duration = Duration::from_secs(5);

/// The datasets that a drive attaches.
#[derive(Debug)]
pub(crate) struct Attached {
    what: Arc<[Attach]>,
    workers: Workers,
    /// The way to servers, if any is named.
    far: Option<Arc<Far>>,
    seen: Arc<Mutex<Arc<FileSurvey>>>,
    /// One look at a time.
    looking: Arc<tokio::sync::Mutex<()>>,
}

/// A look at the files: its result, its time, and how long the listing took.
#[derive(Debug)]
struct FileSurvey {
    found: Arc<AttachedFiles>,
    at: Instant,
    took: Duration,
}

/// The files as they were found.
#[derive(Debug)]
struct AttachedFiles {
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
    /// Looks at the files for the first time. What is read of servers is kept in the drive's directory, up to so many bytes. Blocks.
    /// A path or a bucket that is not there is [`Blame::User`], one that may not be read [`Blame::Access`].
    pub(crate) fn open(what: Vec<Attach>, directory: &Path, cache_bytes: u64, workers: Workers) -> Result<Attached, Fault> {
        let is_far = |attach: &Attach| matches!(attach.at, AttachAt::Far(_));
        let far =
            what.iter().any(is_far).then(|| Far::open(directory, cache_bytes, workers.clone())).transpose()?.map(Arc::new);
        what.iter().try_for_each(|attach| check(attach, far.as_deref()))?;
        let seen = look::look(&what, far.as_deref(), None);
        // Drives of one process that share the files would say the same.
        if what.iter().any(|attach| attach.share.part == 0) {
            for refused in &seen.found.told.refused {
                tracing::warn!(dataset = %refused.name, why = refused.refusal.why, "not attached");
            }
        }
        tracing::info!(datasets = seen.found.told.datasets.len(), files = seen.found.files.len(), "attached");
        let (seen, looking) = (Arc::new(Mutex::new(Arc::new(seen))), Arc::default());
        Ok(Attached { what: what.into(), workers, far, seen, looking })
    }

    /// What hosts are told; none: it is as of version `known`.
    pub(crate) async fn tell(&self, known: Option<u64>) -> Result<Option<Arc<Attachments>>, Fault> {
        let seen = match self.far {
            None => self.look().await?,
            Some(_) => match tokio::time::timeout(LOOK_WAIT, self.look()).await {
                Ok(seen) => seen?,
                Err(_) => Arc::clone(&self.seen.lock()),
            },
        };
        let told = &seen.found.told;
        Ok((known != Some(told.version)).then(|| Arc::clone(told)))
    }

    /// Looks at the files, unless somebody just did. A look that was begun ends, whether or not somebody waits for it.
    async fn look(&self) -> Result<Arc<FileSurvey>, Fault> {
        let asked = Instant::now();
        let looking = Arc::clone(&self.looking).lock_owned().await;
        let before = Arc::clone(&self.seen.lock());
        // A caller needs no other look if one began after it had asked.
        let pause = match before.found.told.refused.is_empty() {
            true => before.took * LOOK_SHARE,
            // A server that did not answer may do so by now.
            false => LOOK_AGAIN.min(before.took * LOOK_SHARE),
        };
        let is_fresh = before.at > asked || before.took > LOOK_FREELY && before.at.elapsed() < pause;
        if is_fresh {
            return Ok(before);
        }
        let (what, far, seen) = (Arc::clone(&self.what), self.far.clone(), Arc::clone(&self.seen));
        let look = move || {
            let _looking = looking;
            let found = Arc::new(look::look(&what, far.as_deref(), Some(&before)));
            *seen.lock() = Arc::clone(&found);
            found
        };
        self.workers.blocking(look).await
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

/// Whether what is to be attached is there. A server that does not answer now may do so later.
fn check(attach: &Attach, far: Option<&Far>) -> Result<(), Fault> {
    match (&attach.at, far) {
        (AttachAt::Here(path), _) => path.metadata().map(|_| ()).map_err(|error| {
            let fault = Fault::new(Blame::User, format!("cannot attach {}: {error}", path.display()));
            fault.hint("name a directory of Parquet or Arrow files, or one such file")
        }),
        (AttachAt::Far(place), Some(far)) => match far.servers.list(place) {
            Err(fault) if far.known.of(attach).is_some() => {
                tracing::warn!(%place, %fault, "cannot be listed now; what it had is refused until it can");
                Ok(())
            }
            Err(fault) if fault.blame == Blame::Device && attach.name.is_some() => Ok(()),
            Err(fault) if fault.blame == Blame::Device => {
                let hint =
                    format!("what it holds is not known: start when the server answers, or name its dataset: NAME={place}");
                Err(fault.at("cannot attach").hint(hint))
            }
            Err(fault) => Err(fault.at("cannot attach")),
            Ok(_) => Ok(()),
        },
        (AttachAt::Far(_), None) => Ok(()),
    }
}

/// Opens a slice for reading. Blocks.
fn open_attached(slice: &AttachedSlice, key: &SliceKey) -> Result<Arc<dyn SliceReader>, Fault> {
    slice.open().map_err(|error| told(error.into(), key))
}

impl Attached {
    /// Opens a slice for reading.
    pub(crate) async fn open_slice(&self, slice: AttachedSlice, key: SliceKey) -> Result<Arc<dyn SliceReader>, Fault> {
        match self.far.clone().filter(|_| slice.is_far()) {
            None => self.workers.blocking(move || open_attached(&slice, &key)).await?,
            Some(far) => {
                let opened = far.blocking(move || open_attached(&slice, &key)).await??;
                Ok(Arc::new(FarReader::new(opened, far)))
            }
        }
    }

    /// A slice as it would be stored.
    pub(crate) async fn stored(&self, slice: AttachedSlice, key: SliceKey) -> Result<Bytes, Fault> {
        match self.far.clone().filter(|_| slice.is_far()) {
            None => self.workers.blocking(move || attached_bytes(&slice, &key)).await?,
            Some(far) => far.blocking(move || attached_bytes(&slice, &key)).await?,
        }
    }

    /// What [`SliceReader::parts`] gives of an open slice.
    pub(crate) async fn parts(
        &self,
        reader: &Arc<dyn SliceReader>,
        columns: &[usize],
        pages: &PageSet,
    ) -> Result<SliceParts, Fault> {
        match self.far.clone().filter(|_| reader.is_far()) {
            None => Ok(reader.parts(columns, pages)?),
            Some(far) => {
                let (reader, columns, pages) = (Arc::clone(reader), columns.to_vec(), pages.clone());
                Ok(far.blocking(move || reader.parts(&columns, &pages)).await??)
            }
        }
    }
}

/// A slice as it would be stored. Blocks.
fn attached_bytes(slice: &AttachedSlice, key: &SliceKey) -> Result<Bytes, Fault> {
    slice.stored().map_err(|error| told(error.into(), key))
}

fn told(fault: Fault, key: &SliceKey) -> Fault {
    match fault.blame {
        Blame::Conflict => fault.hint("run the query again: it sees the files as they are then"),
        _ => fault.at(key),
    }
}
