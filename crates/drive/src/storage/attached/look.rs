//! A look at the files that are attached: what is new is opened, and what is as it was before is kept.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use arrow::datatypes::SchemaRef;
use pithead_door::{AttachedDataset, Attachments, Refusal, RefusedDataset};
use pithead_model::{DatasetName, Fault, LoadId, Run, SliceEntry, merge_columns, total};
use pithead_slice::{ArrowFile, AttachedFile, Origin, ParquetFile, ReadAt, SliceError};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::storage::attached::agree::{Member, agree, origins};
use crate::storage::attached::far::Far;
use crate::storage::attached::file::FileBytes;
use crate::storage::attached::listing::{Identity, Listed, Listing, list};
use crate::storage::attached::names::Format;
use crate::storage::attached::spec::Attach;
use crate::storage::attached::{AttachedFiles, AttachedRun, FileSurvey};

/// Files at servers that are opened at one time.
const TOGETHER: usize = 8;

/// Files that were opened, each for a dataset.
pub(super) type Files = HashMap<FileKey, Arc<dyn AttachedFile>>;
type FileKey = (DatasetName, PathBuf, Identity);
pub(super) type Runs = HashMap<LoadId, Arc<AttachedRun>>;

/// Looks at all files. If the listing is as before, so is the result; otherwise only new files are opened.
pub(super) fn look(what: &[Attach], far: Option<&Far>, before: Option<&FileSurvey>) -> FileSurvey {
    let at = Instant::now();
    let (listing, waited) = list(what, far, before.is_none());
    // Every look takes at least the time of the listing.
    let took = at.elapsed().saturating_sub(waited);
    // A file that could not be read may be readable by now: a medium has its moments.
    let is_same = |before: &&FileSurvey| before.found.listing == listing && before.found.told.refused.is_empty();
    let found = match before.filter(is_same) {
        Some(before) => Arc::clone(&before.found),
        None => Arc::new(found(listing, far, before.map(|before| &*before.found))),
    };
    FileSurvey { found, at, took }
}

fn found(listing: Listing, far: Option<&Far>, before: Option<&AttachedFiles>) -> AttachedFiles {
    let mut looking = Looking { before, far, files: Files::new(), runs: Runs::new() };
    let mut told = Attachments::default();
    for (name, listed) in &listing {
        match listed.as_ref().map_err(Refusal::clone).and_then(|listed| looking.dataset(name, listed)) {
            Ok(dataset) => told.datasets.push(dataset),
            Err(refusal) => {
                looking.keep(name, listed.is_err());
                told.refused.push(RefusedDataset { name: name.clone(), refusal });
            }
        }
    }
    told.version = version(&told);
    AttachedFiles { listing, told: Arc::new(told), runs: looking.runs, files: looking.files }
}

struct Looking<'a> {
    before: Option<&'a AttachedFiles>,
    far: Option<&'a Far>,
    files: Files,
    runs: Runs,
}

impl Looking<'_> {
    fn dataset(&mut self, name: &DatasetName, listed: &[Listed]) -> Result<AttachedDataset, Refusal> {
        let opened: Vec<_> = each(listed, self.far, |file| Ok((file, self.open(name, file)?)));
        // Where one cannot be opened, the others need not be opened again.
        let sound = opened.iter().flatten();
        self.files.extend(sound.map(|(file, opened)| (key(name, file), Arc::clone(opened))));
        let opened = opened.into_iter().collect::<Result<Vec<_>, Refusal>>()?;
        let members: Vec<Member<'_>> = opened
            .iter()
            .map(|(file, opened)| Member { path: &file.path, schema: opened.schema(), folders: &file.folders })
            .collect();
        let schema = agree(&members)?;
        let schema_bytes = serde_json::to_vec(&schema).map_err(|error| error.to_string())?;
        let numbers: Vec<usize> = (0..opened.len()).collect();
        let run = |number: &usize| {
            let ((file, opened), origins) = (&opened[*number], origins(&schema, &members[*number]));
            let load = run_id(name, file, &schema_bytes, &origins);
            self.run(load, name, opened, &schema, &origins).map_err(|refusal| refusal.at(file.path.display()))
        };
        let whole = each(&numbers, self.far, run).into_iter().collect::<Result<Vec<_>, Refusal>>()?;
        self.runs.extend(whole.iter().map(|run| (run.load, Arc::clone(run))));
        let count: usize = whole.iter().map(|run| run.slices.len()).sum();
        let mut before = 0;
        let (mut runs, mut made) = (vec![], vec![]);
        for ((file, _), run) in opened.iter().zip(whole) {
            // Slices of this file, as all slices of the dataset are counted, that are in the drive's share.
            let (wanted, own) = (file.share.range(count), before..before + run.slices.len());
            before = own.end;
            let kept = wanted.start.max(own.start)..wanted.end.min(own.end);
            if kept.is_empty() {
                continue;
            }
            let (load, run) = self.part(&run, kept.start - own.start..kept.end - own.start);
            let entries = &run.directory.slices;
            let (rows, bytes) = (sum(entries, |entry| entry.rows), sum(entries, |entry| entry.bytes));
            runs.push(Run { load, slices: entries.len() as u32, rows, bytes });
            made.push(run);
        }
        let entries = made.iter().flat_map(|run| &run.directory.slices);
        let columns = merge_columns(entries.map(|entry| entry.columns.as_slice()));
        let encodings: BTreeSet<&str> = opened.iter().map(|(_, file)| file.encoding()).collect();
        let encoding = encodings.into_iter().collect::<Vec<_>>().join(", ");
        Ok(AttachedDataset { name: name.clone(), schema, runs, columns, encoding })
    }

    /// Keeps the runs of a dataset that is refused now: sessions that read them go on, unless the files have changed. Where it could
    /// not be listed, its files are kept, too.
    fn keep(&mut self, name: &DatasetName, is_unlisted: bool) {
        let Some(before) = self.before else { return };
        let runs = before.runs.iter().filter(|(_, run)| run.name == *name);
        self.runs.extend(runs.map(|(load, run)| (*load, Arc::clone(run))));
        let files = before.files.iter().filter(|(key, _)| is_unlisted && key.0 == *name);
        self.files.extend(files.map(|(key, file)| (key.clone(), Arc::clone(file))));
    }

    fn open(&self, name: &DatasetName, file: &Listed) -> Result<Arc<dyn AttachedFile>, Refusal> {
        match self.before.and_then(|before| before.files.get(&key(name, file))) {
            Some(before) => Ok(Arc::clone(before)),
            None => open(file, self.far),
        }
    }

    fn run(
        &self,
        load: LoadId,
        name: &DatasetName,
        file: &Arc<dyn AttachedFile>,
        schema: &SchemaRef,
        origins: &[Origin],
    ) -> Result<Arc<AttachedRun>, Refusal> {
        if let Some(run) = self.before.and_then(|before| before.runs.get(&load)) {
            return Ok(Arc::clone(run));
        }
        let slices = Arc::clone(file).attach(schema, origins).map_err(Fault::from)?;
        Ok(Arc::new(AttachedRun::new(load, name.clone(), Arc::clone(schema), slices, file.encoding().into())))
    }

    /// Some slices of a run as a run of their own, with its id.
    fn part(&mut self, run: &Arc<AttachedRun>, kept: Range<usize>) -> (LoadId, Arc<AttachedRun>) {
        if kept.len() == run.slices.len() {
            return (run.load, Arc::clone(run));
        }
        let numbers = [run.load.0, kept.start as u64, kept.end as u64];
        let load = LoadId(xxh3_64(&numbers.map(u64::to_le_bytes).concat()));
        let known = self.before.and_then(|before| before.runs.get(&load)).cloned();
        let part = known.unwrap_or_else(|| {
            let slices = run.slices[kept].to_vec();
            let encoding = run.directory.encoding.clone();
            Arc::new(AttachedRun::new(load, run.name.clone(), Arc::clone(&run.directory.schema), slices, encoding))
        });
        self.runs.insert(load, Arc::clone(&part));
        (load, part)
    }
}

