use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use ::parquet::arrow::ArrowWriter;
use ::parquet::arrow::arrow_writer::ArrowWriterOptions;
use ::parquet::file::properties::WriterProperties;
use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray, StructArray};
use arrow::datatypes::{DataType, Field, Int64Type};
use arrow::ipc::writer::{FileWriter, StreamWriter};
use futures::{StreamExt, stream};
use pithead_door::Door;
use pithead_fakes::FakeDoor;
use pithead_files::CsvOptions;
use pithead_model::{Blame, Dataset, DatasetName, Partitioning, SortKey, Value};
use tempfile::TempDir;

use super::*;
use crate::{AlteredColumn, AlteredFrom, LoadMode};

const ROWS: i64 = 20_000;

/// Three drives, a host, and a directory for files.
struct Cluster {
    doors: Vec<Arc<FakeDoor>>,
    loader: Loader,
    dir: TempDir,
}

impl Cluster {
    async fn new() -> Self {
        let doors = vec![FakeDoor::new(3), FakeDoor::new(1), FakeDoor::new(2)];
        let loader = connect(&doors).await.unwrap();
        Self { doors, loader, dir: TempDir::new().unwrap() }
    }

    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn spec(&self, files: &[&str]) -> LoadSpec {
        LoadSpec::new("t".parse().unwrap(), files.iter().map(|file| self.file(file)).collect())
    }

    async fn load(&self, spec: LoadSpec) -> Result<LoadReport, Fault> {
        self.loader.load(spec, Arc::new(|_| ())).await
    }

    async fn fault(&self, spec: LoadSpec) -> Fault {
        let fault = self.load(spec).await.unwrap_err();
        let path = format!("{}/", self.dir.path().display());
        Fault { message: fault.message.replace(&path, ""), ..fault }
    }

    async fn dataset(&self) -> Option<Dataset> {
        let name: DatasetName = "t".parse().unwrap();
        self.loader.fleet().snapshot().await.unwrap().dataset(&name).map(|(_, dataset)| dataset.clone())
    }

    fn rows(&self) -> usize {
        self.doors.iter().map(|door| door.rows()).sum()
    }

    /// All values of column `k`, sorted.
    fn keys(&self) -> Vec<i64> {
        let batches: Vec<RecordBatch> =
            self.doors.iter().flat_map(|door| door.stored.lock().values().flatten().cloned().collect::<Vec<_>>()).collect();
        let mut keys: Vec<i64> = batches
            .iter()
            .flat_map(|batch| batch.column_by_name("k").unwrap().as_primitive::<Int64Type>().values().to_vec())
            .collect();
        keys.sort_unstable();
        keys
    }
}

async fn connect(doors: &[Arc<FakeDoor>]) -> Result<Loader, Fault> {
    let doors = doors.iter().map(|door| Arc::clone(door) as Arc<dyn Door>).collect();
    Ok(Loader::new(Fleet::connect(doors, "main", &[]).await?, 2))
}

fn batch(first: i64, rows: i64) -> RecordBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + rows));
    let texts: ArrayRef =
        Arc::new(StringArray::from_iter_values((first..first + rows).map(|key| format!("text number {key}"))));
    RecordBatch::try_from_iter([("k", keys), ("s", texts)]).unwrap()
}

fn write_parquet(path: impl AsRef<Path>, batch: &RecordBatch) {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(3_000)).build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

fn write_csv(path: impl AsRef<Path>, batch: &RecordBatch) {
    arrow::csv::Writer::new(File::create(path).unwrap()).write(batch).unwrap();
}

