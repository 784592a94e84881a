//! Objects of buckets that drives attach in place: objects that change, servers that fail, what is kept and what is not.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::ipc::writer::FileWriter;
use futures::StreamExt;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use pithead_e2e::{Answers, Bucket, DriveProcess, block_on, collect, pithead, refusal};
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_model::Blame;
use tempfile::TempDir;

fn batch(number: i64, rows: usize) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![number; rows]));
    let places: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
    RecordBatch::try_from_iter([("n", numbers), ("place", places)]).unwrap()
}

/// Writes a file of row groups of a thousand, under another name first.
fn write(path: &Path, number: i64, rows: usize) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let batch = batch(number, rows);
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(1_000)).build();
    let partial = path.with_extension("partial");
    let mut writer = ArrowWriter::try_new(File::create(&partial).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    std::fs::rename(partial, path).unwrap();
}

fn write_arrow(path: &Path, number: i64, rows: usize) {
    let batch = batch(number, rows);
    let mut writer = FileWriter::try_new(File::create(path).unwrap(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
}

fn start(directory: &Path, bucket: &Bucket, more: &[&str]) -> DriveProcess {
    let arguments = [&["--attach", "s3://lake/data"], more].concat();
    DriveProcess::start_with(&directory.join("drive"), &arguments, bucket.environment())
}

/// A bucket with so many rows, and a drive that attaches it.
fn served(rows: usize, more: &[&str]) -> (TempDir, Bucket, DriveProcess) {
    let directory = tempfile::tempdir().unwrap();
    write(&directory.path().join("lake/data/t.parquet"), 1, rows);
    let bucket = Bucket::serve(directory.path());
    let drive = start(directory.path(), &bucket, more);
    (directory, bucket, drive)
}

async fn host(drive: &DriveProcess) -> Engine {
    connect(&Target::Drives(vec![drive.address().to_owned()]), &EmbedOptions::default()).await.unwrap()
}

async fn rows(engine: &Engine, statement: &str) -> Vec<Vec<String>> {
    let session = engine.host.session();
    for setting in ["SET pithead.summary_cache = off", "SET pithead.slice_cache = 0"] {
        collect(&session, setting).await.unwrap();
    }
    collect(&session, statement).await.unwrap_or_else(|fault| panic!("{statement}: {fault}")).rows
}

const SUM: &str = "SELECT count(*), sum(n), sum(place) FROM t";

#[test]
fn a_bucket_is_asked_as_a_directory_is() {
    block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("lake/data");
        for year in [2024, 2025, 2026] {
            write(&data.join(format!("t/year={year}/a b.parquet")), year - 2020, 3_000);
        }
        write_arrow(&data.join("t/year=2026/b.arrow"), 100, 1_000);
        write(&data.join("u.parquet"), 1, 10);
        write(&directory.path().join("lake/elsewhere.parquet"), 1, 10);
        let bucket = Bucket::serve(directory.path());
        let mut drive = start(directory.path(), &bucket, &[]);
        let engine = host(&drive).await;
        let by_year = "SELECT year, count(*), sum(n) FROM t WHERE year > 2024 GROUP BY year ORDER BY year";
        let expected = [["2025", "3000", "15000"], ["2026", "4000", "118000"]];
        assert_eq!(rows(&engine, by_year).await, expected);
        assert_eq!(rows(&engine, "SELECT count(*) FROM u").await, [["10"]]);
        let fault = refusal(&engine.host.session(), "SELECT * FROM elsewhere").await;
        assert_eq!(fault.blame, Blame::User, "{fault}");
        let described = collect(&engine.host.session(), SUM).await.unwrap();
        let fetched = bucket.requests();
        assert_eq!(rows(&engine, SUM).await, described.rows);
        assert_eq!(rows(&engine, by_year).await, expected);
        assert_eq!(bucket.requests(), fetched, "what was fetched is kept");
        drive.restart();
        assert_eq!(rows(&host(&drive).await, by_year).await, expected);
        assert!(bucket.requests() > fetched, "but not longer than the process");
        let names = std::fs::read_dir(drive.data().join("tmp")).unwrap();
        assert!(names.flatten().all(|entry| entry.path().is_dir()), "blocks have no names");
        write(&data.join("t/year=2027/c.parquet"), 1, 5);
        std::fs::remove_file(data.join("t/year=2024/a b.parquet")).unwrap();
        assert_eq!(rows(&engine, "SELECT count(*), max(year) FROM t").await, [["7005", "2027"]], "changes are seen");
        engine.shutdown().await;
    });
}