fn key(name: &DatasetName, file: &Listed) -> FileKey {
    (name.clone(), file.path.clone(), file.identity.clone())
}

/// The same of each, in their order. Where files are at servers, several wait for these at one time.
fn each<'a, T: Sync, R: Send>(items: &'a [T], far: Option<&Far>, of: impl Fn(&'a T) -> R + Sync) -> Vec<R> {
    if far.is_none() {
        return items.iter().map(of).collect();
    }
    let some = |items: &'a [T]| -> Vec<R> {
        std::thread::scope(|scope| {
            let of = &of;
            let started =
                |item: &'a T| std::thread::Builder::new().name("pithead-look".to_owned()).spawn_scoped(scope, move || of(item));
            let started: Vec<_> = items.iter().map(|item| (item, started(item))).collect();
            let ended = |(item, thread): (&'a T, std::io::Result<ScopedJoinHandle<'_, R>>)| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                // The system gives no more threads.
                Err(_) => of(item),
            };
            started.into_iter().map(ended).collect()
        })
    };
    items.chunks(TOGETHER).flat_map(some).collect()
}

fn open(file: &Listed, far: Option<&Far>) -> Result<Arc<dyn AttachedFile>, Refusal> {
    let source: Arc<dyn ReadAt> = match (&file.identity, far) {
        (Identity::File(stamp), _) => Arc::new(FileBytes::new(&file.path, *stamp)),
        (Identity::Object(object), Some(far)) => far.source(object),
        (Identity::Object(object), None) => return Err(format!("{}: no servers are asked", object.name()).into()),
    };
    let opened: Result<Arc<dyn AttachedFile>, SliceError> = match file.format {
        Format::Parquet => ParquetFile::open(source).map(|file| Arc::new(file) as _),
        Format::Arrow => ArrowFile::open(source).map(|file| Arc::new(file) as _),
    };
    opened.map_err(|error| Refusal::from(Fault::from(error)).at(file.path.display()))
}

fn sum(entries: &[Arc<SliceEntry>], of: impl Fn(&SliceEntry) -> u64) -> u64 {
    total(entries.iter().map(|entry| of(entry)))
}

/// The id of a file's run in its dataset.
fn run_id(name: &DatasetName, file: &Listed, schema: &[u8], origins: &[Origin]) -> LoadId {
    let mut hash = Xxh3::new();
    let mut put = |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    put(name.to_string().as_bytes());
    put(file.path.as_os_str().as_encoded_bytes());
    put(&file.identity.to_bytes());
    put(schema);
    for origin in origins {
        match origin {
            Origin::Column(number) => put(&[b"c".as_slice(), &(*number as u64).to_le_bytes()].concat()),
            Origin::Null => put(b"n"),
            Origin::Text(text) => put(&[b"t".as_slice(), text.as_bytes()].concat()),
        }
    }
    LoadId(hash.digest())
}

fn version(told: &Attachments) -> u64 {
    // What serialises so is made of names and numbers alone, so it cannot fail.
    xxh3_64(&serde_json::to_vec(told).unwrap_or_default())
}