#[tokio::test]
async fn every_format_gives_the_same_rows() {
    let place = Cluster::new().await;
    write_parquet(place.file("a.parquet"), &batch(0, ROWS));
    write_csv(place.file("a.csv"), &batch(0, ROWS));
    let mut writer = FileWriter::try_new(File::create(place.file("a.arrow")).unwrap(), &batch(0, 1).schema()).unwrap();
    let mut stream = StreamWriter::try_new(File::create(place.file("a.arrows")).unwrap(), &batch(0, 1).schema()).unwrap();
    for part in 0..10 {
        writer.write(&batch(part * ROWS / 10, ROWS / 10)).unwrap();
        stream.write(&batch(part * ROWS / 10, ROWS / 10)).unwrap();
    }
    writer.finish().unwrap();
    stream.finish().unwrap();
    for file in ["a.parquet", "a.csv", "a.arrow", "a.arrows"] {
        let told = Arc::new(AtomicU64::new(0));
        let hears = Arc::clone(&told);
        let mut spec = place.spec(&[file]);
        spec.mode = LoadMode::Replace;
        let progress = move |progress: LoadProgress| {
            hears.fetch_max(progress.bytes_done, Ordering::Relaxed);
        };
        let report = place.loader.load(spec, Arc::new(progress)).await.unwrap();
        assert_eq!((report.rows, report.encoding.as_str(), report.note), (ROWS as u64, "vortex", None), "{file}");
        assert_eq!(place.keys(), (0..ROWS).collect::<Vec<_>>(), "{file}");
        let dataset = place.dataset().await.unwrap();
        assert_eq!(dataset.schema.field(1).data_type(), &DataType::Utf8View);
        let (least, most) = (
            place.doors.iter().map(|door| door.rows()).min().unwrap(),
            place.doors.iter().map(|door| door.rows()).max().unwrap(),
        );
        assert!(most - least < 4_000, "{file}: {least} to {most}");
        let size = std::fs::metadata(place.file(file)).unwrap().len();
        assert!(
            told.load(Ordering::Relaxed) > size / 2 && told.load(Ordering::Relaxed) <= size,
            "{file}: told {told:?} of {size}"
        );
    }
}

#[tokio::test]
async fn partitions_lie_on_the_drives_in_order() {
    let place = Cluster::new().await;
    write_parquet(place.file("a.parquet"), &batch(0, 10));
    place.load(place.spec(&["a.parquet"])).await.unwrap();
    let drives: Vec<u64> = place.dataset().await.unwrap().partitions.iter().map(|partition| partition.copies[0].0).collect();
    assert_eq!(drives, [1, 2, 3]);
    assert!(place.doors[1].manifests.lock().contains_key("main"), "home is the first drive");
}

#[tokio::test]
async fn files_are_matched_by_name_and_must_agree() {
    let place = Cluster::new().await;
    write_parquet(place.file("a1.parquet"), &batch(0, 100));
    write_parquet(place.file("a2.parquet"), &batch(100, 100).project(&[1, 0]).unwrap());
    let report = place.load(place.spec(&["a*.parquet"])).await.unwrap();
    assert_eq!((report.rows, place.keys()), (200, (0..200).collect()));

    let narrow: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    write_parquet(place.file("b.parquet"), &RecordBatch::try_from_iter([("k", narrow), ("s", text.clone())]).unwrap());
    write_parquet(place.file("c.parquet"), &RecordBatch::try_from_iter([("key", text.clone()), ("s", text)]).unwrap());
    let mut spec = place.spec(&["a1.parquet", "b.parquet"]);
    spec.mode = LoadMode::Replace;
    assert_eq!(place.fault(spec.clone()).await.message, "b.parquet: column k is Int32, in a1.parquet it is Int64");
    spec.mode = LoadMode::Append;
    assert_eq!(place.fault(spec).await.message, "b.parquet: column k is Int32, in the dataset it is Int64");
    let mut spec = place.spec(&["a1.parquet", "c.parquet"]);
    spec.mode = LoadMode::Replace;
    assert_eq!(place.fault(spec).await.message, "c.parquet: no column k, which a1.parquet has; near: s");
    assert_eq!(place.rows(), 200, "failed loads leave nothing");
}

/// A regression: a file in which members of a struct have other field ids, as another writer gives them, was of other types.
#[tokio::test]
async fn field_ids_of_members_make_no_other_type() {
    let place = Cluster::new().await;
    for (file, id) in [("a.parquet", "3"), ("b.parquet", "7")] {
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10));
        let note = [("PARQUET:field_id".to_owned(), id.to_owned())];
        let member = Field::new("x", DataType::Int64, true).with_metadata(note.into());
        let structs: ArrayRef = Arc::new(StructArray::new(vec![member].into(), vec![Arc::clone(&keys)], None));
        let rows = RecordBatch::try_from_iter([("k", keys), ("s", structs)]).unwrap();
        let options = ArrowWriterOptions::new().with_skip_arrow_metadata(true);
        let out = File::create(place.file(file)).unwrap();
        let mut writer = ArrowWriter::try_new_with_options(out, rows.schema(), options).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
    }
    place.load(place.spec(&["a.parquet"])).await.unwrap();
    let append = LoadSpec { mode: LoadMode::Append, ..place.spec(&["b.parquet"]) };
    assert_eq!(place.load(append).await.unwrap().rows, 10);
    let both = LoadSpec { mode: LoadMode::Replace, ..place.spec(&["b.parquet", "a.parquet"]) };
    assert_eq!((place.load(both).await.unwrap().rows, place.rows()), (20, 20));
}

