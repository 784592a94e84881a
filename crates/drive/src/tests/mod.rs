//! A drive in this process, from LOAD to CLOSE.

mod background;
mod copies;
mod discards;
mod loads;
mod manifests;
mod marking;
mod merging;
mod rounds;
mod sessions;
mod uses;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use futures::StreamExt;
use pithead_door::{
    Batches, Discard, Door, Event, Events, Granted, LoadRequest, Loads, OpenRequest, PlanBytes, SessionOptions, SlicePart,
};
use pithead_model::{
    Annotation, Blame, DatasetId, DatasetName, DriveId, Fault, Level, LoadId, Reply, Run, SessionProfile, SliceKey, SliceSpan,
};
use pithead_store::{MemoryStore, Store};
use tempfile::TempDir;

use crate::{Drive, DriveOptions};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

struct Rig {
    drive: Arc<Drive>,
    directory: TempDir,
}

fn rig() -> Rig {
    rig_with(|_| {})
}

fn rig_with(change: impl FnOnce(&mut DriveOptions)) -> Rig {
    let directory = tempfile::tempdir().unwrap();
    let drive = open_drive(&directory, change);
    Rig { drive, directory }
}

fn open_drive(directory: &TempDir, change: impl FnOnce(&mut DriveOptions)) -> Arc<Drive> {
    let mut options = DriveOptions { threads: 2, ..DriveOptions::new(directory.path()) };
    change(&mut options);
    // A drive that was dropped a moment ago lets go of its store when its last task has ended.
    for _ in 0..500 {
        match Drive::open(options.clone()) {
            Err(fault) if fault.message.contains("another process") => std::thread::sleep(Duration::from_millis(10)),
            opened => return opened.unwrap(),
        }
    }
    panic!("the store is still in use")
}

fn name() -> DatasetName {
    "t".parse().unwrap()
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Utf8View, true)]))
}

fn batch(values: impl IntoIterator<Item = i64>) -> RecordBatch {
    let values: Vec<i64> = values.into_iter().collect();
    let texts: ArrayRef =
        Arc::new(StringViewArray::from_iter_values(values.iter().map(|value| format!("text of row {value}"))));
    let numbers: ArrayRef = Arc::new(Int64Array::from(values));
    RecordBatch::try_new(schema(), vec![numbers, texts]).unwrap()
}

fn load_request(load: u64) -> LoadRequest {
    LoadRequest {
        load: LoadId(load),
        name: name(),
        dataset: DatasetId(7),
        partition: 0,
        schema: schema(),
        metadata: BTreeMap::from([("origin".to_owned(), "test".to_owned())]),
        sort: vec![],
        encoding: "arrow".to_owned(),
        slice_rows: 10,
        slice_bytes: None,
    }
}

fn batches(batches: Vec<Result<RecordBatch, Fault>>) -> Batches {
    futures::stream::iter(batches).boxed()
}

/// A drive whose store is in memory and can be looked into.
fn memory_drive(id: u64, directory: &TempDir) -> (Arc<Drive>, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::new());
    let options = DriveOptions { threads: 2, ..DriveOptions::new(directory.path().join(id.to_string())) };
    (Drive::over(Arc::clone(&store) as Arc<dyn Store>, DriveId(id), options).unwrap(), store)
}

fn run_key(run: &Run) -> SliceKey {
    SliceKey { name: name(), dataset: DatasetId(7), load: run.load, partition: 0, number: None }
}

/// All of the dataset's incarnation.
fn discard(loads: Loads) -> Discard {
    Discard { name: name(), dataset: DatasetId(7), loads, partition: None, seen: None }
}

/// Waits for what does not hang on time, however busy the machine is.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..12_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not in time: {what}");
}

/// Loads `rows` rows, 0, 1, 2 and so on, ten a slice.
async fn load(drive: &Drive, load: u64, rows: i64) -> Run {
    drive.load(load_request(load), batches(vec![Ok(batch(0..rows))])).await.unwrap().run
}

/// All rows of these runs, both columns.
fn scan(runs: &[&Run]) -> OpenRequest {
    let part = SlicePart {
        name: name(),
        dataset: DatasetId(7),
        schema: schema(),
        partition: 0,
        runs: runs.iter().map(|run| (run.load, run.slices)).collect(),
        sort: vec![],
        passing: None,
    };
    OpenRequest {
        plan: PlanBytes::Scan { dataset: name(), columns: vec!["a".to_owned(), "b".to_owned()] },
        manifest_version: 1,
        parts: vec![part],
        inputs: vec![],
        done: vec![],
        schema: schema(),
        whole_partition: false,
        options: SessionOptions {
            adapt: Default::default(),
            threads: 2,
            memory: 64 << 20,
            batch_rows: 8_192,
            level_max: Level::Whole,
            zone_maps: true,
            sample: None,
            time_zone: None,
            now_ns: 0,
            extensions: vec![],
            host: 0,
        },
    }
}

async fn open(drive: &dyn Door, request: OpenRequest) -> Granted {
    match drive.open(request).await.unwrap().reply {
        Reply::Granted(granted) => granted,
        Reply::Busy { why, .. } => panic!("busy: {why}"),
    }
}

/// What a session gave, its rows admitted as a host does.
struct Answer {
    values: Vec<i64>,
    annotations: Vec<Annotation>,
    profile: SessionProfile,
}

async fn run(drive: &dyn Door, request: OpenRequest) -> Answer {
    let session = open(drive, request).await.session;
    let answer = collect(drive.get(session).await.unwrap()).await.unwrap();
    drive.close(session).await.unwrap();
    answer
}

async fn collect(mut events: Events) -> Result<Answer, Fault> {
    let mut pending: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
    let (mut values, mut annotations) = (Vec::new(), Vec::new());
    while let Some(event) = tokio::time::timeout(LONG, events.next()).await.expect("an event in time") {
        match event? {
            Event::Rows { round, batch, .. } => {
                pending.entry(round).or_default().extend(batch.column(0).as_primitive::<Int64Type>().values());
            }
            Event::Closed { annotation, .. } => {
                let rows = pending.remove(&annotation.round).unwrap_or_default();
                assert_eq!(annotation.rows_out, rows.len() as u64);
                values.extend(rows);
                annotations.push(annotation);
            }
            Event::Filtered { .. } | Event::Stored { .. } | Event::Hints { .. } => {
                panic!("nothing was to come back unfinished")
            }
            Event::Finished { profile, .. } => {
                assert!(pending.is_empty(), "rounds were left open");
                assert!(events.next().await.is_none(), "Finished is the last event");
                values.sort_unstable();
                return Ok(Answer { values, annotations, profile });
            }
        }
    }
    panic!("the events ended without Finished")
}

/// Each slice is answered for exactly once.
fn assert_complete(answer: &Answer, slices: u32) {
    let spans = answer.annotations.iter().flat_map(|annotation| &annotation.slices);
    let mut seen: Vec<u32> = spans.flat_map(|span: &SliceSpan| span.first..span.first + span.count).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..slices).collect::<Vec<u32>>());
    let mut rounds: Vec<u32> = answer.annotations.iter().map(|annotation| annotation.round).collect();
    rounds.sort_unstable();
    assert_eq!(rounds, (0..answer.annotations.len() as u32).collect::<Vec<u32>>());
    assert_eq!(answer.profile.slices_done, slices);
}