#[test]
fn an_answer_is_of_one_object_or_an_error() {
    block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lake/data/t.parquet");
        write(&path, 1, 3_000);
        let bucket = Bucket::serve(directory.path());
        let drive = start(directory.path(), &bucket, &["--attach-cache", "256KiB"]);
        let stop = Arc::new(AtomicBool::new(false));
        let writer = std::thread::spawn({
            let (stop, path) = (Arc::clone(&stop), path.clone());
            move || {
                let mut written = 0;
                while !stop.load(Ordering::Relaxed) {
                    write(&path, written % 7, 3_000);
                    written += 1;
                    std::thread::sleep(Duration::from_millis(15));
                }
                written
            }
        });
        let engine = host(&drive).await;
        let session = engine.host.session();
        for statement in ["SET pithead.summary_cache = off", "SET pithead.slice_cache = 0"] {
            collect(&session, statement).await.unwrap();
        }
        let (mut answered, mut refused) = (0, 0);
        for nth in 0..120 {
            let level = format!("SET pithead.level = {}", ["0", "1", "2", "auto", "'random:3'"][nth % 5]);
            collect(&session, &level).await.unwrap();
            match collect(&session, "SELECT count(*), min(n), max(n), count(DISTINCT n) FROM t WHERE place >= 0").await {
                Ok(table) => {
                    let row = &table.rows[0];
                    assert_eq!((row[0].as_str(), &row[1], row[3].as_str()), ("3000", &row[2], "1"), "a mix of two objects");
                    answered += 1;
                }
                Err(fault) => {
                    assert!(matches!(fault.blame, Blame::Conflict | Blame::User | Blame::Device), "{fault}");
                    refused += 1;
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        let written = writer.join().unwrap();
        assert!(written > 10 && answered > 0, "{written} objects, {answered} answers, {refused} errors");
        write(&path, 5, 10);
        assert_eq!(rows(&engine, "SELECT count(*), sum(n) FROM t").await, [["10", "50"]]);
        engine.shutdown().await;
    });
}

#[test]
fn a_server_that_fails_harms_no_other_query() {
    block_on(async {
        let (_directory, bucket, drive) = served(3_000, &["--attach-cache", "0", "--threads", "1"]);
        let engine = host(&drive).await;
        let session = engine.host.session();
        collect(&session, "CREATE TABLE here AS SELECT * FROM t").await.unwrap();
        for (answers, blame, expected) in [
            (Answers::Status(403), Blame::Device, "403"),
            (Answers::Status(404), Blame::Conflict, "removed"),
            (Answers::Status(503), Blame::Device, "503"),
            (Answers::Cut, Blame::Device, "broke off"),
            (Answers::Shifted, Blame::Device, "other bytes"),
            (Answers::Whole, Blame::Device, "no parts"),
        ] {
            bucket.answers(answers, Answers::Well);
            for level in ["0", "1", "2", "3"] {
                let other = engine.host.session();
                collect(&other, "SET pithead.summary_cache = off").await.unwrap();
                collect(&other, "SET pithead.slice_cache = 0").await.unwrap();
                collect(&other, &format!("SET pithead.level = {level}")).await.unwrap();
                let fault = refusal(&other, "SELECT sum(n) FROM t WHERE place > 5").await;
                assert_eq!(fault.blame, blame, "{answers:?} at level {level}: {fault}");
                let text = fault.to_string();
                assert!(text.contains("s3://lake/data/t.parquet") && text.contains(expected), "{answers:?}: {text}");
                assert!(!text.contains("secret"), "{text}");
            }
            assert_eq!(rows(&engine, "SELECT sum(n) FROM here").await, [["3000"]]);
        }
        bucket.answers(Answers::Silence, Answers::Well);
        let hanging = engine.host.session();
        let asked = tokio::spawn(async move { collect(&hanging, "SELECT sum(place) FROM t").await.map(|table| table.rows) });
        tokio::time::sleep(Duration::from_millis(300)).await;
        for _ in 0..10 {
            assert_eq!(rows(&engine, "SELECT sum(n) FROM here").await, [["3000"]]);
            assert!(!asked.is_finished(), "it waited for the server");
        }
        asked.abort();
        bucket.answers(Answers::Status(503), Answers::Status(503));
        let fault = refusal(&session, "SELECT sum(n) FROM t").await;
        assert!(fault.to_string().contains("s3://lake/data"), "the dataset is refused, and not forgotten: {fault}");
        assert_eq!(rows(&engine, "SELECT sum(n) FROM here").await, [["3000"]]);
        bucket.answers(Answers::Well, Answers::Well);
        until_it_answers(&engine, SUM).await;
        engine.shutdown().await;
    });
}

async fn until_it_answers(engine: &Engine, statement: &str) {
    let (session, start) = (engine.host.session(), Instant::now());
    while let Err(fault) = collect(&session, statement).await {
        assert!(start.elapsed() < Duration::from_secs(60), "{statement}: {fault}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[test]
fn queries_that_are_given_up_keep_no_other_from_the_drive() {
    block_on(async {
        let (_directory, bucket, drive) = served(3_000, &["--attach-cache", "0", "--threads", "1"]);
        let engine = host(&drive).await;
        collect(&engine.host.session(), "CREATE TABLE here AS SELECT * FROM t").await.unwrap();
        bucket.answers(Answers::Silence, Answers::Well);
        for _ in 0..6 {
            let before = bucket.requests();
            let hanging = engine.host.session();
            let asked = tokio::spawn(async move { collect(&hanging, "SELECT sum(place) FROM t").await.map(drop) });
            // The first ones ask the server, the others wait for these.
            for _ in 0..30 {
                if bucket.requests() > before {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            asked.abort();
        }
        // Each of them asks three times, for ten seconds each.
        let answer = tokio::time::timeout(Duration::from_secs(20), rows(&engine, "SELECT sum(n) FROM here")).await;
        assert_eq!(answer.expect("it waits for no server"), [["3000"]]);
        engine.shutdown().await;
    });
}

#[test]
fn a_query_that_runs_goes_on_where_the_bucket_is_listed_no_more() {
    const ROWS: usize = 1_000_000;
    block_on(async {
        let (_directory, bucket, drive) = served(ROWS, &["--attach-cache", "0"]);
        let engine = host(&drive).await;
        let session = engine.host.session();
        collect(&session, "SET pithead.level = 3").await.unwrap();
        let mut answer = session.run("SELECT n, place FROM t WHERE place >= 0").await.unwrap().rows;
        let mut count = answer.next().await.unwrap().unwrap().num_rows();
        bucket.answers(Answers::Well, Answers::Status(503));
        let fault = refusal(&engine.host.session(), SUM).await;
        assert!(fault.to_string().contains("503"), "{fault}");
        let fetched = bucket.requests();
        while let Some(batch) = answer.next().await {
            count += batch.unwrap_or_else(|error| panic!("{error}")).num_rows();
        }
        assert!(bucket.requests() > fetched, "else all was there before");
        assert_eq!(count, ROWS);
        bucket.answers(Answers::Well, Answers::Well);
        until_it_answers(&engine, SUM).await;
        engine.shutdown().await;
    });
}

#[test]
fn what_cannot_be_listed_is_refused_by_all_its_names_and_after_a_restart() {
    block_on(async {
        let directory = tempfile::tempdir().unwrap();
        write(&directory.path().join("lake/data/t/a.parquet"), 1, 3_000);
        let bucket = Bucket::serve(directory.path());
        let plain = DriveProcess::start_with(&directory.path().join("drive"), &[], bucket.environment());
        let engine = host(&plain).await;
        for statement in [
            "CREATE TABLE t (n BIGINT NOT NULL, place BIGINT NOT NULL)",
            "INSERT INTO t VALUES (7, 1), (8, 2)",
            "CREATE TABLE here AS SELECT * FROM t",
        ] {
            collect(&engine.host.session(), statement).await.unwrap();
        }
        engine.shutdown().await;
        drop(plain);
        bucket.answers(Answers::Well, Answers::Status(503));
        let refused = refused_start(directory.path(), &bucket);
        assert!(refused.contains("503") && refused.contains("NAME=s3://lake/data"), "{refused}");
        bucket.answers(Answers::Well, Answers::Well);
        let names = ["--attach", "u=s3://lake/data", "--attach", "w=s3://lake/data"];
        let mut drive = start(directory.path(), &bucket, &names);
        for is_listed in [true, false, false, true] {
            bucket.answers(Answers::Well, if is_listed { Answers::Well } else { Answers::Status(503) });
            let engine = host(&drive).await;
            for (name, count) in [("t", "3002"), ("u", "3000"), ("w", "3000"), ("here", "2")] {
                let statement = format!("SELECT count(*) FROM {name}");
                if is_listed || name == "here" {
                    until_it_answers(&engine, &statement).await;
                    assert_eq!(rows(&engine, &statement).await, [[count]], "{name}");
                } else {
                    let fault = refusal(&engine.host.session(), &statement).await;
                    assert!(fault.to_string().contains("503"), "{name}: {fault}");
                }
            }
            engine.shutdown().await;
            if !is_listed {
                drive.restart();
            }
        }
    });
}

/// What a drive says that does not start.
fn refused_start(directory: &Path, bucket: &Bucket) -> String {
    let mut command = Command::new(pithead());
    command.args(["drive", "serve", "--listen", "127.0.0.1:0", "--attach", "s3://lake/data", "--data"]);
    let ended = command.arg(directory.join("drive")).envs(bucket.environment()).output().unwrap();
    assert!(!ended.status.success(), "it has started");
    String::from_utf8(ended.stderr).unwrap()
}

#[test]
fn files_of_one_name_at_a_web_server_are_two() {
    block_on(async {
        let directory = tempfile::tempdir().unwrap();
        write(&directory.path().join("open/t.parquet"), 1, 3_000);
        let bucket = Bucket::serve(directory.path());
        let at = |version: u32| format!("t={}/open/t.parquet?version={version}", bucket.url());
        let arguments = ["--attach", &at(1), "--attach", &at(2), "--attach", &at(1)];
        let drive = DriveProcess::start_with(&directory.path().join("drive"), &arguments, bucket.environment());
        let engine = host(&drive).await;
        assert_eq!(rows(&engine, "SELECT count(*), sum(n) FROM t").await, [["6000", "6000"]]);
        engine.shutdown().await;
    });
}