#[tokio::test]
async fn csv_errors_name_file_line_and_column() {
    let place = Cluster::new().await;
    let bad = |name: &str, text: &str| {
        std::fs::write(place.file(name), text).unwrap();
        let mut spec = place.spec(&[name]);
        spec.csv.schema_rows = 1;
        place.fault(spec)
    };
    assert_eq!(
        bad("a.csv", "k,s\n1,\"two\nlines\"\nx,y\n").await.message,
        "a.csv: line 4: expected Int64 in column k, got \"x\""
    );
    assert_eq!(bad("b.csv", "k,s\n1,a\n2,b,c\n").await.message, "b.csv: line 3: expected 2 fields, got 3");
    assert_eq!(bad("c.csv", "k,s\n1,a\n2\n").await.message, "c.csv: line 3: expected 2 fields, got 1");
    assert_eq!(bad("d.csv", "k,k\n1,2\n").await.message, "d.csv: two columns are named \"k\"");
    assert!(bad("e.csv", "").await.message.starts_with("e.csv: "));
    assert_eq!(place.rows(), 0);
}

#[tokio::test]
async fn csv_options_and_guesses_over_several_files() {
    let place = Cluster::new().await;
    std::fs::write(place.file("a.csv"), "k;s;e\n1;NULL;\n").unwrap();
    std::fs::write(place.file("b.csv"), "s;k;e\nx;2.5;\n").unwrap();
    let mut spec = place.spec(&["a.csv", "b.csv"]);
    spec.csv = CsvOptions { delimiter: Some(b';'), null: Some("NULL".into()), ..Default::default() };
    place.load(spec).await.unwrap();
    let schema = place.dataset().await.unwrap().schema;
    let types: Vec<_> = schema.fields().iter().map(|field| field.data_type().clone()).collect();
    assert_eq!(types, [DataType::Float64, DataType::Utf8View, DataType::Utf8View]);
    let nulls: usize = place
        .doors
        .iter()
        .flat_map(|door| door.stored.lock().values().flatten().cloned().collect::<Vec<_>>())
        .map(|batch| batch.column(1).null_count())
        .sum();
    assert_eq!(nulls, 1);
}

#[tokio::test]
async fn modes_keep_to_what_is_there() {
    let place = Cluster::new().await;
    write_parquet(place.file("a.parquet"), &batch(0, 100));
    let mut spec = place.spec(&["a.parquet"]);
    spec.mode = LoadMode::Append;
    assert_eq!(place.fault(spec.clone()).await.to_string(), "no dataset main.t\nhint: load without --append to make it");
    spec.mode = LoadMode::Create;
    spec.partitioning = Some(PartitionBy::Hash(vec!["k".into()]));
    spec.metadata.insert("origin".into(), "test".into());
    place.load(spec.clone()).await.unwrap();
    let fault = place.fault(spec.clone()).await;
    assert_eq!(
        fault.to_string(),
        "dataset main.t exists already\nhint: load with --append to add to it, or --replace to start anew"
    );

    spec.mode = LoadMode::Append;
    spec.metadata = [("more".to_owned(), "yes".to_owned())].into();
    place.load(spec.clone()).await.unwrap();
    let dataset = place.dataset().await.unwrap();
    assert_eq!((dataset.rows(), dataset.metadata.len(), place.rows()), (200, 2, 200));
    spec.partitioning = Some(PartitionBy::RoundRobin);
    assert_eq!(
        place.fault(spec.clone()).await.message,
        "dataset main.t has partitioning by hash of k, which appending cannot change"
    );

    spec.mode = LoadMode::Replace;
    place.load(spec).await.unwrap();
    let replaced = place.dataset().await.unwrap();
    assert_ne!(replaced.id, dataset.id);
    assert_eq!((replaced.rows(), place.rows()), (100, 100));
    place.loader.fleet().drop_dataset(&"t".parse().unwrap()).await.unwrap();
    assert_eq!((place.dataset().await, place.rows()), (None, 0));
    let fault = place.loader.fleet().drop_dataset(&"t".parse().unwrap()).await.unwrap_err();
    assert_eq!(fault.message, "no dataset main.t");
}

