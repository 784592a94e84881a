//! The directories of the runs that the drives below hold. Runs never change, so an array keeps the directories that it has read.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::future::try_join_all;
use parking_lot::Mutex;
use pithead_door::Discard;
use pithead_fleet::ConnectedDrive;
use pithead_model::{Blame, ColumnSummary, Directory, DriveId, Fault, Loaded, Run, SliceKey};

use crate::attached::AttachedBelow;
use crate::summaries::summaries;

/// Slices whose entries are kept at most.
const SLICES_MAX: usize = 1 << 17;
/// Runs that are kept at most: some have no slices.
const RUNS_MAX: usize = 1 << 14;

/// A run as it is divided: the directory of each drive's part, in the drives' order.
#[derive(Clone, Debug)]
pub(crate) struct RunParts(pub(crate) Vec<Directory>);

impl RunParts {
    /// Slices at each drive.
    pub(crate) fn counts(&self) -> Vec<u32> {
        self.0.iter().map(|part| part.slices.len() as u32).collect()
    }

    /// A drive's part as a run of its own.
    pub(crate) fn run(&self, drive: usize, run: &SliceKey) -> Option<Loaded> {
        let part = self.0.get(drive)?;
        let made = Run { load: run.load, slices: part.slices.len() as u32, rows: part.rows(), bytes: part.bytes() };
        Some(Loaded { run: made, columns: part.columns.clone() })
    }

    /// The run's directory as hosts see it. `key`: where [`note_columns`] has put the summaries of the whole.
    pub(crate) fn whole(&self, key: &str) -> Result<Directory, Fault> {
        let Some(first) = self.0.first() else { return Err(Fault::new(Blame::Bug, "a run of no drives")) };
        let noted = self.0.iter().find_map(|part| part.metadata.get(key));
        let columns = match noted {
            Some(noted) => serde_json::from_str(noted)
                .map_err(|error| Fault::new(Blame::Corrupt, format!("the summaries of a whole run are damaged: {error}")))?,
            None => summaries(self.0.iter().map(|part| (part.rows(), part.columns.as_slice()))),
        };
        let mut metadata = first.metadata.clone();
        metadata.remove(key);
        let slices = self.0.iter().flat_map(|part| part.slices.iter().cloned()).collect();
        Ok(Directory { schema: Arc::clone(&first.schema), metadata, slices, columns })
    }
}

/// Where an array keeps the summaries of a run that it was given whole: they cannot be told from those of the parts.
pub(crate) fn columns_key(array: DriveId) -> String {
    format!("pithead.array.{array}.columns")
}

/// Puts the summaries of the whole into a part's metadata.
pub(crate) fn note_columns(metadata: &mut BTreeMap<String, String>, key: &str, columns: &[ColumnSummary]) -> Result<(), Fault> {
    let noted = serde_json::to_string(columns)
        .map_err(|error| Fault::new(Blame::Bug, format!("summaries that are no JSON: {error}")))?;
    metadata.insert(key.to_owned(), noted);
    Ok(())
}

/// The runs that were asked for, by key.
#[derive(Debug)]
pub(crate) struct Directories {
    drives: Arc<[ConnectedDrive]>,
    /// What they attach in place.
    pub(crate) attached: AttachedBelow,
    known: Mutex<DirectoryCache>,
}

/// The slice directories that the array has read.
#[derive(Debug, Default)]
struct DirectoryCache {
    runs: HashMap<SliceKey, Arc<RunParts>>,
    slices: usize,
}

impl Directories {
    pub(crate) fn new(drives: Arc<[ConnectedDrive]>) -> Self {
        Self { drives, attached: AttachedBelow::default(), known: Mutex::default() }
    }

    /// A run's parts. A fault where any of the drives has none of it.
    pub(crate) async fn run(&self, run: &SliceKey) -> Result<Arc<RunParts>, Fault> {
        let run = SliceKey { number: None, ..run.clone() };
        if let Some(known) = self.known.lock().runs.get(&run) {
            return Ok(Arc::clone(known));
        }
        let parts = Arc::new(match self.attached.place(&run) {
            Some(index) => self.attached_parts(index, &run).await?,
            None => RunParts(try_join_all(self.drives.iter().map(|drive| directory(drive, &run))).await?),
        });
        self.known.lock().keep(run, &parts);
        Ok(parts)
    }