#[tokio::test]
async fn options_are_checked_against_the_columns() {
    let place = Cluster::new().await;
    write_parquet(place.file("a.parquet"), &batch(0, 100));
    let mut spec = place.spec(&["a.parquet"]);
    spec.partitioning = Some(PartitionBy::Hash(vec!["kk".into()]));
    assert_eq!(place.fault(spec.clone()).await.message, "no column kk; near: k");
    spec.partitioning = None;
    spec.sort = vec![SortKey { column: "x".into(), descending: false }];
    assert!(place.fault(spec.clone()).await.message.starts_with("no column x; near: "));
    spec.sort.clear();
    spec.encoding = Some("vortx".into());
    assert_eq!(place.fault(spec).await.message, "no encoding vortx; near: vortex");
    assert_eq!(place.fault(place.spec(&["none.parquet"])).await.blame, Blame::User);
    assert_eq!(place.fault(place.spec(&["none*.parquet"])).await.message, "no file matches none*.parquet");
}

#[tokio::test]
async fn ranges_are_chosen_from_all_of_a_sorted_file() {
    let place = Cluster::new().await;
    write_parquet(place.file("a.parquet"), &batch(0, ROWS));
    let mut spec = place.spec(&["a.parquet"]);
    spec.partitioning = Some(PartitionBy::Range("k".into()));
    place.load(spec).await.unwrap();
    let Partitioning::Range { bounds, .. } = place.dataset().await.unwrap().partitioning else { panic!("not by range") };
    let near =
        |value: &Value, wanted: i128| matches!(value, Value::Int(value) if (value - wanted).abs() < i128::from(ROWS) / 10);
    assert!(near(&bounds[0], i128::from(ROWS) / 3) && near(&bounds[1], i128::from(ROWS) * 2 / 3), "{bounds:?}");
    assert!(place.doors.iter().all(|door| door.rows() > ROWS as usize / 5));
}

#[tokio::test]
async fn damaged_files_are_named_and_leave_nothing() {
    let place = Cluster::new().await;
    write_parquet(place.file("good.parquet"), &batch(0, ROWS));
    let bytes = std::fs::read(place.file("good.parquet")).unwrap();
    std::fs::write(place.file("cut.parquet"), &bytes[..bytes.len() / 2]).unwrap();
    let mut lying = bytes.clone();
    lying[4..24].fill(0xff);
    std::fs::write(place.file("lying.parquet"), &lying).unwrap();
    let mut writer = StreamWriter::try_new(File::create(place.file("x.arrows")).unwrap(), &batch(0, 1).schema()).unwrap();
    writer.write(&batch(0, 100)).unwrap();
    drop(writer);
    std::fs::write(place.file("y.arrow"), b"ARROW1\0\0nonsense").unwrap();
    for file in ["cut.parquet", "lying.parquet", "x.arrows", "y.arrow"] {
        let fault = place.fault(place.spec(&["good.parquet", file])).await;
        assert!(fault.message.starts_with(file) && fault.blame == Blame::User, "{fault:?}");
    }
    assert_eq!((place.rows(), place.dataset().await), (0, None));
}

#[tokio::test]
async fn a_failing_drive_fails_the_load_as_a_whole() {
    let place = Cluster::new().await;
    write_parquet(place.file("a.parquet"), &batch(0, ROWS));
    place.load(place.spec(&["a.parquet"])).await.unwrap();
    place.doors[0].loads_fail.store(true, Ordering::Relaxed);
    let mut spec = place.spec(&["a.parquet"]);
    for mode in [LoadMode::Append, LoadMode::Replace] {
        spec.mode = mode;
        let fault = place.fault(spec.clone()).await;
        assert_eq!((fault.blame, fault.message.as_str()), (Blame::Device, "drive fake-3: no space left"));
        assert_eq!((place.rows(), place.dataset().await.unwrap().rows()), (ROWS as usize, ROWS as u64));
    }
}

#[tokio::test]
async fn commits_are_tried_again_when_another_host_was_first() {
    let place = Cluster::new().await;
    write_parquet(place.file("a.parquet"), &batch(0, 100));
    let mut spec = place.spec(&["a.parquet"]);
    place.load(spec.clone()).await.unwrap();
    spec.mode = LoadMode::Append;
    let home = &place.doors[1];
    home.conflicts.store(3, Ordering::Relaxed);
    place.load(spec.clone()).await.unwrap();
    assert_eq!(place.dataset().await.unwrap().rows(), 200);
    // For as long as changes are tried, which is half a minute.
    home.conflicts.store(u32::MAX, Ordering::Relaxed);
    assert_eq!(place.fault(spec.clone()).await.blame, Blame::Conflict);
    home.conflicts.store(0, Ordering::Relaxed);
    assert_eq!((place.dataset().await.unwrap().rows(), place.rows()), (200, 200));
    let (one, other) = tokio::join!(place.load(spec.clone()), place.load(spec.clone()));
    assert!(one.is_ok() && other.is_ok());
    assert_eq!((place.dataset().await.unwrap().rows(), place.rows()), (400, 400));
}

#[tokio::test]
async fn a_lost_answer_is_settled_by_looking() {
    let place = Cluster::new().await;
    write_parquet(place.file("a.parquet"), &batch(0, 100));
    let mut spec = place.spec(&["a.parquet"]);
    spec.partitioning = Some(PartitionBy::RoundRobin);
    let home = &place.doors[1];
    home.answers_lost.store(1, Ordering::Relaxed);
    place.load(spec.clone()).await.unwrap();
    spec.mode = LoadMode::Append;
    home.commits_lost.store(1, Ordering::Relaxed);
    assert_eq!(place.fault(spec.clone()).await.message, "drive fake-1: link lost");
    assert_eq!((place.rows(), place.dataset().await.unwrap().rows()), (100, 100));
    // Neither the swap nor the look is answered: the slices may be needed.
    home.commits_lost.store(2, Ordering::Relaxed);
    let fault = place.fault(spec.clone()).await;
    assert!(fault.message.ends_with("the change of main.t may have been made or not"), "{fault:?}");
    assert_eq!(place.rows(), 200);
    // Runs without rows, of the first load and of the append, are never named. The run with rows is claimed: its change may be on its
    // way still, until the next one comes before it.
    assert_eq!((place.loader.fleet().collect_orphans().await.unwrap(), place.rows()), (4, 200));
    place.load(spec).await.unwrap();
    assert_eq!(place.rows(), 300);
    assert!(place.loader.fleet().collect_orphans().await.unwrap() >= 1);
    assert_eq!((place.rows(), place.dataset().await.unwrap().rows()), (200, 200));
}

#[tokio::test]
async fn programs_load_batches() {
    let place = Cluster::new().await;
    let rows = || stream::iter((0..10).map(|part| Ok(batch(part * 1_000, 1_000)))).boxed();
    let mut spec = place.spec(&[]);
    spec.partitioning = Some(PartitionBy::Range("k".into()));
    let report = place.loader.load_batches(spec.clone(), batch(0, 1).schema(), rows()).await.unwrap();
    assert_eq!((report.rows, place.keys()), (10_000, (0..10_000).collect()));
    spec.mode = LoadMode::Append;
    let broken = stream::iter([Ok(batch(0, 10)), Err(Fault::new(Blame::User, "it broke"))]).boxed();
    let fault = place.loader.load_batches(spec, batch(0, 1).schema(), broken).await.unwrap_err();
    assert_eq!((fault.message.as_str(), place.rows()), ("it broke", 10_000));
}

#[tokio::test]
async fn a_load_that_is_given_up_leaves_nothing() {
    let place = Cluster::new().await;
    let endless = stream::iter([Ok(batch(0, 10_000))]).chain(stream::pending()).boxed();
    let load = place.loader.load_batches(place.spec(&[]), batch(0, 1).schema(), endless);
    let a_while = async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        done = load => panic!("it ended: {done:?}"),
        () = a_while => {}
    }
    assert_eq!((place.rows(), place.dataset().await), (0, None));
}