    /// Of a file that one drive attaches, the others have nothing.
    async fn attached_parts(&self, index: usize, run: &SliceKey) -> Result<RunParts, Fault> {
        let Some(drive) = self.drives.get(index) else { return Err(Fault::new(Blame::Bug, "a drive that is not there")) };
        let part = directory(drive, run).await?;
        let no_rows = ColumnSummary { min: None, max: None, exact: true, nulls: 0, nulls_unknown: false, distinct: 0 };
        let none = Directory { slices: vec![], columns: vec![no_rows; part.columns.len()], ..part.clone() };
        let mut parts = vec![none; self.drives.len()];
        parts[index] = part;
        Ok(RunParts(parts))
    }

    pub(crate) fn forget(&self, run: &SliceKey) {
        self.known.lock().retain(|known| known != run);
    }

    /// Forgets the incarnation that a discard is of. What stays of it is read again.
    pub(crate) fn forget_all(&self, discard: &Discard) {
        self.known.lock().retain(|run| run.dataset != discard.dataset || run.name != discard.name);
    }
}

async fn directory(drive: &ConnectedDrive, run: &SliceKey) -> Result<Directory, Fault> {
    drive.door.directory(run.clone()).await.map_err(|fault| fault.at_drive(drive.label()))
}

impl DirectoryCache {
    fn keep(&mut self, run: SliceKey, parts: &Arc<RunParts>) {
        let slices: usize = parts.0.iter().map(|part| part.slices.len()).sum();
        if self.slices + slices > SLICES_MAX || self.runs.len() >= RUNS_MAX {
            // Directories that are in use are read again soon.
            (self.runs, self.slices) = Default::default();
        }
        self.slices += slices;
        self.runs.insert(run, Arc::clone(parts));
    }

    fn retain(&mut self, keep: impl Fn(&SliceKey) -> bool) {
        self.runs.retain(|run, _| keep(run));
        self.slices = self.runs.values().flat_map(|parts| &parts.0).map(|part| part.slices.len()).sum();
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use pithead_model::{SliceEntry, Value};

    use super::*;

    fn summary(min: i128, max: i128, distinct: u64) -> ColumnSummary {
        ColumnSummary {
            min: Some(Value::Int(min)),
            max: Some(Value::Int(max)),
            exact: true,
            nulls: 1,
            nulls_unknown: false,
            distinct,
        }
    }

    fn part(rows: u64, summary: ColumnSummary) -> Directory {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
        let columns = vec![summary];
        let slices = vec![SliceEntry { rows, bytes: 10, columns: columns.clone() }];
        Directory { schema, metadata: BTreeMap::from([("k".into(), "v".into())]), slices, columns }
    }

    #[test]
    fn the_whole_is_all_parts_in_order() {
        let parts = RunParts(vec![part(100, summary(5, 9, 90)), part(60, summary(1, 7, 50))]);
        let whole = parts.whole("none").unwrap();
        assert_eq!(whole.slices.iter().map(|slice| slice.rows).collect::<Vec<_>>(), [100, 60]);
        assert_eq!(whole.columns, [ColumnSummary { nulls: 2, ..summary(1, 9, 140) }]);
        assert_eq!((parts.counts(), whole.metadata["k"].as_str()), (vec![1, 1], "v"));
    }

    #[test]
    fn summaries_that_were_noted_are_the_wholes() {
        let mut parts = vec![part(100, summary(5, 9, 90)), part(60, summary(1, 7, 50))];
        let noted = vec![summary(0, 99, 77)];
        let key = columns_key(DriveId(7));
        note_columns(&mut parts[1].metadata, &key, &noted).unwrap();
        let whole = RunParts(parts.clone()).whole(&key).unwrap();
        assert_eq!((whole.columns, whole.metadata.len()), (noted, 1));
        parts[0].metadata.insert(key.clone(), "?".into());
        assert_eq!(RunParts(parts).whole(&key).unwrap_err().blame, Blame::Corrupt);
    }
}