#[tokio::test]
async fn what_vortex_cannot_hold_is_stored_as_arrow() {
    let place = Cluster::new().await;
    let intervals: ArrayRef = Arc::new(arrow::array::IntervalYearMonthArray::from(vec![1, 2]));
    let rows = RecordBatch::try_from_iter([("length", intervals)]).unwrap();
    let load = |spec| place.loader.load_batches(spec, rows.schema(), stream::iter([Ok(rows.clone())]).boxed());
    let mut spec = place.spec(&[]);
    spec.encoding = Some("vortex".into());
    let fault = load(spec.clone()).await.unwrap_err();
    assert_eq!(
        (fault.blame, fault.hint.as_deref()),
        (Blame::Unsupported, Some("try --encoding arrow, or leave the option out"))
    );
    spec.encoding = None;
    let report = load(spec).await.unwrap();
    assert_eq!(report.encoding, "arrow");
    assert!(report.note.is_some_and(|note| note.starts_with("stored as arrow: column \"length\" of type Interval")));
}

#[tokio::test]
async fn empty_sources_make_empty_datasets() {
    let place = Cluster::new().await;
    write_parquet(place.file("a.parquet"), &batch(0, 0));
    let report = place.load(place.spec(&["a.parquet"])).await.unwrap();
    assert_eq!((report.rows, place.dataset().await.unwrap().partitions.len()), (0, 3));
    assert!(place.dataset().await.unwrap().partitions.iter().all(|partition| partition.runs.is_empty()));
}

#[tokio::test]
async fn hosts_refuse_drives_that_do_not_fit() {
    let doors = vec![FakeDoor::new(1), FakeDoor::new(2)];
    let twice = vec![doors[0].clone(), doors[0].clone()];
    assert_eq!(connect(&twice).await.unwrap_err().message, "fake-1 and fake-1 are the same drive 0000000000000001");
    doors[1].protocol.store(99, Ordering::Relaxed);
    let fault = connect(&doors).await.unwrap_err();
    assert!(fault.message.starts_with("drive fake-2: ") && fault.message.contains("99"), "{fault:?}");
    doors.iter().for_each(|door| door.is_down.store(true, Ordering::Relaxed));
    let fault = connect(&doors).await.unwrap_err();
    assert_eq!(fault.message, "drive fake-1: does not answer (and so for fake-2)");
}

#[tokio::test]
async fn datasets_of_absent_drives_are_named() {
    let place = Cluster::new().await;
    write_parquet(place.file("a.parquet"), &batch(0, ROWS));
    place.load(place.spec(&["a.parquet"])).await.unwrap();
    let fewer = connect(&place.doors[1..]).await.unwrap();
    let name = "t".parse().unwrap();
    let snapshot = fewer.fleet().snapshot().await.unwrap();
    let fault = snapshot.readable(&name).unwrap_err();
    assert_eq!(
        (fault.blame, fault.message.as_str()),
        (Blame::Device, "dataset main.t needs partition 2: drive 0000000000000003 is not connected")
    );
    let mut spec = place.spec(&["a.parquet"]);
    spec.mode = LoadMode::Append;
    let fault = fewer.load(spec, Arc::new(|_| ())).await.unwrap_err();
    assert_eq!(fault.message, "cannot load main.t: drive 0000000000000003 is not connected");
    assert_eq!(snapshot.find(&"tt".parse().unwrap()).unwrap_err().message, "no dataset main.tt; near: main.t");
    assert_eq!(snapshot.find(&"other.x".parse().unwrap()).unwrap_err().message, "no dataset other.x; there is no domain other");
}

/// The columns of a dataset, the first of them under another name.
fn with_first_renamed(dataset: &Dataset, name: &str) -> Vec<AlteredColumn> {
    let fields = dataset.schema.fields().iter().enumerate();
    let column = |(place, field): (usize, &Arc<arrow::datatypes::Field>)| {
        let new = if place == 0 { name } else { field.name() };
        AlteredColumn { field: field.as_ref().clone().with_name(new), from: AlteredFrom::Own(field.name().clone()) }
    };
    fields.map(column).collect()
}

#[tokio::test]
async fn rows_for_columns_that_were_others_are_a_conflict() {
    let place = Cluster::new().await;
    let name: DatasetName = "t".parse().unwrap();
    let spec = LoadSpec { partitioning: Some(PartitionBy::RoundRobin), ..place.spec(&[]) };
    place.loader.load_batches(spec, batch(0, 100).schema(), stream::iter([Ok(batch(0, 100))]).boxed()).await.unwrap();
    let before = place.dataset().await.unwrap();
    let (started, begun) = tokio::sync::oneshot::channel();
    let (go, gone) = tokio::sync::oneshot::channel();
    let rows = stream::once(async move {
        started.send(()).unwrap();
        gone.await.unwrap();
        Ok(batch(100, 100))
    });
    let append = LoadSpec { mode: LoadMode::Append, ..place.spec(&[]) };
    let appending = place.loader.load_batches(append, batch(0, 1).schema(), rows.boxed());
    let altering = async {
        begun.await.unwrap();
        let columns = with_first_renamed(&before, "renamed");
        assert!(place.loader.alter(&name, &before, &before, &columns).await.unwrap());
        // Of two that change what they read, the second one has to read it again.
        let fault = place.loader.alter(&name, &before, &before, &columns).await.unwrap_err();
        assert_eq!(fault.blame, Blame::Conflict);
        go.send(()).unwrap();
    };
    let (appended, ()) = tokio::join!(appending, altering);
    let fault = appended.unwrap_err();
    assert_eq!((fault.blame, fault.message.as_str()), (Blame::Conflict, "the columns of main.t were changed during the load"));
    let late = LoadSpec { mode: LoadMode::Append, over: Some(Arc::new(before.clone())), ..place.spec(&[]) };
    let rows = stream::iter([Ok(batch(100, 100))]).boxed();
    let fault = place.loader.load_batches(late, batch(0, 1).schema(), rows).await.unwrap_err();
    assert_eq!((fault.blame, fault.message.as_str()), (Blame::Conflict, "the columns of main.t were changed meanwhile"));
    let after = place.dataset().await.unwrap();
    assert_eq!((after.id, &after.partitions, after.rows(), place.rows()), (before.id, &before.partitions, 100, 100));
    assert_eq!(after.schema.field(0).name(), "renamed");
}

#[tokio::test]
async fn columns_that_cannot_be_read_so_are_left_to_others() {
    let place = Cluster::new().await;
    let name: DatasetName = "t".parse().unwrap();
    let spec = LoadSpec { partitioning: Some(PartitionBy::RoundRobin), ..place.spec(&[]) };
    let nullable = arrow::datatypes::Field::new("n", DataType::Int64, true);
    let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    let schema = Arc::new(arrow::datatypes::Schema::new(vec![nullable.clone()]));
    let rows = RecordBatch::try_new(Arc::clone(&schema), vec![values]).unwrap();
    place.loader.load_batches(spec, schema, stream::iter([Ok(rows)]).boxed()).await.unwrap();
    let before = place.dataset().await.unwrap();
    // The drives here tell nothing of values.
    let mut known = before.clone();
    let one_null = pithead_model::ColumnSummary { nulls: 1, ..Default::default() };
    known.partitions.iter_mut().for_each(|partition| partition.columns = vec![one_null.clone()]);
    let own = |field: arrow::datatypes::Field| AlteredColumn { field, from: AlteredFrom::Own("n".to_owned()) };
    let new = |nullable: bool, value: ArrayRef| AlteredColumn {
        field: arrow::datatypes::Field::new("m", value.data_type().clone(), nullable),
        from: AlteredFrom::Value(value),
    };
    let nothing: ArrayRef = Arc::new(Int64Array::from(vec![None::<i64>]));
    let not_a_number: ArrayRef = Arc::new(arrow::array::Float64Array::from(vec![f64::NAN]));
    for columns in [
        // A NULL is there, a type is no wider, a default is NULL where none may be, and one is no value of a manifest.
        vec![own(nullable.clone().with_nullable(false))],
        vec![own(nullable.clone().with_data_type(DataType::Int32))],
        vec![own(nullable.clone()), new(false, Arc::clone(&nothing))],
        vec![own(nullable.clone()), new(true, not_a_number)],
    ] {
        assert!(!place.loader.alter(&name, &known, &known, &columns).await.unwrap(), "{columns:?}");
    }
    assert_eq!(place.dataset().await.unwrap(), before);
    let zero: ArrayRef = Arc::new(arrow::array::Float64Array::from(vec![-0.0]));
    let columns = [own(nullable), new(true, zero), new(true, nothing)].map(|column| column);
    let columns =
        [&columns[..2], &[AlteredColumn { field: columns[2].field.clone().with_name("o"), ..columns[2].clone() }]].concat();
    assert!(place.loader.alter(&name, &before, &before, &columns).await.unwrap());
    let summaries = place.dataset().await.unwrap().columns();
    assert_eq!((summaries[1].nulls, summaries[2].nulls), (0, 2));
    assert_eq!(summaries[1].min, Some(Value::Float(-0.0)));
}
